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
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import torch
from rich.console import Console

from assay.compiler import machine
from assay.harness.backends import resources  # fmt: skip
from assay.harness.backends.precision import PRECISIONS
from assay.harness.backends.registry import (
    FOR_GPU,
    OWN,
    WHOLE_BACKWARD,
    BackendError,
    is_given_shapes,
    resolve,
    with_own_backward,
)
from assay.harness.bench import memory_dial, memory_report, operators, partitioning, scaling, warm  # fmt: skip
from assay.harness.bench import models as benching
from assay.harness.bench.bench_worker import AHEAD, EAGER
from assay.harness.bench.live_memory import Memory
from assay.harness.case import MODES, SHAPES, SIZES, Case
from assay.harness.cli import locate_commands, night_commands, store_commands  # fmt: skip
from assay.harness.cli.batch_options import BATCHES, Batches, batches_table
from assay.harness.discover import DiscoverError, discover, discover_batches, discover_generator, suite_names
from assay.harness.judge import ledger  # fmt: skip
from assay.harness.outcome import Result
from assay.harness.processes import worker  # fmt: skip
from assay.harness.processes.isolate import run_isolated, run_warm
from assay.harness.report import documents as report  # fmt: skip
from assay.harness.report import progress, triage
from assay.harness.report.documents import Row
from assay.harness.report.environment import environment
from assay.harness.run import run_case
from assay.harness.search import drive  # fmt: skip
from assay.harness.search.hunt import Settings
from assay.harness.search.hunt_report import run_hunt
from assay.harness.selftest.command import selftest

INTERRUPTED = 130
DEFAULT_TIMEOUT_S = 600.0
NEAREST = 8
"""Names that a filter without a match is answered with."""
ORACLES = ("dynamic", "reference", "metamorphic")
DIALLED = "assay.suites.benchmarks.memory"
"""What `assay bench memory` trains where no model is named."""
STAGES = ("assay-aot", "assay-loops")
"""The compiler's stages run by the reference: graphs as recorded, and the loops that they become."""

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="assay", prog_name="assay")
def commands() -> None:
    """Does this compiled program do everything that eager does? And how fast?"""


