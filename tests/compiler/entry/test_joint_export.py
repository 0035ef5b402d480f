"""Joint graphs with descriptors: exported, changed, compiled."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._decomp import decomposition_table
from torch._functorch import aot_autograd as torchs
from torch._functorch._aot_autograd import fx_utils
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from assay.compiler.entry import aot
from assay.compiler.entry.aot import (
    aot_compile_joint_with_descriptors,
    aot_export_joint_with_descriptors,
    default_partition,
    min_cut_rematerialization_partition,
)
from assay.compiler.entry.joint_export import JointWithDescriptors
from assay.compiler.errors import InputMismatch, OptionError, Unsupported

aten = torch.ops.aten


class Layer(nn.Module):
    """Writes a buffer; takes a structure and a keyword; returns a structure, of which one part is a view."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(3, 2)
        self.register_buffer("count", torch.zeros(2))

    def forward(self, xs: tuple[Tensor, Tensor], *, scale: Tensor) -> dict[str, Tensor]:
        self.count.add_(1)
        return {"a": self.inner(xs[0]).tanh() * scale, "b": (xs[1] * 2).t()}


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(3, 2)
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.count.add_(1)
        return self.inner(x).tanh() + self.count, x.exp()


def given(size: int = 4) -> tuple[tuple[Tensor, Tensor], Tensor]:
    one = torch.arange(3.0 * size).reshape(size, 3).div(9).requires_grad_()
    return (one, torch.ones(2, 3, requires_grad=True)), torch.tensor([2.0, 3.0])


def exported(module: nn.Module, args: tuple[Any, ...], kwargs: Any = None, **options: Any) -> JointWithDescriptors:
    with ExitStack() as stack:
        return aot_export_joint_with_descriptors(stack, module, args, kwargs, **options)


def state(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def ran(module: nn.Module, call: Callable[..., Any]) -> list[Any]:
    xs, scale = given()
    results = call(xs, scale=scale)
    leaves = pytree.tree_leaves(results)
    torch.autograd.backward([leaf.sin().sum() for leaf in leaves])
    gradients = [each.grad for each in (*module.parameters(), *xs, scale)]
    assert list(results) == ["a", "b"]
    return [[leaf.detach() for leaf in leaves], gradients, module.count.clone()]


def ours(**options: Any) -> list[Any]:
    module, (xs, scale) = Layer(), given()
    compiled = aot_compile_joint_with_descriptors(exported(module, (xs,), {"scale": scale}), **options)
    for _ in range(2):
        module.zero_grad()
        found = ran(module, lambda xs, scale: compiled(*state(module), xs, scale=scale))
    return found


def theirs() -> list[Any]:
    module = Layer()
    for _ in range(2):
        module.zero_grad()
        found = ran(module, module)
    return found


def other_partition(joint: fx.GraphModule, inputs: object, **keywords: Any) -> Any:
    return default_partition(joint, inputs, **keywords)


@pytest.mark.parametrize("partition", [default_partition, min_cut_rematerialization_partition, other_partition])
def test_a_joint_export_compiles_to_what_eager_computes(partition: Any) -> None:
    torch.testing.assert_close(ours(partition_fn=partition), theirs())


def test_a_joint_export_gives_each_compiler_its_graph() -> None:
    graphs: list[fx.GraphModule] = []
    kinds: list[str] = []

    def compiler(kind: str) -> Callable[..., Any]:
        return lambda gm, _: graphs.append(gm) or kinds.append(kind) or gm

    ours(fw_compiler=compiler("forward"), bw_compiler=compiler("backward"))
    assert kinds == ["forward", "backward"]
    assert [node.name for node in graphs[0].graph.find_nodes(op="placeholder")] == [f"primals_{i}" for i in range(1, 7)]


@pytest.mark.skipif(not hasattr(torchs, "aot_export_joint_with_descriptors"), reason="this torch has none")
@pytest.mark.parametrize("grad", [True, False])
def test_the_descriptors_are_torchs(grad: bool) -> None:
    module, x = Plain(), torch.ones(4, 3, requires_grad=grad)
    with torch.set_grad_enabled(grad):
        jd = exported(module, (x,))
        with ExitStack() as stack:
            wanted = torchs.aot_export_joint_with_descriptors(stack, module, (x,))
    described = []
    for graph in (jd.graph_module.graph, wanted.graph_module.graph):
        nodes = [*graph.find_nodes(op="placeholder"), *graph.find_nodes(op="output")]
        described.append([(node.op, repr(node.meta["desc"])) for node in nodes])
    assert described[0] == described[1]
    texts = [
        [each.expr() for each in next(iter(reversed(graph.nodes))).meta["desc"] if each is not None]
        for graph in (jd.graph_module.graph, wanted.graph_module.graph)
    ]
    assert texts[0] == texts[1]
    assert (jd.params_spec, jd.buffers_spec) == (wanted.params_spec, wanted.buffers_spec)
    assert (jd.in_spec, jd.out_spec) == (wanted.in_spec, wanted.out_spec)
    primals = [value.detach() for value in (*state(module), x)]
    given = (primals, [torch.ones(4, 2), torch.ones(4, 3)]) if grad else primals
    found = [pytree.tree_leaves(each.graph_module(*given)) for each in (jd, wanted)]
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.skipif(not hasattr(torchs, "aot_export_joint_with_descriptors"), reason="this torch has none")
class Normed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU())


