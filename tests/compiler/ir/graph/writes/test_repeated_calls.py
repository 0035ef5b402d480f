"""Calls that are copied from earlier ones are recorded as they would be without: node for node, tensor for tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from assay.compiler.ir.graph.trace import Trace
from assay.compiler.ir.graph.writes.watching import Watching
from assay.compiler.ir.tensors.layout.strides import hint

Program = Callable[..., Tensor | Sequence[Tensor]]


def _recorded(program: Program, *given: Tensor, symbolic: bool = False) -> fx.GraphModule:
    mode = FakeTensorMode(shape_env=ShapeEnv()) if symbolic else FakeTensorMode()
    trace = Trace(mode, {})
    fakes = [_fake(mode, place, value) for place, value in enumerate(given)]
    with trace.recording(), torch.no_grad(), fx.traceback.preserve_node_meta():
        inputs = [trace.wrap(trace.add_input(f"x_{n}", fake), False) for n, fake in enumerate(fakes)]
        found = program(*inputs)
        results = [found] if isinstance(found, Tensor) else found
        nodes = [trace.node_of(value) for value in results]
    return trace.finish(nodes)


def _fake(mode: FakeTensorMode, place: int, value: Tensor) -> Tensor:
    """A fake tensor, its sizes symbols where the mode has some."""
    if mode.shape_env is None:
        return mode.from_tensor(value, static_shapes=True)
    sizes = [DimDynamic.DYNAMIC] * value.dim()
    context = StatelessSymbolicContext(dynamic_sizes=sizes, constraint_sizes=[None] * value.dim())
    return mode.from_tensor(value, source=ConstantSource(f"x_{place}"), symbolic_context=context)


def _guards(module: fx.GraphModule) -> list[str]:
    """What recording it has asked of symbolic sizes."""
    values = [value for node in module.graph.nodes for value in _tensors(node)]
    env = next(value.fake_mode.shape_env for value in values if isinstance(value, FakeTensor))
    return [] if env is None else [str(guard.expr) for guard in env.guards]


def _outlines(module: fx.GraphModule) -> list[Any]:
    """Every node with its arguments, and how its tensors lie. Sizes are named by their order: some were dropped."""
    for place, node in enumerate(node for node in module.graph.nodes if node.name.startswith("size_")):
        node._rename(f"number_{place}")
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
    laid = tuple(map(str, (*value.shape, *value.stride(), value.storage_offset(), value.dtype, value.device)))
    return *laid, hint(value.untyped_storage().nbytes()), value.is_conj(), value.is_neg(), value.requires_grad


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


def _of_sizes(x: Tensor, y: Tensor) -> list[Tensor]:
    """Numbers and sizes of results that follow from sizes of arguments."""
    rows, columns = x.shape
    halves = [x[: rows // 2] * 2 for _ in range(3)] + [x[: rows - rows // 2] * 2]
    joined = [torch.cat([x, x[: rows // 2]]).sum(0) for _ in range(3)]
    made = [x.new_zeros(size) for size in (rows, columns, rows + columns, rows)]
    return [*halves, *joined, *made, *(x * size for size in (rows, columns, rows * columns, rows, columns))]


def _fixed_on_the_way(x: Tensor, y: Tensor) -> list[Tensor]:
    """A size that becomes a number after calls on tensors of that size."""
    before = [x * 2, x.sum(0), x * 2]
    assert x.shape[0] == 4
    return [*before, x * 2, x.sum(0), x * 2, before[0] * 2]


PROGRAMS = (_chain, _of_other_kinds, _written, _lists, _made, _lazy, _single, _sparse, _of_sizes, _fixed_on_the_way)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_capture_copied_calls_are_those_that_would_be_recorded(
    program: Program, symbolic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = torch.randn(4, 4), torch.randn(4, 4).t()
    copied = _recorded(program, *given, symbolic=symbolic)
    monkeypatch.setattr(Watching, "_may_copy", lambda self: False)
    recorded = _recorded(program, *given, symbolic=symbolic)
    assert _outlines(copied) == _outlines(recorded)
    assert _guards(copied) == _guards(recorded)


@pytest.mark.parametrize("symbolic", [False, True])
def test_capture_calls_alike_are_worked_out_once(symbolic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    worked_out: list[str] = []
    whole = Watching._recorded

    def noting(self: Watching, func: Any, *rest: Any) -> Any:
        worked_out.append(str(func))
        return whole(self, func, *rest)

    monkeypatch.setattr(Watching, "_recorded", noting)
    module = _recorded(_chain, torch.randn(4, 4), torch.randn(4, 4), symbolic=symbolic)
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    once = ["aten.add.Tensor", "aten.mul.Tensor", "aten.tanh.default"]
    assert len(calls) == 36
    assert sorted(worked_out) == (["aten.add.Tensor", *once] if symbolic else once)  # which finds two sizes equal


@pytest.mark.parametrize("symbolic", [False, True])
def test_capture_results_of_copied_calls_have_memory_of_their_own(symbolic: bool) -> None:
    module = _recorded(lambda x: [x * 2 for _ in range(4)], torch.randn(3), symbolic=symbolic)
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
