"""Operators that take functions, compiled ahead of time and exported: nodes of the graph, with eager's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._higher_order_ops import map as mapped
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.strict_mode import strict_mode
from torch.nn.attention.flex_attention import flex_attention
from torch.utils import _pytree as pytree

from assay.compiler import journal
from assay.compiler.entry.aot import aot_function, aot_module, aot_module_simplified, nop
from assay.compiler.entry.dynamo import compile_fx, compile_fx_inner
from assay.compiler.entry.export import aot_export_joint_simple, aot_export_module
from assay.compiler.errors import Unsupported

higher = torch.ops.higher_order


def branches(x: Tensor, w: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda a, b: a @ b, lambda a, b: (a * 2) @ b.t(), (x, w)).sin()


def branches_that_read_other_operands(x: Tensor, w: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda a, b: a.sin(), lambda a, b: b.cos() * 2, (x, w)) * x


def branches_in_branches_over_captured_tensors(x: Tensor, w: Tensor) -> Tensor:
    def inner(a: Tensor) -> Tensor:
        return torch.cond(a.sum() > 5, lambda b: b.exp() * w, lambda b: 2**b * w, (a,))

    return torch.cond(x.sum() > 0, inner, lambda a: a.clone().mul_(2) + w, (x,))


def a_loop(x: Tensor, w: Tensor) -> Any:
    return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, (a @ w).sin()), (torch.tensor(0), x * 1))


def scanned(x: Tensor, w: Tensor) -> Any:
    def step(carried: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        new = torch.tanh(carried @ w + row)
        return new, new * 2

    return scan(step, x[0].sin(), x, reverse=True)


def over_rows(x: Tensor, w: Tensor) -> Any:
    return mapped(lambda row, b: (row @ b).sum(-1).cos(), x, w)  # type: ignore[arg-type]


def a_recurrence(x: Tensor, w: Tensor) -> Tensor:
    def joined(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return one[0] * other[0], other[0] * one[1] + other[1]

    _, states = associative_scan(joined, (w.sigmoid(), x), dim=0, combine_mode="generic")
    return states.tanh()


def attention(x: Tensor, w: Tensor) -> Tensor:
    def score(value: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return value + w[q, k]

    heads = torch.stack([x, x.sin()])[None]
    return flex_attention(heads, heads * 2, heads, score_mod=score)  # type: ignore[return-value]


PROGRAMS: dict[Callable[..., Any], object] = {
    branches: higher.cond,
    branches_that_read_other_operands: higher.cond,
    branches_in_branches_over_captured_tensors: higher.cond,
    a_loop: higher.while_loop,
    scanned: higher.scan,
    over_rows: higher.map_impl,
    a_recurrence: None,  # is recorded as what it computes
    attention: higher.flex_attention,
}
TRAINED = [f for f in PROGRAMS if f is not attention]  # eager has no gradients of it on a CPU
DOORS = ("function", "symbols", "module", "simplified")


class Called(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def inputs(scale: float, requires_grad: bool, size: int = 3) -> tuple[Tensor, Tensor]:
    x = (torch.arange(size * size).reshape(size, size) * scale / 10).requires_grad_(requires_grad)
    return x, (torch.arange(size * size).reshape(size, size) / 9).requires_grad_(requires_grad)


def through(door: str, f: Callable[..., Any], compiler: Any, requires_grad: bool) -> Callable[..., Any]:
    if door == "module":
        return aot_module(Called(f), compiler, fallback="error")
    if door == "simplified":
        return aot_module_simplified(Called(f), inputs(1, requires_grad), compiler)
    return aot_function(f, compiler, dynamic=door == "symbols", fallback="error")


def run(f: Callable[..., Any], args: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor | None]]:
    results = pytree.tree_leaves(f(*args))
    flowing = [each for each in results if each.requires_grad]
    if flowing:
        torch.autograd.backward([each.sin().sum() for each in flowing])
    return [each.detach() for each in results], [arg.grad for arg in args]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_functions_in_inference_are_nodes_with_the_values_of_eager(f: Callable[..., Any], door: str) -> None:
    graphs: list[fx.GraphModule] = []
    compiled = through(door, f, lambda gm, _: graphs.append(gm) or gm, False)
    for scale in (1, -1, 2):
        args = inputs(scale, False)
        torch.testing.assert_close(run(compiled, args), run(f, args))
    (graph,) = graphs
    held = [node.target for node in graph.graph.nodes if isinstance(node.target, torch._ops.HigherOrderOperator)]
    assert held == ([PROGRAMS[f]] if PROGRAMS[f] is not None else [])


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("f", TRAINED, ids=lambda f: f.__name__)
def test_functions_in_training_have_the_gradients_of_eager(f: Callable[..., Any], door: str) -> None:
    compiled = through(door, f, nop, True)
    for scale in (1, -1, 2):
        torch.testing.assert_close(run(compiled, inputs(scale, True)), run(f, inputs(scale, True)))


@pytest.mark.parametrize("f", [branches, a_loop, scanned, over_rows], ids=lambda f: f.__name__)
def test_functions_of_symbolic_sizes_serve_other_sizes(f: Callable[..., Any]) -> None:
    graphs: list[fx.GraphModule] = []
    compiled = aot_function(f, lambda gm, _: graphs.append(gm) or gm, dynamic=True, fallback="error")
    for size in (3, 4, 5):
        args = inputs(1, False, size)
        torch.testing.assert_close(run(compiled, args), run(f, args))
    assert len(graphs) == 1


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_functions_in_inner_graphs_are_compiled(f: Callable[..., Any]) -> None:
    compiled = aot_function(f, compile_fx_inner, fallback="error")
    journal.reset()
    trained = f in TRAINED
    for scale in (1, -1, 2):
        torch.testing.assert_close(run(compiled, inputs(scale, trained)), run(f, inputs(scale, trained)))
    found: Any = journal.totals()
    assert not found["eager"]
    assert found["pieces"] >= 1 or f in (a_recurrence, attention)


def scan_of_kernels(x: Tensor, w: Tensor) -> Any:
    def step(carried: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        carried = torch.tanh(carried * w[0] + row)
        return carried, carried * 2

    return scan(step, w[1].sin(), x)


def map_of_kernels(x: Tensor, w: Tensor) -> Any:
    return mapped(lambda row, w: (row * w[0]).sin(), x, w)  # type: ignore[arg-type]


def loop_of_kernels(x: Tensor, w: Tensor) -> Any:
    return while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, (a * w).sin()), (torch.tensor(0), x * 1))[1]


ONE_CALL = {
    "scan": (scan_of_kernels, False),
    "map": (map_of_kernels, False),
    "while_loop": (loop_of_kernels, False),
    "scan in training": (scan_of_kernels, True),
    "map in training": (map_of_kernels, True),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ONE_CALL)
def test_loops_in_inner_graphs_are_one_call(name: str, dynamic: bool) -> None:
    f, trained = ONE_CALL[name]
    compiled = aot_function(f, compile_fx_inner, dynamic=dynamic, fallback="error")
    journal.reset()
    for size in (3, 4, 5) if dynamic else (3, 3):
        torch.testing.assert_close(run(compiled, inputs(1, trained, size)), run(f, inputs(1, trained, size)))
    totals: Any = journal.totals()
    assert totals["loops"] and not totals["stepwise"] and not totals["eager"]
    assert not [name for name in totals["fallbacks"] if "higher_order" in name]


def test_loop_with_an_effect_in_an_inner_graph_is_torchs() -> None:
    def f(x: Tensor, w: Tensor) -> Any:
        return scan(lambda carried, row: (carried + 1, nn.functional.dropout(row * w[0])), w[1].sin(), x)

    compiled = aot_function(f, compile_fx_inner, fallback="error")
    for _ in range(2):
        found = []
        for each in (f, compiled):
            torch.manual_seed(3)
            found.append((each(*inputs(1, False)), torch.rand(3)))
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("backend", [compile_fx, lambda gm, args: aot_module_simplified(gm, args, nop)])
def test_functions_in_graphs_of_dynamo_are_taken(backend: Any) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(branches_that_read_other_operands, backend=backend)
    for scale in (1, -1, 2):
        expected = run(branches_that_read_other_operands, inputs(scale, True))
        torch.testing.assert_close(run(compiled, inputs(scale, True)), expected)


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor, flag: Tensor) -> tuple[Tensor]:
        return (torch.cond(flag, self.one, self.other, (x,)).square().sum(),)


@pytest.mark.parametrize("pre_dispatch", [False, True])
def test_an_export_holds_branches(pre_dispatch: bool) -> None:
    gate, x = Gate(), torch.randn(2, 3)
    graph, signature = aot_export_module(gate, (x, torch.tensor(True)), trace_joint=False, pre_dispatch=pre_dispatch)
    state = [value.detach() for value in gate.parameters()]
    for flag in (torch.tensor(True), torch.tensor(False)):
        torch.testing.assert_close(graph(*state, x, flag)[0], gate(x, flag)[0].detach())
    assert [node.target for node in graph.graph.nodes].count(higher.cond) == 1
    assert signature.parameters == ["one.weight", "one.bias", "other.weight", "other.bias"]


def test_a_joint_export_has_the_gradients_of_branches() -> None:
    gate, x = Gate(), torch.randn(2, 3)
    graph, signature = aot_export_module(gate, (x, torch.tensor(True)), trace_joint=True, output_loss_index=0)
    state = [value.detach() for value in gate.parameters()]
    for flag in (torch.tensor(True), torch.tensor(False)):
        loss, *gradients = graph(*state, x, flag)
        (expected,) = gate(x, flag)
        # a branch that is not taken leaves gradients of zeros, as the operator's own backward does
        wanted = torch.autograd.grad(expected, list(gate.parameters()))
        torch.testing.assert_close(loss, expected.detach())
        torch.testing.assert_close(gradients, list(wanted))
    assert signature.backward_signature is not None
    assert len(signature.backward_signature.gradients_to_parameters) == 4


def test_a_joint_export_of_a_function_holds_branches() -> None:
    args = inputs(1, True)
    graph = aot_export_joint_simple(lambda x, w: (branches(x, w),), args, trace_joint=True)
    for scale in (1, -1):
        x, w = inputs(scale, True)
        (result,), gradients = graph([x.detach(), w.detach()], [torch.ones(3, 3)])
        expected = branches(x, w)
        torch.testing.assert_close(result, expected.detach())
        torch.testing.assert_close(list(gradients), list(torch.autograd.grad(expected.sum(), (x, w))))


def drawing(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda a: nn.functional.dropout(a), lambda a: a * 2, (x,))


def test_a_branch_may_draw_where_it_has_no_gradient() -> None:
    compiled = aot_function(drawing, nop, fallback="error")
    found = []
    for f in (drawing, compiled, compiled):
        torch.manual_seed(7)
        found.append((f(torch.ones(50)), torch.rand(3)))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    torch.testing.assert_close(found[2], found[0], rtol=0, atol=0)


def test_a_branch_that_would_draw_again_in_backward_is_refused() -> None:
    with pytest.raises(Unsupported, match="draws the random numbers of its forward again"):
        aot_function(drawing, nop, fallback="error")(torch.ones(3, requires_grad=True))


def test_branches_whose_gradients_lie_in_different_ways_are_refused() -> None:
    """One node has one layout: torch's operator refuses to be recorded so."""

    def f(x: Tensor) -> Tensor:
        rows = torch.contiguous_format
        return torch.cond(x.sum() > 0, lambda a: a.t().clone(memory_format=rows), lambda a: a * 2, (x,))

    with pytest.raises(Unsupported, match="lie in different ways"):
        aot_function(f, nop, fallback="error")(*inputs(1, True)[:1])
    torch.testing.assert_close(run(aot_function(f, nop), inputs(1, True)[:1]), run(f, inputs(1, True)[:1]))