@pytest.mark.parametrize("name", [name for name in aot.__all__ if name.endswith("_nodes")])
@pytest.mark.parametrize("make", [Normed, lambda: nn.Linear(3, 2), Plain])
def test_nodes_are_found_by_their_descriptors_as_torchs_are(name: str, make: Callable[[], nn.Module]) -> None:
    x = torch.ones(2, 1, 4, 4) if make is Normed else torch.ones(4, 3, requires_grad=make is Plain)
    with ExitStack() as stack:
        theirs = torchs.aot_export_joint_with_descriptors(stack, make(), (x,), decompositions=decomposition_table)
        want = getattr(fx_utils, name)(theirs.graph_module.graph)
    mine = exported(make(), (x,), decompositions=decomposition_table)
    got = getattr(aot, name)(mine.graph_module.graph)
    assert str(got) == str(want) and type(got) is type(want)


def test_the_signatures_are_torchs() -> None:
    for f in (aot_export_joint_with_descriptors, aot_compile_joint_with_descriptors):
        wanted = inspect.signature(getattr(torchs, f.__name__))
        assert [(p.name, p.kind) for p in inspect.signature(f).parameters.values()] == [
            (p.name, p.kind) for p in wanted.parameters.values()
        ]


def test_a_changed_graph_is_what_is_compiled() -> None:
    module, x = Plain(), torch.ones(4, 3)
    jd = exported(module, (x,))
    for node in jd.graph_module.graph.find_nodes(op="call_function", target=aten.exp.default):
        with jd.graph_module.graph.inserting_after(node):
            made = jd.graph_module.graph.call_function(aten.mul.Tensor, (node, 10))  # whose value nobody notes
        node.replace_all_uses_with(made, delete_user_cb=lambda user, made=made: user is not made)
    jd.graph_module.recompile()
    before = jd.cache_hash()
    compiled = aot_compile_joint_with_descriptors(jd)
    result, other = compiled(*state(module), x)
    torch.testing.assert_close(other, x.exp() * 10)
    result.sum().backward()
    assert module.inner.weight.grad is not None
    assert exported(Plain(), (x,)).cache_hash() != before
    again, _ = aot_compile_joint_with_descriptors(jd)(*state(module), x)
    torch.testing.assert_close(again, result + 1)  # the buffer has been counted up


