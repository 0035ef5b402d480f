"""The ahead-of-time front door: signatures, caching, identities, shapes, partitions."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from assay.compiler.entry.aot import aot_function, aot_module, aot_module_simplified, default_partition, make_boxed_func
from assay.compiler.entry.dynamo import compile_fx


class Recorder:
    """A graph compiler that keeps the graphs it was given and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[fx.GraphModule] = []

    def __call__(self, gm: fx.GraphModule, example_inputs: object) -> fx.GraphModule:
        self.graphs.append(gm)
        return gm


def test_aot_function_gives_eagers_values_and_gradients() -> None:
    forward, backward = Recorder(), Recorder()
    compiled = aot_function(lambda x, w: {"y": torch.sin(x @ w), "n": None, "k": 3}, forward, backward)
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    out = compiled(x, w=w)
    assert out["n"] is None and out["k"] == 3
    torch.testing.assert_close(out["y"], torch.sin(x @ w))
    assert not backward.graphs, "backward is built when it first runs"
    got = torch.autograd.grad(out["y"].sum(), (x, w))
    want = torch.autograd.grad(torch.sin(x @ w).sum(), (x, w))
    torch.testing.assert_close(got, want)
    assert len(forward.graphs) == len(backward.graphs) == 1


def test_a_graph_compiler_may_keep_the_forward_of_its_graph() -> None:
    """It is the function of the graph's text already, not one that would first have it written."""
    found = []

    def compiler(gm: fx.GraphModule, _: object) -> Callable[..., Any]:
        found.append((gm, gm.forward))
        return make_boxed_func(gm.forward)

    x = torch.ones(3, requires_grad=True)
    aot_function(lambda x: x.sin() * 2, compiler)(x).sum().backward()
    assert len(found) == 2
    for gm, forward in found:
        assert forward.__func__ is type(gm).forward and forward.__func__.__name__ == "forward"


def test_aot_function_specialises_on_shape_and_reuses_a_compile() -> None:
    forward = Recorder()
    compiled = aot_function(lambda x: x * x.shape[0], forward)
    for rows in (2, 3, 2, 3):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(compiled(x), x * rows)
    assert len(forward.graphs) == 2


def test_aot_function_with_dynamic_sizes_compiles_once() -> None:
    forward = Recorder()
    compiled = aot_function(lambda x: (x * x.shape[0]).view(-1), forward, dynamic=True)
    for rows in (2, 3, 5, 7):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(compiled(x), (x * rows).view(-1))
    assert len(forward.graphs) == 1


@pytest.mark.parametrize("first", [0, 1, 4])
def test_aot_function_with_dynamic_sizes_guards_sizes_that_are_numbers_in_the_graph(first: int) -> None:
    """No size is a symbol of which one element, or none, is known, nor one that a branch asks for."""

    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * (10 if x.shape[0] == 4 else x.shape[0]) * (7 if n == 4 else n)

    compiled = aot_function(f, Recorder(), dynamic=True)
    for rows in (first, 3, 1, 4, 0, 5):
        for n in (first, 2, 4, 5):
            x = torch.ones(rows, 2)
            assert torch.equal(compiled(x, n), f(x, n)), (rows, n)


def test_aot_function_with_dynamic_sizes_takes_integers_as_symbols() -> None:
    """Not booleans, and what is decided by an integer is a guard on it."""

    def f(x: torch.Tensor, n: int, *, scale: int = 1, flag: bool = True) -> Any:
        part = x.narrow(0, 0, 2) if n > 3 else x
        return (part * n + x.shape[0]) * (scale if flag else 1), n + 1

    forward, backward = Recorder(), Recorder()
    compiled = aot_function(f, forward, backward, dynamic=True)
    for n in (4, 5, 4, 9, 0, -2, 1):
        for rows, scale in ((4, 1), (6, -3), (4, 1), (4, 1)):
            x = torch.randn(rows, 2, requires_grad=True)
            (want, following), (got, number) = f(x, n, scale=scale), compiled(x, n, scale=scale)
            torch.testing.assert_close(got, want)
            assert number == following and type(number) is int
            torch.testing.assert_close(torch.autograd.grad(got.sum(), x), torch.autograd.grad(want.sum(), x))
    assert len(forward.graphs) == len(backward.graphs) == 2, "above 3 and not"
    compiled(torch.randn(4, 2), 5, flag=False)
    assert len(forward.graphs) == 3
    kinds = [type(node.meta["val"]) for node in forward.graphs[0].graph.find_nodes(op="placeholder")]
    assert kinds == [FakeTensor, torch.SymInt, torch.SymInt]


