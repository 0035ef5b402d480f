"""Random numbers that kernels compute where they read them: `assay::reserve_numbers`, `dropout_mask`, `random_words`.

What they compute, and which thread of ATen's launch draws for which element, is said in `compiler/runtime/philox.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from assay.compiler.ir.loops.index import Index, Int, Symbol, product
from assay.compiler.ir.loops.kernel import AsValue, Expr
from assay.compiler.ir.loops.rewrite import call, constant
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, element, record, rule
from assay.compiler.runtime import philox

_LIBRARY = torch.library.Library("assay", "FRAGMENT")
_LIBRARY.define("reserve_numbers(int[] calls, Device device) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
_LIBRARY.define(
    "dropout_mask(Tensor key, SymInt[] size, int limit, int threads, int width) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.impl("reserve_numbers", philox.reserve_numbers, "CompositeExplicitAutograd")
_LIBRARY.impl("dropout_mask", philox.dropout_mask, "CompositeExplicitAutograd")
_LIBRARY.impl(
    "dropout_mask", lambda key, size, *_: torch.empty(size, dtype=torch.bool, device=key.device), "Meta"
)  # fmt: skip

_LIBRARY.define("random_words(Tensor key, SymInt[] size) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_LIBRARY.impl("random_words", philox.random_words, "CompositeExplicitAutograd")
_LIBRARY.impl(
    "random_words", lambda key, size: torch.empty(size, dtype=torch.int32, device=key.device), "Meta"
)  # fmt: skip

reserve_numbers = torch.ops.assay.reserve_numbers.default
dropout_mask = torch.ops.assay.dropout_mask.default
random_words = torch.ops.assay.random_words.default

record(Kind.random, None, "assay.reserve_numbers")


@dataclass(frozen=True, slots=True)
class Launch:
    """What ATen would launch to drop elements: `calls` of Philox for each of its threads, of which each takes `width`
    elements at a time."""

    threads: int
    calls: int
    width: int


def launch_of(value: torch.Tensor) -> Launch | None:
    """The launch for a tensor of known size on a GPU; None where it is not known how its numbers are drawn.

    Of an input it is that for where this tensor lies: Dynamo does not compile again for one that begins elsewhere,
    whose mask is then as random, but not eager's.
    """
    most = philox.width_of(value.dtype, value.device)
    if most is None:
        return None
    threads = philox.threads_of(value.numel(), value.device)
    width = philox.width_for(value.numel(), most, int(value.storage_offset()))
    return Launch(threads, philox.calls_of(value.numel(), threads), width)


def limit_of(share: float, dtype: torch.dtype) -> int:
    """The greatest word of an element that is kept with the probability `share`."""
    return philox.limit_of(share, dtype)


@rule(Kind.pointwise, "assay.dropout_mask")
def mask(operation: Operation) -> Result:
    key, (threads, width) = operation.tensor("key"), (operation[name] for name in ("threads", "width"))
    if not all(isinstance(size, Int) for size in operation.output.shape):
        raise Declined("a size that is not known")
    seed, start = (element(key, (Int(at),), torch.int64) for at in (0, 1))
    word = word_at(seed, start, _position(operation.output.shape), threads, width)
    return (call("le", word, constant(operation.number("limit"), torch.int32)),)


@rule(Kind.pointwise, "assay.random_words")
def drawn_words(operation: Operation) -> Result:
    key = operation.tensor("key")
    if not all(isinstance(size, Int) for size in operation.output.shape):
        raise Declined("a size that is not known")
    seed, start = (element(key, (Int(at),), torch.int64) for at in (0, 1))
    return (word_at(seed, start, _position(operation.output.shape), philox.THREADS, philox.LANES),)


def word_at(seed: Expr, start: Expr, position: Index, threads: int, width: int) -> Expr:
    """The word (int32) of the element at a position, as `philox.place_of` says; `start` is its launch's first call."""
    launch = constant(threads, torch.int64), constant(width, torch.int64)
    return call("philox", seed, start, AsValue(position, torch.int64), *launch, dtype=torch.int32)


def _position(shape: tuple[Index, ...]) -> Index:
    """The position of an element in memory."""
    position: Index = Int(0)
    for dim in range(len(shape)):
        position = position + Symbol(f"d{dim}") * product(shape[dim + 1 :])
    return position