def test_a_graph_with_another_number_of_outputs_is_refused() -> None:
    jd = exported(Plain(), (torch.ones(4, 3),))
    output = next(iter(reversed(jd.graph_module.graph.nodes)))
    output.args = (output.args[0][:-1],)
    with pytest.raises(OptionError, match="outputs"):
        aot_compile_joint_with_descriptors(jd)


def test_a_joint_export_without_gradients_compiles() -> None:
    module, (xs, scale) = Layer(), given()
    with torch.no_grad():
        compiled = aot_compile_joint_with_descriptors(exported(module, (xs,), {"scale": scale}))
        for count in (1, 2):
            torch.testing.assert_close(compiled(*state(module), xs, scale=scale), Layer()(xs, scale=scale))
            assert module.count.tolist() == [count, count]


def test_a_joint_export_of_symbolic_sizes_serves_others() -> None:
    module, mode = Plain(), FakeTensorMode(shape_env=ShapeEnv())
    jd = exported(module, (mode.from_tensor(torch.ones(4, 3)),))
    assert jd.fake_mode is mode
    compiled = aot_compile_joint_with_descriptors(jd)
    for size in (4, 5):
        module.count.zero_()
        reference = Plain()
        torch.testing.assert_close(compiled(*state(module), torch.ones(size, 3)), reference(torch.ones(size, 3)))


def test_other_inputs_than_were_exported_are_named() -> None:
    module, (xs, scale) = Layer(), given()
    compiled = aot_compile_joint_with_descriptors(exported(module, (xs,), {"scale": scale}))
    with pytest.raises(InputMismatch):
        compiled(*state(module), list(xs), scale=scale)
    with pytest.raises(InputMismatch):
        compiled(*state(module), given(5)[0], scale=scale)


def test_a_joint_export_takes_numbers_where_they_were_given() -> None:
    class Scaled(nn.Linear):
        def forward(self, x: Tensor, scale: float = 1.0, *, name: str = "") -> Tensor:
            return super().forward(x) * scale

    module, x = Scaled(3, 2), torch.ones(4, 3)
    compiled = aot_compile_joint_with_descriptors(exported(module, (x,), {"scale": 2.0, "name": "a"}))
    torch.testing.assert_close(compiled(*state(module), x, scale=2.0, name="a"), module(x, 2.0))
    for other in ({"scale": 3.0, "name": "a"}, {"scale": 2.0, "name": "b"}, {"scale": 2, "name": "a"}):
        with pytest.raises(InputMismatch):
            compiled(*state(module), x, **other)


def test_what_only_the_module_tells_is_refused() -> None:
    module, x = Plain(), torch.ones(4, 3, requires_grad=True)
    compiled = aot_compile_joint_with_descriptors(exported(module, (x,)))
    result, _ = compiled(*state(module), x)
    with pytest.raises(Unsupported, match="is not recorded again"):
        (gradient,) = torch.autograd.grad(result.sum(), x, create_graph=True)
        gradient.sum().backward()


def test_a_module_that_writes_nothing_has_its_graph_without_functionalization() -> None:
    module, x = nn.Sequential(nn.Linear(3, 2), nn.Tanh()), (torch.ones(4, 3),)
    plain, other = (exported(module, x, disable_functionalization=off) for off in (False, True))
    assert plain.graph_module.code == other.graph_module.code
    with pytest.raises(Unsupported, match="disable_functionalization"):
        exported(nn.ReLU(inplace=True), (torch.ones(4, 3),), disable_functionalization=True)


def test_keywords_that_cannot_be_acted_on_are_refused() -> None:
    with pytest.raises(OptionError, match="serializable"):
        aot_compile_joint_with_descriptors(exported(Plain(), (torch.ones(4, 3),)), serializable=True)


def test_nodes_know_their_modules_where_that_is_asked() -> None:
    for asked in (False, True):
        jd = exported(Plain(), (torch.ones(4, 3),), _record_nn_module_stack=asked)
        (product,) = jd.graph_module.graph.find_nodes(op="call_function", target=aten.addmm.default)
        assert ("inner" in product.meta.get("nn_module_stack", {})) is asked
