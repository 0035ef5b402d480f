"""`assay ladder`, `assay bisect`, `assay shrink` and `assay repro`: where one case goes wrong."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.text import Text

from assay.harness.backends.registry import BackendError, resolve
from assay.harness.case import MODES, SIZES, Case
from assay.harness.cli.command_options import check_device
from assay.harness.discover import DiscoverError, discover
from assay.harness.locate import commits  # fmt: skip
from assay.harness.locate.bisect import Bisected, Bisection, command
from assay.harness.locate.commits import HistoryError, by_number, by_verdict, checkout, first_bad, history
from assay.harness.locate.ladder import REPEATS, Climb, Found, NothingFails, Step
from assay.harness.locate.profile_worker import FACTOR, FLOOR, WORKER, bars, first_that_leaves, known
from assay.harness.locate.repro import Failing, repro_of
from assay.harness.locate.rungs import ladder_of
from assay.harness.locate.runner import TIMEOUT_S, Runner
from assay.harness.locate.shrinking.shrink import Budget, NotShrunk, Shrunk, shrunk
from assay.harness.processes.child import sharing
from assay.harness.processes.worker import ask
from assay.harness.report import documents as report
from assay.harness.report import progress

ROOT = Path(__file__).resolve().parents[2]
ONE_CASE = (
    click.argument("name", metavar="CASE"),
    click.option("--backend", default="assay", show_default=True, metavar="NAME|MODULE:ATTR"),
    click.option("--mode", type=click.Choice(MODES), help="Default: train, where the case has it."),
    click.option("--size", type=click.Choice(SIZES), default="tiny", show_default=True),
    click.option("--seed", type=int, default=0, show_default=True),
    click.option("--repeats", type=click.IntRange(min=1), default=REPEATS, show_default=True, help="Runs of a rung."),
    click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), default=TIMEOUT_S,
                 show_default=True, metavar="S", help="Seconds that one run may take."),
    click.option("--json", "json_path", type=click.Path(path_type=Path), is_flag=False, flag_value=report.STDOUT,
                 metavar="[PATH]", help="Write what was found here; without PATH to standard output."),
)  # fmt: skip


DEVICE = click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)


def of_one_case(function: Callable[..., Any]) -> Callable[..., Any]:
    """The argument and the options of a command about one case."""
    for option in reversed(ONE_CASE):
        function = option(function)
    return function


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """What the commands have in common."""

    case: Case
    backend: str
    mode: str
    size: str
    seed: int
    repeats: int
    timeout_s: float
    json_path: Path | None
    device: str = "cpu"

    @staticmethod
    def of(name: str, backend: str, mode: str | None, **rest: Any) -> Asked:
        """Raises: click.UsageError for a case, backend or device that does not exist, and for a mode that the case
        lacks."""
        check_device(rest.get("device", "cpu"))
        check_backend(backend)
        case = one_case(name)
        chosen = mode or case.modes[-1]
        if chosen not in case.modes:
            raise click.UsageError(f"{case.name} has no mode {chosen}; it has {', '.join(case.modes)}")
        return Asked(case, backend, chosen, **rest)

    def runner(self) -> Runner:
        return Runner(self.case, self.size, self.seed, self.timeout_s, device=self.device)

    def climbed(self, runner: Runner, console: Console, runs_all: bool = False) -> Found:
        """Raises: NothingFails."""
        rungs = ladder_of(self.backend, self.device)
        climb = Climb(runner, self.mode, rungs, self.repeats, lambda step: console.print(step_line(step)))
        return climb.find(runs_all)


def check_backend(name: str) -> None:
    """Raises: click.UsageError for a backend that does not exist."""
    try:
        resolve(name)
    except BackendError as error:
        raise click.UsageError(str(error)) from error


def one_case(name: str) -> Case:
    """Raises: click.UsageError where the name is of no case, or of several."""
    try:
        cases = discover((name,))
    except DiscoverError as error:
        raise click.UsageError(str(error)) from error
    if len(cases) > 1:
        raise click.UsageError(f"{name} holds {len(cases)} cases, and one is asked for: {cases[0].name}, ...")
    return cases[0]


def last_mode(name: str) -> str:
    """The mode of a case where nobody says which. One that is not there any more is trained."""
    try:
        return discover((name,))[0].modes[-1]
    except DiscoverError:
        return MODES[-1]


def step_line(step: Step) -> Text:
    """`partitioned  3 of 3 differ: values at output[0]`"""
    told = f"  {told_of(step)}" if step.failures else ""
    if step.is_unknown:
        word, style = "not known: its time was up", "yellow"
    elif step.failures:
        word, style = f"{step.failures} of {step.runs} differ", "bold red"
    else:
        word, style = "as eager", "green"
    return Text(f"{step.rung.name:<30}  ") + Text(word, style=style) + Text(told[:160])


def told_of(step: Step) -> str:
    """What differed first."""
    found = step.row.differences
    return (
        f"{found[0].field} at {found[0].path}" if found else f"{step.row.verdict}: {step.row.detail.split(chr(10))[0]}"
    )


def show_found(console: Console, found: Found, origin: str) -> None:
    below = f"; {found.below.rung.name} is as eager" if found.below else ""
    sure = f"confidence {found.confidence:.1%}" if found.below else "nothing is below it"
    console.print(Text(f"first rung that differs: {found.first.rung.name}{below} ({sure})", style="bold"))
    if found.below is not None:
        console.print(Text(command_of(found, origin, found.below)), soft_wrap=True)
    console.print(Text(command_of(found, origin, found.first)), soft_wrap=True)


def command_of(found: Found, origin: str, step: Step) -> str:
    """How a user runs the case on a rung, which may have a mode of its own."""
    return command(found, origin, step.rung.backend, step.row.mode)


def as_data(found: Found) -> dict[str, Any]:
    """The JSON document of a ladder."""
    steps = [
        {"rung": s.rung.name, "backend": s.rung.backend, "runs": s.runs, "failures": s.failures,
         "verdict": s.row.verdict, "detail": s.row.detail} for s in found.steps
    ]  # fmt: skip
    return report.finite({  # type: ignore[no-any-return]
        "schema": 1, "case": found.case, "mode": found.mode, "backend": found.backend, "kind": str(found.kind),
        "first": found.first.rung.name, "below": found.below and found.below.rung.name, "rate": found.rate,
        "confidence": found.confidence, "steps": steps,
    })  # fmt: skip


def nothing(console: Console, error: NothingFails) -> NoReturn:
    console.print(Text(str(error), style="green"))
    sys.exit(0)


@click.command()
@of_one_case
@DEVICE
@click.option("--all", "runs_all", is_flag=True, help="Run every rung, and not only those that halving needs.")
def ladder(name: str, backend: str, mode: str | None, runs_all: bool, **rest: Any) -> None:
    """Find the first rung on which CASE differs from eager: eager, Dynamo, each state of the compiler, the whole.

    Exit 0: the whole backend is as eager. Exit 1: a rung differs.
    """
    asked = Asked.of(name, backend, mode, **rest)
    console = progress.terminal_beside(asked.json_path)
    with asked.runner() as runner:
        try:
            found = asked.climbed(runner, console, runs_all)
        except NothingFails as error:
            nothing(console, error)
    show_found(console, found, asked.case.origin)
    if asked.json_path is not None:
        report.write_json(asked.json_path, as_data(found))
    sys.exit(1)


@click.command()
@of_one_case
@DEVICE
@click.option("--commits", "commit_range", metavar="GOOD..BAD", help="Instead, find the commit at which it began.")
@click.option("--slower", type=click.Choice(["call", "compile"]), help="--commits: what got slower, not what differs.")
@click.option("--repository", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
              help="--commits: the checkout whose history it is.")  # fmt: skip
def bisect(
    name: str, backend: str, mode: str | None, commit_range: str | None, slower: str | None, repository: Path | None,
    **rest: Any,
) -> None:  # fmt: skip
    """Find the graph, half, node, fusion or kernel with which CASE begins to differ, and two commands one step apart.

    With --commits the first bad commit is found. Each revision runs CASE by its own `assay run`, or by this one where
    the history is of a backend of yours, as often as --repeats says. One that cannot run it is skipped. Exit 0: the
    whole backend is as eager. Exit 1: a rung or a commit differs.
    """
    if commit_range is not None:
        what = commits.Asked(name, mode or last_mode(name), backend, rest["repeats"])
        sys.exit(bisect_commits(what, commit_range, slower, repository or ROOT))
    if unused := [option for option, value in (("--slower", slower), ("--repository", repository)) if value]:
        raise click.UsageError(f"{unused[0]} is for a history: give --commits GOOD..BAD too")
    asked = Asked.of(name, backend, mode, **rest)
    console = progress.terminal_beside(asked.json_path)
    with asked.runner() as runner:
        try:
            found = asked.climbed(runner, console)
        except NothingFails as error:
            nothing(console, error)
        done = Bisection(runner, found, lambda text: console.print(Text(text), soft_wrap=True)).find()
    show_bisected(console, done, asked.case.origin)
    if asked.json_path is not None:
        places = [dataclasses.asdict(place) for place in done.places]
        pair = dict(zip(("good", "bad"), done.commands(asked.case.origin), strict=True))
        report.write_json(asked.json_path, as_data(found) | {"places": places, "difference": done.difference} | pair)
    sys.exit(1)


def bisect_commits(what: commits.Asked, commit_range: str, slower: str | None, repository: Path) -> int:
    """Says the first bad commit; gives the exit status. Raises: click.UsageError for a range without a border."""
    good, dots, bad = commit_range.partition("..")
    if not dots:
        raise click.UsageError(f"--commits {commit_range!r}: it is GOOD..BAD")
    try:
        revisions = history(repository, good, bad or "HEAD")
        with checkout(repository) as at:
            ends = (revisions[0], revisions[-1])
            attempt = by_verdict(at, what, click.echo) if slower is None else by_number(at, what, slower, ends)
            found = first_bad(revisions, attempt, click.echo)
    except HistoryError as error:
        raise click.UsageError(str(error)) from error
    click.echo(found.sentence())
    return 1


def show_bisected(console: Console, done: Bisected, origin: str) -> None:
    good, bad = done.commands(origin)
    console.print(Text(f"first rung that differs: {done.found.first.rung.name}", style="bold"))
    console.print(Text(f"as eager:  {good}\ndiffers:   {bad}"), soft_wrap=True)
    if done.difference:
        console.print(Text(done.difference), soft_wrap=True)


SHRINKING = click.option("--limit", "limit_s", type=click.FloatRange(min=0, min_open=True), default=60.0,
                         show_default=True, metavar="S", help="Seconds to spend on making it smaller.")  # fmt: skip


def found_and_shrunk(asked: Asked, console: Console, limit_s: float) -> tuple[Found, Shrunk]:
    """Raises: NothingFails; NotShrunk."""
    with asked.runner() as runner:
        found = asked.climbed(runner, console)
    show_found(console, found, asked.case.origin)
    try:
        budget = Budget(limit_s)
        return found, shrunk(asked.case, found, asked.backend, size=asked.size, seed=asked.seed, budget=budget)
    except NotShrunk as error:
        if asked.json_path is not None:
            report.write_json(asked.json_path, as_data(found) | {"why": str(error)})
        raise


@click.command()
@of_one_case
@click.option("--factor", type=click.FloatRange(min=1), default=FACTOR, show_default=True,
              help="How many times eager's error counts.")  # fmt: skip
def profile(name: str, backend: str, mode: str | None, factor: float, **rest: Any) -> None:
    """Show how the error against float64 grows along the graphs of CASE, in eager and on the backend.

    Every node is computed as a result of its own. So a fault that needs fusion may not show. Exit 1: some node's error
    leaves eager's by the factor.
    """
    asked = Asked.of(name, backend, mode, **rest)
    console = progress.terminal_beside(asked.json_path)
    request = {"origin": asked.case.origin, "case": asked.case.name, "mode": asked.mode, "size": asked.size,
               "seed": asked.seed, "backend": asked.backend}  # fmt: skip
    answer = ask(WORKER, request, asked.timeout_s, sharing())
    if answer.failure:
        raise click.ClickException(": ".join(answer.failure))
    leaves = first_that_leaves(answer.lines, factor, FLOOR)
    table = progress.table(("node", "against float64"), ("eager", "ours"))
    for place, (line, bar) in enumerate(zip(answer.lines, bars(answer.lines), strict=True)):
        marked = f"{line['node']}{'   <- leaves eager' if place == leaves else ''}"
        table.add_row(marked, bar, f"{known(line['eager']):.1e}", f"{known(line['ours']):.1e}")
    console.print(table)
    if asked.json_path is not None:
        report.write_json(asked.json_path, report.finite({"schema": 1, "nodes": answer.lines, "leaves": leaves}))
    sys.exit(0 if leaves is None else 1)


@click.command()
@of_one_case
@SHRINKING
def shrink(name: str, backend: str, mode: str | None, limit_s: float, **rest: Any) -> None:
    """Make CASE smaller as long as it fails in the same way, at the first rung that differs.

    Exit 0: the whole backend is as eager. Exit 1: it differs, and the smallest program is shown.
    """
    asked = Asked.of(name, backend, mode, **rest)
    console = progress.terminal_beside(asked.json_path)
    try:
        found, least = found_and_shrunk(asked, console, limit_s)
    except NothingFails as error:
        nothing(console, error)
    except NotShrunk as error:
        raise click.ClickException(f"{asked.case.name} is not made smaller: {error}") from error
    console.print(Text(least.source), soft_wrap=True)
    console.print(Text(size_of(least, found.first.rung.name, asked.backend), style="bold"), soft_wrap=True)
    if asked.json_path is not None:
        report.write_json(asked.json_path, as_data(found) | report.finite(dataclasses.asdict(least)))
    sys.exit(1)


def size_of(least: Shrunk, rung: str, backend: str) -> str:
    """`2 calls (sin, add), 1 number; on fused, and also on assay`"""
    calls, numbers = len(least.operators), least.numbers
    said = f"{calls} {'call' if calls == 1 else 'calls'} ({', '.join(least.operators)}), "
    said += f"{numbers} {'number' if numbers == 1 else 'numbers'}; on {rung}"
    return said if rung == backend else f"{said}, and {'also' if least.on_backend else 'not'} on {backend}"


@click.command()
@of_one_case
@SHRINKING
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the file, and the issue beside.")
def repro(name: str, backend: str, mode: str | None, limit_s: float, output: Path | None, **rest: Any) -> None:
    """Write one file that needs torch alone and fails as CASE does, and the text of an issue.

    The file is run in three fresh processes first; it says in how many of them it failed. Exit 0: the whole backend is
    as eager. Exit 1: it differs.
    """
    asked = Asked.of(name, backend, mode, **rest)
    console = progress.terminal_beside(asked.json_path)
    try:
        found, least = found_and_shrunk(asked, console, limit_s)
    except NothingFails as error:
        nothing(console, error)
    except NotShrunk as error:
        raise click.ClickException(f"{asked.case.name} is not made smaller: {error}") from error
    below = found.below.rung.name if found.below else ""
    on = asked.backend if least.on_backend else found.first.rung.backend
    made = repro_of(least, Failing(asked.case.name, asked.mode, on, found.first.rung.name, below))
    console.print(Text(made.source), soft_wrap=True)
    console.print(Text(f"{made.lines} lines; fails in {made.failures} of {made.runs} fresh processes", style="bold"))
    if output is not None:
        output.write_text(made.source)
        output.with_suffix(".md").write_text(made.issue)
        console.print(Text(f"written: {output}, and the text of an issue: {output.with_suffix('.md')}"), soft_wrap=True)
    if asked.json_path is not None:
        more = {**dataclasses.asdict(made), "calls": len(least.operators)}
        report.write_json(asked.json_path, as_data(found) | report.finite(more))
    sys.exit(1)


COMMANDS = (ladder, bisect, profile, shrink, repro)
