"""The command line: what a user may type, checked before anything runs.

assay run      hold programs against eager          exit 0: all as eager (or in the ledger); 1: not all
assay bench    time a backend against others        2: bad usage, with the valid choices named
assay memory   what a training step keeps, and why  130: interrupted; the report holds what had ended
assay compare  what changed between two reports
assay kernels  what kernels take of a GPU, as `run --kernels` recorded
assay ladder   the first rung on which a case differs
assay bisect   the graph, node or kernel with which it does
assay profile  how errors grow along its graphs
assay shrink   the smallest program that fails as a case does
assay repro    the same as one file, and the text of an issue
assay triage   what a recorded run found, and what of it is new
assay record   reports of runs, taken into a store
assay merge    several stores as one
assay nightly  a whole night in a stated time, and its page
assay publish  the page of a recorded run
assay measure  this commit's times, kept in a store
assay regressions  what got slower, and at which commit
assay selftest what the ordinary run finds of backends that are known to be wrong
assay list     the cases of a suite
assay env      what a report says of this machine
"""

from __future__ import annotations

import datetime
import difflib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from click.core import ParameterSource
from rich.console import Console

from assay.compiler import machine
from assay.harness.backends import resources  # fmt: skip
from assay.harness.backends.registry import (
    FOR_GPU,
    OWN,
    WHOLE_BACKWARD,
    BackendError,
    is_given_shapes,
    resolve,
    with_own_backward,
)
from assay.harness.bench import compiled_autograd, language, operators
from assay.harness.bench import models as benching
from assay.harness.bench.bench_worker import AHEAD, EAGER
from assay.harness.bench.compile_time import partitioning, scaling, warm
from assay.harness.bench.memory import memory_dial, memory_report
from assay.harness.bench.memory.live_memory import Memory
from assay.harness.calls.cycles import set_aside
from assay.harness.case import SIZES, Case
from assay.harness.cli import locate_commands, night_commands, store_commands  # fmt: skip
from assay.harness.cli.batch_options import BATCHES, Batches, Sharding, batches_table
from assay.harness.cli.command_options import (
    BUDGETS,
    CHOSEN,
    CONDUCT,
    DEFAULT_TIMEOUT_S,
    HTML,
    JSON,
    KEEPING,
    REPORTS,
    STEP,
    TIMING,
    VARIANTS,
    Budgets,
    Chosen,
    Conduct,
    Keeping,
    Reports,
    Step,
    Timing,
    Variants,
    check_device,
    check_writable,
)
from assay.harness.discover import DiscoverError, discover, discover_batches, discover_generator, suite_names
from assay.harness.judge import ledger  # fmt: skip
from assay.harness.option_groups import group
from assay.harness.outcome import Result
from assay.harness.processes import worker  # fmt: skip
from assay.harness.processes.isolate import Request, run_isolated, run_warm
from assay.harness.processes.side_by_side import run_in_threads, run_side_by_side
from assay.harness.report import documents as report  # fmt: skip
from assay.harness.report import progress, triage
from assay.harness.report.documents import Row
from assay.harness.report.environment import environment
from assay.harness.row_order import ordered
from assay.harness.run import RunRequest, run_case
from assay.harness.search import drive  # fmt: skip
from assay.harness.search.hunt import Settings
from assay.harness.search.hunt_report import run_hunt
from assay.harness.selftest.command import selftest

