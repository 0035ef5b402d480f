"""Writes in place: as eager's in every result, input and version; and with no copy that nothing needs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from compiler.fx import assay

TARGETS = ("aten", "cpp")


@torch.library.custom_op("assay_in_place::increment", mutates_args=("x",))
def increment(x: Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("assay_in_place::double_and_sum", mutates_args=("x",))
def double_and_sum(x: Tensor) -> Tensor:
    x.mul_(2)
    return x.sum()


@double_and_sum.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(())


@torch.library.custom_op("assay_in_place::exchange", mutates_args=("x", "y"))
def exchange(x: Tensor, y: Tensor) -> None:
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)


@torch.library.custom_op("assay_in_place::negate_all", mutates_args=("tensors",))
def negate_all(tensors: list[Tensor], scale: float) -> None:
    for tensor in tensors:
        tensor.mul_(-scale)


OPERATORS = {
    "increment": increment,
    "double_and_sum": double_and_sum,
    "exchange": exchange,
    "negate_all": negate_all,
}

ROWS, COLUMNS = 4, 6
VIEWS = ("[1]", "[:, 2]", "[1:3]", "[:, ::2]", "[2, 1:4]", "[0][2:5]", ".t()[1:3]", ".diagonal()", "", ".view(-1)[3:9]")
WRITES = (
    "{w}.add_({n})",
    "{w}.copy_({r}.sum())",
    "{w}.fill_({n})",
    "{w}.mul_({r}.amax())",
    "{t}[{i}] = {s}[{j}] + {n}",
    "{t}[1:] = {t}[:-1].clone()",
    "{t}[1:3, 2] = {s}[0, :2]",
    "{t}[idx] = {s}[:2] * {n}",
    "{t}.index_add_(0, idx, {s}[1:3])",
    "{t}.index_copy_(0, idx, {s}[2:])",
    "{t}.masked_fill_({s} > {n}, {n})",
    "{t}.scatter_(1, idx[None].expand(4, 2), {s}[:, :2])",
    "{t}[{i}].index_add_(0, idx, {s}[{j}, :2])",
    "{t}.diagonal()[1:3] = {s}[0, 1:3]",
)
MUTATIONS = (
    "increment({w})",
    "out.append(double_and_sum({w}))",
    "exchange({t}[0], {t}[1])",
    "negate_all([{t}, {t2}], 2.0)",
    "negate_all([{w}], 1.0)",
)
READS = ("out.append({r} * 2)", "out.append({r}.sum())", "out.append({t} + {s})", "y = {t} * 1", "z = {t} + {s}")


def statement(draw: random.Random) -> str:
    """One line that writes or reads the inputs `x` and `c` or the intermediates `y` and `z`."""
    names = draw.sample(("x", "c", "y", "z"), 3)
    other = {"x": "c", "c": "x", "y": "z", "z": "y"}[names[0]]
    kind = draw.choices((WRITES, MUTATIONS, READS), (6, 2, 3))[0]
    view, read = draw.choice(VIEWS), draw.choice(VIEWS)
    return draw.choice(kind).format(
        t=names[0], t2=other, s=names[1], w=names[0] + view, r=names[2] + read, n=draw.randint(1, 3),
        i=draw.randint(0, 3), j=draw.randint(0, 3),
    )  # fmt: skip


def program(seed: int) -> str:
    draw = random.Random(seed)
    lines = [statement(draw) for _ in range(draw.randint(2, 7))]
    ends = draw.choice(("out", "(out, y)", "(out, x)", "(out, x[1:], z)", "None"))
    body = "".join(f"    {line}\n" for line in ["out = []", "y = x + c", "z = c * 2", *lines, f"return {ends}"])
    return f"def f(x, c, idx):\n{body}"


def arguments(seed: int) -> tuple[Tensor, ...]:
    """Whole numbers, so that every sum is exact in any order; one input is a view with an offset."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-4, 5, (ROWS, COLUMNS), generator=generator).double()
    c = torch.randint(-4, 5, (ROWS + 1, COLUMNS), generator=generator).double()
    return x, c[1:], torch.tensor([2, 0])


def check_as_eager(f: Callable[..., Any], target: str, make: Callable[[int], tuple[Tensor, ...]], text: str) -> None:
    """Runs `f` three times, eager and compiled, and compares results, inputs and versions."""
    torch._dynamo.reset()
    compiled = torch.compile(f, backend=assay, options={"target": target, "fallback": "error"}, fullgraph=True)
    for seed in range(3):
        theirs, ours = make(seed), make(seed)
        for (what, expected), (_, actual) in zip(seen(f, theirs), seen(compiled, ours), strict=True):
            assert torch.equal(actual, expected) if isinstance(expected, Tensor) else actual == expected, (
                f"{what} differs on {target}, call {seed}: {actual} is not {expected}\n{text}"
            )


def seen(f: Callable[..., Any], inputs: tuple[Tensor, ...]) -> list[tuple[str, Any]]:
    flat, _ = torch.utils._pytree.tree_flatten(f(*inputs))
    found = [(f"result {i}", value) for i, value in enumerate(flat)]
    found += [(f"result {i} stride", value.stride()) for i, value in enumerate(flat) if isinstance(value, Tensor)]
    found += [(f"input {i}", value) for i, value in enumerate(inputs)]
    return found + [(f"version of input {i}", value._version) for i, value in enumerate(inputs)]


@pytest.mark.parametrize(("target", "seed"), [("aten", s) for s in range(60)] + [("cpp", s) for s in range(60, 72)])
def test_in_place_programs_are_as_eager(target: str, seed: int) -> None:
    text = program(seed)
    namespace: dict[str, Any] = {"torch": torch, **OPERATORS}
    exec(text, namespace)
    check_as_eager(namespace["f"], target, arguments, f"seed {seed}\n{text}")
