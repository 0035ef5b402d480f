"""Reductions on their way in C++: how each starts, takes values in, and becomes a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from assay.compiler.codegen.cpp.expressions import C_TYPES, cast, constant
from assay.compiler.codegen.loops.operators import HALVES
from assay.compiler.ir.loops.kernel import Reduce


@dataclass(frozen=True, slots=True)
class Operator:
    """How a reduction starts, takes a value in, and joins two partial results."""

    start: str
    take: str
    clause: str


def operator_of(op: str, dtype: torch.dtype) -> Operator:
    if op in ("any", "all"):
        return Operator("0", "{0} |= {1} != 0", "|") if op == "any" else Operator("1", "{0} &= {1} != 0", "&")
    if op in ("sum", "prod"):
        sign = "+" if op == "sum" else "*"
        return Operator("0" if op == "sum" else "1", f"{{0}} {sign}= {{1}}", sign)
    if op == "logaddexp":
        return Operator(_extreme(dtype, True), "{0} = m::logaddexp({0}, {1})", "")
    name = "maximum" if op == "max" else "minimum"
    return Operator(_extreme(dtype, op == "max"), f"{{0}} = m::{name}({{1}}, {{0}})", name)


def scan_step(op: str, dtype: torch.dtype, total: str, value: str, in_lanes: bool) -> str:
    """The statement that takes the next value of a scan in. Of two that are equal, as zeros of either sign are, eager's
    extremum so far is the later one. Scans side by side, in lanes, are steps without a branch."""
    if op in ("max", "min") and in_lanes:
        return f"{total} = m::{op}imum({total}, {value});"
    if op in ("max", "min"):
        return f"m::{'raise' if op == 'max' else 'lower'}({total}, {value});"
    return operator_of(op, dtype).take.format(total, value) + ";"


def _extreme(dtype: torch.dtype, lowest: bool) -> str:
    if dtype.is_floating_point:
        return constant(float("-inf") if lowest else float("inf"), torch.float32 if dtype in HALVES else dtype)
    if dtype == torch.bool:
        return "0" if lowest else "1"
    info = torch.iinfo(dtype)
    return constant(info.min if lowest else info.max, dtype)


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A reduction on its way: `name` takes values in, `total` (or none) takes its blocks in, wider; `nan` (or none)
    notes that a NaN was among them."""

    reduce: Reduce
    name: str
    total: str | None
    nan: str | None
    narrow: str
    wide: str
    operator: Operator


def total_of(accumulator: Accumulator) -> str:
    """What holds all that was taken in."""
    return accumulator.total or accumulator.name


def simd_over(accumulators: Sequence[Accumulator], lanes: int = 0) -> str:
    """The pragma of a loop that some reductions are taken along, `lanes` steps at once; 0 leaves it to the compiler."""
    clauses: dict[str, list[str]] = {}
    for accumulator in accumulators:
        if accumulator.nan:
            clauses.setdefault(accumulator.reduce.op, []).append(accumulator.name)
            clauses.setdefault("|", []).append(accumulator.nan)
        else:
            clauses.setdefault(accumulator.operator.clause, []).append(accumulator.name)
    parts = [f"reduction({clause}:{', '.join(names)})" for clause, names in clauses.items()]
    return " ".join(["simd", *([f"simdlen({lanes})"] if lanes else []), *parts])


def result_of(accumulator: Accumulator, text: str) -> str:
    """The finished accumulator as the type of its reduction."""
    dtype = accumulator.reduce.dtype
    if dtype == torch.bool:
        return f"({text} != 0)"
    narrowed = f"(f32){text}" if accumulator.total else text
    return f"({cast(narrowed, torch.float32, dtype)})" if dtype in HALVES else f"({narrowed})"


_DTYPES = {text: dtype for dtype, text in C_TYPES.items()}


def dtype_of(c_type: str) -> torch.dtype:
    return _DTYPES[c_type]
