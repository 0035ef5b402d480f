"""Graphs that a caller's compilers are handed: each result in its place, a gradient or None for each input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import functorch.compile as theirs
import pytest
import torch
from torch import fx

from assay.compiler.entry import aot as ours


def _two_views(x: torch.Tensor) -> Any:
    product = x * 5
    return product.t(), product.unsqueeze(1)


def _view_beside_its_base(x: torch.Tensor) -> Any:
    product = x * 5
    return product.flatten(), product, product[1].detach()


def _written_twice(x: torch.Tensor, y: torch.Tensor) -> Any:
    copy = y.clone()
    x.mul_(3)
    y.div_(2)
    return copy.view(6), x - y


def _written_and_returned(x: torch.Tensor) -> Any:
    x.neg_()
    return x, x.view(6)


def _turned(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.unsqueeze_(0)
    return y + x, x[0], y.unsqueeze(0)


def _hidden_write(x: torch.Tensor) -> Any:
    with torch.no_grad():
        x.view(6).mul_(4)
    return x * 3


def _views_alone(x: torch.Tensor, y: torch.Tensor) -> Any:
    return y.t(), x.view(3, 2), x


def _computed_twice(x: torch.Tensor) -> Any:
    return x.cos() + x.cos(), 2.0 * x


def _sum_of_one(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x.sum(0) * y.detach()


def _overlapping(x: torch.Tensor) -> list[torch.Tensor]:
    base = x + 1
    return [base.view(-1), base.view(-1)]


def _writes_one_of_two(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.mul_(3)
    return a - b


CASES: dict[str, tuple[Callable[..., Any], int]] = {
    "two views of one value": (_two_views, 1),
    "a view beside its base": (_view_beside_its_base, 1),
    "inputs written": (_written_twice, 2),
    "an input written and returned": (_written_and_returned, 1),
    "strides changed": (_turned, 2),
    "views of inputs": (_views_alone, 2),
    "a call made twice": (_computed_twice, 1),
    "no gradient for one input": (_sum_of_one, 2),
}


class Kept:
    """Graph compilers that keep the text of the graphs that they are handed."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def compiler(self, half: str) -> Callable[..., fx.GraphModule]:
        def keep(gm: fx.GraphModule, _: object) -> fx.GraphModule:
            self.texts[half] = gm.code
            return gm

        return keep


def _inputs(count: int, grad: bool) -> list[torch.Tensor]:
    numbers = torch.arange(6.0).view(2, 3) / 4
    return [(numbers + index).requires_grad_(grad) * 1 for index in range(count)]


def _texts(door: Any, f: Callable[..., Any], inputs: list[torch.Tensor], keeps: bool) -> tuple[dict[str, str], Any]:
    kept = Kept()
    compiled = door(f, kept.compiler("forward"), kept.compiler("backward"), keep_inference_input_mutations=keeps)
    return kept.texts, compiled(*inputs)


@pytest.mark.parametrize("keeps", [True, False], ids=["writes kept", "writes returned"])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize("name", CASES)
def test_forwards_are_torchs(name: str, grad: bool, keeps: bool) -> None:
    f, count = CASES[name]
    inputs, theirs_of, expected = _inputs(count, grad), _inputs(count, grad), _inputs(count, grad)
    texts, results = _texts(ours.aot_function, f, inputs, keeps)
    wanted, _ = _texts(theirs.aot_function, f, theirs_of, keeps)
    if keeps and not grad:  # torch makes views of what is written behind the write
        texts, wanted = _lines(texts), _lines(wanted)
    assert texts["forward"] == wanted["forward"]
    torch.testing.assert_close(results, f(*expected))
    torch.testing.assert_close(inputs, expected)


def test_a_write_that_autograd_does_not_see_stands_in_the_graph_as_torchs() -> None:
    texts, _ = _texts(ours.aot_function, _hidden_write, _inputs(1, True), keeps=True)
    wanted, _ = _texts(theirs.aot_function, _hidden_write, _inputs(1, True), keeps=True)
    assert texts == wanted and "copy_" in texts["forward"]


