"""What kernels' machine code takes of a GPU: a record for each kernel of each case, and their summary.

Any process of a run appends to one file, a line of JSON for each kernel as it is compiled. So what a crash ends has
its records too. `ASSAY_KERNELS` names the file, and `assay run --kernels PATH` sets it:

    {"case": "zoo.bert train assay-sm90", "kernel": "kernel_3", "digest": "5f1c...", "end": "compiled", "reason": "",
     "programs": [{"registers": 40, "shared_bytes": 1024, "stack_bytes": 0, "spill_bytes": 0,
                   "warps": 4, "wanted_warps": 4}], "variant": "usual"}
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.compiler.toolchain.gpu.triton_build import KEPT_OVER_A_CALL, THREADS_OF_A_WARP

FILE = "ASSAY_KERNELS"
COMPILED, NO_TEXT, FAILED = "compiled", "no text", "failed"
"""How a kernel ends: as machine code; Triton has no text for what it does; Triton, or the assembler, fails on it."""
USUAL, WIDE_INDEX, UNALIGNED = "usual", "64-bit indices", "any address"
"""What a kernel is compiled for. `USUAL` is as it is mostly called: with addresses at multiples of 16, and with indices
of as many bits as its sizes surely take. The others are for sizes that take more, and for addresses at any place."""
REGISTERS = (32, 64, 96, 128, 168, 254, 255)
"""Bounds of the ranges that registers a thread are counted in; 255 is the most there are."""
MOST_REGISTERS, BLOCK_REGISTERS = 255, 1 << 16
"""What a thread may have, and the threads of a block together, which get them some at once."""
REGISTERS_AT_ONCE = 8
SHOWN = 20

_case = ""
_written: set[Record] = set()


@dataclass(frozen=True, slots=True)
class Resources:
    """What a program takes of a GPU.

    Units: registers are of a thread, shared memory is of a block. Stack, and registers that are spilled, are bytes of
    each thread's own memory. `wanted_warps` are those that the program was written for.
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_bytes: int
    warps: int
    wanted_warps: int

    @property
    def is_short_of_registers(self) -> bool:
        """Whether it stores registers because there are no more. A program with registers to spare stores a few around
        calls, as of an assertion or of a division in float64. That costs nothing of note."""
        most = min(MOST_REGISTERS, BLOCK_REGISTERS // (THREADS_OF_A_WARP * self.warps))
        is_at_limit = self.registers > most - REGISTERS_AT_ONCE
        return self.spill_bytes > (0 if is_at_limit else KEPT_OVER_A_CALL)


@dataclass(frozen=True, slots=True)
class Record:
    """A kernel of a case, in one of its variants. Kernels with one digest are the same; `reason` is of one that was not
    compiled."""

    case: str
    kernel: str
    digest: str
    end: str
    reason: str
    programs: tuple[Resources, ...]
    variant: str = USUAL

    @property
    def spill_bytes(self) -> int:
        return sum(program.spill_bytes for program in self.programs)

    @property
    def is_short_of_registers(self) -> bool:
        return any(program.is_short_of_registers for program in self.programs)


@contextlib.contextmanager
def of_case(label: str) -> Iterator[None]:
    """What is compiled meanwhile belongs to the case."""
    global _case
    before, _case = _case, label
    try:
        yield
    finally:
        _case = before


def current_case() -> str:
    return _case


def write(record: Record) -> None:
    """Appends a record to the file, where one is named; a process writes each once."""
    path = os.environ.get(FILE)
    if not path or record in _written:
        return
    _written.add(record)
    line = json.dumps(dataclasses.asdict(record)) + "\n"
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())  # one write, so that lines of several processes do not mix
    finally:
        os.close(handle)


class RecordError(ValueError):
    """A file that holds no records of kernels."""


def read(path: Path) -> list[Record]:
    """The records of a file. Raises: RecordError for a file of anything else."""
    try:
        return [record_of(json.loads(line)) for line in path.read_text().splitlines()]
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: no file that `assay run --kernels` wrote ({error})") from error


