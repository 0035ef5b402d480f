"""The programs of attention on a GPU: their tiles, their texts, and what launches them.

a variant of a call, tiles -> constants, functions of scores, a file -> compiled programs, one plan for equal calls
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from assay.compiler.errors import BuildError
from assay.compiler.kernels.flex_attention.score_code import ScoreFunction
from assay.compiler.kernels.flex_attention.score_programs import given_text
from assay.compiler.options import Options
from assay.compiler.toolchain.gpu.written_programs import Run, Written, element_kind, load_written

Load = Callable[[Sequence[Written], torch.device], Sequence[Run] | None]
"""What compiles programs for a device; None if one of them takes more memory than there is."""
MOST_PLANS = 256
"""Kinds of calls whose launches a kernel remembers."""
LEAST_DEPTH = 16
"""Elements of a head that the tensor cores take at once."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """A tile's rows and keys, the warps of an instance, and how many steps have their loads under way."""

    rows: int
    keys: int
    warps: int
    stages: int


HALVES, FLOATS = "halves", "floats"
TILINGS: Mapping[str, Mapping[str, Mapping[int, Sequence[Tiling]]]] = {
    "attend": {
        HALVES: {
            64: (Tiling(64, 128, 4, 2), Tiling(64, 64, 4, 2)),
            128: (Tiling(64, 64, 4, 3), Tiling(64, 32, 4, 2)),
            256: (Tiling(64, 64, 8, 2), Tiling(32, 32, 4, 1)),
        },
        FLOATS: {
            64: (Tiling(64, 32, 4, 2), Tiling(32, 32, 4, 1)),
            128: (Tiling(32, 32, 4, 2), Tiling(32, 32, 4, 1)),
            256: (Tiling(32, 16, 4, 1), Tiling(16, 16, 4, 1)),
        },
    },
    "shift": {HALVES: {256: (Tiling(64, 64, 4, 1),)}, FLOATS: {256: (Tiling(32, 32, 4, 1),)}},
    "of_queries": {
        HALVES: {
            64: (Tiling(64, 128, 4, 2), Tiling(32, 32, 4, 1)),
            128: (Tiling(128, 64, 8, 2), Tiling(32, 32, 4, 1)),
            256: (Tiling(32, 32, 4, 1), Tiling(16, 16, 4, 1)),
        },
        FLOATS: {128: (Tiling(32, 32, 4, 1), Tiling(16, 16, 4, 1)), 256: (Tiling(16, 16, 4, 1),)},
    },
    "of_keys": {
        HALVES: {
            64: (Tiling(64, 64, 4, 2), Tiling(32, 32, 4, 1)),
            128: (Tiling(64, 128, 8, 2), Tiling(32, 32, 4, 1)),
            256: (Tiling(32, 32, 4, 1), Tiling(16, 16, 4, 1)),
        },
        FLOATS: {128: (Tiling(32, 32, 4, 1), Tiling(16, 16, 4, 1)), 256: (Tiling(16, 16, 4, 1),)},
    },
}
"""The tiles of each program and kind of elements, for heads of up to so many of them: the first that fit are taken.

Measured on an H200 with heads of bfloat16, causal, 4,096 rows and keys, of seven tilings each.
"""

Launch: TypeAlias = Callable[[Sequence[Tensor]], None]
"""Launches a program on tensors."""
Plan: TypeAlias = tuple[Launch, ...]


def launch_of(run: Run, grid: int, numbers: Sequence[int]) -> Launch:
    return lambda tensors: run(grid, tensors, numbers)


@dataclass(frozen=True, slots=True)
class Variant:
    """What programs count on.

    That is the width of indices, whether the elements of a head lie together, and whether the other strides and all
    addresses are multiples of 16. Tiles of so many rows and keys are whole. It says which arguments there are, and how
    float32 is multiplied.
    """

    is_wide: bool
    is_packed: bool
    is_even: bool
    is_aligned: bool
    row_multiple: int
    key_multiple: int
    has_full: bool
    has_of_logs: bool
    precision: str


@dataclass(frozen=True, slots=True)
class _Signature:
    """The arguments of a program: the types of tensors before what the functions read, the strides, and the numbers
    after these. `E` are the elements of heads, and `C` are what is collected."""

    tensors: str
    strides: int
    numbers: int


WALK = 19
"""The numbers of a program that walks through lists."""
SIGNATURES = {
    "attend": _Signature("E E E E f f i i i i", 16, WALK),
    "shift": _Signature("E E f f", 8, 3),
    "of_queries": _Signature("E E E E f f E C i i i i", 20, WALK),
    "of_keys": _Signature("E E E E f f E E i i i i", 24, WALK),
}
_TEXT = """ROWS = tl.constexpr({rows})
KEYS = tl.constexpr({keys})
HEAD = tl.constexpr({head})
DEPTH = tl.constexpr({depth})
OUT_HEAD = tl.constexpr({out_head})
OUT = tl.constexpr({out})
ROWS_ARE_WHOLE = tl.constexpr({rows_are_whole})
KEYS_ARE_WHOLE = tl.constexpr({keys_are_whole})
PACKED = tl.constexpr({packed})
HAS_FULL = tl.constexpr({has_full})
HAS_OF_LOGS = tl.constexpr({has_of_logs})
PRECISION = tl.constexpr("{precision}")
INT = tl.constexpr(tl.{int_type})
LOG2_E = tl.constexpr({log2_e!r})
exp2 = m.exp2_of_weights
"""


