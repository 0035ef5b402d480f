"""A module that a front door compiles or exports: called with its state wherever it holds it, and left as it was."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from assay.compiler.entry.aot import aot_module, aot_module_simplified
from assay.compiler.entry.export import aot_export_module
from assay.compiler.errors import AssayError
from assay.compiler.journal import totals


class Shared(nn.Module):
    """One submodule by two names."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.b, self.again = self.a, self.norm

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (self.again(self.b(self.norm(self.a(x)))),)


class Tied(nn.Module):
    """One parameter, and one buffer, in two modules each."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.b.weight = self.a.weight
        self.register_buffer("scale", torch.full((3,), 2.0))
        self.a.register_buffer("scale", self.scale)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (self.b(self.a(x)) * self.scale * self.a.scale,)  # type: ignore[operator]


class Listed(nn.Module):
    """Plain attributes that refer to parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.parts: Any = {"all": [self.a.weight, (self.a.bias,)]}
        object.__setattr__(self, "alias", self.a)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        weight, (bias,) = self.parts["all"]
        return (self.alias(x) @ weight + bias,)  # type: ignore[operator]


class Recurrent(nn.Module):
    """An LSTM makes a list of its parameters anew."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (self.lstm(x[:, None])[0],)


class Nested(nn.Module):
    """A module inside itself twice over: by a path, by a list, and by a path through another."""

    def __init__(self) -> None:
        super().__init__()
        leaf = nn.Linear(3, 3)
        self.first, self.rest = nn.Sequential(leaf, nn.ReLU()), nn.ModuleList([leaf, nn.Sequential(leaf)])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (self.rest[1](self.rest[0](self.first(x))),)


MODULES = (Shared, Tied, Listed, Recurrent, Nested)


def _node_by_node(gm: fx.GraphModule, _: object) -> Callable[..., Any]:
    return gm.forward


def _held(module: nn.Module) -> list[object]:
    """The very objects that a module holds, by name."""
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    plain = [(name, value) for each in module.modules() for name, value in vars(each).items() if name[0] != "_"]
    return [(name, id(value)) for name, value in [*tensors, *plain]]


def simplified(module: nn.Module, x: Tensor) -> Callable[..., Any]:
    return aot_module_simplified(module, [x], _node_by_node)


def as_module(module: nn.Module, x: Tensor) -> Callable[..., Any]:
    return aot_module(module, _node_by_node)


@pytest.mark.parametrize("door", [simplified, as_module], ids=lambda door: door.__name__)
@pytest.mark.parametrize("kind", MODULES, ids=lambda kind: kind.__name__)
def test_a_module_is_called_with_its_state_and_left_as_it_was(
    kind: Callable[[], nn.Module], door: Callable[..., Any]
) -> None:
    module, x = kind(), torch.randn(4, 3)
    twin, held, eager = copy.deepcopy(module), _held(module), totals()["eager_graphs"]
    compiled = door(module, x)
    for _ in range(2):
        got, want = compiled(x)[0], twin(x)[0]
        torch.testing.assert_close(got, want)
        got.sum().backward()
        want.sum().backward()
    assert _held(module) == held and totals()["eager_graphs"] == eager
    for (name, mine), other in zip(module.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, msg=name)
    for (name, mine), other in zip(module.named_buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(mine, other, msg=name)


class Fails(nn.Module):
    """Changes what it holds, then raises half-way through."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = self.a
        self.register_buffer("seen", torch.zeros(3))
        self.log: Any = {"calls": [0], "kinds": {1}, "last": deque([1])}
        self.count = 0

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        self.count += 1
        self.log["calls"].append(x)
        self.log["kinds"].add(x)
        self.log["last"].append(x)
        self.seen = self.b(x).sum(0)
        self.a.weight = nn.Parameter(torch.ones(3, 3))
        self.new = x
        raise RuntimeError("half-way")


def exported(module: nn.Module, x: Tensor) -> object:
    return aot_export_module(module, [x], trace_joint=False)


@pytest.mark.parametrize("door", [simplified, exported], ids=lambda door: door.__name__)
def test_a_module_whose_forward_raises_is_left_as_it_was(door: Callable[..., Any]) -> None:
    module = Fails()
    held = _held(module)
    with pytest.raises((AssayError, RuntimeError)):
        door(module, torch.randn(4, 3))
    assert _held(module) == held and not hasattr(module, "new") and module.count == 0
    assert module.log == {"calls": [0], "kinds": {1}, "last": deque([1])}


def test_a_buffer_of_a_shared_submodule_that_is_assigned_is_written_once() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.seen = self.seen + 1
            return x * self.seen

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = Counts()
            self.b = self.a

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return (self.b(self.a(x)),)

    module, x = Both(), torch.ones(3)
    compiled = simplified(module, x)
    for times in (2.0, 12.0):
        assert compiled(x)[0].tolist() == [times] * 3
    assert module.a.seen.item() == 4 and module.a.seen._version == 2


class Replaces(nn.Module):
    """Replaces a buffer by a part of its result, and one that is not there yet."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(3))
        self.register_buffer("total", None)

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.last[0]
        self.last, self.total = y[0], y.sum()
        return y


def test_a_buffer_that_is_replaced_is_another_tensor_after_the_call() -> None:
    module, x = Replaces(), torch.ones(2, 3)
    compiled, eager, first = as_module(module, x), totals()["eager_graphs"], module.last
    for times in (1.0, 2.0):
        y = compiled(x)
        assert module.total.item() == 6 * times
        assert module.last.data_ptr() == y.data_ptr() and module.last._base is y
    assert first.tolist() == [0] * 3 and first._version == 0
    assert totals()["eager_graphs"] == eager


@pytest.mark.parametrize(
    "change",
    [lambda m: setattr(m, "calls", m.calls + 1), lambda m: setattr(m, "weight", nn.Parameter(m.weight * 2))],
    ids=["number", "parameter"],
)
def test_a_module_that_changes_what_no_graph_returns_runs_in_eager(change: Callable[[Any], None]) -> None:
    class Changes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.weight = 0, nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            change(self)
            return x * self.weight * self.calls

    module = Changes()
    twin, x, eager = copy.deepcopy(module), torch.ones(3), totals()["eager_graphs"]
    compiled = as_module(module, x)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), twin(x))
    assert module.calls == twin.calls and totals()["eager_graphs"] > eager


def test_a_module_is_compiled_anew_when_its_mode_changes() -> None:
    module, x = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), torch.randn(4, 3)
    compiled = aot_module(module, _node_by_node)
    compiled(x)
    module.eval()
    torch.testing.assert_close(compiled(x), module(x))