def _lines(texts: dict[str, str]) -> dict[str, Any]:
    return {half: sorted(line.partition(";")[0] for line in text.splitlines()) for half, text in texts.items()}


@pytest.mark.parametrize("name", ["two views of one value", "a call made twice", "no gradient for one input"])
def test_backwards_are_torchs(name: str) -> None:
    f, count = CASES[name]
    texts: list[str] = []
    for door in (ours.aot_function, theirs.aot_function):
        made, results = _texts(door, f, _inputs(count, True), keeps=False)
        sum(each.sum() for each in results if each.requires_grad).backward()  # type: ignore[union-attr]
        texts.append(made["backward"])
    assert texts[0] == texts[1]


def test_memory_that_inputs_share_is_numbered_as_one_input() -> None:
    """The inputs behind it move up, in forward as in what backward is given."""

    def f(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return _writes_one_of_two(a, b) * c

    def inputs() -> list[torch.Tensor]:
        return [*_overlapping(torch.ones(4)), torch.ones(4, requires_grad=True)]

    kept = Kept()
    compiled = ours.aot_function(f, kept.compiler("forward"), kept.compiler("backward"))
    given, expected = inputs(), inputs()
    compiled(*given).sum().backward()
    f(*expected).sum().backward()
    torch.testing.assert_close(given[2].grad, expected[2].grad)
    assert "forward(self, primals_1, primals_2)" in kept.texts["forward"]
    assert "return (None, mul_2)" in kept.texts["backward"]


def test_a_graph_that_returns_a_list_keeps_its_order() -> None:
    """Results are picked from what the compiled graph returns, whatever sequence that is."""

    def compiler(gm: fx.GraphModule, _: object) -> Callable[..., Any]:
        return lambda *args: list(gm(*args))

    x, expected = _inputs(1, True), _inputs(1, True)
    got, want = ours.aot_function(_view_beside_its_base, compiler)(*x), _view_beside_its_base(*expected)
    torch.testing.assert_close(got, want)
    got[1].mul_(2)
    torch.testing.assert_close(got[0], want[0] * 2)


@pytest.mark.parametrize("part", [slice(None), slice(1, None)], ids=["all of it", "a part"])
def test_a_compiler_may_give_views_memory_of_their_own(part: slice) -> None:
    """What they were views of is not returned. It is then made anew of their values, and they share it."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        product = x * 5
        return product[part].t(), product[part].unsqueeze(0)

    def compiler(gm: fx.GraphModule, _: object) -> Callable[..., Any]:
        return lambda *args: [each.clone() for each in gm(*args)]

    x = _inputs(1, False)[0]
    for door in (compiler, ours.nop):
        got, want = ours.aot_function(f, door)(x), f(x)
        torch.testing.assert_close(got, want)
        got[0].zero_()
        assert not got[1].any() and got[0]._is_view() and got[0]._base is got[1]._base


def test_the_cheapest_cut_makes_equal_calls_one() -> None:
    forwards = []
    for split in (ours.default_partition, ours.min_cut_rematerialization_partition):
        kept = Kept()
        ours.aot_function(_computed_twice, kept.compiler("forward"), partition_fn=split)(*_inputs(1, True))
        forwards.append(kept.texts["forward"].count("aten.cos"))
    assert forwards == [2, 1]


def test_calling_form_asks_an_input_whose_strides_change_for_its_symbolic_sizes() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x.t_() * w

    compiled = ours.aot_function(f, ours.nop, dynamic=True, fallback="error")
    for rows, columns in ((2, 3), (2, 3), (4, 5)):
        found, wanted = torch.ones(rows, columns), torch.ones(rows, columns)
        w = torch.randn(columns, rows, requires_grad=True)
        assert torch.equal(compiled(found, w), f(wanted, w))
        assert (found.shape, found.stride()) == (wanted.shape, wanted.stride())
