"""Graphs that a caller's compilers are handed behind Dynamo, as they are printed: class names, sizes, descriptors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import normalize_gm
from torch._functorch.aot_autograd import aot_export_module as their_export
from torch._functorch.partitioners import default_partition as their_partition
from torch.testing._internal.two_tensor import TwoTensor

from assay.compiler.entry.aot import aot_module_simplified, default_partition
from assay.compiler.entry.export import aot_export_joint_simple, aot_export_module


def _branch(x: Tensor) -> Any:
    def inner(a: Tensor) -> Any:
        return torch.cond(a.max() > 1, torch.sin, torch.cos, (a,))

    return torch.cond(x.sum() > 0, inner, lambda a: a * 2, (x,))


def _rows(x: Tensor, y: Tensor) -> Any:
    return torch._higher_order_ops.map(lambda a, b: a.sin() * b, x, y)


def _several(x: Tensor) -> Any:
    base = x * 2
    return base.view(-1), base[0], base


def _summed(x: Tensor, index: Tensor) -> Tensor:
    return x.neg().index_select(0, index).sum(1)


def _wrapped(t: Tensor) -> Tensor:
    return t * 3


def _numbers(*shape: int) -> Tensor:
    return torch.arange(float(torch.Size(shape).numel())).view(shape) / 8


def _leaf(*shape: int) -> Tensor:
    return _numbers(*shape).requires_grad_()


def _pair() -> Tensor:
    return TwoTensor(_leaf(2, 3), _leaf(2, 3))


Made = tuple[Callable[..., Any], Sequence[Tensor]]
CASES: dict[str, tuple[Callable[[], Made], tuple[bool, ...]]] = {
    "branches": (lambda: (_branch, (_leaf(3),)), (False, True)),
    "branches without gradients": (lambda: (_branch, (_numbers(3),)), (False, True)),
    "a function of rows": (lambda: (_rows, (_leaf(4, 3), _leaf(3))), (False,)),
    "views of one value": (lambda: (_several, (_leaf(2, 3),)), (False,)),
    "a wrapper": (lambda: (_wrapped, (_pair(),)), (False,)),
    "sizes that forward has": (lambda: (_summed, (_leaf(4, 3), torch.tensor([2, 0]))), (False, True)),
}
"""What makes a program, and whether its sizes are symbols."""


class Printed:
    """A backend of Dynamo's that keeps the texts of the graphs that an ahead-of-time door hands it."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def compiler(self, gm: fx.GraphModule, _: object) -> Any:
        self.texts.append(normalize_gm(gm.print_readable(print_output=False, expanded_def=True)))

        def run(args: list[object]) -> object:
            return fx.Interpreter(gm).boxed_run(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def ours(self, gm: fx.GraphModule, inputs: Sequence[Tensor]) -> Any:
        return aot_module_simplified(gm, inputs, self.compiler, self.compiler, default_partition)

    def theirs(self, gm: fx.GraphModule, inputs: Sequence[Tensor]) -> Any:
        door = aot_autograd(fw_compiler=self.compiler, bw_compiler=self.compiler, partition_fn=their_partition)
        return door(gm, inputs)


def _texts(make: Callable[[], Made], is_ours: bool, dynamic: bool) -> list[str]:
    torch._dynamo.reset()
    printed, (f, inputs) = Printed(), make()
    results = torch.compile(f, backend=printed.ours if is_ours else printed.theirs, dynamic=dynamic)(*inputs)
    leaves = [each for each in torch.utils._pytree.tree_leaves(results) if each.requires_grad]
    if leaves:
        sum(each.sum() for each in leaves).backward()  # type: ignore[union-attr]
    return printed.texts


@pytest.mark.parametrize(
    ("name", "dynamic"), [(name, dynamic) for name, (_, modes) in CASES.items() for dynamic in modes]
)
def test_printed_graphs_are_torchs(name: str, dynamic: bool) -> None:
    make, _ = CASES[name]
    texts, wanted = (_texts(make, is_ours, dynamic) for is_ours in (True, False))
    assert "\n".join(texts) == "\n".join(wanted)
    assert "AOTInput(" in texts[0]


def test_a_joint_export_is_printed_as_torchs() -> None:
    joint = aot_export_joint_simple(lambda x: (x.sin(),), (_leaf(3),), trace_joint=True)
    plain = aot_export_joint_simple(lambda x: (x.sin(),), (_numbers(3),), trace_joint=False)
    assert [type(graph).__name__ for graph in (joint, plain)] == ["inner_f", "<lambda>"]


class Loss(nn.Module):
    """A loss of one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return ((x * self.scale).sin().sum(),)


def test_an_exported_joint_graph_is_torchs() -> None:
    codes = [export(Loss(), (_numbers(3),), trace_joint=True, output_loss_index=0)[0].code
             for export in (aot_export_module, their_export)]  # fmt: skip
    assert codes[0] == codes[1]
    assert "ones_like" in codes[0]