@pytest.mark.parametrize(
    "branch", [lambda a: a, lambda a: a.mul_(2).sin()], ids=["gives its operand", "writes its operand"]
)
def test_what_torch_refuses_of_a_branch_is_refused_with_its_class(branch: Callable[[Tensor], Tensor]) -> None:
    def f(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, branch, lambda a: a.sin(), (x,))

    raised = []
    for each in (f, aot_function(f, nop)):
        with pytest.raises(Exception) as error:
            each(torch.ones(3))
        raised.append(error.type)
    assert raised[0] is raised[1]


def test_a_branch_whose_result_nobody_reads_is_dropped() -> None:
    graphs: list[fx.GraphModule] = []

    def f(x: Tensor) -> Tensor:
        torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))
        return x * 2

    aot_function(f, lambda gm, _: graphs.append(gm) or gm, fallback="error")(torch.ones(3))
    assert not graphs[0].graph.find_nodes(op="call_function", target=higher.cond)


@pytest.mark.parametrize("pre_dispatch", [False, True])
def test_what_nobody_reads_in_a_branch_is_dropped(pre_dispatch: bool) -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            def inner(a: Tensor) -> Tensor:
                unread = a + 1
                unread.add_(2)
                return a.cos()

            def outer(a: Tensor) -> Tensor:
                unread = a * 3
                unread.mul_(2)
                return torch.cond(a.sum() > 1, inner, lambda b: b.exp(), (a,))

            return (torch.cond(x.sum() > 0, outer, lambda a: a.sin(), (x,)),)

    module = Branches()
    graph, _ = aot_export_module(module, (torch.ones(3),), trace_joint=False, pre_dispatch=pre_dispatch)
    calls = {str(node.target) for each in graph.modules() for node in getattr(each, "graph", fx.Graph()).nodes}
    assert not calls & {"aten.mul.Tensor", "aten.add.Tensor"} and "aten.cos.default" in calls
    for x in (torch.ones(3), -torch.ones(3), torch.full((3,), 0.1)):
        torch.testing.assert_close(graph(x), module(x))


def in_strict_mode(x: Tensor) -> Any:
    return strict_mode(lambda x: x.sin(), (x,))


def under_hints(x: Tensor) -> Any:
    return hints_wrapper(lambda x: x.sin(), (x,), {}, {"region": 1})


def wide_product(x: Tensor) -> Any:
    return out_dtype(torch.ops.aten.mul.Tensor, torch.float64, x, x)


@pytest.mark.parametrize(
    "program, target",
    [(in_strict_mode, higher.strict_mode), (under_hints, higher.hints_wrapper), (wide_product, higher.out_dtype)],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_functions_held_of_bodies_under_a_hint_are_nodes(program: Callable[[Tensor], Any], target: Any) -> None:
    graphs: list[fx.GraphModule] = []

    def keep(gm: fx.GraphModule, _: object) -> Callable[..., Any]:
        graphs.append(gm)
        return gm

    x = torch.rand(3)
    torch.testing.assert_close(aot_function(program, keep, fallback="error")(x), program(x))
    assert len(graphs[0].graph.find_nodes(op="call_function", target=target)) == 1
