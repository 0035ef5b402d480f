"""What an exported graph cannot say: each ban with the message that names the input or the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.foreach_map import foreach_map

from assay.compiler.entry.export import aot_export_joint_simple, aot_export_module
from assay.compiler.errors import BANS, ExportError, Unsupported
from tests.compiler.entry.test_export_module import Calls

Forward = Callable[..., Any]


def assigns(**values: str) -> Forward:
    """A forward that assigns an attribute of the module."""

    def forward(m: Any, x: Tensor) -> tuple[Tensor]:
        for name, value in values.items():
            setattr(m, name, {"tensor": x * 2, "parameter": nn.Parameter(x * 2), "long": torch.cat([x, x])}[value])
        return (x * m.weight,)

    return forward


def appends(m: Any, x: Tensor) -> tuple[Tensor]:
    m.history.append(x * 2)
    return (x,)


def mapped(m: Any, x: Tensor) -> tuple[Tensor, ...]:
    return tuple(foreach_map(torch.sin, [x]))


def printing(x: Tensor) -> Tensor:
    torch.ops.aten._print("taken")
    return x.cos()


def effect_in_a_branch(m: Any, x: Tensor) -> tuple[Tensor]:
    return (torch.cond(x.sum() > 0, printing, torch.sin, (x,)),)


def registers(m: Any, x: Tensor) -> tuple[Tensor]:
    m.register_buffer("late", x * 2)
    return (x,)


def tied() -> nn.Module:
    """It writes one parameter, which it has by two names."""
    mod = Calls(weight_written)
    mod.again = mod.weight
    return mod


def with_history() -> nn.Module:
    mod = Calls(appends)
    mod.history = []
    return mod


def unused() -> nn.Module:
    mod = Calls(lambda m, x: ((x * m.weight).sum(),))
    mod.unused = nn.Parameter(torch.ones(1))
    return mod


def storage_replaced(m: Any, x: Tensor) -> tuple[Tensor]:
    x.data = torch.ones(3)
    return (x + 1,)


def leaves_gradients_on(m: Any, x: Tensor) -> tuple[Tensor]:
    torch.set_grad_enabled(True)
    return (x * 2,)


def weight_written(m: Any, x: Tensor) -> tuple[Tensor]:
    with torch.no_grad():
        m.weight.add_(1)
    return ((x * m.weight).sum(),)


def loss(m: Any, x: Tensor) -> Tensor:
    return (x * m.weight).sum()


X = torch.ones(3)
PART = torch.arange(6.0)[2:5]
GRID = torch.ones(2, 3)
PAIR = torch.ones(4)

INFERENCE: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...], str, str]] = {
    "transposed": (lambda: Calls(lambda m, x: (x.t_(),)), (GRID,), "metadata", "input args[0]"),
    "resized": (lambda: Calls(lambda m, x: (x.resize_(1),)), (GRID,), "metadata", "input args[0]"),
    "squeezed": (lambda: Calls(lambda m, x: (m.seen.unsqueeze_(0),)), (X,), "metadata", "buffer 'seen'"),
    "requires_grad": (lambda: Calls(lambda m, x: (x.requires_grad_() * 1,)), (X,), "metadata", "requires_grad"),
    "data": (lambda: Calls(storage_replaced), (X,), "storage", "input args[0]"),
    "set": (lambda: Calls(lambda m, x: (x.set_(x * 2),)), (X,), "storage", "input args[0]"),
    "grad_mode": (lambda: Calls(leaves_gradients_on), (X,), "grad_mode", "on"),
    "duplicate": (lambda: Calls(lambda m, x, y: (x.add_(1), y)), (X, X), "duplicate", "same tensor as input args[1]"),
    "overlap": (lambda: Calls(lambda m, x, y: (x.add_(1), y)), (PAIR[:3], PAIR[1:]), "overlap", "input args[1]"),
    "overlap_hidden": (
        lambda: Calls(lambda m, x, y: (x.data.add_(1), y)), (PAIR[:3], PAIR[1:]), "overlap", "input args[0]"
    ),
    "tied": (tied, (X,), "duplicate", "same tensor as parameter 'again'"),
    "attribute": (lambda: Calls(assigns(cache="tensor", kept="tensor")), (X,), "attribute", "'cache', 'kept'"),
    "appended": (with_history, (X,), "attribute", "'history'"),
    "parameter": (lambda: Calls(assigns(weight="parameter")), (X,), "parameter_assigned", "'weight'"),
    "buffer_shape": (lambda: Calls(assigns(seen="long")), (X,), "buffer_assigned", "'seen'"),
    "registered": (lambda: Calls(registers), (X,), "registered", "'late'"),
    "mapped": (lambda: Calls(mapped), (X,), "unsupported", "foreach_map, a higher-order operator"),
    "mapped_line": (lambda: Calls(mapped), (X,), "unsupported", "test_export_bans.py:"),
    "effect_in_a_branch": (lambda: Calls(effect_in_a_branch), (X,), "effect_inside", "given to cond"),
    "leaves": (lambda: Calls(lambda m, x: (x.as_strided((3,), (1,), 0) * 2,)), (PART,), "unsupported", "as_strided"),
}  # fmt: skip

JOINT: dict[str, tuple[Callable[[], nn.Module], int | None, str, str]] = {
    "weight_written": (lambda: Calls(weight_written), 0, "written_gradient", "parameter 'weight'"),
    "no_index": (lambda: Calls(lambda m, x: (loss(m, x), x)), None, "no_loss_index", "2 outputs"),
    "index": (lambda: Calls(lambda m, x: (loss(m, x),)), 3, "loss_index", "output_loss_index=3"),
    "negative": (lambda: Calls(lambda m, x: (loss(m, x),)), -1, "loss_index", "output_loss_index=-1"),
    "constant": (lambda: Calls(lambda m, x: (3, x)), 0, "loss_not_tensor", "int"),
    "not_scalar": (lambda: Calls(lambda m, x: (x * m.weight,)), 0, "loss_not_scalar", "(3,)"),
    "no_gradient": (lambda: Calls(lambda m, x: (loss(m, x), x.sum())), 1, "other_gradient", "output 0"),
    "detached": (lambda: Calls(lambda m, x: (x.sum(),)), 0, "loss_without_gradient", "output 0"),
    "other": (lambda: Calls(lambda m, x: (loss(m, x), m.weight * 2)), 0, "other_gradient", "output 1"),
    "unused": (unused, 0, "no_gradient", "parameter 'unused'"),
}

SIMPLE: dict[str, tuple[Forward, Any, str, str]] = {
    "duplicate": (lambda x, y: (x.add_(1) * y,), (X, X), "duplicate", "same tensor as input args[1] (y)"),
    "overlap": (lambda x, y: (x.add_(1) * y.sum(),), (PAIR[:3], PAIR[1:]), "overlap", "with input args[1] (y)"),
    "written": (lambda x, y: (x.add_(1) * 2,), (X, X.clone()), "written", "input args[0] (x)"),
    "transposed": (lambda x: (x.t_() * 2,), (GRID,), "metadata", "input args[0] (x)"),
    "is_input": (lambda x, y: (y,), (X, PAIR), "aliased_result", "input args[1] (y)"),
    "view": (lambda x, y: (x * 2, y.view(2, 2)), (X, PAIR), "aliased_result", "output 1"),
    "nested_argument": (lambda x: (x[0] * 2,), ([X],), "nested_inputs", "args[0] is a list"),
    "one_argument": (lambda x: (x * 2,), X, "nested_inputs", "args is a Tensor"),
    "nested_result": (lambda x: (x * 2, [x * 3]), (X,), "nested_results", "a list as output 1"),
    "one_result": (lambda x: x * 2, (X,), "nested_results", "one tensor"),
}

RAISED: set[str] = set()


def raises(ban: str, named: str, export: Callable[[], object]) -> None:
    """The ban's own message, which names the culprit, as an error that callers of torch's function catch."""
    opening = BANS[ban].partition("{")[0]
    with pytest.raises(ExportError) as caught:
        export()
    text = str(caught.value)
    assert text.startswith(opening) and named in text and "{" not in text, text
    closing = BANS[ban].rpartition("}")[2]
    assert text.endswith(closing), text
    assert isinstance(caught.value, (Unsupported, RuntimeError))
    RAISED.add(ban)


@pytest.mark.parametrize("name", INFERENCE)
def test_export_bans_in_inference(name: str) -> None:
    make, args, ban, named = INFERENCE[name]
    mod = make()
    before = {key: id(value) for key, value in vars(mod).items()}
    raises(ban, named, lambda: aot_export_module(mod, args, trace_joint=False))
    assert {key: id(value) for key, value in vars(mod).items()} == before, "recording left something in the module"
    assert list(getattr(mod, "history", [])) == [] and "late" not in dict(mod.named_buffers())


@pytest.mark.parametrize("name", JOINT)
def test_export_bans_in_a_joint_graph(name: str) -> None:
    make, index, ban, named = JOINT[name]
    raises(ban, named, lambda: aot_export_module(make(), (X,), trace_joint=True, output_loss_index=index))


@pytest.mark.parametrize("trace_joint", [False, True])
@pytest.mark.parametrize("name", SIMPLE)
def test_export_bans_in_joint_simple(name: str, trace_joint: bool) -> None:
    function, args, ban, named = SIMPLE[name]
    raises(ban, named, lambda: aot_export_joint_simple(function, args, trace_joint=trace_joint))


def test_export_bans_pre_dispatch() -> None:
    make = INFERENCE["attribute"][0]
    export = lambda: aot_export_module(make(), (X,), trace_joint=True, output_loss_index=0, pre_dispatch=True)
    raises("pre_dispatch", "trace_joint=True", export)


def test_export_bans_are_each_raised_by_a_case() -> None:
    tables = [{row[2] for row in table.values()} for table in (INFERENCE, JOINT, SIMPLE)]
    elsewhere = {"pre_dispatch", "number"}  # of a number `aot_module` says so, which then runs in eager
    assert set.union(*tables) | elsewhere == set(BANS)


def test_export_lets_disjoint_views_and_equal_inputs_be() -> None:
    mod = Calls(lambda m, x, y: (x.add_(1) * y,))
    aot_export_module(mod, (PAIR[::2], PAIR[1::2]), trace_joint=False)
    aot_export_module(Calls(lambda m, x, y: (x * y,)), (X, X), trace_joint=False)