def test_aot_module_with_dynamic_sizes_keeps_those_of_its_parameters() -> None:
    forward, module = Recorder(), nn.Linear(3, 4)
    compiled = aot_module(module, forward, dynamic=True)
    for rows in (2, 5, 7):
        torch.testing.assert_close(compiled(torch.ones(rows, 3)), module(torch.ones(rows, 3)))
    weight, bias, x = (node.meta["val"] for node in forward.graphs[0].graph.find_nodes(op="placeholder"))
    assert len(forward.graphs) == 1 and all(type(size) is int for size in (*weight.shape, *bias.shape))
    assert isinstance(x.shape[0], torch.SymInt)


def test_aot_function_with_dynamic_sizes_is_compiled_again_for_other_parameters() -> None:
    forward = Recorder()
    compiled = aot_function(lambda w, x: x @ w, forward, num_params_buffers=1, dynamic=True)
    for columns in (2, 3):
        for rows in (4, 5):
            w, x = torch.randn(3, columns), torch.randn(rows, 3)
            torch.testing.assert_close(compiled(w, x), x @ w)
    assert len(forward.graphs) == 2


def test_aot_function_runs_eager_where_a_draw_follows_a_seed() -> None:
    """The seed leaves no call: a graph would draw on from wherever the stream is."""

    def seeded(x: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(5)
            return x + torch.rand_like(x)

    forward = Recorder()
    compiled, x = aot_function(seeded, forward), torch.zeros(4)
    assert torch.equal(compiled(x), seeded(x)) and torch.equal(compiled(x), seeded(x)) and not forward.graphs


def test_aot_function_keeps_one_tensor_in_two_slots_one_tensor() -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return a * b

    compiled = aot_function(f, Recorder())
    x, y = torch.ones(3), torch.ones(3)
    torch.testing.assert_close(compiled(x, x), torch.full((3,), 4.0))
    torch.testing.assert_close(compiled(y, torch.ones(3)), torch.full((3,), 2.0))


def test_aot_function_runs_eager_when_a_written_input_overlaps_another() -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    base = torch.zeros(4)
    torch.testing.assert_close(aot_function(f, Recorder())(base[:3], base[1:]), torch.tensor([2.0, 2.0, 0.0]))


def test_aot_module_and_simplified_agree_with_eager() -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    x = torch.randn(6, 4)
    other = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    other.load_state_dict(module.state_dict())
    want = other(x)
    want.sum().backward()
    got = aot_module(module, Recorder())(x)
    got.sum().backward()
    torch.testing.assert_close(got, want)
    for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    torch.testing.assert_close(dict(module.named_buffers()), dict(other.named_buffers()))
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(4, 3), nn.Tanh()))
    simplified = aot_module_simplified(gm, [x], Recorder())
    torch.testing.assert_close(simplified(x), gm(x))


def test_default_partition_splits_a_joint_module_by_names() -> None:
    def joint(primals_1: torch.Tensor, tangents_1: torch.Tensor) -> list[torch.Tensor]:
        y = torch.ops.aten.exp.default(primals_1)
        return [y, torch.ops.aten.mul.Tensor(tangents_1, y)]

    gm = torch.fx.experimental.proxy_tensor.make_fx(joint)(torch.randn(3), torch.randn(3))
    for node, name in zip(list(gm.graph.nodes)[:2], ("primals_1", "tangents_1"), strict=True):
        node.name = node.target = name
    forward, backward = default_partition(gm, None, num_fwd_outputs=1)
    x, t = torch.randn(3), torch.randn(3)
    y, saved = forward(x)
    torch.testing.assert_close(y, x.exp())
    torch.testing.assert_close(backward(saved, t)[0], t * y)


def test_aot_function_takes_a_users_partitioner() -> None:
    seen: list[int] = []

    def partition(joint: fx.GraphModule, inputs: object, *, num_fwd_outputs: int, **keywords: Any) -> object:
        seen.append(num_fwd_outputs)
        return default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **keywords)

    x = torch.randn(3, requires_grad=True)
    aot_function(lambda v: v.exp().sin(), Recorder(), partition_fn=partition)(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.autograd.grad(x.exp().sin().sum(), x)[0])
    assert seen == [1]


def test_make_boxed_func_empties_its_list() -> None:
    args: list[object] = [2, 3]
    assert make_boxed_func(lambda a, b: (a * b,))(args) == (6,)
    assert args == []