INTERRUPTED = 130
NEAREST = 8
"""Names that a filter without a match is answered with."""
WORTH_A_PROCESS = 8
"""Rows that are worth starting further processes for, each of which takes seconds to import the models."""
MOST_JOBS = 4
"""Rows at a time where nobody says: each holds a model and some copies of it."""
ORACLES = ("dynamic", "reference", "metamorphic")
DIALLED = "assay.suites.benchmarks.memory"
"""What `assay bench memory` trains where no model is named."""
STAGES = ("assay-aot", "assay-loops")
"""The compiler's stages run by the reference: graphs as recorded, and the loops that they become."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="assay", prog_name="assay")
def commands() -> None:
    """Does this compiled program do everything that eager does? And how fast?"""


@dataclass(frozen=True, slots=True)
class Piece:
    """One row to run."""

    case: Case
    mode: str
    backend: str
    size: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.case.name, self.mode, self.backend

    @property
    def label(self) -> str:
        return progress.label(self.case.name, self.mode, self.backend)


@dataclass(frozen=True, slots=True)
class Hunting:
    """Which programs a suite that generates them makes, and what they are held against beside eager."""

    examples: int
    first: int
    oracles: str


HUNTING = group(
    "hunting",
    Hunting,
    click.option("--examples", type=click.IntRange(min=1), default=100, show_default=True, help="programs: how many."),
    click.option("--first", type=click.IntRange(min=0), default=0, help="programs: the number of the first."),
    click.option("--oracle", "oracles", default="", metavar="NAME[,NAME]", help="programs: oracles beside eager."),
)
HUNT_STORE = Path(".assay/programs")


MACHINE, BATCHED, DRAWN = "machine", "batched", "drawn"
READ_BY = {
    MACHINE: {"runs", "steps", "store", "strict", "subjects"},
    BATCHED: {"shard", "resume", "summary"},
    DRAWN: {"examples", "first", "oracles", "store"},
}
"""By the kind of a suite that makes its own rows, the options that no other suite reads."""


def check_read(kind: str | None) -> None:
    """Raises: click.UsageError for an option that was given, and that a suite of this kind does not read."""
    context = click.get_current_context()
    unread = frozenset[str]().union(*READ_BY.values()) - READ_BY.get(kind or "", set())
    for option in context.command.params:
        given = context.get_parameter_source(str(option.name)) == ParameterSource.COMMANDLINE
        if given and option.name in unread:
            own = str(getattr(option, "help", "")).partition(":")[0]
            raise click.UsageError(f"{option.opts[0]} is read by {own} alone, and not by the suite that is asked for")


@dataclass(frozen=True, slots=True)
class Special:
    """What only the suites read that make their own rows."""

    hunting: Hunting
    sharding: Sharding
    driving: drive.Driving


@commands.command()
@CHOSEN
@VARIANTS
@CONDUCT
@REPORTS
@KEEPING
@group("special", Special, HUNTING, BATCHES, drive.OPTIONS)
def run(
    chosen: Chosen, variants: Variants, conduct: Conduct, reports: Reports, keeping: Keeping, special: Special
) -> None:
    """Run cases on a backend and hold everything that they do against eager.

    SUITE is a suite (default: zoo), a dotted name, or the path of a Python file of
    cases. Four suites make their own rows:

    `ops` is every operator, module and optimizer of torch's own databases, in
    batches. --shard and --resume divide it. --summary keeps the figures of the
    shards together.

    `gradients` holds the first and second gradients of these operators to torch's
    own checks, in batches as well.

    `programs` generates its programs: --examples of them from --seed, beginning
    with number --first. --oracle adds to eager: dynamic, reference, metamorphic.

    `machine` is the state machine over callables and their compiled twins.
    """
    check_writable(reports.json_path, reports.html_directory)
    check_device(chosen.device)
    check_backends(variants.backends, takes_backwards=True)
    console = progress.terminal_beside(reports.json_path)
    record_kernels(variants.backends, reports.kernels_path, console)
    status = run_special(chosen, variants, conduct.timeout_s, reports, special)
    if status is not None:
        sys.exit(status)
    known = read_ledger(chosen.device)
    cases = find_cases(chosen.names or ("zoo",), chosen.text)
    pieces = plan(cases, chosen.modes, variants.backends, variants.size, variants.kinds_of_shapes)
    facts = environment(chosen.device) | {"size": variants.size, "seed": chosen.seed}
    keeper = Keeper.of(keeping, facts, request_of(chosen, variants), pieces)
    left = keeper.left(pieces)
    asked = RunRequest(variants.size, chosen.seed, chosen.device, is_thorough=conduct.thorough)
    if conduct.cluster is not None:
        jobs = special.driving.processes
        ending = run_on_cluster(console, ordered(left, conduct.order, jobs), known, conduct, asked, jobs)
    else:
        jobs = special.driving.jobs or jobs_for(left, chosen.device)
        ending = run_pieces(console, ordered(left, conduct.order, jobs), known, conduct, asked, jobs)
    sys.exit(report_rows(console, in_place(ending, pieces, keeper), keeper, facts, reports))


def request_of(chosen: Chosen, variants: Variants) -> dict[str, Any]:
    """What is asked of a run, as a store keeps it."""
    asked = {"names": list(chosen.names), "filter": chosen.text, "mode": chosen.mode}
    return asked | {"backends": list(variants.backends), "size": variants.size, "seed": chosen.seed}


def run_special(
    chosen: Chosen, variants: Variants, timeout_s: float | None, reports: Reports, special: Special
) -> int | None:
    """Runs a suite that makes its own rows; the exit status, None where another suite was asked for.

    Raises: click.UsageError for a device that the suite does not run on, where it is asked for beside others, and for
    options that the suite does not read.
    """
    seed, driving, facts = chosen.seed, special.driving, {"seed": chosen.seed}
    if chosen.names == ("machine",):
        check_read(MACHINE)
        if chosen.device != "cpu":
            raise click.UsageError(f"--device {chosen.device}: the machine drives its callables on the CPU")
        plans = [drive.Plan.of(name, seed, driving) for name in variants.backends]
        return drive.run_machine(plans, reports.json_path)
    if (module := alone(chosen.names, discover_batches)) is not None:
        check_read(BATCHED)
        batches = Batches(module, chosen, variants, special.sharding)
        return batches.run(environment(chosen.device) | facts, driving.processes, timeout_s, reports)
    if (generator := alone(chosen.names, discover_generator)) is not None:
        check_read(DRAWN)
        hunting, store = special.hunting, Path(driving.store)
        more = tuple(name for name in hunting.oracles.split(",") if name)
        settings = Settings(
            generator, hunting.examples, seed, with_oracles(variants.backends, more), chosen.modes, hunting.first,
            driving.processes, HUNT_STORE if store == drive.STORE else store, timeout_s,
            with_variants="metamorphic" in more, device=chosen.device,
        )  # fmt: skip
        return run_hunt(settings, environment(chosen.device) | facts, reports.json_path)
    check_read(None)
    return None


def in_place(ending: Iterator[Row], pieces: Sequence[Piece], keeper: Keeper) -> Iterator[list[Row]]:
    """Keeps each row as it ends, and gives all that have ended, in the order of the pieces."""
    places = {piece.key: place for place, piece in enumerate(pieces)}
    rows = keeper.ended()
    for row in ending:
        keeper.add(row)
        rows.append(row)
        rows.sort(key=lambda row: places.get((row.result.case, row.result.mode, row.result.backend), len(places)))
        yield rows


def report_rows(
    console: Console, ending: Iterator[list[Row]], keeper: Keeper, facts: Mapping[str, Any], reports: Reports
) -> int:
    """Reports rows as they end; gives the exit status."""
    rows, interrupted = keeper.ended(), False
    try:
        for rows in ending:
            if reports.json_path != report.STDOUT:  # should a later case end this process, it holds these
                write_reports(rows, facts, True, Reports(reports.json_path))
    except KeyboardInterrupt:
        interrupted = True
    keeper.end(interrupted)
    write_reports(rows, facts, interrupted, reports)
    show_results(console, rows, interrupted, reports.verbose)
    return INTERRUPTED if interrupted else 0 if all(row.judgement.passes for row in rows) else 1


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps the rows of a run in a store, where one was asked for. `wanted` are the rows of this command, and `is_own`
    says whether the run is its own, to be ended by it."""

    store: Any = None
    run: Any = None
    wanted: frozenset[tuple[str, str, str]] = frozenset()
    is_own: bool = True

    @staticmethod
    def of(keeping: Keeping, facts: Mapping[str, Any], request: Mapping[str, Any], pieces: Sequence[Piece]) -> Keeper:
        """Raises: click.UsageError for a run that the store does not have, or where no store is asked for."""
        if keeping.store_url is None:
            if keeping.continues or keeping.into is not None:
                raise click.UsageError(
                    f"{'--continue' if keeping.continues else '--into'} needs a store: give --record"
                )
            return Keeper()
        store, wanted = store_commands.opened(keeping.store_url or None), frozenset(piece.key for piece in pieces)
        if keeping.into is not None:
            return Keeper(store, store_commands.run_of(store, keeping.into), wanted, is_own=False)
        found = store.resumed(facts, request) if keeping.continues else None
        return Keeper(store, found or store.begin(facts, request), wanted)

    def ended(self) -> list[Row]:
        """The rows of this command that had ended before it."""
        kept = [] if self.store is None else self.store.rows(self.run)
        return [Row(row.result, row.judgement) for row in kept if row.key in self.wanted]

    def left(self, pieces: Sequence[Piece]) -> tuple[Piece, ...]:
        """The pieces of which no row has ended."""
        done = {(row.result.case, row.result.mode, row.result.backend) for row in self.ended()}
        return tuple(piece for piece in pieces if piece.key not in done)

    def add(self, row: Row) -> None:
        if self.store is not None:
            self.store.add(self.run, row)

    def end(self, is_interrupted: bool) -> None:
        if self.store is not None and self.is_own and not is_interrupted:
            self.store.end(self.run)


