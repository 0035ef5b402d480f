"""Wrong calls of the ahead-of-time doors raise what torch's own doors raise, each asked side by side."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._functorch.aot_autograd as torchs
from functorch.compile import nop
from torch import Tensor, fx, nn
from torch._inductor.compile_fx import compile_fx as torchs_compile_fx

from assay.compiler.entry import aot, dynamo, export
from assay.compiler.errors import WrongCount

AHEAD = ("aot_function", "aot_module", "aot_module_simplified")
EXPORT = ("aot_export_module", "aot_export_joint_simple")
TORCHS = SimpleNamespace(**{name: getattr(torchs, name) for name in AHEAD + EXPORT}, compile_fx=torchs_compile_fx)
OURS = SimpleNamespace(
    **{name: getattr(aot, name) for name in AHEAD},
    **{name: getattr(export, name) for name in EXPORT},
    compile_fx=dynamo.compile_fx,
)
Calls = dict[str, Callable[[Any], object]]


class Model(nn.Module):
    """A layer and a buffer; `forward` is the scenario's."""

    def __init__(self, forward: Callable[[Model, Tensor], object]) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(3))
        self._forward = forward

    def forward(self, x: Tensor) -> object:
        return self._forward(self, x)


def rows() -> Tensor:
    return torch.randn(2, 3)


def leaf() -> Tensor:
    return torch.randn(2, 3, requires_grad=True)


def loss() -> Model:
    return Model(lambda self, x: (self.layer(x).sum(),))


def two_results() -> Model:
    return Model(lambda self, x: (self.layer(x), self.layer(x).sum()))


def writing() -> Model:
    return Model(lambda self, x: (self.layer(x.add_(1)).sum(),))


def sine() -> fx.GraphModule:
    return fx.symbolic_trace(lambda x: (x.sin(),))


def fails(*args: object, **kwargs: object) -> Any:
    raise KeyError("the caller's own")


def gives_none(*args: object, **kwargs: object) -> Any:
    return None


def failing_model() -> Model:
    return Model(fails)


SIN = torch.ops.aten.sin.default
FUNCTIONS: Calls = {
    "no function": lambda doors: doors.aot_function(3, nop)(rows()),
    "no compiler": lambda doors: doors.aot_function(torch.sin),
    "None as compiler": lambda doors: doors.aot_function(torch.sin, None)(rows()),
    "a number as compiler": lambda doors: doors.aot_function(torch.sin, 3)(rows()),
    "a compiler that fails": lambda doors: doors.aot_function(torch.sin, fails)(rows()),
    "a compiler that gives None": lambda doors: doors.aot_function(torch.sin, gives_none)(rows()),
    "a compiler of the backward that fails": lambda doors: (
        doors.aot_function(torch.sin, nop, fails)(leaf()).sum().backward()
    ),
    "a compiler of the backward that gives None": lambda doors: (
        doors.aot_function(torch.sin, nop, gives_none)(leaf()).sum().backward()
    ),
    "a function that fails": lambda doors: doors.aot_function(fails, nop)(rows()),
    "an unknown keyword": lambda doors: doors.aot_function(torch.sin, nop, unknown=1)(rows()),
    "a partition that fails": lambda doors: doors.aot_function(torch.sin, nop, nop, partition_fn=fails)(leaf()),
    "a partition that is None": lambda doors: doors.aot_function(torch.sin, nop, nop, partition_fn=gives_none)(leaf()),
    "a partition of no graphs": lambda doors: doors.aot_function(
        torch.sin, nop, nop, partition_fn=lambda *_, **__: (1, 2)
    )(leaf()),
    "a number as decompositions": lambda doors: doors.aot_function(torch.sin, nop, decompositions=3)(rows()),
    "a decomposition that fails": lambda doors: doors.aot_function(torch.sin, nop, decompositions={SIN: fails})(rows()),
    "an argument that is missing": lambda doors: doors.aot_function(lambda x, y: x + y, nop)(rows()),
    "an argument too many": lambda doors: doors.aot_function(lambda x: x + 1, nop)(rows(), rows()),
    "a second backward": lambda doors: [
        loss.backward() for loss in [doors.aot_function(torch.sin, nop, nop)(leaf()).sum()] * 2
    ],
    "no module": lambda doors: doors.aot_module(torch.sin, nop),
    "a module and no compiler": lambda doors: doors.aot_module(loss()),
    "a module and rows of another length": lambda doors: doors.aot_module(loss(), nop)(torch.randn(2, 4)),
    "a module that fails": lambda doors: doors.aot_module(failing_model(), nop)(rows()),
}
SIMPLIFIED: Calls = {
    "no module": lambda doors: doors.aot_module_simplified(torch.sin, [rows()], nop)(rows()),
    "a module that fails": lambda doors: doors.aot_module_simplified(failing_model(), [rows()], nop)(rows()),
    "an example that is missing": lambda doors: doors.aot_module_simplified(loss(), [], nop)(rows()),
    "an argument too many": lambda doors: doors.aot_module_simplified(loss(), [rows()], nop)(rows(), rows()),
    "an argument that is missing": lambda doors: doors.aot_module_simplified(loss(), [rows()], nop)(),
    "an argument by name": lambda doors: doors.aot_module_simplified(loss(), [rows()], nop)(x=rows()),
    "None as compiler": lambda doors: doors.aot_module_simplified(loss(), [rows()], None)(rows()),
    "None as examples": lambda doors: doors.aot_module_simplified(loss(), None, nop),
    "a pass that fails": lambda doors: doors.aot_module_simplified(sine(), [rows()], nop, pre_grad_passes=fails),
}


