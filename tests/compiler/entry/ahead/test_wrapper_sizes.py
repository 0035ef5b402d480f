"""Graphs of wrappers whose sizes are symbols take and return these sizes and strides, as torch's graphs do."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from functorch import compile as torchs
from torch import Tensor, fx
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

from assay.compiler.entry import aot


def two(*shape: int, requires_grad: bool = True) -> Tensor:
    made: Tensor = TwoTensor(torch.randn(*shape), torch.randn(*shape))  # type: ignore[no-untyped-call]
    return made.requires_grad_(requires_grad)


def inputs_of(program: Callable[..., Any], shape: tuple[int, int], requires_grad: bool = True) -> list[Tensor]:
    of_second = shape[1:] if program is summed else shape
    return [two(*shape, requires_grad=requires_grad), two(*of_second, requires_grad=requires_grad)]


def product(x: Tensor, y: Tensor) -> Tensor:
    return x * y


def summed(x: Tensor, y: Tensor) -> Tensor:
    return (x * x.shape[0]).sum(0) * y


def several(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * y, x * 3


def given_back(x: Tensor, y: Tensor) -> Tensor:
    return x + y


PROGRAMS = [product, summed, several, given_back]


def printed(module: Any, program: Callable[..., Any], given: Sequence[Tensor]) -> list[str]:
    """The graphs that a front door hands to compilers, their symbols numbered as they come."""
    graphs: list[str] = []

    def compiler(graph: fx.GraphModule, inputs: Sequence[object]) -> Any:
        seen: dict[str, str] = {}
        text = re.sub(r"\s*#.*", "", graph.print_readable(print_output=False))
        text = re.sub(r"\bs\d+\b", lambda found: seen.setdefault(found.group(), f"S{len(seen)}"), text)
        graphs.append(re.sub(r"\n\s*\n", "\n", text))
        return module.nop(graph, inputs)

    results = module.aot_function(program, fw_compiler=compiler, bw_compiler=compiler, dynamic=True)(*given)
    results = [each for each in pytree.tree_leaves(results) if each.requires_grad]
    if results:
        torch.autograd.backward([each.sum() for each in results])
    return graphs


@pytest.mark.parametrize(
    ("program", "requires_grad"),
    [
        *((program, True) for program in PROGRAMS if program is not given_back),
        *((program, False) for program in PROGRAMS),
    ],
)
def test_graphs_take_and_return_sizes_as_torchs_do(program: Callable[..., Any], requires_grad: bool) -> None:
    given = inputs_of(program, (3, 4), requires_grad)
    again = [each.detach().clone().requires_grad_(requires_grad) for each in given]
    assert printed(aot, program, given) == printed(torchs, program, again)


@pytest.mark.parametrize("program", PROGRAMS)
def test_one_graph_serves_wrappers_of_all_sizes(program: Callable[..., Any]) -> None:
    compiles: list[fx.GraphModule] = []

    def compiler(graph: fx.GraphModule, inputs: Sequence[object]) -> Any:
        compiles.append(graph)
        return aot.nop(graph, inputs)

    compiled = aot.aot_function(program, compiler, dynamic=True)
    for shape in ((3, 4), (5, 2), (7, 6)):
        given = inputs_of(program, shape)
        found, wanted = compiled(*given), program(*given)
        torch.testing.assert_close(pytree.tree_leaves(found), pytree.tree_leaves(wanted))
        pairs = [pytree.tree_leaves(found), pytree.tree_leaves(wanted)]
        gradients = [torch.autograd.grad([each.sum() for each in results], given) for results in pairs]
        torch.testing.assert_close(*gradients)
    assert len(compiles) == 2


def test_a_primal_without_gradient_has_one_none_whatever_it_is_made_of() -> None:
    def unread(x: Tensor, y: Tensor) -> Tensor:
        return x.exp() + y.detach()

    given = [two(3, 4), two(3, 4)]
    *_, backward = printed(aot, unread, given)
    *_, wanted = printed(torchs, unread, [each.detach().clone().requires_grad_() for each in given])
    returned = [re.findall(r"return .*", text) for text in (backward, wanted)]
    assert returned[0] == returned[1] and returned[0][0].endswith("None)")