def record_kernels(backends: Sequence[str], path: Path | None, console: Console) -> None:
    """Until this command ends, what kernels take of a GPU is recorded where a backend tells; then it is summed up.

    Raises: click.UsageError for a file that no backend fills, or that cannot be written.
    """
    if not any(name.split(",")[0] == FOR_GPU for name in backends):
        if path is not None:
            raise click.UsageError(
                f"--kernels is for backend {FOR_GPU}: no other compiles kernels for a GPU that is not there"
            )
        return
    context = click.get_current_context()
    try:
        file = context.with_resource(resources.recording(path))
    except OSError as error:
        raise click.UsageError(f"--kernels {path}: cannot be written ({error.strerror or error})") from error
    context.call_on_close(lambda: show_kernels(console, file))


def show_kernels(console: Console, *files: Path) -> None:
    """Raises: click.UsageError for a file of anything else."""
    try:
        records = [record for file in files for record in resources.read(file)]
    except resources.RecordError as error:
        raise click.UsageError(str(error)) from error
    for line in resources.summary(records):
        console.print(line, soft_wrap=True, markup=False)


def jobs_for(pieces: Sequence[Piece], device: str) -> int:
    """How many rows run at a time where nobody says. Few rows have ended before another process has begun. A GPU is
    one row's at a time, as what it does for two is timed together."""
    is_alone = device != "cpu" or len(pieces) < WORTH_A_PROCESS
    return 1 if is_alone else min(MOST_JOBS, os.cpu_count() or 1)