def record_of(data: dict[str, Any]) -> Record:
    return Record(**{**data, "programs": tuple(Resources(**program) for program in data["programs"])})


@contextlib.contextmanager
def recording(path: Path | None) -> Iterator[Path]:
    """The file that this process and those that it starts append to: `path`, emptied, or one that goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="assay-kernels-") as folder:
        file = (path or Path(folder) / "kernels.jsonl").absolute()
        file.write_text("")
        _written.clear()
        before = os.environ.get(FILE)
        os.environ[FILE] = str(file)
        try:
            yield file
        finally:
            os.environ.pop(FILE)
            if before is not None:
                os.environ[FILE] = before


def summary(records: Sequence[Record]) -> list[str]:
    """What the records come to, in lines: how many kernels, their registers, which spill, which are not compiled."""
    distinct = {record.digest: record for record in records}.values()
    usual = [record for record in distinct if record.variant == USUAL]
    programs = [program for record in usual for program in record.programs]
    ends = Counter(record.end for record in usual)
    count = sum(record.variant == USUAL for record in records)
    lines = [
        f"{count} kernels, {len(usual)} distinct: {ends[COMPILED]} compiled for sm_90 as {len(programs)} programs, "
        f"{ends[NO_TEXT]} with no text in Triton, {ends[FAILED]} failed"
    ]
    if programs:
        most = max(programs, key=lambda program: program.registers)
        others = sum(program.warps != program.wanted_warps for program in programs)
        lines += [
            f"registers a thread: {_ranges([program.registers for program in programs])}; at most {most.registers}",
            f"shared memory a block: at most {max(program.shared_bytes for program in programs)} bytes; "
            f"stack a thread: at most {max(program.stack_bytes for program in programs)} bytes; "
            f"{others} programs with other warps than wanted",
        ]
    lines += [_of_variant(name, distinct) for name in (WIDE_INDEX, UNALIGNED)]
    lines += _spills(distinct)
    return [*lines, *_reasons(distinct)]


def _of_variant(name: str, distinct: Iterable[Record]) -> str:
    """How many of the kernels were compiled in a variant as well, and what it takes."""
    own = [record for record in distinct if record.variant == name]
    programs = [program for record in own for program in record.programs]
    compiled = sum(record.end == COMPILED for record in own)
    took = f"; at most {max(program.registers for program in programs)} registers a thread" if programs else ""
    return f"for {name}: {compiled} compiled as {len(programs)} programs, {len(own) - compiled} failed{took}"


def _ranges(registers: Sequence[int]) -> str:
    """How many of the numbers are in each range."""
    lower, parts = 0, []
    for upper in REGISTERS:
        count = sum(lower < number <= upper for number in registers)
        parts += [f"{count} of {lower + 1} to {upper}"] if count else []
        lower = upper
    return ", ".join(parts)


def _spills(records: Iterable[Record]) -> list[str]:
    spilled = sorted((r for r in records if r.spill_bytes), key=lambda record: -record.spill_bytes)
    short = [record for record in spilled if record.is_short_of_registers]
    told = [f"  {_named(r)} of {r.case} ({r.digest[:8]}): {r.spill_bytes} bytes" for r in short[:SHOWN]]
    rest = [f"  and {len(short) - SHOWN} others"] if len(short) > SHOWN else []
    others = [record.spill_bytes for record in spilled if not record.is_short_of_registers]
    around = f"; {len(others)} more store registers around a call, at most {max(others)} bytes" if others else ""
    return [f"{len(short)} spill{around}", *told, *rest]


def _named(record: Record) -> str:
    return record.kernel if record.variant == USUAL else f"{record.kernel} for {record.variant}"


def _reasons(records: Iterable[Record]) -> list[str]:
    """Why kernels are not compiled, the most frequent reason first, with a case of each."""
    missed = [record for record in records if record.end != COMPILED]
    first = {(record.end, record.reason): record for record in reversed(missed)}
    counts = Counter((record.end, record.reason) for record in missed)
    return [
        f"{end}, {count} kernels, as {_named(first[end, reason])} of {first[end, reason].case}: {reason}"
        for (end, reason), count in counts.most_common()
    ]
