"""`assay selftest`: tries the banks of known faults with the ordinary run, and counts what it finds."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from assay.harness.case import MODES, SIZES, Case
from assay.harness.discover import DiscoverError, discover
from assay.harness.option_groups import group
from assay.harness.report import documents as report
from assay.harness.report import progress
from assay.harness.report.environment import environment
from assay.harness.row_order import cost
from assay.harness.run import CaseError, made_call
from assay.harness.selftest import false_alarms, locate_backends, locate_bank, mutant_rows, mutants
from assay.harness.selftest.backends_bank import WrongBackends
from assay.harness.selftest.banks_report import SCHEMA, Kept, totals
from assay.harness.selftest.compiler_bank import CompilerMutants
from assay.harness.selftest.mutants import MutantError
from assay.harness.selftest.record import Asked, Bank, Member, Tried
from assay.harness.selftest.survivors import SurvivorsError, read

INTERRUPTED = 130
BANKS: Mapping[str, Callable[[], Bank]] = {"backends": WrongBackends, "compiler": CompilerMutants}
"""The banks by the option that asks for each; one more is a line here and an option of the command."""

QUICK = ("vit", "bert", "resnet", "clip")
"""Models of the zoo that between them have images, text, dropout, buffers that are written, and several results."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Which faults are tried: banks of them, by name, and for bugs of the compiler whether they are located."""

    banks: tuple[str, ...]
    locates: bool
    every: int
    text: str
    resumes: bool
    in_models: bool
    of_right: bool


@dataclass(frozen=True, slots=True)
class Ground:
    """What the faults are tried on."""

    suite: str
    quick: bool
    nightly: bool
    size: str
    seed: int

    @property
    def level(self) -> str:
        """How many rows a bug of the compiler is tried on."""
        return mutant_rows.QUICK if self.quick else mutant_rows.NIGHTLY if self.nightly else mutant_rows.DEFAULT


FAULTS = group(
    "faults",
    Faults,
    click.option("--backends", "banks", flag_value="backends", multiple=True, help="Only the wrong backends."),
    click.option(
        "--compiler", "banks", flag_value="compiler", multiple=True, help="Only bugs put into our own compiler."
    ),
    click.option(
        "--locate",
        "locates",
        is_flag=True,
        help="Whether each bug of the compiler is located rightly; with --backends each fault in models.",
    ),
    click.option(
        "--every", type=click.IntRange(min=1), default=1, show_default=True, help="--locate: one bug in so many."
    ),
    click.option("--filter", "text", default="", metavar="TEXT[,TEXT]", help="Only faults of such a name or kind."),
    click.option(
        "--resume",
        "resumes",
        is_flag=True,
        help="Leave out what the file of --json holds, and add to it.",
    ),
    click.option(
        "--models", "in_models", is_flag=True, help="--locate: a bug by a model that shows it, not by what is near."
    ),
    click.option(
        "--false-alarms", "of_right", is_flag=True, help="Backends that are right, on a slice of every suite."
    ),
)
GROUND = group(
    "ground",
    Ground,
    click.option(
        "--suite", default="zoo", show_default=True, metavar="SUITE|FILE", help="What to try wrong backends on."
    ),
    click.option("--quick", is_flag=True, help=f"Backends on {', '.join(QUICK)}, one mode each; bugs on few rows."),
    click.option("--nightly", is_flag=True, help="Bugs of the compiler on all of semantics and the zoo."),
    click.option("--size", type=click.Choice(SIZES), default="tiny", show_default=True),
    click.option("--seed", type=int, default=0, show_default=True),
)


@click.command()
@FAULTS
@GROUND
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Faults tried at a time.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), default=1800.0,
              show_default=True, metavar="S", help="Seconds after which a fault is tried on no more rows.")  # fmt: skip
@click.option("--json", "json_path", type=click.Path(path_type=Path), is_flag=False, flag_value=report.STDOUT,
              metavar="[PATH]", help="Write the report here; without PATH to standard output.")  # fmt: skip
