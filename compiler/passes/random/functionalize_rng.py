"""Random numbers of the CPU as functions of a seed, which is an input of the graph (option `functionalize_rng`).

    y = rand(size)     ->     k = reserve_numbers([0]); y = uniform(random_words(k[0], size))

One call takes two numbers for each draw from the default generator; `give_key` makes its result the graph's last
input. After that nothing in the graph draws. Each kernel computes the numbers where it reads them, on any number of
threads. Backward computes them again rather than keep them. A recomputed region finds them without the generator's
state. They follow from `torch.manual_seed`, but are not those of eager.

    words     Philox with ten rounds, 32 bits to a number (`compiler/runtime/philox.py`)
    uniform   as many bits of a word as the dtype has digits (of float64: of two words), over that power of two
    normal    sqrt(-2 log u) cos(2 pi v), u of 32 bits and v of 24: the largest is 6.8
    whole     a word times the range, its upper half: uneven by at most the range over 2^32

ATen draws for programs with symbolic sizes, for layouts that are not contiguous, for operators that are not in `RULES`,
and where it refuses what it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from assay.compiler.ir.graph.calls import call_for, called, put_in_place
from assay.compiler.ir.graph.replacement import derive_anew
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.graph.trace import is_random
from assay.compiler.ir.tensors.layout.strides import has_symbols
from assay.compiler.ops.calls.drawn_numbers import limit_of, random_words, reserve_numbers
from assay.compiler.passes.random.split_dropout import is_taken_apart, replace_parts

aten = torch.ops.aten

DIGITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
"""Bits that a uniform number of a dtype has."""
MOST_RANGE = 1 << 31
"""Whole numbers that a word tells apart; of more its product with their number is beyond 63 bits."""


@dataclass(slots=True)
class _Draw:
    """A node that draws, and the rows of the key that it has taken; `key` gives a row by its number."""

    node: fx.Node
    key: Callable[[int], fx.Node]
    taken: Iterator[int]
    size: list[int] = field(init=False)

    def __post_init__(self) -> None:
        value = self.node.meta["val"]
        self.size = list((value[0] if isinstance(value, tuple) else value).shape)

    def call(self, target: Callable[..., object], *args: object, **kwargs: object) -> fx.Node:
        return call_for(self.node, target, *args, **kwargs)

    def words(self) -> fx.Node:
        """A word of 32 bits (int32, less 2^31) for each element."""
        return self.call(random_words, self.key(next(self.taken)), self.size)

    def bits(self, words: fx.Node, count: int) -> fx.Node:
        """The first `count` < 32 bits of each word as a whole number (int32)."""
        moved = self.call(aten.bitwise_right_shift.Tensor_Scalar, words, 32 - count)
        return self.call(aten.bitwise_and.Scalar, moved, (1 << count) - 1)

    def to(self, x: fx.Node, dtype: torch.dtype) -> fx.Node:
        return self.call(aten._to_copy.default, x, dtype=dtype)

    def scaled(self, x: fx.Node, factor: float) -> fx.Node:
        return self.call(aten.mul.Tensor, x, factor)

    def uniform(self, dtype: torch.dtype) -> fx.Node:
        """From 0 to below 1."""
        if dtype is torch.float64:
            high, low = (self.to(self.bits(self.words(), count), dtype) for count in (26, 27))
            whole = self.call(aten.add.Tensor, self.scaled(high, float(1 << 27)), low)
            return self.scaled(whole, 2.0**-53)
        count = DIGITS[dtype]
        number = self.scaled(self.to(self.bits(self.words(), count), torch.float32), 2.0**-count)
        return number if dtype is torch.float32 else self.to(number, dtype)

    def normal(self, dtype: torch.dtype) -> fx.Node:
        wide = torch.float64 if dtype is torch.float64 else torch.float32
        words, more = self.words(), self.words()
        rest = self.call(aten.add.Tensor, self.to(self.call(aten.bitwise_and.Scalar, more, 255), wide), 0.5)
        whole = self.call(aten.add.Tensor, self.to(self.bits(words, 24), wide), self.scaled(rest, 2.0**-8))
        angle = self.scaled(self.to(self.bits(more, 24), wide), 2 * math.pi * 2.0**-24)
        logarithm = self.call(aten.log.default, self.scaled(whole, 2.0**-24))
        length = self.call(aten.sqrt.default, self.scaled(logarithm, -2.0))
        number = self.call(aten.mul.Tensor, length, self.call(aten.cos.default, angle))
        return number if wide is dtype else self.to(number, dtype)


Rule = Callable[[_Draw], fx.Node | None]


def _uniform(draw: _Draw) -> fx.Node:
    return draw.uniform(_dtype(draw))


def _uniform_between(draw: _Draw) -> fx.Node | None:
    low, high = _numbers(draw, 0.0, 1.0)
    if not low <= high:
        return None
    number = draw.call(aten.add.Tensor, draw.scaled(draw.uniform(_dtype(draw)), high - low), low)
    return draw.call(aten.where.ScalarOther, draw.call(aten.lt.Scalar, number, high), number, low)


def _normal(draw: _Draw) -> fx.Node:
    return draw.normal(_dtype(draw))


def _normal_around(draw: _Draw) -> fx.Node | None:
    mean, deviation = _numbers(draw, 0.0, 1.0)
    if not deviation >= 0:
        return None
    return draw.call(aten.add.Tensor, draw.scaled(draw.normal(_dtype(draw)), deviation), mean)


def _whole(draw: _Draw) -> fx.Node | None:
    numbers = [argument for argument in draw.node.args if isinstance(argument, int)]
    low, high = (0, *numbers)[-2:]
    if not 0 < high - low <= MOST_RANGE:
        return None
    word = draw.call(aten.add.Tensor, draw.to(draw.words(), torch.int64), 1 << 31)
    within = draw.call(aten.bitwise_right_shift.Tensor_Scalar, draw.call(aten.mul.Tensor, word, high - low), 32)
    return draw.to(draw.call(aten.add.Tensor, within, low), _dtype(draw))


def _chosen(draw: _Draw) -> fx.Node | None:
    (share,) = _numbers(draw, 0.5)
    if not 0 < share <= 1:
        return None
    kept = draw.call(aten.le.Scalar, draw.words(), limit_of(share, torch.float64))
    return draw.to(kept, _dtype(draw))


def _dropout(draw: _Draw) -> fx.Node | None:
    if not is_taken_apart(draw.node) or draw.node.args[1] == 0:
        return None
    x, keep = draw.node.args[0], 1.0 - _numbers(draw)[0]
    scale = torch.tensor(1.0 / keep, dtype=draw.node.meta["val"][0].dtype).item()
    mask = draw.call(aten.le.Scalar, draw.words(), limit_of(keep, torch.float64))
    replace_parts(draw.node, draw.scaled(draw.call(aten.mul.Tensor, x, mask), scale), mask)
    return mask


RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.rand.default: _uniform,
    aten.rand_like.default: _uniform,
    aten.uniform.default: _uniform_between,
    aten.randn.default: _normal,
    aten.randn_like.default: _normal,
    aten.normal_functional.default: _normal_around,
    aten.randint.default: _whole,
    aten.randint.low: _whole,
    aten.randint_like.default: _whole,
    aten.randint_like.low_dtype: _whole,
    aten.bernoulli.p: _chosen,
    aten.native_dropout.default: _dropout,
}


def functionalize_rng(program: Program) -> int:
    """Returns the number of draws that are functions now."""
    if any(has_symbols(node.meta.get("val")) for node in program.placeholders):
        return 0
    graph = program.module.graph
    draws = [node for node in graph.nodes if node.op == "call_function" and is_random(node) and _is_plain(node)]
    if not draws:
        return 0
    device, rows = torch.device("cpu"), list[fx.Node]()
    with graph.inserting_before(draws[0]):
        keys = graph.call_function(reserve_numbers, ([], device))
    with _value(draws[0]).fake_mode:
        keys.meta["val"] = torch.empty(2 * len(draws), 2, dtype=torch.int64, device=device)

    def row(number: int) -> fx.Node:
        rows.append(called(aten.select.int, keys, 0, number))
        return rows[-1]

    count, taken = 0, iter(range(2 * len(draws)))
    for node in draws:
        with graph.inserting_before(node):
            made = RULES[node.target](_Draw(node, row, taken))
        if made is not None and node.target is not aten.native_dropout.default:
            put_in_place(made, node)
        count += made is not None
    keys.args = ([0] * len(rows), device)
    with _value(keys).fake_mode:
        keys.meta["val"] = torch.empty(len(rows), 2, dtype=torch.int64, device=device)
    derive_anew(rows)
    if not rows:
        graph.erase_node(keys)
    return count


def _is_plain(node: fx.Node) -> bool:
    """Whether the numbers are the CPU's default generator's, of a dtype and a layout that rules are for."""
    value = _value(node)
    if node.target not in RULES or node.kwargs.get("generator") is not None or value.device.type != "cpu":
        return False
    is_number = value.dtype in DIGITS or value.dtype is torch.float64 or RULES[node.target] in (_whole, _chosen)
    return is_number and not value.is_complex() and value.numel() > 0 and value.is_contiguous()


def _value(node: fx.Node) -> FakeTensor:
    value = node.meta["val"]
    return value[0] if isinstance(value, tuple) else value


def _numbers(draw: _Draw, *defaults: float) -> list[float]:
    """What follows the tensor among a draw's arguments, where it is left out by default."""
    given: list[Any] = list(draw.node.args[1:])
    return [float(number) for number in (*given, *defaults[len(given) :])]


def _dtype(draw: _Draw) -> torch.dtype:
    return _value(draw.node).dtype