def run_pieces(
    console: Console,
    pieces: Sequence[Piece],
    known: Sequence[ledger.Known],
    conduct: Conduct,
    asked: RunRequest,
    jobs: int,
) -> Iterator[Row]:
    """Runs each piece and gives its row as it ends; isolated where there is a limit, or from filled caches."""
    today = datetime.date.today()
    with progress.progress(console, len(pieces)) as shown:
        for result in results_of(pieces, conduct, asked, jobs, shown):
            row = Row(result, ledger.judge(result, known, today))
            shown.end(progress.result_line(row))
            yield row


def results_of(
    pieces: Sequence[Piece], conduct: Conduct, asked: RunRequest, jobs: int, shown: progress.Progress
) -> Iterator[Result]:
    """The result of each piece as it ends, of so many pieces at a time."""
    if jobs > 1 and conduct.limit_s is None:
        requests = [request_for(piece, asked) for piece in pieces]
        yield from run_side_by_side(requests, jobs, lambda which: shown.begin(pieces[which].label))
        return

    def run_shown(piece: Piece) -> Result:
        if jobs == 1:
            set_aside()
        shown.begin(piece.label)
        return run_piece(piece, conduct, asked)

    shown_pieces = [partial(run_shown, piece) for piece in pieces]
    yield from run_in_threads(shown_pieces, jobs) if jobs > 1 else (piece() for piece in shown_pieces)


def run_on_cluster(
    console: Console, pieces: Sequence[Piece], known: Sequence[ledger.Known], conduct: Conduct, asked: RunRequest,
    jobs: int,
) -> Iterator[Row]:  # fmt: skip
    """Runs each piece as a task of Dask, and gives its row as it ends.

    Raises: click.UsageError where no scheduler, or none of its workers, answers.
    """
    rows, today = store_commands.needed("assay.harness.cluster.rows"), datetime.date.today()
    limit_s = conduct.limit_s or DEFAULT_TIMEOUT_S
    tasks = [rows.Task(request_for(piece, asked).data(), limit_s, conduct.is_warm) for piece in pieces]
    try:
        with rows.client_of(conduct.cluster, jobs) as client, progress.progress(console, len(pieces)) as shown:
            for result in rows.run_tasks(client, tasks):
                row = Row(result, ledger.judge(result, known, today))
                shown.end(progress.result_line(row))
                yield row
    except OSError as error:
        raise click.UsageError(f"--cluster {conduct.cluster}: {error}") from error


def request_for(piece: Piece, asked: RunRequest) -> Request:
    """What another process is told of a piece."""
    return Request(piece.case.origin, piece.case.name, piece.mode, piece.backend, replace(asked, size=piece.size))


def run_piece(piece: Piece, conduct: Conduct, asked: RunRequest) -> Result:
    """The piece's result. What the harness itself trips over is a crash of that row, and the run goes on."""
    case, mode, backend, limit_s = piece.case, piece.mode, piece.backend, conduct.limit_s
    asked = replace(asked, size=piece.size)
    try:
        if limit_s is None:
            return run_case(case, mode, backend, asked)
        run_apart = run_warm if conduct.is_warm else run_isolated
        return run_apart(case, mode, backend, asked, limit_s)
    except Exception:
        return Result(case.name, mode, backend, "crash", detail=f"in the harness:\n{traceback.format_exc()}")