def selftest(faults: Faults, ground: Ground, jobs: int, timeout_s: float, json_path: Path | None) -> None:
    """Try known faults with the ordinary run, and say which of them it finds.

    Wrong backends are run on SUITE in both modes, until a row is not `same`: by that row a fault is killed. Bugs of our
    own compiler are put into it one at a time, and run on cases near to them, then on a slice of every suite. Controls,
    which are right, are run on all rows. Exit 0: every control is `same`, and every survivor has its reason in the
    table harness/selftest/survivors.toml.
    """
    console = progress.terminal_beside(json_path)
    if faults.resumes and json_path in (None, report.STDOUT):
        raise click.UsageError("--resume needs the file of --json, which holds what was tried before")
    if faults.locates:
        work = to_locate(faults)
        if not work:
            raise click.UsageError(f"--filter {faults.text!r} leaves no fault")
        sys.exit(locate(console, work, faults.resumes, jobs, json_path))
    check_unlocated(faults)
    if faults.of_right:
        sys.exit(watch_right(console, ground.level, faults, json_path))
    chosen, size, seed = opened(faults.banks), ground.size, ground.seed
    rows = rows_of(console, ground) if any(bank.name == "backends" for bank in chosen) else ()
    asked = Asked(rows, MODES, size, seed, timeout_s, own_mode_only=ground.quick, level=ground.level)
    wanted = [(bank, member) for bank in chosen for member in bank.members() if _is_named(member, faults.text)]
    if not wanted:
        raise click.UsageError(f"--filter {faults.text!r} leaves no fault")
    kept = Kept(json_path, environment("cpu") | {"size": size, "seed": seed, "level": ground.level})
    found, interrupted = try_all(console, wanted, asked, jobs, kept, tried_before(kept) if faults.resumes else [])
    kept.write(found, interrupted)
    show(console, found)
    sys.exit(INTERRUPTED if interrupted else 0 if all(each.passes for each in found) else 1)


def watch_right(console: Console, level: str, faults: Faults, json_path: Path | None) -> int:
    """`assay selftest --false-alarms`; its exit status: 0 where no right backend is accused wrongly.

    Raises: click.UsageError where no right backend has such a name, and for a report that cannot be gone on with.
    """
    facts = environment("cpu") | {"level": level}
    before = watched_before(json_path, facts) if faults.resumes and json_path is not None else []
    found = {(each.backend, each.suite): each for each in before}
    told = {alarm for each in before for alarm in each.alarms}
    for each in false_alarms.watch_all(level, faults.text, before):
        found[each.backend, each.suite] = each
        console.print(Text(false_alarms.line_of(each)), soft_wrap=True)
        for alarm in (alarm for alarm in each.alarms if alarm not in told):
            told.add(alarm)
            console.print(Text(f"  {alarm.kind}: {alarm.kill}"), soft_wrap=True)
        if json_path is not None and json_path != report.STDOUT:  # should it be interrupted, it holds these
            report.write_json(json_path, report.finite(false_alarms.document([*found.values()], facts)))
    if not found:
        raise click.UsageError(f"--filter {faults.text!r} leaves no backend; there are {', '.join(false_alarms.RIGHT)}")
    if json_path is not None:
        report.write_json(json_path, report.finite(false_alarms.document([*found.values()], facts)))
    totals = false_alarms.totals(found.values())
    console.print(Text(", ".join(f"{count} {name}" for name, count in totals.items()), style="bold"), soft_wrap=True)
    return 1 if totals[false_alarms.WRONG] else 0


def watched_before(json_path: Path, facts: Mapping[str, Any]) -> list[false_alarms.Watched]:
    """What an earlier run wrote to the file; nothing where there is none.

    Raises: click.UsageError for a report that cannot be gone on with.
    """
    if not json_path.is_file():
        return []
    try:
        return false_alarms.read(json.loads(json_path.read_text()), facts)
    except ValueError as error:
        raise click.UsageError(f"--resume: {json_path} cannot be gone on with: {error}") from error


def check_unlocated(faults: Faults) -> None:
    """Raises: click.UsageError for options that --locate alone reads."""
    given = {"--every": faults.every > 1, "--models": faults.in_models}
    if unread := [option for option, is_given in given.items() if is_given]:
        raise click.UsageError(f"{unread[0]} is read by --locate alone")


def tried_before(kept: Kept) -> list[Tried]:
    """Raises: click.UsageError for a report that cannot be gone on with."""
    try:
        return kept.before()
    except ValueError as error:
        raise click.UsageError(f"--resume: {kept.path} cannot be gone on with: {error}") from error