def test_aot_function_returns_symbolic_sizes_as_integers() -> None:
    compiled = aot_function(lambda x: (x.t() * 2, x.shape[0] + 1, x.view(-1)), Recorder(), dynamic=True)
    for rows in (2, 5):
        x = torch.randn(rows, 3)
        doubled, size, flat = compiled(x)
        assert size == rows + 1 and type(size) is int
        torch.testing.assert_close(doubled, x.t() * 2)
        assert flat._base is x and flat.shape == (rows * 3,)


def test_compile_fx_takes_a_users_inner_compiler_and_decompositions() -> None:
    gm, x, seen = fx.symbolic_trace(lambda x: torch.addcmul(x, x, x) + 1), torch.randn(3), Recorder()
    table = torch._decomp.get_decompositions([torch.ops.aten.addcmul])
    for decompositions in ({}, table):
        compiled = compile_fx(gm, [x], seen_boxed(seen), decompositions=decompositions)
        torch.testing.assert_close(compiled(x), gm(x))
    names = [{str(node.target) for node in graph.graph.nodes} for graph in seen.graphs]
    assert "aten.addcmul.default" in names[0] and "aten.addcmul.default" not in names[1]


def seen_boxed(recorder: Recorder) -> object:
    return lambda graph, inputs, **keywords: make_boxed_func(recorder(graph, inputs))


def test_aot_function_of_a_checkpoint_draws_its_numbers_again_or_runs_in_eager() -> None:
    """Recorded, the second draw of the checkpoint's would be one of its own."""

    def f(x: torch.Tensor) -> Any:
        return checkpoint(lambda x: nn.functional.dropout(x.sin(), 0.5), x, use_reentrant=False)

    x = torch.ones(64, requires_grad=True)
    y = aot_function(f, Recorder())(x)
    y.sum().backward()
    assert x.grad is not None and torch.equal(y != 0, x.grad != 0)


def _operators_of_tensors() -> Iterator[torch._ops.OpOverload]:
    """Operators that write nothing and whose arguments without a default are tensors and numbers."""
    names = {name.split("::")[1].split(".")[0] for name in torch._C._dispatch_get_all_op_names() if "aten::" in name}
    for packet in (getattr(torch.ops.aten, name, None) for name in sorted(names)):
        if packet is None:
            continue
        for overload in packet.overloads():
            operator = getattr(packet, overload)
            arguments = operator._schema.arguments
            kinds = {str(each.type) for each in arguments if not each.has_default_value()}
            if "Tensor" in kinds and kinds <= set(NUMBERS) and not any(each.alias_info for each in arguments):
                yield operator


NUMBERS: dict[str, Any] = {"Tensor": None, "number": 3, "Scalar": 3, "int": 0, "float": 0.5, "bool": False}


@pytest.mark.parametrize("number", [2, 2.5, True, 1 + 2j], ids=repr)
def test_aot_function_returns_no_fake_of_an_operator_on_numbers(number: complex) -> None:
    """Eager makes tensors of Python numbers in the place of tensors."""
    seen = 0
    for operator in _operators_of_tensors():
        required = [each for each in operator._schema.arguments if not each.has_default_value()]
        args = [number if str(each.type) == "Tensor" else NUMBERS[str(each.type)] for each in required]
        try:
            want = pytree.tree_leaves(operator(*args))
        except (RuntimeError, TypeError, NotImplementedError, IndexError, ValueError):
            continue
        if not any(isinstance(value, torch.Tensor) for value in want):
            continue
        got = pytree.tree_leaves(aot_function(lambda x, operator=operator, args=args: (x, operator(*args)), Recorder())(
            torch.ones(2)
        ))[1:]  # fmt: skip
        torch.testing.assert_close(got, want, equal_nan=True, msg=str(operator))
        assert not any(isinstance(value, FakeTensor) for value in got), operator
        seen += 1
    assert seen > 10


def test_aot_function_holds_no_input_of_the_call_that_it_was_compiled_for() -> None:
    """Other sizes compile another entry; each held the tensors that it was recorded with."""
    compiled = aot_function(lambda x, y: (x + y).sin(), lambda graph, inputs: make_boxed_func(graph.forward))
    held = []
    for size in (2, 3):
        x, y = torch.ones(size, requires_grad=True), torch.ones(size)
        compiled(x, y).sum().backward()
        held += [weakref.ref(x), weakref.ref(y)]
        del x, y
    gc.collect()
    assert [each() for each in held] == [None] * 4