def show_results(console: Console, rows: Sequence[Row], interrupted: bool, is_verbose: bool = False) -> None:
    console.print(progress.results_table(rows))
    for line in progress.difference_lines(rows, is_verbose):
        console.print(line, soft_wrap=True)
    console.print(progress.totals_line(report.total(rows)), soft_wrap=True)
    if interrupted:
        console.print("Interrupted; only the cases that had ended are reported.", style="bold yellow")


def write_reports(rows: Sequence[Row], facts: Mapping[str, Any], interrupted: bool, reports: Reports) -> None:
    if reports.json_path is not None:
        report.write_json(reports.json_path, report.document(rows, facts, interrupted=interrupted))
    if reports.html_directory is not None:
        report.write_html(reports.html_directory, report.render_html(rows, facts, interrupted=interrupted))


@commands.command("list")
@click.argument("names", nargs=-1, metavar="[SUITE|FILE]...")
@click.option("--filter", "text", default="", metavar="TEXT", help="Only cases whose name contains TEXT.")
def list_cases(names: tuple[str, ...], text: str) -> None:
    """List cases with their modes, sizes and tags; of `ops` the operators with their dtypes and forms."""
    console = progress.terminal()
    if (module := alone(names, discover_batches)) is not None:
        console.print(batches_table(module, text))
        return
    table = progress.table(("case", "modes", "sizes", "tags", "from"), ())
    for case in find_cases(names or ("zoo",), text):
        table.add_row(case.name, " ".join(case.modes), " ".join(case.sizes), " ".join(case.tags), case.origin)
    console.print(table)
    console.print(f"Suites: {', '.join(suite_names())}")


def show_environment() -> None:
    """Show what a report says of this machine, and the facts that the compiler has measured of it."""
    for name, value in environment("cuda" if torch.cuda.is_available() else "cpu").items():
        click.echo(f"{name:<14}{value if value is not None else 'none'}")
    click.echo("\nThis machine, as far as compiles have asked for it (assay/compiler/machine.py):")
    for name, value in machine.facts().items():
        click.echo(f"{name:<22}{value}")
    click.echo("\nNumbers that are stated of machines; a file that ASSAY_MACHINE names may state others:")
    for name, value in machine.numbers().items():
        click.echo(f"{name:<29}{value}")


for each in (selftest, *locate_commands.COMMANDS, *store_commands.COMMANDS, *night_commands.COMMANDS):
    commands.add_command(each)
commands.command("env")(show_environment)
commands.command("show-environment", hidden=True)(show_environment)


@commands.command()
@CHOSEN
@TIMING
@JSON
def bench(chosen: Chosen, timing: Timing, json_path: Path | None) -> None:
    """Time a backend against others: steady state, cold compile, peak memory. Above 1 is better for BACKEND.

    SUITE is a suite (default: zoo and overhead), a dotted name, or the path of a
    Python file of cases. `overhead` is also timed as `aot_function`, against torch's
    own. Seven more measure one subject each:

    \b
    scaling          how compile time grows with the number of nodes
    warm [SUITE]     what a fresh process pays whose caches are full
    memory [MODEL]   a model, trained at each memory budget
    partition        our default cut of joint graphs of growing size
    operators        every operator and fused pairs beside eager, on one thread
    language         a changed float, an item, regions, attention, a scan, a subclass
    compiled_autograd  whole backwards as one program, against those in parts

    `operators` passes where nothing takes above 1.2 times eager's time.
    """
    check_writable(json_path, None)
    check_device(chosen.device)
    names, rivals = chosen.names, rivals_of(timing.against, default_rivals(chosen.names))
    check_backends((timing.backend, *(name for name in rivals if name not in (EAGER, AHEAD))))
    status = bench_subject(chosen, timing, rivals, json_path)
    if status is not None:
        sys.exit(status)
    settings = settings_of(chosen, timing, rivals)
    is_warm = names[:1] == ("warm",)
    cases = find_cases((names[1:] if is_warm else names) or (("zoo",) if is_warm else ("zoo", "overhead")), chosen.text)
    subjects = subjects_of(plan(cases, chosen.modes, (timing.backend,), timing.size))
    if is_warm:
        sys.exit(bench_warm(subjects, settings, json_path))
    console = progress.terminal_beside(json_path)
    done = benching.run_bench(console, subjects, settings)
    facts = {"size": timing.size, "precision": timing.precision, "seed": chosen.seed, "rounds": timing.rounds}
    if json_path is not None:
        report.write_json(json_path, benching.document(done, environment(chosen.device) | facts))
    benching.show(console, done)
    sys.exit(INTERRUPTED if done.interrupted else 0 if done.passes else 1)


