"""The options that `assay run`, `assay bench` and `assay memory` take, by group."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import torch

from assay.harness.backends.precision import PRECISIONS
from assay.harness.case import MODES, SHAPES, SIZES
from assay.harness.option_groups import group
from assay.harness.report import documents as report
from assay.harness.row_order import LISTED, SPREAD

DEFAULT_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which cases to run: of suites or files, with `text` in their names, in a mode, made from a seed on a device."""

    names: tuple[str, ...]
    text: str
    mode: str
    seed: int
    device: str

    @property
    def modes(self) -> tuple[str, ...]:
        return MODES if self.mode == "both" else (self.mode,)


@dataclass(frozen=True, slots=True)
class Variants:
    """In which forms each case is run: its size and kinds of shapes, on each backend."""

    backends: tuple[str, ...]
    size: str
    shapes: str | None

    @property
    def kinds_of_shapes(self) -> tuple[str, ...] | None:
        """The kinds of shapes to run; None where each case says."""
        return None if self.shapes is None else SHAPES if self.shapes == "both" else (self.shapes,)


@dataclass(frozen=True, slots=True)
class Conduct:
    """How rows are run: in which processes, for how long, over which calls."""

    isolate: bool
    timeout_s: float | None
    is_warm: bool
    thorough: bool
    order: str
    cluster: str | None

    @property
    def limit_s(self) -> float | None:
        """What a row may take; None where it runs in this process, which nothing limits."""
        return self.timeout_s or DEFAULT_TIMEOUT_S if self.isolate or self.timeout_s or self.is_warm else None


@dataclass(frozen=True, slots=True)
class Reports:
    """Where a run is told of, and how fully."""

    json_path: Path | None
    html_directory: Path | None = None
    verbose: bool = False
    kernels_path: Path | None = None


@dataclass(frozen=True, slots=True)
class Keeping:
    """The store that a run is kept in, whether it goes on with one that was killed, and the run of another command
    that the rows are added to."""

    store_url: str | None
    continues: bool
    into: str | None


@dataclass(frozen=True, slots=True)
class Timing:
    """What `assay bench` measures, and against what."""

    against: str | None
    backend: str
    size: str
    precision: str
    rounds: int
    steady_only: bool
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Step:
    """The training step of which memory is measured: of a model in a size, on a backend, from a seed."""

    model: str
    backend: str
    size: str
    seed: int


@dataclass(frozen=True, slots=True)
class Budgets:
    """The memory budgets to measure at: the one of the backend, and a whole curve of them."""

    budget: float | None
    has_curve: bool
    rounds: int
    timeout_s: float


SEED = click.option("--seed", type=int, default=0, show_default=True, help="Seeds weights, inputs and cotangents.")
JSON = click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path),
    is_flag=False,
    flag_value=report.STDOUT,
    metavar="[PATH]",
    help="Write the report here; without PATH to standard output.",
)
HTML = click.option(
    "--html", "html_directory", type=click.Path(path_type=Path), metavar="DIR", help="Write DIR/index.html."
)
BACKEND = click.option("--backend", default="assay", show_default=True, metavar="NAME|MODULE:ATTR")
SMALL = click.option("--size", type=click.Choice(SIZES), default="small", show_default=True)
LIMIT = click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), default=DEFAULT_TIMEOUT_S,
                     show_default=True, metavar="S", help="Seconds that one measuring process may take.")  # fmt: skip

CHOSEN = group(
    "chosen",
    Chosen,
    click.argument("names", nargs=-1, metavar="[SUITE|FILE]..."),
    click.option("--filter", "text", default="", metavar="TEXT", help="Only cases whose name contains TEXT."),
    click.option("--mode", type=click.Choice([*MODES, "both"]), default="both", show_default=True),
    SEED,
    click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True),
)
VARIANTS = group(
    "variants",
    Variants,
    click.option(
        "--backend", "backends", multiple=True, default=("assay",), show_default=True, metavar="NAME|MODULE:ATTR"
    ),
    click.option("--size", type=click.Choice(SIZES), default="tiny", show_default=True),
    click.option(
        "--shapes",
        type=click.Choice([*SHAPES, "both"]),
        help="Sizes as constants, or dynamic (backend NAME,dynamic); default: as each case asks for.",
    ),
)
CONDUCT = group(
    "conduct",
    Conduct,
    click.option("--isolate", is_flag=True, help="Each case in a process of its own, so that a crash ends no other."),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        metavar="S",
        help="Seconds that a case may take; implies --isolate.",
    ),
    click.option(
        "--warm", "is_warm", is_flag=True, help="Each case in a fresh process whose caches another has filled."
    ),
    click.option("--thorough", is_flag=True, help="Every sequence of calls on each case, not one by its name."),
    click.option(
        "--order",
        type=click.Choice([LISTED, SPREAD]),
        default=LISTED,
        show_default=True,
        help="spread: rows of many kinds first, for a run that will be cut.",
    ),
    click.option(
        "--cluster",
        is_flag=False,
        flag_value="local",
        metavar="[ADDRESS]",
        help="Run the cases on Dask: on --jobs processes of this machine, or on the scheduler at ADDRESS.",
    ),
)
REPORTS = group(
    "reports",
    Reports,
    JSON,
    HTML,
    click.option("--verbose", is_flag=True, help="All that differs, not the first of each row."),
    click.option(
        "--kernels",
        "kernels_path",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="assay-sm90: write what each kernel, in each variant, takes of a GPU, as JSON.",
    ),
)
KEEPING = group(
    "keeping",
    Keeping,
    click.option(
        "--record",
        "store_url",
        is_flag=False,
        flag_value="",
        metavar="[URL]",
        help="Keep each row in a store of runs as it ends; without URL in .assay/runs.sqlite.",
    ),
    click.option(
        "--continue", "continues", is_flag=True, help="With --record: go on with the last run that was killed."
    ),
    click.option(
        "--into",
        metavar="RUN",
        help="With --record: run what this run of the store lacks, and add it.",
    ),
)
TIMING = group(
    "timing",
    Timing,
    click.option(
        "--against",
        metavar="NAME[,NAME]",
        help="What to time against (default: inductor; see above); `eager` compiles nothing.",
    ),
    BACKEND,
    SMALL,
    click.option(
        "--precision",
        type=click.Choice(PRECISIONS),
        default="float32",
        show_default=True,
        help="bfloat16: inference in it, training under autocast to it.",
    ),
    click.option(
        "--rounds", type=click.IntRange(min=1), default=9, show_default=True, help="Alternating rounds a pair."
    ),
    click.option("--steady-only", is_flag=True, help="Leave cold compile time and peak memory out."),
    LIMIT,
)
STEP = group("step", Step, click.argument("model", metavar="MODEL"), BACKEND, SMALL, SEED)
BUDGETS = group(
    "budgets",
    Budgets,
    click.option("--budget", type=click.FloatRange(0, 1), metavar="X", help="The memory budget, 0 to 1."),
    click.option("--curve", "has_curve", is_flag=True, help="Also peak memory and time at each memory budget."),
    click.option("--rounds", type=click.IntRange(min=1), default=9, show_default=True, help="Of --curve: alternating."),
    LIMIT,
)


def check_device(device: str) -> None:
    """Raises: click.UsageError for `cuda` where torch sees no GPU."""
    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError("--device cuda: torch sees no CUDA GPU on this machine; use --device cpu")