Work = Mapping[str, Callable[[], locate_bank.Located]]
"""What is to be located, by its name."""


def to_locate(faults: Faults) -> Work:
    """The bugs of the compiler; or the wrong backends, where they alone are asked for.

    Raises: click.UsageError where both are asked for.
    """
    if set(faults.banks) == set(BANKS):
        raise click.UsageError("--locate is of --compiler, or of --backends: give one of them")
    if faults.banks and faults.banks[0] == WrongBackends.name:
        wanted = locate_backends.wanted_backends(faults.text, faults.every)
        return {fault.name: functools.partial(locate_backends.locate_backend, fault.name) for fault in wanted}
    bugs = locate_bank.wanted(faults.text, faults.every)
    return {bug.name: functools.partial(locate_bank.locate_mutant, bug, faults.in_models) for bug in bugs}


def locate(console: Console, work: Work, resumes: bool, jobs: int, json_path: Path | None) -> int:
    """`assay selftest --locate`; its exit status: 0 where every rung that was named is right."""
    before = read_located(json_path) if resumes and json_path is not None else []
    found = [each for each in before if each.is_final]
    done = {each.name for each in found}
    for each in locate_bank.as_they_end([each for name, each in work.items() if name not in done], jobs):
        found.append(each)
        console.print(Text(told_of(each)), soft_wrap=True)
        if json_path is not None and json_path != report.STDOUT:  # should it be interrupted, it holds these
            write_located(json_path, found)
    if json_path is not None:
        write_located(json_path, found)
    console.print(Text(str(locate_bank.totals(found)), style="bold"), soft_wrap=True)
    return 0 if all(each.is_rung_right for each in found if each.is_shown) else 1


def told_of(each: locate_bank.Located) -> str:
    """How a bug was located, in a line."""
    if not each.is_shown:
        return f"{each.name}: {each.why}"
    word = "right" if each.is_rung_right else f"wrong: expected {' or '.join(each.expected)}"
    calls = "not shrunk" if each.calls is None else f"{each.calls} calls"
    told = f"{each.name}: {each.rung or 'no rung'}, {word}; {calls}; {each.failures} of {each.runs} repros fail"
    return f"{told}; {each.seconds:.0f} s, {each.cpu_s:.0f} s of CPU {each.why}"


def read_located(path: Path) -> list[locate_bank.Located]:
    """What an earlier run wrote to the file; nothing where there is none."""
    if not path.is_file():
        return []
    return [locate_bank.of_data(each) for each in json.loads(path.read_text())["results"]]


def write_located(path: Path, found: Sequence[locate_bank.Located]) -> None:
    data = {"schema": SCHEMA, "environment": environment("cpu"), "totals": locate_bank.totals(found)}
    report.write_json(path, report.finite(data | {"results": locate_bank.as_data(found)}))


def opened(names: Sequence[str]) -> list[Bank]:
    """The banks of those names, all of them where there are none. Raises: click.UsageError for one that has faults of
    its own."""
    try:
        return [BANKS[name]() for name in dict.fromkeys(names or _banks_here())]
    except MutantError as error:
        raise click.UsageError(str(error)) from error


def _banks_here() -> list[str]:
    """The banks that can be tried; that of the compiler is part of a checkout."""
    return [name for name in BANKS if name != CompilerMutants.name or mutants.FOLDER.is_dir()]


def _is_named(member: Member, text: str) -> bool:
    """Whether one of the texts, which commas divide, is part of the name or the kind."""
    return any(part in f"{member.kind} {member.name}" for part in text.split(","))


def rows_of(console: Console, ground: Ground) -> tuple[tuple[str, str], ...]:
    """The cases to try faults on, the cheapest first. A case that cannot be made here accuses every backend alike: it
    is left out, and that is said.

    Raises: click.UsageError for a suite without any.
    """
    try:
        is_short = ground.quick and ground.suite == "zoo"
        cases = discover([f"zoo.{name}" for name in QUICK] if is_short else [ground.suite])
    except DiscoverError as error:
        raise click.UsageError(str(error)) from error
    made = [case for case in sorted(cases, key=cost) if _is_made(console, case, ground.size, ground.seed)]
    if not made:
        raise click.UsageError(f"no case of {ground.suite} can be made here")
    return tuple((case.origin, case.name) for case in made)