def together(*decorators: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Several decorators as one, in the order in which they would be written."""

    def decorate(function: Decorated) -> Decorated:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


CHOOSE_CASES = together(
    click.argument("names", nargs=-1, metavar="[SUITE|FILE]..."),
    click.option("--filter", "text", default="", metavar="TEXT", help="Only cases whose name contains TEXT."),
    click.option("--mode", type=click.Choice([*MODES, "both"]), default="both", show_default=True),
    click.option("--seed", type=int, default=0, show_default=True, help="Seeds weights, inputs and cotangents."),
    click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True),
    click.option(
        "--json",
        "json_path",
        type=click.Path(path_type=Path),
        is_flag=False,
        flag_value=report.STDOUT,
        metavar="[PATH]",
        help="Write the report here; without PATH to standard output.",
    ),
)


@dataclass(frozen=True, slots=True)
class Piece:
    """One row to run."""

    case: Case
    mode: str
    backend: str
    size: str

    @property
    def label(self) -> str:
        return progress.label(self.case.name, self.mode, self.backend)


HUNTING = together(
    click.option("--examples", type=click.IntRange(min=1), default=100, show_default=True, help="programs: how many."),
    click.option("--first", type=click.IntRange(min=0), default=0, help="programs: the number of the first."),
    click.option("--oracle", "oracles", default="", metavar="NAME[,NAME]", help="programs: oracles beside eager."),
)
"""What a suite that generates its programs takes, beside the machine's --jobs and --store."""
HUNT_STORE = Path(".assay/programs")


@commands.command()
@CHOOSE_CASES
@click.option("--backend", "backends", multiple=True, default=("assay",), show_default=True, metavar="NAME|MODULE:ATTR")
@click.option("--size", type=click.Choice(SIZES), default="tiny", show_default=True)
@click.option(
    "--shapes",
    type=click.Choice([*SHAPES, "both"]),
    help="Sizes as constants, or dynamic (backend NAME,dynamic); default: as each case asks for.",
)
@click.option("--isolate", is_flag=True, help="Each case in a process of its own, so that a crash ends no other.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), metavar="S",
              help="Seconds that a case may take; implies --isolate.")  # fmt: skip
@click.option("--warm", "is_warm", is_flag=True, help="Each case in a fresh process whose caches another has filled.")
@click.option("--html", "html_directory", type=click.Path(path_type=Path), metavar="DIR", help="Write DIR/index.html.")
@click.option("--thorough", is_flag=True, help="Every sequence of calls on each case, not one by its name.")
@click.option("--verbose", is_flag=True, help="All that differs, not the first of each row.")
@click.option("--kernels", "kernels_path", type=click.Path(path_type=Path), metavar="PATH",
              help="assay-sm90: write what each kernel, in each variant, takes of a GPU, as JSON.")  # fmt: skip
@click.option("--record", "store_url", is_flag=False, flag_value="", metavar="[URL]",
              help="Keep each row in a store of runs as it ends; without URL in .assay/runs.sqlite.")  # fmt: skip
@click.option(
    "--cluster",
    is_flag=False,
    flag_value="local",
    metavar="[ADDRESS]",
    help="Run the cases on Dask: on --jobs processes of this machine, or on the scheduler at ADDRESS.",
)
@click.option("--continue", "continues", is_flag=True, help="With --record: go on with the last run that was killed.")
@HUNTING
@BATCHES
@drive.OPTIONS
def run(
    names: tuple[str, ...], text: str, mode: str, seed: int, device: str, json_path: Path | None,
    backends: tuple[str, ...], size: str, shapes: str | None, isolate: bool, timeout_s: float | None,
    is_warm: bool, html_directory: Path | None, thorough: bool, verbose: bool, kernels_path: Path | None,
    store_url: str | None, cluster: str | None, continues: bool, examples: int,
    first: int, oracles: str, shard: str, resume: Path | None, summary: Path | None, **driving: Any,
) -> None:  # fmt: skip
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
    check_writable(json_path, html_directory)
    check_device(device)
    check_backends(backends, takes_backwards=True)
    record_kernels(backends, kernels_path, progress.terminal_beside(json_path))
    if names == ("machine",):
        if device != "cpu":
            raise click.UsageError(f"--device {device}: the machine drives its callables on the CPU")
        sys.exit(drive.run_machine([drive.Plan(name, seed=seed, **driving) for name in backends], json_path))
    if (module := alone(names, discover_batches)) is not None:
        batches = Batches(
            module, text, modes_of(mode), backends, shapes_of(shapes), seed, shard, resume, summary, device
        )
        sys.exit(
            batches.run(environment(device) | {"seed": seed}, driving["jobs"], timeout_s, json_path, html_directory)
        )
    if (generator := alone(names, discover_generator)) is not None:
        more = tuple(name for name in oracles.split(",") if name)
        wanted = with_oracles(backends, more)
        store = HUNT_STORE if driving["store"] == str(drive.STORE) else Path(driving["store"])
        settings = Settings(generator, examples, seed, wanted, modes_of(mode), first, driving["jobs"], store, timeout_s,
                            with_variants="metamorphic" in more, device=device)  # fmt: skip
        sys.exit(run_hunt(settings, environment(device) | {"seed": seed}, json_path))
    known = read_ledger(device)
    pieces = plan(find_cases(names or ("zoo",), text), modes_of(mode), backends, size, shapes_of(shapes))
    limit_s = timeout_s or DEFAULT_TIMEOUT_S if isolate or timeout_s or is_warm else None
    facts = environment(device) | {"size": size, "seed": seed}
    request = {"names": list(names), "filter": text, "mode": mode, "backends": list(backends)}
    keeper = Keeper.of(store_url, continues, facts, request | {"size": size, "seed": seed})
    console = progress.terminal_beside(json_path)
    left = keeper.left(pieces)
    if cluster is not None:
        ending = run_on_cluster(console, left, known, cluster, driving["jobs"], limit_s or DEFAULT_TIMEOUT_S, seed)
    else:
        ending = run_pieces(console, left, known, limit_s, is_warm, seed=seed, device=device, is_thorough=thorough)
    sys.exit(report_rows(console, ending, keeper, facts, json_path, html_directory, verbose))


def report_rows(
    console: Console, ending: Iterator[Row], keeper: Keeper, facts: Mapping[str, Any], json_path: Path | None,
    html_directory: Path | None, is_verbose: bool,
) -> int:  # fmt: skip
    """Keeps and reports rows as they end; gives the exit status."""
    rows, interrupted = keeper.ended(), False
    try:
        for row in ending:
            rows.append(row)
            keeper.add(row)
            if json_path != report.STDOUT:  # should a later case end this process, it holds these
                write_reports(rows, facts, True, json_path, None)
    except KeyboardInterrupt:
        interrupted = True
    keeper.end(interrupted)
    write_reports(rows, facts, interrupted, json_path, html_directory)
    show_results(console, rows, interrupted, is_verbose)
    return INTERRUPTED if interrupted else 0 if all(row.judgement.passes for row in rows) else 1


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps the rows of a run in a store, where one was asked for."""

    store: Any = None
    run: Any = None

    @staticmethod
    def of(url: str | None, continues: bool, facts: Mapping[str, Any], request: Mapping[str, Any]) -> Keeper:
        if url is None:
            return Keeper()
        store = store_commands.opened(url or None)
        found = store.resumed(facts, request) if continues else None
        return Keeper(store, found or store.begin(facts, request))

    def ended(self) -> list[Row]:
        """The rows that a run which was killed had ended."""
        return [] if self.store is None else [Row(row.result, row.judgement) for row in self.store.rows(self.run)]

    def left(self, pieces: Sequence[Piece]) -> tuple[Piece, ...]:
        """The pieces of which no row has ended."""
        done = {(row.result.case, row.result.mode, row.result.backend) for row in self.ended()}
        return tuple(piece for piece in pieces if (piece.case.name, piece.mode, piece.backend) not in done)

    def add(self, row: Row) -> None:
        if self.store is not None:
            self.store.add(self.run, row)

    def end(self, is_interrupted: bool) -> None:
        if self.store is not None and not is_interrupted:
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
    records = [record for file in files for record in resources.read(file)]
    for line in resources.summary(records):
        console.print(line, soft_wrap=True, markup=False)


def run_pieces(
    console: Console, pieces: Sequence[Piece], known: Sequence[ledger.Known], limit_s: float | None,
    is_warm: bool = False, **run: Any,
) -> Iterator[Row]:  # fmt: skip
    """Runs each piece and gives its row as it ends; isolated where there is a limit, or from filled caches."""
    today = datetime.date.today()
    with progress.progress(console, len(pieces)) as shown:
        for piece in pieces:
            shown.begin(piece.label)
            result = run_piece(piece, limit_s, is_warm, **run)
            row = Row(result, ledger.judge(result, known, today))
            shown.end(progress.result_line(row))
            yield row


def run_on_cluster(
    console: Console, pieces: Sequence[Piece], known: Sequence[ledger.Known], address: str, jobs: int, limit_s: float,
    seed: int,
) -> Iterator[Row]:  # fmt: skip
    """Runs each piece as a task of Dask, and gives the rows in the order of the pieces."""
    rows, today = store_commands.needed("assay.harness.cluster.rows"), datetime.date.today()
    tasks = [rows.Task.of(p.case, p.mode, p.backend, size=p.size, seed=seed, timeout_s=limit_s) for p in pieces]
    with rows.client_of(address, jobs) as client, progress.progress(console, len(pieces)) as shown:
        for result in rows.run_tasks(client, tasks):
            row = Row(result, ledger.judge(result, known, today))
            shown.end(progress.result_line(row))
            yield row


def run_piece(piece: Piece, limit_s: float | None, is_warm: bool = False, **run: Any) -> Result:
    """The piece's result; `run` is what `run_case` takes beside.

    What the harness itself trips over is a crash of that row, and the run goes on.
    """
    case, mode, backend, size = piece.case, piece.mode, piece.backend, piece.size
    try:
        if limit_s is None:
            return run_case(case, mode, backend, size=size, **run)
        run_apart = run_warm if is_warm else run_isolated
        return run_apart(case, mode, backend, size=size, timeout_s=limit_s, **run)
    except Exception:
        return Result(case.name, mode, backend, "crash", detail=f"in the harness:\n{traceback.format_exc()}")


def show_results(console: Console, rows: Sequence[Row], interrupted: bool, is_verbose: bool = False) -> None:
    console.print(progress.results_table(rows))
    for line in progress.difference_lines(rows, is_verbose):
        console.print(line, soft_wrap=True)
    console.print(progress.totals_line(report.total(rows)), soft_wrap=True)
    if interrupted:
        console.print("Interrupted; only the cases that had ended are reported.", style="bold yellow")


def write_reports(
    rows: Sequence[Row], facts: Mapping[str, Any], interrupted: bool, json_path: Path | None, html: Path | None
) -> None:
    if json_path is not None:
        report.write_json(json_path, report.document(rows, facts, interrupted=interrupted))
    if html is not None:
        report.write_html(html, report.render_html(rows, facts, interrupted=interrupted))


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


for each in (selftest, *locate_commands.COMMANDS, *store_commands.COMMANDS, *night_commands.COMMANDS):
    commands.add_command(each)
commands.command("env")(show_environment)
commands.command("show-environment", hidden=True)(show_environment)


@commands.command()
@CHOOSE_CASES
@click.option("--against", metavar="NAME[,NAME]",
              help="What to time against (default: inductor; see above); `eager` compiles nothing.")  # fmt: skip
@click.option("--backend", default="assay", show_default=True, metavar="NAME|MODULE:ATTR")
@click.option("--size", type=click.Choice(SIZES), default="small", show_default=True)
@click.option("--precision", type=click.Choice(PRECISIONS), default="float32", show_default=True,
              help="bfloat16: inference in it, training under autocast to it.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=1), default=9, show_default=True, help="Alternating rounds a pair.")
@click.option("--steady-only", is_flag=True, help="Leave cold compile time and peak memory out.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), default=DEFAULT_TIMEOUT_S,
              show_default=True, metavar="S", help="Seconds that one measuring process may take.")  # fmt: skip
def bench(
    names: tuple[str, ...], text: str, mode: str, seed: int, device: str, json_path: Path | None,
    against: str | None, backend: str, size: str, precision: str, rounds: int, steady_only: bool, timeout_s: float,
) -> None:  # fmt: skip
    """Time a backend against others: steady state, cold compile, peak memory. Above 1 is better for BACKEND.

    SUITE is a suite (default: zoo and overhead), a dotted name, or the path of a
    Python file of cases. `overhead` is also timed as `aot_function`, against torch's
    own. Five more measure one subject each:

    \b
    scaling          how compile time grows with the number of nodes
    warm [SUITE]     what a fresh process pays whose caches are full
    memory [MODEL]   a model, trained at each memory budget
    partition        our default cut of joint graphs of growing size
    operators        every operator and fused pairs beside eager, on one thread

    `operators` passes where nothing takes above 1.2 times eager's time.
    """
    check_writable(json_path, None)
    check_device(device)
    rivals = rivals_of(against, default_rivals(names))
    check_backends((backend, *(name for name in rivals if name not in (EAGER, AHEAD))))
    if names == ("scaling",):
        grow = scaling.Plan(backend, rivals, modes_of(mode), text, timeout_s)
        sys.exit(bench_scaling(grow, json_path))
    settings = benching.Settings(backend, rivals, seed, device, rounds, timeout_s, steady_only, precision)
    if names[:1] == ("memory",):
        subject = one_subject(names[1:] or (DIALLED,), size)
        sys.exit(bench_memory(subject, settings, json_path))
    if names == ("partition",):
        sys.exit(bench_partition(text, timeout_s, json_path))
    if names == ("operators",):
        timed = operators.Plan(backend, rivals, text, rounds, seed, timeout_s)
        sys.exit(bench_operators(timed, json_path))
    is_warm = names[:1] == ("warm",)
    chosen = (names[1:] if is_warm else names) or (("zoo",) if is_warm else ("zoo", "overhead"))
    pieces = plan(find_cases(chosen, text), modes_of(mode), (backend,), size)
    if is_warm:
        sys.exit(bench_warm(subjects_of(pieces), settings, json_path))
    console = progress.terminal_beside(json_path)
    done = benching.run_bench(console, subjects_of(pieces), settings)
    facts = environment(device) | {"size": size, "precision": precision, "seed": seed, "rounds": rounds}
    if json_path is not None:
        report.write_json(json_path, benching.document(done, facts))
    benching.show(console, done)
    sys.exit(INTERRUPTED if done.interrupted else 0 if done.passes else 1)


def default_rivals(names: Sequence[str]) -> tuple[str, ...]:
    """What is timed against where the user does not say."""
    if tuple(names) == ("scaling",):
        return ()
    if tuple(names) == ("operators",):
        return (EAGER,)
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
    if json_path is not None:
        report.write_json(json_path, operators.document(done, environment("cpu")))
    operators.show(console, done)
    return INTERRUPTED if done.interrupted else 0 if done.passes else 1


@commands.command()
@click.argument("model", metavar="MODEL")
@click.option("--backend", default="assay", show_default=True, metavar="NAME|MODULE:ATTR")
@click.option("--size", type=click.Choice(SIZES), default="small", show_default=True)
@click.option("--budget", type=click.FloatRange(0, 1), metavar="X", help="The memory budget, 0 to 1.")
@click.option("--curve", "has_curve", is_flag=True, help="Also peak memory and time at each memory budget.")
@click.option("--rounds", type=click.IntRange(min=1), default=9, show_default=True, help="Of --curve: alternating.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seeds weights, inputs and cotangents.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), default=DEFAULT_TIMEOUT_S,
              show_default=True, metavar="S", help="Seconds that one measuring process may take.")  # fmt: skip
@click.option("--json", "json_path", type=click.Path(path_type=Path), is_flag=False, flag_value=report.STDOUT,
              metavar="[PATH]", help="Write the report here; without PATH to standard output.")  # fmt: skip
@click.option("--html", "html_directory", type=click.Path(path_type=Path), metavar="DIR", help="Write DIR/index.html.")
def memory(
    model: str, backend: str, size: str, budget: float | None, has_curve: bool, rounds: int, seed: int,
    timeout_s: float, json_path: Path | None, html_directory: Path | None,
) -> None:  # fmt: skip
    """Show the memory of one training step: live bytes over it, what is saved, what is recomputed and why.

    MODEL is a case of a suite (zoo.bert), or the path of a Python file of cases (FILE.py::NAME where it has several).
    Of a backend that is not ours only the live bytes are known.
    """
    check_writable(json_path, html_directory)
    is_ours = backend.split(",")[0] in OWN
    if (budget is not None or has_curve) and not is_ours:
        raise click.UsageError(f"--budget and --curve are for our own backend; {backend} has no memory budget")
    wanted = backend if budget is None else f"{backend},memory_budget={budget}"
    check_backends((wanted,))
    subject = one_subject((model,), size)
    console = progress.terminal_beside(json_path)
    with worker.cold_environment() as extra:
        request = memory_dial.request_of(subject, "live", wanted, seed)
        answer = worker.ask("assay.harness.bench.memory_worker", request, timeout_s, extra)
    if not answer.lines:
        raise click.ClickException(": ".join(answer.failure or ("crash", "it said nothing")))
    dial = memory_dial.run_dial(subject, backend, seed, rounds, timeout_s) if has_curve else None
    shown = memory_report.Shown(subject.case.name, subject.size, wanted, Memory.of(answer.lines[0]), dial)
    facts = environment("cpu") | {"size": subject.size, "seed": seed}
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


def shapes_of(shapes: str | None) -> tuple[str, ...] | None:
    """The kinds of shapes to run; None where each case says."""
    return None if shapes is None else SHAPES if shapes == "both" else (shapes,)


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


def modes_of(mode: str) -> tuple[str, ...]:
    return MODES if mode == "both" else (mode,)


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


def check_device(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError("--device cuda: torch sees no CUDA GPU on this machine; use --device cpu")


def check_writable(json_path: Path | None, html_directory: Path | None) -> None:
    """Finds out before the run, not after it, that a report cannot be written. Raises: click.UsageError."""
    if json_path is not None and json_path != report.STDOUT:
        _attempt("--json", json_path, lambda: json_path.open("a").close())
    if html_directory is not None:
        _attempt("--html", html_directory, lambda: html_directory.mkdir(parents=True, exist_ok=True))


def _attempt(option: str, path: Path, action: Callable[[], object]) -> None:
    try:
        action()
    except OSError as error:
        raise click.UsageError(f"{option} {path}: cannot be written ({error.strerror or error})") from error


def read_ledger(device: str) -> tuple[ledger.Known, ...]:
    try:
        return ledger.read(device=device)
    except ledger.LedgerError as error:
        raise click.UsageError(str(error)) from error