def settings_of(chosen: Chosen, timing: Timing, rivals: tuple[str, ...]) -> benching.Settings:
    return benching.Settings(
        timing.backend, rivals, chosen.seed, chosen.device, timing.rounds, timing.timeout_s, timing.steady_only,
        timing.precision,
    )  # fmt: skip


def bench_subject(chosen: Chosen, timing: Timing, rivals: tuple[str, ...], json_path: Path | None) -> int | None:
    """Measures one of the subjects that are no suite; the exit status, None where a suite was asked for."""
    names, text = chosen.names, chosen.text
    if names == ("scaling",):
        return bench_scaling(scaling.Plan(timing.backend, rivals, chosen.modes, text, timing.timeout_s), json_path)
    if names[:1] == ("memory",):
        subject = one_subject(names[1:] or (DIALLED,), timing.size)
        return bench_memory(subject, settings_of(chosen, timing, rivals), json_path)
    if names == ("partition",):
        return bench_partition(text, timing.timeout_s, json_path)
    if names == ("operators",):
        timed = operators.Plan(timing.backend, rivals, text, timing.rounds, chosen.seed, timing.timeout_s)
        return bench_operators(timed, json_path)
    if names == ("language",):
        parts = language.Plan(timing.backend, rivals[0], text, chosen.device, timing.rounds, timing.timeout_s)
        return bench_language(parts, json_path)
    if names == ("compiled_autograd",):
        wanted = compiled_autograd.Plan(rivals, text, chosen.device, timing.rounds, timing.timeout_s)
        return bench_compiled_autograd(wanted, json_path)
    return None


def default_rivals(names: Sequence[str]) -> tuple[str, ...]:
    """What is timed against where the user does not say."""
    if tuple(names) == ("scaling",):
        return ()
    if tuple(names) == ("operators",):
        return (EAGER,)
    if tuple(names) == ("compiled_autograd",):
        return ("inductor", EAGER)
    return ("inductor", AHEAD) if tuple(names) == ("overhead",) else ("inductor",)


def rivals_of(against: str | None, default: tuple[str, ...]) -> tuple[str, ...]:
    """The backends to time against, each once. Raises: click.UsageError where the option names none."""
    if against is None:
        return default
    rivals = tuple(dict.fromkeys(name.strip() for name in against.split(",") if name.strip()))
    if not rivals:
        raise click.UsageError("--against names no backend; for example --against inductor,eager")
    return rivals


def bench_warm(subjects: Sequence[benching.Subject], settings: benching.Settings, json_path: Path | None) -> int:
    """`assay bench warm`; its exit code."""
    console = progress.terminal_beside(json_path)
    done = warm.run_warm(console, subjects, settings)
    if json_path is not None:
        report.write_json(json_path, warm.document(done, environment(settings.device)))
    warm.show(console, done)
    return INTERRUPTED if done.interrupted else 0 if done.passes else 1


def bench_scaling(wanted: scaling.Plan, json_path: Path | None) -> int:
    """`assay bench scaling`; its exit code."""
    console = progress.terminal_beside(json_path)
    done = scaling.run_scaling(console, wanted)
    if json_path is not None:
        report.write_json(json_path, scaling.document(done, environment("cpu")))
    scaling.show(console, done)
    return INTERRUPTED if done.interrupted else 0 if done.passes else 1


def one_subject(names: Sequence[str], size: str) -> benching.Subject:
    """The one case that names ask for, in training. Raises: click.UsageError where they ask for several or none."""
    cases = find_cases(names, "")
    if len(cases) > 1:
        found = ", ".join(case.name.rpartition(".")[2] for case in cases)
        raise click.UsageError(f"{' '.join(names)} holds {len(cases)} cases, and one is measured; name one of {found}")
    return subjects_of(plan(cases, ("train",), ("assay",), size))[0]


def bench_memory(subject: benching.Subject, settings: benching.Settings, json_path: Path | None) -> int:
    """`assay bench memory`; its exit code."""
    console = progress.terminal_beside(json_path)
    done = memory_dial.run_dial(subject, settings.backend, settings.seed, settings.rounds, settings.timeout_s)
    if json_path is not None:
        report.write_json(json_path, memory_dial.document(done, environment("cpu")))
    memory_dial.show(console, done)
    return 0 if done.passes else 1


