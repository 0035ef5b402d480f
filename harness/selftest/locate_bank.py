"""Whether what is located is right: `assay ladder`, `shrink` and `repro` on the compiler with each known bug in it.

For every mutant that a near case, program or sample shows, that one is located in a checkout with the mutant. The part
of the compiler that the mutant is in says on which rungs it may first show (`RUNGS`). A mutant that none shows is said,
and counted apart: tests of the compiler's parts alone tell of it.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.harness.processes.child import Child
from assay.harness.selftest.changed_tree import changed_tree, environment_of
from assay.harness.selftest.compiler_bank import CompilerMutants, can_run
from assay.harness.selftest.mutant_rows import BATCH, CASE, PROGRAM, Row, hashed, model_rows, near_rows
from assay.harness.selftest.mutants import Mutant, read

LIMIT_S = 120.0
PATIENCE = 5.0
"""How many times the limit is waited for: other work on the machine takes time, too."""
SHRINK_S = 40.0
ROWS_S = 300.0
FEW_CALLS = 10
MODELS = "zoo."
ORDER = (CASE, PROGRAM, BATCH)
NOT_SHOWN = "no near case, program or sample shows it"
NO_MODEL = "no model shows it"
NOT_DONE = "not done after"
AS_EAGER = "as eager in a checkout with the bug, where `assay run` said that it differs"
ANY = "*"
FIRST = ("captured", "joint")
RUNGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("compiler/passes/write_in_place.py", ("written", "lowered", "fused", "generated")),
    ("compiler/passes/", (ANY,)),
    ("compiler/capture/decompositions/", ("decomposed",)),
    ("compiler/autograd/rematerialization/rematerialize.py", ("partitioned",)),
    ("compiler/autograd/", (*FIRST, "partitioned")),
    ("compiler/capture/", FIRST),
    ("compiler/assembly/", FIRST),
    ("compiler/codegen/call/", FIRST),
    ("compiler/runtime/philox.py", ("split_dropout", "functionalize_rng", "written", "lowered", "fused", "generated")),
    ("compiler/runtime/", (*FIRST, "warm")),
    ("compiler/entry/straight_call.py", FIRST),
    ("compiler/entry/warm/", ("warm",)),
    ("compiler/toolchain/cache.py", ("generated", "warm")),
    ("compiler/codegen/triton/", ("interpreted",)),
    ("compiler/codegen/", ("written", "generated")),
    ("compiler/ops/", ("written", "lowered", "fused", "generated")),
    ("compiler/schedule/fuse.py", ("lowered", "fused", "generated")),  # it also resolves views, which no fusion needs
    ("compiler/schedule/", ("written", "lowered", "fused", "generated")),
    ("compiler/ir/loops/", ("lowered", "fused", "generated")),
    ("compiler/ir/", (*FIRST, "written", "lowered", "fused", "generated")),
)
"""On which rungs a change of a file may show first; `*`: on that of the pass that the file is named after."""


@dataclass(frozen=True, slots=True)
class Located:
    """How a mutant fared. `why` says what went wrong, where something did."""

    name: str
    file: str
    row: str
    rung: str
    expected: tuple[str, ...]
    seconds: float
    cpu_s: float
    """What the processes took of all cores. It grows less than the time does, where a machine has other work."""
    calls: int | None = None
    failures: int = 0
    runs: int = 0
    why: str = ""

    @property
    def is_shown(self) -> bool:
        """Whether anything could be located."""
        return bool(self.row)

    @property
    def is_final(self) -> bool:
        """Whether another run would tell nothing else: all near rows have run, or one was located."""
        return self.is_shown or self.why in (NOT_SHOWN, NO_MODEL)

    @property
    def is_rung_right(self) -> bool:
        return self.rung in self.expected

    @property
    def is_small(self) -> bool:
        return self.calls is not None and self.calls <= FEW_CALLS

    @property
    def is_verified(self) -> bool:
        return self.runs > 0 and self.failures == self.runs


def expected_rungs(mutant: Mutant) -> tuple[str, ...]:
    """The rungs on which a mutant may first show."""
    found = next((rungs for beginning, rungs in RUNGS if mutant.file.startswith(beginning)), ())
    return (Path(mutant.file).stem,) if found == (ANY,) else found


def wanted(text: str, every: int = 1) -> list[Mutant]:
    """The mutants of that name or kind, one in so many."""
    named = [m for m in read() if any(part in f"{m.kind} {m.name}" for part in text.split(",")) and can_run(m)]
    return named[::every]


def as_they_end(work: Sequence[Callable[[], Located]], jobs: int = 1) -> Iterator[Located]:
    """Does so much of the work at a time, and gives what it came to as it ends.

    Each is located in a process that locates one at a time: what its children take of the processor is then its own.
    """
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    try:
        for future in as_completed([pool.submit(each) for each in work]):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class OutOfTime(Exception):
    """Not all rows near to a mutant have run, and none that has shows it."""


def locate_mutant(mutant: Mutant, in_models: bool) -> Located:
    """How a mutant fares by what is near to it, or by the first model that shows it."""
    start, cpu_before_s, why = time.monotonic(), children_cpu_s(), NOT_SHOWN
    try:
        near = mutant.near, mutant.backend
        rows = model_rows(*near, start=hashed(mutant.name)) if in_models else near_rows(*near)
        if (row := killing_row(mutant, rows)) is not None:
            return located(mutant, row)
    except OutOfTime as error:
        why = str(error)
    used = time.monotonic() - start, children_cpu_s() - cpu_before_s
    return Located(mutant.name, mutant.file, "", "", expected_rungs(mutant), *used, why=why)


def killing_row(mutant: Mutant, given: Sequence[Row], bank: CompilerMutants | None = None) -> Row | None:
    """The first of these cases that the mutant fails, and that passes without it; a drawn program or the sample of a
    batch, where no case does.

    Models come last, as they take the most time. Raises: OutOfTime.
    """
    rows = [row for row in given if row.what in ORDER]
    if not rows:
        return None
    rows.sort(key=lambda row: (row.name.startswith(MODELS), ORDER.index(row.what)))
    with changed_tree(mutant) as tree:
        kill, ended = (bank or CompilerMutants()).killed(tree, rows, time.monotonic() + ROWS_S)
    if kill is None and ended < len(rows):
        raise OutOfTime(f"{ended} of {len(rows)} near rows ran in {ROWS_S:g} s, and none of them shows it")
    if kill is None:
        return None
    row = rows[ended - 1]
    if row.what != BATCH:
        return row
    is_of_one = kill.case.endswith("]")  # a batch that ended its process is not known by its sample
    return dataclasses.replace(row, what=CASE, origin=kill.case, name=kill.case) if is_of_one else None


def located(mutant: Mutant, row: Row) -> Located:
    """What `assay repro` finds in a checkout with the mutant."""
    start, cpu_before_s = time.monotonic(), children_cpu_s()
    with changed_tree(mutant) as tree, environment_of(tree, row.backend) as environment, _named(row) as case:
        found, why = repro_found(case, row.mode, row.backend, SHRINK_S, environment)
    why = found.get("why", "") or why or ("" if found else AS_EAGER)
    used = time.monotonic() - start, children_cpu_s() - cpu_before_s
    return Located(
        mutant.name, mutant.file, f"{row.name} {row.mode} {row.backend}", found.get("first", ""),
        expected_rungs(mutant), *used, found.get("calls"), found.get("failures", 0), found.get("runs", 0), why,
    )  # fmt: skip


def repro_found(
    case: str, mode: str, backend: str, limit_s: float, environment: Mapping[str, str]
) -> tuple[dict[str, Any], str]:
    """The report of `assay repro`, and what went wrong where there is none. Both are empty if the case is as eager."""
    with tempfile.TemporaryDirectory(prefix="assay-located-") as folder:
        path = Path(folder) / "found.json"
        arguments = (case, "--mode", mode, "--backend", backend, "--limit", str(limit_s), "--json", str(path))
        child = Child("assay", "repro", *arguments, environment=environment)
        try:
            status = child.wait(PATIENCE * LIMIT_S)
        finally:
            child.end()
        found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
        return found, "" if found or status == 0 else _why(status, child.said())


def children_cpu_s() -> float:
    """The CPU time of the processes that this one has waited for, and of those that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _why(status: int | None, said: str) -> str:
    if status is None:
        return f"{NOT_DONE} {PATIENCE * LIMIT_S:g} s"
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"exit status {status}"