def _exported(model: Callable[[], nn.Module], **kwargs: object) -> Callable[[Any], object]:
    return lambda doors: doors.aot_export_module(model(), [rows()], **kwargs)


def _joint(model: Callable[[], nn.Module], index: int, **kwargs: object) -> Callable[[Any], object]:
    return _exported(model, trace_joint=True, output_loss_index=index, **kwargs)


def _simple(function: Callable[..., object], *values: object, joint: bool = False) -> Callable[[Any], object]:
    return lambda doors: doors.aot_export_joint_simple(function, list(values), trace_joint=joint)


EXPORTED: Calls = {
    "no trace_joint": _exported(loss),
    "a joint graph without a loss": _exported(loss, trace_joint=True),
    "a loss without a joint graph": _exported(loss, trace_joint=False, output_loss_index=0),
    "a loss that is none of the results": _joint(loss, 3),
    "a loss of several numbers": _joint(two_results, 0),
    "two results with gradients": _joint(two_results, 1),
    "a loss without gradients": _joint(lambda: Model(lambda self, x: (self.layer(x).detach().sum(),)), 0),
    "a loss of integers": _joint(lambda: Model(lambda self, x: (self.layer(x).sum().long(),)), 0),
    "a joint graph above autograd": _joint(loss, 0, pre_dispatch=True),
    "a written leaf": lambda doors: doors.aot_export_module(writing(), [leaf()], trace_joint=True, output_loss_index=0),
    "a number read": _exported(lambda: Model(lambda self, x: (x * x.sum().item(),)), trace_joint=False),
    "a choice by numbers": _exported(lambda: Model(lambda self, x: (x if x.sum() > 0 else -x,)), trace_joint=False),
    "a module that fails": _exported(failing_model, trace_joint=False),
    "no module": lambda doors: doors.aot_export_module(torch.sin, [rows()], trace_joint=False),
    "an argument too many": lambda doors: doors.aot_export_module(loss(), [rows(), rows()], trace_joint=False),
    "a written argument": _simple(lambda x: (x.add_(1),), rows()),
    "a view": _simple(lambda x: (x.view(-1),), rows()),
    "an argument as result": _simple(lambda x: (x,), rows()),
    "a list of arguments": _simple(lambda x: (x[0].sin(),), [rows()]),
    "a bare result": _simple(torch.sin, rows()),
    "a joint graph of nothing that requires grad": _simple(lambda x: (x.sin(),), rows(), joint=True),
}
GRAPHS: Calls = {
    "no module": lambda doors: doors.compile_fx(3, [rows()]),
    "None as examples": lambda doors: doors.compile_fx(sine(), None),
    "no examples": lambda doors: doors.compile_fx(sine()),
    "an argument that is missing": lambda doors: doors.compile_fx(sine(), [rows()])(),
    "an argument too many": lambda doors: doors.compile_fx(sine(), [rows()])(rows(), rows()),
    "an inner compiler that fails": lambda doors: doors.compile_fx(sine(), [rows()], inner_compile=fails)(rows()),
    "an inner compiler that gives None": lambda doors: doors.compile_fx(sine(), [rows()], inner_compile=gives_none)(
        rows()
    ),
    "an unknown keyword": lambda doors: doors.compile_fx(sine(), [rows()], unknown=1),
    "a number as decompositions": lambda doors: doors.compile_fx(sine(), [rows()], decompositions=3),
}


def _raised(call: Callable[[Any], object], doors: object) -> Exception | None:
    torch.manual_seed(0)
    try:
        call(doors)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(call, id=f"{door}: {name}")
        for door, calls in {"functions": FUNCTIONS, "simplified": SIMPLIFIED, "export": EXPORTED, "fx": GRAPHS}.items()
        for name, call in calls.items()
    ],
)
def test_wrong_calls_raise_what_torchs_do(call: Callable[[Any], object]) -> None:
    expected, ours = _raised(call, TORCHS), _raised(call, OURS)
    if expected is None:
        assert ours is None
    else:
        assert isinstance(ours, type(expected)), (expected, ours)


@pytest.mark.parametrize("examples", [[], [rows(), rows()]], ids=["none", "two"])
def test_another_number_of_examples_is_told(examples: list[Tensor]) -> None:
    with pytest.raises(WrongCount, match=f"takes 1 inputs and is given {len(examples)} examples"):
        dynamo.compile_fx(sine(), examples)


def refused(*args: object) -> Tensor:
    raise RuntimeError("the caller's own") from ValueError("its cause")


def test_errors_of_a_callers_decomposition_are_raised_in_forward_and_in_backward() -> None:
    for operator, x in ((SIN, rows()), (torch.ops.aten.cos.default, leaf())):  # cos is of the gradient alone
        compiled = aot.aot_function(torch.sin, nop, nop, decompositions={operator: refused})
        with pytest.raises(RuntimeError, match="the caller's own") as caught:
            compiled(x)
        assert isinstance(caught.value.__cause__, ValueError)


def test_decompositions_of_a_caller_are_used() -> None:
    given = aot.aot_function(torch.sin, nop, decompositions={SIN: torch.cos})(torch.zeros(2))
    assert torch.equal(given, torch.ones(2))