def bench_partition(text: str, timeout_s: float, json_path: Path | None) -> int:
    """`assay bench partition`; its exit code."""
    console = progress.terminal_beside(json_path)
    done = partitioning.run_partitioning(console, text, timeout_s)
    if json_path is not None:
        report.write_json(json_path, partitioning.document(done, environment("cpu")))
    partitioning.show(console, done)
    return INTERRUPTED if done.interrupted else 0 if done.passes else 1


def bench_operators(wanted: operators.Plan, json_path: Path | None) -> int:
    """`assay bench operators`; its exit code."""
    console = progress.terminal_beside(json_path)
    done = operators.run_operators(console, wanted, read_ledger("cpu"))
    return _told(console, operators, done, "cpu", json_path)


def bench_language(wanted: language.Plan, json_path: Path | None) -> int:
    """`assay bench language`; its exit code."""
    console = progress.terminal_beside(json_path)
    return _told(console, language, language.run_language(console, wanted), wanted.device, json_path)


def bench_compiled_autograd(wanted: compiled_autograd.Plan, json_path: Path | None) -> int:
    """`assay bench compiled_autograd`; its exit code."""
    console = progress.terminal_beside(json_path)
    done = compiled_autograd.run_compared(console, wanted)
    return _told(console, compiled_autograd, done, wanted.device, json_path)


def _told(console: Console, bench: Any, done: Any, device: str, json_path: Path | None) -> int:
    """Writes and shows what a module of `harness/bench` has measured; the command's exit code."""
    if json_path is not None:
        report.write_json(json_path, bench.document(done, environment(device)))
    bench.show(console, done)
    return INTERRUPTED if done.interrupted else 0 if done.passes else 1


@commands.command()
@STEP
@BUDGETS
@JSON
@HTML
def memory(step: Step, budgets: Budgets, json_path: Path | None, html_directory: Path | None) -> None:
    """Show the memory of one training step: live bytes over it, what is saved, what is recomputed and why.

    MODEL is a case of a suite (zoo.bert), or the path of a Python file of cases (FILE.py::NAME where it has several).
    Of a backend that is not ours only the live bytes are known.
    """
    check_writable(json_path, html_directory)
    backend, budget = step.backend, budgets.budget
    if (budget is not None or budgets.has_curve) and backend.split(",")[0] not in OWN:
        raise click.UsageError(f"--budget and --curve are for our own backend; {backend} has no memory budget")
    wanted = backend if budget is None else f"{backend},memory_budget={budget}"
    check_backends((wanted,))
    subject = one_subject((step.model,), step.size)
    console = progress.terminal_beside(json_path)
    with worker.cold_environment() as extra:
        request = memory_dial.request_of(subject, "live", wanted, step.seed)
        answer = worker.ask("assay.harness.bench.memory.memory_worker", request, budgets.timeout_s, extra)
    if not answer.lines:
        raise click.ClickException(": ".join(answer.failure or ("crash", "it said nothing")))
    dial = None
    if budgets.has_curve:
        dial = memory_dial.run_dial(subject, backend, step.seed, budgets.rounds, budgets.timeout_s)
    shown = memory_report.Shown(subject.case.name, subject.size, wanted, Memory.of(answer.lines[0]), dial)
    facts = environment("cpu") | {"size": subject.size, "seed": step.seed}
    if json_path is not None:
        report.write_json(json_path, memory_report.document(shown, facts))
    if html_directory is not None:
        report.write_html(html_directory, memory_report.render_html(shown, facts))
    memory_report.show(console, shown)


@commands.command("kernels")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def sum_up_kernels(files: tuple[Path, ...]) -> None:
    """What kernels take of a GPU, summed up over files that `run --kernels` wrote.

    Each kernel is there as it is mostly called, and for sizes beyond 32 bits and
    addresses at any place where its calls may need that.
    """
    show_kernels(progress.terminal(), *files)


@commands.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--tolerance", type=click.FloatRange(min=0), default=0.1, show_default=True,
              help="How much slower counts, where a report has no spread of its own.")  # fmt: skip
def compare(before: Path, after: Path, tolerance: float) -> None:
    """What changed between two reports of `run` or of `bench`; exit 1 if anything got worse."""
    try:
        changes = triage.compare(triage.read(before), triage.read(after), tolerance)
    except triage.ReportError as error:
        raise click.UsageError(str(error)) from error
    for change in changes:
        click.echo(str(change))
    worse = sum(change.is_worse for change in changes)
    click.echo(f"{worse} worse, {len(changes) - worse} other changes")
    sys.exit(1 if worse else 0)