@contextmanager
def _named(row: Row) -> Iterator[str]:
    """What the command line calls the row's case; a drawn program is written to a file of cases."""
    if row.what == CASE:
        yield f"{row.origin}::{row.name.rpartition('.')[2]}" if row.origin.endswith(".py") else row.name
        return
    with tempfile.TemporaryDirectory(prefix="assay-drawn-") as folder:
        path = Path(folder) / "drawn.py"
        source = importlib.import_module(row.origin).draw(f"0:{row.name}").source()
        path.write_text(f"{source}\n\n\n{AS_CASE}")
        yield f"{path}::drawn"


AS_CASE = """\
from assay.harness.case import Case, MODES

drawn = Case("drawn", lambda: (program, inputs(), {}), MODES, ("fresh",), ("tiny",),
             scenario=globals().get("scenario"), numbers=tuple(globals().get("NUMBERS", ())))
"""


def totals(tried: Sequence[Located]) -> dict[str, Any]:
    """Counts: rungs and passes named rightly, programs of few calls, repros that fail each time, the longest times. Of
    mutants that nothing shows there is nothing to locate: they are counted apart."""
    found = [each for each in tried if each.is_shown]
    passes = [each for each in found if each.file.startswith("compiler/passes/") and "write_in_place" not in each.file]
    return {
        "mutants": len(found),
        "not_shown": len(tried) - len(found),
        "rung_right": sum(each.is_rung_right for each in found),
        "passes": len(passes),
        "pass_right": sum(each.is_rung_right for each in passes),
        "small": sum(each.is_small for each in found),
        "verified": sum(each.is_verified for each in found),
        "in_time": sum(each.seconds <= LIMIT_S for each in found),
        "in_cpu_time": sum(each.cpu_s <= LIMIT_S for each in found),
        "longest_s": max((each.seconds for each in found), default=0.0),
        "longest_cpu_s": max((each.cpu_s for each in found), default=0.0),
    }


def of_data(data: Mapping[str, Any]) -> Located:
    """What `as_data` wrote."""
    fields = {field.name: data[field.name] for field in dataclasses.fields(Located)}
    return Located(**fields | {"expected": tuple(data["expected"])})


def as_data(found: Sequence[Located]) -> list[dict[str, Any]]:
    return [
        {**dataclasses.asdict(each), "is_rung_right": each.is_rung_right, "is_small": each.is_small,
         "is_verified": each.is_verified} for each in found
    ]  # fmt: skip