def _is_made(console: Console, case: Case, size: str, seed: int) -> bool:
    try:
        made_call(case, size, seed, "cpu")
    except CaseError as error:
        console.print(f"left out: {error}", highlight=False, markup=False)
        return False
    return True


def try_all(
    console: Console, wanted: Sequence[tuple[Bank, Member]], asked: Asked, jobs: int, kept: Kept,
    before: Sequence[Tried] = (),
) -> tuple[list[Tried], bool]:  # fmt: skip
    """What each came to, in the order of `wanted`, and whether the run was interrupted. What was tried before is not
    tried again; but a fault whose time was up has another one.

    Raises: click.UsageError for a table of survivors that cannot be read; RuntimeError for a process that tells
    nothing.
    """
    try:
        reasons = read()
    except SurvivorsError as error:
        raise click.UsageError(str(error)) from error
    done = {(tried.bank, tried.name): tried for tried in before}
    settled = {(tried.bank, tried.name) for tried in before if tried.killed or not tried.left}
    left = [(bank, member) for bank, member in wanted if (bank.name, member.name) not in settled]
    interrupted = False
    try:
        for tried in _as_they_end(console, left, asked, jobs, reasons):
            done[tried.bank, tried.name] = tried
            kept.add([*done.values()])
    except KeyboardInterrupt:
        interrupted = True
    places = {(bank.name, member.name): place for place, (bank, member) in enumerate(wanted)}
    return sorted(done.values(), key=lambda tried: places.get((tried.bank, tried.name), -1)), interrupted


def _as_they_end(
    console: Console,
    wanted: Sequence[tuple[Bank, Member]],
    asked: Asked,
    jobs: int,
    reasons: Mapping[tuple[str, str], str],
) -> Iterator[Tried]:
    pool = ThreadPoolExecutor(jobs)
    try:
        running: list[Future[Tried]] = [pool.submit(bank.tried, member, asked) for bank, member in wanted]
        with progress.progress(console, len(wanted)) as shown:
            for future in as_completed(running):
                tried = future.result()
                tried = dataclasses.replace(tried, reason=reasons.get((tried.bank, tried.name), ""))
                shown.end(line_of(tried))
                yield tried
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def line_of(tried: Tried) -> Text:
    """How one fared: its name, whether it was killed, by what."""
    word = {(True, False): "killed", (False, False): "survived", (True, True): "accused", (False, True): "same"}
    style = "green" if tried.passes and not tried.reason else "yellow" if tried.passes else "bold red"
    line = Text(f"{tried.kind}: {tried.name}  ") + Text(word[tried.killed, tried.is_right], style=style)
    told = str(tried.by) if tried.by else tried.reason
    left = f", {tried.left} left when time was up" if tried.left else ""
    return line + Text(f"  {told}  [{tried.rows} rows{left}, {tried.seconds:.0f} s]")


def show(console: Console, found: Sequence[Tried]) -> None:
    """A row a kind, then everything that fails by name, then the totals."""
    table = progress.table(("kind", "survived"), ("faults", "killed"))
    faults = [each for each in found if not each.is_right]
    for kind in dict.fromkeys(each.kind for each in faults):
        own = [each for each in faults if each.kind == kind]
        left = ", ".join(each.name for each in own if not each.killed)
        table.add_row(kind, left, str(len(own)), str(sum(each.killed for each in own)))
    console.print(table)
    for each in found:
        if not each.passes or each.reason:
            console.print(line_of(each) + Text(f"\n  {each.wrong}{_stale(each)}"), soft_wrap=True)
    console.print(Text(totals_line(found), style="bold"), soft_wrap=True)


def _stale(tried: Tried) -> str:
    is_stale = tried.killed and tried.reason and not tried.is_right
    return "\n  The table of survivors excuses it: take the entry out." if is_stale else ""


def totals_line(found: Sequence[Tried]) -> str:
    count = totals(found)
    share = report.percent(count["killed"] / count["faults"]) if count["faults"] else report.UNKNOWN
    return (
        f"{count['killed']} of {count['faults']} faults killed ({share}), {count['explained']} survive with a reason, "
        f"{count['unexplained']} without; {count['accused']} of {count['controls']} controls accused"
    )