def subjects_of(pieces: Sequence[Piece]) -> tuple[benching.Subject, ...]:
    """The pieces by case, each with its modes."""
    cases = {piece.case.name: piece for piece in pieces}
    return tuple(
        benching.Subject(first.case, tuple(piece.mode for piece in pieces if piece.case.name == name), first.size)
        for name, first in cases.items()
    )


def alone(names: Sequence[str], find: Callable[[str], str | None]) -> str | None:
    """The suite of a kind that alone was asked for, by what finds that kind; None where cases were.

    Raises: click.UsageError for such a suite beside others.
    """
    found = [module for name in names if (module := find(name)) is not None]
    if found and len(names) > 1:
        raise click.UsageError(f"{found[0]} has programs of its own kind, and runs alone; it was asked for with others")
    return found[0] if found else None


def with_oracles(backends: Sequence[str], oracles: Sequence[str]) -> tuple[str, ...]:
    """The backends, and those that the further oracles add: each is held against eager, so all agree. Of our own
    compiler, `reference` adds the stages run by the reference.

    Raises: click.UsageError for an oracle that does not exist.
    """
    if unknown := [name for name in oracles if name not in ORACLES]:
        raise click.UsageError(f"--oracle {unknown[0]!r} does not exist; the oracles are {', '.join(ORACLES)}")
    dynamic = [f"{backend},dynamic" for backend in backends if "dynamic" in oracles and ",dynamic" not in backend]
    return (*backends, *dynamic, *(STAGES if "reference" in oracles else ()))


def find_cases(names: Sequence[str], text: str) -> tuple[Case, ...]:
    """Raises: click.UsageError for a name that gives no cases, and for a filter that leaves none."""
    try:
        cases = discover(names)
    except DiscoverError as error:
        raise click.UsageError(str(error)) from error
    kept = tuple(case for case in cases if text in case.name)
    if not kept:
        near = difflib.get_close_matches(text, [case.name for case in cases], NEAREST, 0.0)
        raise click.UsageError(
            f"--filter {text!r} matches no case: it is to be a part of a name. The nearest of {len(cases)} are "
            f"{', '.join(near)}"
        )
    return kept


def plan(
    cases: Sequence[Case],
    modes: Sequence[str],
    backends: Sequence[str],
    size: str,
    shapes: Sequence[str] | None = ("static",),
) -> tuple[Piece, ...]:
    """Every row to run. A case that does not come in `size` runs in its nearest smaller one.

    Dynamic `shapes` are a row of the backend `NAME,dynamic`.

    Raises: click.UsageError where no case has any of the modes.
    """
    pieces = tuple(
        Piece(case, mode, backend, size_for(case, size))
        for case in cases
        for mode in modes
        if mode in case.modes
        for name in backends
        for backend in with_shapes(for_case(case, name), case.shapes if shapes is None else shapes)
    )
    if not pieces:
        has = ", ".join(sorted({mode for case in cases for mode in case.modes}))
        raise click.UsageError(f"no case has the mode {', '.join(modes)}; they have {has}")
    return pieces


def for_case(case: Case, backend: str) -> str:
    """The backend that a case is for: one about whole backwards has ours compile these."""
    return with_own_backward(backend) if "whole-backward" in case.tags else backend


def with_shapes(backend: str, shapes: Sequence[str]) -> tuple[str, ...]:
    """The backend's name for each kind of shapes; the name alone where it says already, or has no choice."""
    if is_given_shapes(backend):
        return (backend,)
    return tuple(f"{backend},dynamic" if kind == "dynamic" else backend for kind in shapes)


def size_for(case: Case, size: str) -> str:
    """The size itself where the case comes in it, else the nearest smaller one, else the smallest there is."""
    has = sorted(case.sizes, key=SIZES.index)
    smaller = [other for other in has if SIZES.index(other) <= SIZES.index(size)]
    return smaller[-1] if smaller else has[0]


def check_backends(names: Sequence[str], takes_backwards: bool = False) -> None:
    """Raises: click.UsageError for a backend that does not exist, or for whole backwards where those are not taken."""
    for name in names:
        if WHOLE_BACKWARD in name.split(",") and not takes_backwards:
            raise click.UsageError(f"backend {name!r}: {WHOLE_BACKWARD} is for `assay run` of suites and programs")
        try:
            resolve(name)
        except BackendError as error:
            raise click.UsageError(str(error)) from error


def read_ledger(device: str) -> tuple[ledger.Known, ...]:
    """The known differences of a device. Raises: click.UsageError for a ledger that does not say what it must."""
    try:
        return ledger.read(device=device)
    except ledger.LedgerError as error:
        raise click.UsageError(str(error)) from error
