"""A kernel as nested Python loops over numbers: what the generated code of a kernel must compute.

Numbers are NumPy scalars of the dtype that the expression states. bfloat16 and float16 values are held as the
float32 of the same value, rounded where they are made.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from assay.compiler.ir.loops.failures import FAILURES, failures_of
from assay.compiler.ir.loops.index import Index, evaluate, symbols
from assay.compiler.ir.loops.kernel import (
    AsValue,
    Bind,
    Buffer,
    Call,
    Cast,
    Check,
    Const,
    Expr,
    Kernel,
    Load,
    Loop,
    Reduce,
    Scan,
    Store,
)
from assay.compiler.ir.loops.rewrite import free_variables, is_scattered

NUMPY: dict[torch.dtype, Any] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.bool: np.bool_,
    torch.uint8: np.uint8,
    torch.int8: np.int8,
    torch.int16: np.int16,
    torch.int32: np.int32,
    torch.int64: np.int64,
}


def _from_math(function: Callable[[float], float]) -> Callable[[Any], Any]:
    return lambda x: type(x)(function(float(x)))


def _philox(seed: Any, start: Any, position: Any, threads: Any, width: Any) -> int:
    """The word of an element by Philox with ten rounds, less 2^31.

    Each thread takes so many elements a turn. It begins each turn with a new call, unless it takes them one by one.
    """
    turn, thread = divmod(int(position) // int(width), int(threads))
    drawn = turn * (1 if width == 1 else max(4, int(width))) + int(position) % int(width)
    call, keys = int(start) + drawn // 4, [int(seed) % 2**32, int(seed) % 2**64 >> 32]
    a, b, c, d = call % 2**32, call % 2**64 >> 32, thread, 0
    for _ in range(10):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (right >> 32) ^ b ^ keys[0], right % 2**32, (left >> 32) ^ d ^ keys[1], left % 2**32
        keys = [(keys[0] + 0x9E3779B9) % 2**32, (keys[1] + 0xBB67AE85) % 2**32]
    return (a, b, c, d)[drawn % 4] - 2**31


def _normal_cdf(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def _from_torch(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """A function that only torch has, in float64."""
    return lambda *values: type(values[0])(
        function(*(torch.tensor(float(value), dtype=torch.float64) for value in values)).item()
    )


OPERATORS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "abs": np.abs,
    "floordiv_int": np.floor_divide, "mod_int": np.mod, "floor_div_float": np.floor_divide,
    "truncdiv_int": lambda a, b: (a - np.fmod(a, b)) // b,
    "remainder_float": np.mod,
    "fmod": np.fmod, "sign": lambda x: type(x)(int(x > 0) - int(x < 0)),
    "reciprocal": lambda x: type(x)(1) / x, "sqrt": np.sqrt,
    "rsqrt": lambda x: type(x)(1) / np.sqrt(x), "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log,
    "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "erf": _from_math(math.erf),
    "erfc": _from_math(math.erfc),
    "gelu": _from_math(lambda x: x * _normal_cdf(x)),
    "gelu_slope": _from_math(lambda x: _normal_cdf(x) + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)),
    "sigmoid": lambda x: type(x)(1) / (type(x)(1) + np.exp(-x)), "pow": np.power,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "maximum": np.maximum,
    "minimum": np.minimum, "fmax": np.fmax, "fmin": np.fmin, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "logical_and": np.logical_and,
    "logical_or": np.logical_or, "logical_xor": np.logical_xor, "logical_not": np.logical_not,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "bitwise_not": np.bitwise_not, "shl": np.left_shift, "shr": np.right_shift,
    "where": lambda condition, yes, no: yes if condition else no, "isnan": np.isnan, "isinf": np.isinf,
    "isfinite": np.isfinite, "fma": lambda a, b, c: type(a)(float(a) * float(b) + float(c)), "copysign": np.copysign,
    "signbit": np.signbit, "hypot": np.hypot, "nextafter": np.nextafter, "erfcx": _from_torch(torch.special.erfcx),
    "erfinv": _from_torch(torch.erfinv), "ndtri": _from_torch(torch.special.ndtri), "i0": _from_torch(torch.i0),
    "i0e": _from_torch(torch.special.i0e), "i1": _from_torch(torch.special.i1), "i1e": _from_torch(torch.special.i1e),
    "lgamma": _from_torch(torch.lgamma), "digamma": _from_torch(torch.digamma),
    "trigamma": _from_torch(lambda x: torch.polygamma(1, x)), "zeta": _from_torch(torch.special.zeta),
    "rounded": lambda x: x, "philox": _philox,
}  # fmt: skip
START: dict[str, Any] = {
    "sum": 0,
    "prod": 1,
    "max": -math.inf,
    "min": math.inf,
    "any": False,
    "all": True,
    "logaddexp": -math.inf,
}
STEP = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
        "any": np.logical_or, "all": np.logical_and, "logaddexp": np.logaddexp}  # fmt: skip


MODES: dict[str, Callable[[Any, Any], Any]] = {
    "write": lambda old, new: new,
    "accumulate": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


def as_dtype(value: Any, dtype: torch.dtype) -> Any:
    """The number as a scalar of `dtype`."""
    if dtype in NUMPY:
        return NUMPY[dtype](value)
    return np.float32(torch.tensor(float(value), dtype=dtype).item())


class Evaluation:
    """One run of a kernel over flat tensors."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], sizes: Mapping[str, int]) -> None:
        self.tensors = tensors
        self.sizes = dict(sizes)
        self.reduced: dict[tuple[Any, ...], Any] = {}
        self.free: dict[Expr, frozenset[str]] = {}
        self.failed: set[str] = set()

    def points(self, loops: tuple[Loop, ...], at: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Every assignment of the loop variables, the last loop fastest."""
        extents = [range(evaluate(loop.extent, at)) for loop in loops]
        for point in itertools.product(*extents):
            yield {**at, **dict(zip((loop.var for loop in loops), point, strict=True))}

    def run(self, kernel: Kernel) -> None:
        """Executes every store. Values are computed first: a store never feeds a load of its own kernel."""
        for store in kernel.stores:
            mentioned = symbols(store.index)
            loops = tuple(loop for loop in kernel.loops if loop.var in mentioned or is_scattered(store))
            target = self.tensors[store.buffer]
            for offset, value in [self.stored(store, at) for at in self.points(loops, self.sizes)]:
                old = as_dtype(target[offset].item(), store.expr.dtype)
                target[offset] = MODES[store.mode](old, value).item()

    def stored(self, store: Store, at: Mapping[str, int]) -> tuple[int, Any]:
        """Where a store goes at a point, and what it stores."""
        expr = store.expr
        while isinstance(expr, Bind):
            at, expr = self.inside(expr, at, {}), expr.body
        return self.offset(store.index, at), self.value(expr, at, {})

    def value(self, expr: Expr, at: Mapping[str, int], known: dict[Expr, Any]) -> Any:
        """The value of an expression at a point; `known` are those computed there already."""
        if expr not in known:
            known[expr] = self.computed(expr, at, known)
        return known[expr]

    def computed(self, expr: Expr, at: Mapping[str, int], known: dict[Expr, Any]) -> Any:
        if isinstance(expr, Load):
            return as_dtype(self.tensors[expr.buffer][self.offset(expr.index, at)].item(), expr.dtype)
        if isinstance(expr, Const):
            return as_dtype(expr.value, expr.dtype)
        if isinstance(expr, Cast):
            return as_dtype(self.value(expr.expr, at, known), expr.dtype)
        if isinstance(expr, AsValue):
            return as_dtype(evaluate(expr.index, at), expr.dtype)
        if isinstance(expr, Call):
            return as_dtype(OPERATORS[expr.op](*(self.value(arg, at, known) for arg in expr.args)), expr.dtype)
        if isinstance(expr, Bind):
            return self.bound(expr, at, known)
        if isinstance(expr, Check):
            if not self.value(expr.condition, at, known):
                self.failed.add(expr.failure)
            return self.value(expr.expr, at, known)
        if isinstance(expr, Scan):
            return self.scanned(expr, at)
        assert isinstance(expr, Reduce), f"no kernel holds {expr}"
        return self.reduction(expr, at)

    def bound(self, expr: Bind, at: Mapping[str, int], known: dict[Expr, Any]) -> Any:
        """The body at the position."""
        return self.value(expr.body, self.inside(expr, at, known), {})

    def inside(self, expr: Bind, at: Mapping[str, int], known: dict[Expr, Any]) -> dict[str, int]:
        """The point with the position, or 0 where that is out of range, as generated code has it."""
        extent = evaluate(expr.loop.extent, at)
        assert extent > 0, f"{expr.loop} has no position"
        position = int(self.value(expr.position, at, known))
        return {**at, expr.loop.var: position if 0 <= position < extent else 0}

    def scanned(self, expr: Scan, at: Mapping[str, int]) -> Any:
        """The fold of the elements up to and with the last, one after the other."""
        total = as_dtype(START[expr.op], expr.dtype) if expr.op not in ("max", "min") else None
        for point in range(evaluate(expr.last, at) + 1):
            value = self.value(expr.body, {**at, expr.loop.var: point}, {})
            total = value if total is None else as_dtype(STEP[expr.op](total, value), expr.dtype)
        return total

    def offset(self, index: Index, at: Mapping[str, int]) -> int:
        found = evaluate(index, at)
        assert found >= 0, f"{index} is {found}"
        return found

    def reduction(self, expr: Reduce, at: Mapping[str, int]) -> Any:
        """The value of a reduction, computed once for each assignment of the variables that it depends on."""
        needed = free_variables(expr, self.free)
        key = (expr, *sorted((name, number) for name, number in at.items() if name in needed))
        if key not in self.reduced:
            values = [self.value(expr.body, point, {}) for point in self.points(expr.loops, at)]
            self.reduced[key] = reduce_values(expr, values)
        return self.reduced[key]


def reduce_values(expr: Reduce, values: list[Any]) -> Any:
    """`op` of the values in their order; max and min give NaN if any is NaN."""
    if expr.op in ("argmax", "argmin"):
        chosen = np.argmax(values) if expr.op == "argmax" else np.argmin(values)
        return as_dtype(chosen, expr.dtype)
    if expr.op in ("max", "min") and values:
        total = values[0]
    else:
        total = as_dtype(START[expr.op], expr.dtype)
    for value in values:
        total = as_dtype(STEP[expr.op](total, value), expr.dtype)
    return total


def run_kernel(kernel: Kernel, tensors: list[torch.Tensor], sizes: list[int]) -> None:
    """Runs a kernel on flat tensors in the order of its buffers, writing into them; raises what its checks found."""
    named = {buffer.name: tensor for buffer, tensor in zip(kernel.buffers, tensors, strict=True)}
    evaluation = Evaluation(named, dict(zip(kernel.symbols, sizes, strict=True)))
    with np.errstate(all="ignore"):
        evaluation.run(kernel)
    for name in failures_of(kernel):
        if name in evaluation.failed:
            error, message = FAILURES[name]
            raise error(message)


def tensor_at(address: int, buffer: Buffer, sizes: Mapping[str, int]) -> torch.Tensor:
    """The flat tensor that lies at an address."""
    count = evaluate(buffer.numel, sizes)
    if count == 0:
        return torch.empty(0, dtype=buffer.dtype)
    block = (ctypes.c_uint8 * (count * buffer.dtype.itemsize)).from_address(address)
    return torch.from_numpy(np.ctypeslib.as_array(block)).view(buffer.dtype)


def as_function(kernel: Kernel) -> Callable[..., None]:
    """A kernel as the function that compiled code would be: it takes addresses, then sizes."""

    def function(*arguments: int) -> None:
        addresses, sizes = arguments[: len(kernel.buffers)], arguments[len(kernel.buffers) :]
        named = dict(zip(kernel.symbols, sizes, strict=True))
        pairs = zip(addresses, kernel.buffers, strict=True)
        run_kernel(kernel, [tensor_at(address, buffer, named) for address, buffer in pairs], list(sizes))

    return function
