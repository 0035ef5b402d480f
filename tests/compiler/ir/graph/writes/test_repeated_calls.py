"""Calls that are copied from earlier ones are recorded as they would be without: node for node, tensor for tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.compiler.ir.graph.trace import Trace
from assay.compiler.ir.graph.writes.watching import Watching

Program = Callable[..., Tensor | Sequence[Tensor]]


def _recorded(program: Program, *given: Tensor) -> fx.GraphModule:
    mode = FakeTensorMode()
    trace = Trace(mode, {})
    fakes = [mode.from_tensor(value, static_shapes=True) for value in given]
    with trace.recording(), torch.no_grad(), fx.traceback.preserve_node_meta():
        inputs = [trace.wrap(trace.add_input(f"x_{n}", fake), False) for n, fake in enumerate(fakes)]
        found = program(*inputs)
        results = [found] if isinstance(found, Tensor) else found
        nodes = [trace.node_of(value) for value in results]
    return trace.finish(nodes)


def _outlines(module: fx.GraphModule) -> list[Any]:
    """Every node with its arguments, and how its tensors lie."""
    return [
        (node.op, node.name, str(node.target), str(node.args), str(node.kwargs), *_metadata(node))
        for node in module.graph.nodes
    ]


def _metadata(node: fx.Node) -> list[Any]:
    others = {name: str(value) for name, value in node.meta.items() if name not in ("val", "seq_nr")}
    return [sorted(others.items()), *map(_lies, _tensors(node))]


def _tensors(node: fx.Node) -> list[Tensor]:
    value = node.meta.get("val")
    return [each for each in (value if isinstance(value, list | tuple) else [value]) if isinstance(each, Tensor)]


def _lies(value: Tensor) -> tuple[object, ...]:
    laid = tuple(value.shape), value.stride(), value.storage_offset(), value.dtype, value.device
    return *laid, value.untyped_storage().nbytes(), value.is_conj(), value.is_neg(), value.requires_grad


def _chain(x: Tensor, y: Tensor) -> Tensor:
    for step in range(12):
        x = torch.tanh(x * (1.0 + step) + y)
    return x


def _of_other_kinds(x: Tensor, y: Tensor) -> list[Tensor]:
    """The same operators on tensors of other sizes, strides and dtypes, by numbers of other types."""
    kinds = (x, x.t(), x[1:], x[:, :1], x.double(), x.half(), x.to(torch.int8), x.expand(3, *x.shape), y)
    return [part for kind in (*kinds, *kinds) for part in (kind * 2, kind * 2.0, kind + 1, kind.sum(-1), kind > 0)]


def _written(x: Tensor, y: Tensor) -> list[Tensor]:
    one, two = x * 2, x * 2
    one.add_(1)
    one[1:].mul_(3)
    three = x * 2
    three.t_()
    return [one, two, three, two * 2, one * 2, three * 2]


def _lists(x: Tensor, y: Tensor) -> list[Tensor]:
    return [torch.cat([x, y]), torch.cat([x, y]), torch.cat([x, x], 1), torch.stack([x, y]), torch.stack([y, x])]


def _made(x: Tensor, y: Tensor) -> list[Tensor]:
    """Creations, draws and several results."""
    parts = [*torch.var_mean(x, 0), *torch.var_mean(x, 0), *torch.max(x, 1), *torch.max(x, 1)]
    return [*parts, x.new_zeros(3), x.new_zeros(3), torch.rand_like(x), torch.rand_like(x), torch.ones(2) * x.sum()]


def _lazy(x: Tensor, y: Tensor) -> list[Tensor]:
    z = torch.complex(x, y)
    return [z.conj() * 2, z * 2, z.conj() * 2, z.conj().imag * 2, z.imag * 2, z.resolve_conj() * 2]


def _single(x: Tensor, y: Tensor) -> list[Tensor]:
    """Sizes of one, along which strides say nothing, and of none."""
    row = x[:1].t()
    return [row * 3, row * 3, row.t() * 3, x[:0] * 3, x[:0] * 3, torch.logical_or(x[:1, :1], x.t())]


def _sparse(x: Tensor, y: Tensor) -> list[Tensor]:
    """What has no strides, and no memory of which one could say how much it is."""
    places = x.new_zeros(1, 4, dtype=torch.int64)
    return [torch.sparse_coo_tensor(places, value, (4, 4), check_invariants=False).to_dense() for value in (x, x, y)]


PROGRAMS = (_chain, _of_other_kinds, _written, _lists, _made, _lazy, _single, _sparse)


@pytest.mark.parametrize("program", PROGRAMS)
def test_capture_copied_calls_are_those_that_would_be_recorded(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = torch.randn(4, 4), torch.randn(4, 4).t()
    copied = _outlines(_recorded(program, *given))
    monkeypatch.setattr(Watching, "_may_copy", lambda self: False)
    assert copied == _outlines(_recorded(program, *given))


def test_capture_calls_alike_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    worked_out: list[str] = []
    whole = Watching._recorded

    def noting(self: Watching, func: Any, *rest: Any) -> Any:
        worked_out.append(str(func))
        return whole(self, func, *rest)

    monkeypatch.setattr(Watching, "_recorded", noting)
    module = _recorded(_chain, torch.randn(4, 4), torch.randn(4, 4))
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    assert len(calls) == 36 and sorted(worked_out) == ["aten.add.Tensor", "aten.mul.Tensor", "aten.tanh.default"]


def test_capture_results_of_copied_calls_have_memory_of_their_own() -> None:
    module = _recorded(lambda x: [x * 2 for _ in range(4)], torch.randn(3))
    kept = [node.meta["val"] for node in module.graph.nodes if node.op == "call_function"]
    assert len({value.untyped_storage()._cdata for value in kept}) == len(kept) == 4


REFUSED: dict[str, Program] = {
    "negative_lambda": lambda x: (torch.nn.functional.softshrink(x, 0.5), torch.nn.functional.softshrink(x, -0.5)),
    "out_of_range": lambda x: (x.half().clamp(0.5), torch.full_like(x.half(), 1e9)),
    "out_of_integers": lambda x: (torch.fill(x.to(torch.int8), 100.0), torch.fill(x.to(torch.int8), 300.0)),
    "other_shape": lambda x: (x + x, x + x[1:]),
    "other_dtype": lambda x: (x @ x, x @ x.double()),
}


@pytest.mark.parametrize("program", REFUSED.values(), ids=REFUSED)
def test_capture_a_refused_call_is_refused_after_one_like_it(program: Program) -> None:
    x = torch.randn(4, 4)
    with pytest.raises(RuntimeError) as eager:
        program(x)
    with pytest.raises(type(eager.value)):
        _recorded(program, x)


def test_capture_a_number_that_is_known_stays_known() -> None:
    def program(x: Tensor) -> Tensor:
        made = [torch.tensor(number) * 2 for number in (3, 4)]
        return x * int(made[0]) + int(made[1])

    module = _recorded(program, torch.randn(3))
    numbers = [node.args[1] for node in module.graph.nodes if node.op == "call_function" and node.args[1:]]
    assert 6 in numbers and 8 in numbers


def test_capture_warns_of_each_variance_without_freedom() -> None:
    with pytest.warns(UserWarning, match="degrees of freedom") as said:
        _recorded(lambda x: (x.var(0), x.var(0)), torch.randn(1, 3))
    assert len(said) >= 2