class Programs:
    """The programs of files for some functions, in the variants that were asked for."""

    def __init__(
        self, files: Sequence[str], functions: Sequence[ScoreFunction], dtype: torch.dtype, depths: tuple[int, int],
        load: Load | None,
    ) -> None:  # fmt: skip
        self._files, self.functions, self._dtype, self._depths = files, functions, dtype, depths
        self._load = load or _load
        self._made: dict[tuple[Variant, torch.device], list[tuple[Tiling, Run]]] = {}
        self._plans: dict[tuple[object, ...], Plan] = {}

    def planned(self, key: tuple[object, ...], make: Callable[[], Plan]) -> Plan:
        """The launches of calls of one kind. Raises: BuildError."""
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            plan = self._plans[key] = make()
        return plan

    def of(self, names: Sequence[str], variant: Variant, device: torch.device) -> list[tuple[Tiling, Run]]:
        """The programs of these names, each with the tiles that it works by. Raises: BuildError."""
        key = variant, device
        if key not in self._made:
            self._made[key] = self._fitting(names, variant, device)
        return self._made[key]

    def _fitting(self, names: Sequence[str], variant: Variant, device: torch.device) -> list[tuple[Tiling, Run]]:
        choices = [_tilings_of(name, self._dtype, max(self._depths)) for name in names]
        for attempt in range(max(map(len, choices))):
            tilings = [choice[min(attempt, len(choice) - 1)] for choice in choices]
            pairs = zip(names, tilings, strict=True)
            runs = self._load([self._written(name, variant, tiling) for name, tiling in pairs], device)
            if runs is not None:
                return list(zip(tilings, runs, strict=True))
        raise BuildError("assay: no tiles of attention fit the shared memory of the device")

    def _written(self, name: str, variant: Variant, tiling: Tiling) -> Written:
        given, signature, is_given = given_text(self.functions, variant.is_wide), SIGNATURES[name], name != "shift"
        own = [given.into(Path(__file__).with_name(file).read_text()) for file in self._files]
        text = "\n\n".join([self._constants(variant, tiling), given.text, *own])
        collects = any(each.name == "collect" and each.full is not None for each in self.functions)
        elements = {"E": element_kind(self._dtype), "C": "*fp64" if collects else "*fp32", "f": "*fp32", "i": "*i32"}
        tensors = [elements[each] for each in signature.tensors.split()] + list(given.kinds if is_given else ())
        count = signature.strides + signature.numbers + (len(given.numbers) if is_given else 0)
        kinds = (*tensors, *(["i64" if variant.is_wide else "i32"] * count))
        multiples = tuple(range(len(tensors), len(tensors) + signature.strides)) if variant.is_even else ()
        checks = given.has_checks and is_given
        return Written(text, name, kinds, multiples, tiling.warps, tiling.stages, variant.is_aligned, checks)

    def _constants(self, variant: Variant, tiling: Tiling) -> str:
        head, out_head = self._depths
        return _TEXT.format(
            rows=tiling.rows, keys=tiling.keys,
            head=head, depth=_padded(head), out_head=out_head, out=_padded(out_head),
            rows_are_whole=variant.row_multiple % tiling.rows == 0,
            keys_are_whole=variant.key_multiple % tiling.keys == 0,
            packed=variant.is_packed, has_full=variant.has_full, has_of_logs=variant.has_of_logs,
            precision=variant.precision, int_type="int64" if variant.is_wide else "int32", log2_e=1 / math.log(2),
        )  # fmt: skip


def _load(programs: Sequence[Written], device: torch.device) -> Sequence[Run] | None:
    return load_written(programs, device, Options.of(None, None).cache)


def _padded(depth: int) -> int:
    """The elements of a head as a tile has them: a power of two."""
    return max(LEAST_DEPTH, 1 << (depth - 1).bit_length())


def _tilings_of(name: str, dtype: torch.dtype, depth: int) -> Sequence[Tiling]:
    choices = TILINGS[name][FLOATS if dtype is torch.float32 else HALVES]
    return next(tilings for most, tilings in choices.items() if depth <= most)


def lists_of(lists: Sequence[Tensor | None]) -> list[Tensor]:
    """The lists, the first for those that there are none of."""
    part, *_ = lists
    assert part is not None
    return [part if each is None else each for each in lists]
