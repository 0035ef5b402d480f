"""The rows that a bug of the compiler is tried on: what is near to it first, then a slice of every suite.

A mutant names what is near to it in these forms:

    semantics.layout, semantics.empty_inputs, zoo.bert     the cases of a module, or one case, in all their modes
    programs                                                drawn programs
    ops softmax.float32                                     the batches of operators with that in their names
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from assay.harness.batches.batch_run import Shard, Unit, plan
from assay.harness.case import MODES, SHAPES, Case
from assay.harness.discover import discover

QUICK, DEFAULT, NIGHTLY = "quick", "default", "nightly"
CASE, PROGRAM, BATCH, TESTS = "case", "program", "batch", "tests"
PROGRAMS, OPS = "assay.suites.programs", "assay.suites.ops"
MODELS = ("zoo.bert", "zoo.resnet", "zoo.vit", "zoo.clip", "zoo.llama", "zoo.convnext")
NEAR_PROGRAMS = 40
NEAR_BATCHES = 12


@dataclass(frozen=True, slots=True)
class Row:
    """One thing to run: a case, a drawn program, a batch, or a file of tests.

    It is named by a case's origin and name, a program's number, or a batch's key. The origin of a file of tests says
    which of them are run, by their marks.
    """

    what: str
    origin: str
    name: str
    mode: str
    backend: str

    def __str__(self) -> str:
        return f"programs.{self.name}" if self.what == PROGRAM else self.name


@dataclass(frozen=True, slots=True)
class Slice:
    """How much of each suite: one semantics row and one batch in so many, so many drawn programs, these models."""

    semantics_every: int
    programs: int
    batches_every: int
    models: tuple[str, ...]


SLICES = {
    QUICK: Slice(12, 12, 4000, ("zoo.bert", "zoo.resnet")),
    DEFAULT: Slice(3, 40, 800, ("zoo.bert", "zoo.resnet", "zoo.vit", "zoo.clip")),
    NIGHTLY: Slice(1, 400, 200, ("zoo",)),
}
"""By the level that is asked for; a level contains the ones before it."""


def near_rows(near: Sequence[str], backend: str) -> list[Row]:
    """The rows of what a mutant names, each once; those with symbolic sizes last, as they show the least that is new.

    Raises: DiscoverError for a name that does not exist.
    """
    found = dict.fromkeys(row for name in near for row in _near(name, backend))
    return sorted(found, key=lambda row: row.backend != backend)


def _near(name: str, backend: str) -> Iterable[Row]:
    suite, _, text = name.partition(" ")
    if suite == "programs":
        return _programs(NEAR_PROGRAMS, backend)
    if suite == "ops":
        return _batches((unit for unit in units() if f".{text}" in f".{unit.key}"), backend, NEAR_BATCHES)
    return _cases(discover((name,)), backend)


def model_rows(near: Sequence[str], backend: str, start: int = 0) -> list[Row]:
    """Models of the zoo in all their modes, with sizes as constants: those that a mutant names, then a few others. None
    where the zoo cannot be imported.

    `start` says which of the others is the first, so that several mutants are tried on several models.
    """
    place = start % len(MODELS)
    names = dict.fromkeys((*(name for name in near if name.startswith("zoo.")), *MODELS[place:], *MODELS[:place]))
    rows = _cases(discover(tuple(names)), backend) if has_models() else ()
    return [row for row in rows if row.backend == backend]


def slice_rows(wanted: Slice, backend: str) -> list[Row]:
    """A slice of every suite: drawn programs, semantics, models, operators."""
    semantics = _cases(discover(("semantics",)), backend)
    chosen = (unit for unit in units() if hashed(unit.key) % wanted.batches_every == 0)
    return [
        *_programs(wanted.programs, backend),
        *(row for row in semantics if hashed(f"{row.name} {row.mode} {row.backend}") % wanted.semantics_every == 0),
        *(_cases(discover(wanted.models), backend) if has_models() else ()),
        *_batches(chosen, backend),
    ]


def marks_of(level: str) -> str:
    """Which tests are run: those of the default run, or slow ones as well."""
    return "not gpu" if level == NIGHTLY else "not gpu and not nightly"


def has_models() -> bool:
    return importlib.util.find_spec("transformers") is not None


def hashed(name: str) -> int:
    return zlib.crc32(name.encode())


def _programs(count: int, backend: str) -> Iterator[Row]:
    """With sizes as constants, and as symbols."""
    for number in range(count):
        for mode in MODES:
            yield Row(PROGRAM, PROGRAMS, str(number), mode, backend)
            yield Row(PROGRAM, PROGRAMS, str(number), mode, f"{backend},dynamic")


def _cases(cases: Iterable[Case], backend: str) -> Iterator[Row]:
    for case in cases:
        for shapes in case.shapes:
            for mode in case.modes:
                yield Row(CASE, case.origin, case.name, mode, backend + (",dynamic" if shapes == "dynamic" else ""))


def _batches(chosen: Iterable[Unit], backend: str, most: int | None = None) -> list[Row]:
    rows = [Row(BATCH, OPS, unit.key, unit.batch.mode, f"{backend}{unit.backend}") for unit in chosen]
    return sorted(rows, key=lambda row: hashed(row.name))[:most]


@functools.cache
def units() -> tuple[Unit, ...]:
    """The batches of the operators, for a backend without a name, which leaves what follows it: `,dynamic`."""
    return tuple(plan(importlib.import_module(OPS).batches(), ("",), "", MODES, SHAPES, Shard()))
