"""The names of torch's ahead-of-time front doors: signatures, keywords, what compilers and partition functions see."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import functorch.compile as functorch_names
import pytest
import torch
import torch._functorch.aot_autograd as aot_of_torch
import torch._functorch.partitioners as partitioners_of_torch
import torch._inductor.compile_fx as fx_of_torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.checkpoint import checkpoint

from assay.compiler import journal
from assay.compiler.entry import aot, dynamo, export
from assay.compiler.errors import InputMismatch, OptionError, Unsupported

NAMES: dict[str, tuple[ModuleType, ModuleType]] = {
    **dict.fromkeys(
        (
            "aot_function", "aot_module", "aot_module_simplified", "compiled_function", "compiled_module",
            "default_partition", "get_aot_compilation_context", "get_aot_graph_name", "get_graph_being_compiled",
            "make_boxed_compiler", "make_boxed_func", "memory_efficient_fusion", "min_cut_rematerialization_partition",
            "nnc_jit", "nop", "print_compile", "ts_compile",
        ),
        (aot, functorch_names),
    ),
    "aot_export_module": (export, aot_of_torch),
    "aot_export_joint_simple": (export, aot_of_torch),
    "GraphSignature": (export, aot_of_torch),
    "BackwardSignature": (export, aot_of_torch),
    "compile_fx": (dynamo, fx_of_torch),
    "compile_fx_inner": (dynamo, fx_of_torch),
}  # fmt: skip
"""Public names: where they are here, and where they are in torch."""

Seen = dict[str, fx.GraphModule]


def recorder(seen: Seen, name: str) -> Callable[..., Any]:
    """A graph compiler that keeps its graph under a name."""

    def compiler(gm: fx.GraphModule, inputs: object) -> Any:
        seen[name] = gm
        return aot.make_boxed_func(gm.forward)

    return compiler


def compilers(seen: Seen) -> dict[str, Any]:
    return {f"{name}_compiler": recorder(seen, name) for name in ("fw", "bw", "inference")}


def placeholders(gm: fx.GraphModule) -> list[str]:
    return [node.name for node in gm.graph.find_nodes(op="placeholder")]


def missing(ours: Any, theirs: Any) -> list[str]:
    """The public parameters of a function of torch's that ours lacks, or has at another place or of another kind."""
    own, found = inspect.signature(ours).parameters, []
    places = {name: place for place, name in enumerate(own)}
    for place, (name, parameter) in enumerate(inspect.signature(theirs).parameters.items()):
        if name.startswith("_") or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if name not in own or own[name].kind is not parameter.kind:
            found.append(name)
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD and places[name] != place:
            found.append(f"{name} at {places[name]}")
    return found


@pytest.mark.skipif(torch.__version__ < "2.13", reason="the signatures are those of torch 2.13")
@pytest.mark.parametrize("name", NAMES)
def test_public_names_take_what_torchs_take(name: str) -> None:
    here, there = NAMES[name]
    assert missing(getattr(here, name), getattr(there, name)) == []


def test_a_missing_parameter_is_seen() -> None:
    def of_torch(a: int, b: int, *, c: int) -> None: ...
    def of_ours(b: int, a: int) -> None: ...

    assert missing(of_ours, of_torch) == ["a at 1", "b at 0", "c"]
    assert missing(of_torch, of_torch) == []


# ---- what compilers see


def test_aot_function_names_primals_and_tangents() -> None:
    seen: Seen = {}
    f = aot.aot_function(lambda x, w: (x @ w).sin(), **compilers(seen))
    x, w = torch.randn(2, 3, requires_grad=True), torch.randn(3, 2, requires_grad=True)
    f(x, w).sum().backward()
    assert placeholders(seen["fw"]) == ["primals_1", "primals_2"]
    assert placeholders(seen["bw"])[-1] == "tangents_1" and "tangents_2" not in placeholders(seen["bw"])
    assert {"primals_1", "primals_2"} <= set(placeholders(seen["bw"]))
    f(x.detach(), w.detach())
    assert placeholders(seen["inference"]) == ["arg0_1", "arg1_1"]


def test_aot_module_names_parameters_first() -> None:
    seen: Seen = {}
    module = aot.compiled_module(nn.Linear(3, 2), **compilers(seen))
    module(torch.randn(4, 3)).sum().backward()
    assert placeholders(seen["fw"]) == ["primals_1", "primals_2", "primals_3"]
    weight = seen["fw"].graph.find_nodes(op="placeholder")[0].meta["val"]
    assert tuple(weight.shape) == (2, 3)


def test_inputs_that_overlap_are_primals_too() -> None:
    def f(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        a.mul_(2)
        return a + b + c

    seen: Seen = {}
    memory, c = torch.ones(6), torch.ones(4, requires_grad=True)
    got = aot.aot_function(f, **compilers(seen))(memory[:4], memory[2:], c)
    assert torch.equal(got, torch.tensor([4.0, 4.0, 4.0, 4.0]) + torch.tensor([1.0, 1.0, 0.0, 0.0]))
    assert all(name.startswith("primals_") for name in placeholders(seen["fw"]))


def test_gradients_of_gradients_agree_with_eager() -> None:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return ((x * w).sin() * x.exp()).sum()

    for partition in (aot.default_partition, aot.min_cut_rematerialization_partition, whole_partition):
        compiled = aot.aot_function(f, aot.nop, partition_fn=partition)
        orders = []
        for run in (compiled, f):
            x, w = torch.linspace(0, 1, 4).requires_grad_(), torch.linspace(1, 2, 4).requires_grad_()
            (first,) = torch.autograd.grad(run(x, w), x, create_graph=True)
            orders.append((first, *torch.autograd.grad(first.sum(), (x, w))))
        torch.testing.assert_close(orders[0], orders[1])


# ---- partition functions


def whole_partition(
    joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, static_lifetime_input_indices: Any = None
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """One written without any of ours: forward saves its inputs, and backward computes all of forward again."""
    primals = [node for node in joint.graph.find_nodes(op="placeholder") if node.name.startswith("primals")]
    returned = next(iter(reversed(joint.graph.nodes))).args[0]
    halves = []
    for outputs in ([*returned[:num_fwd_outputs], *primals], returned[num_fwd_outputs:]):
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        kept = primals if len(halves) == 0 else joint.graph.find_nodes(op="placeholder")
        for node in joint.graph.nodes:
            if node in kept or (node.op == "call_function" and all(n in copies for n in node.all_input_nodes)):
                copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output([copies[node] if isinstance(node, fx.Node) else node for node in outputs])
        graph.eliminate_dead_code()
        halves.append(fx.GraphModule(joint, graph))
    return halves[0], halves[1]


def test_a_partition_function_is_called_as_torchs() -> None:
    called: list[Any] = []

    def partition(joint: fx.GraphModule, joint_inputs: Any, **keywords: Any) -> Any:
        called.append((joint, joint_inputs, keywords, aot.get_aot_graph_name()))
        primals, tangents = joint_inputs
        outputs, gradients = joint([torch.ones(v.shape) for v in primals], [torch.ones(v.shape) for v in tangents])
        assert len(outputs) == keywords["num_fwd_outputs"] and len(gradients) == len(primals)
        return aot.default_partition(joint, joint_inputs, **keywords)

    module = nn.BatchNorm1d(3)
    want = nn.BatchNorm1d(3)
    compiled = aot.aot_module(module, aot.nop, partition_fn=partition)
    x = torch.randn(4, 3)
    compiled(x).square().sum().backward()
    want(x).square().sum().backward()
    torch.testing.assert_close(module.weight.grad, want.weight.grad)
    torch.testing.assert_close(module.running_mean, want.running_mean)
    ((joint, (primals, tangents), keywords, name),) = called
    assert placeholders(joint) == [*(f"primals_{i + 1}" for i in range(len(primals))), "tangents_1"]
    assert len(tangents) == 1 and name.startswith("model__") and "_joint_" in name
    returned = next(iter(reversed(joint.graph.nodes))).args[0]
    assert len(returned) == keywords["num_fwd_outputs"] + len(primals) and returned[-1] is None
    assert keywords["static_lifetime_input_indices"] == [0, 1, 2, 3, 4]


PARTITIONS: dict[str, Any] = {
    "default": aot.default_partition,
    "min_cut": aot.min_cut_rematerialization_partition,
    "partial": functools.partial(aot.min_cut_rematerialization_partition, compiler="inductor"),
    "whole": whole_partition,
    "default of torch": partitioners_of_torch.default_partition,
    "min_cut of torch": partitioners_of_torch.min_cut_rematerialization_partition,
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_partition_functions_keep_values_and_gradients(name: str) -> None:
    def f(x: Tensor, w: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        y = (x @ w).relu()
        return (y.cos() * n).sin(), y.sum(0)

    compiled = aot.aot_function(f, aot.nop, partition_fn=PARTITIONS[name])
    x, w, n = torch.randn(4, 3), torch.randn(3, 5), torch.randn(5)
    found = []
    for run in (compiled, f, compiled, f):
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        one, other = run(a, b, n)
        (one.sum() + other.square().sum()).backward()
        found.append([one, other, a.grad, b.grad])
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[2], found[3])


def test_the_cheapest_cut_computes_again_what_is_pointwise() -> None:
    """Of a chain of cosines forward returns the result and saves the input alone."""
    seen: Seen = {}
    f = aot.aot_function(
        lambda x: x.cos().cos().cos().cos(), **compilers(seen), partition_fn=aot.min_cut_rematerialization_partition
    )
    f(torch.randn(1000, requires_grad=True)).sum().backward()
    output = next(iter(reversed(seen["fw"].graph.nodes)))
    assert len(output.args[0]) == 2 and placeholders(seen["bw"]) == ["primals_1", "tangents_1"]


def test_min_cut_refuses_a_compiler_that_torch_does_not_have() -> None:
    joint = fx.symbolic_trace(lambda primals_1, tangents_1: [primals_1 + 1, tangents_1])
    with pytest.raises(OptionError, match="compiler is 'tvm'"):
        aot.min_cut_rematerialization_partition(joint, (), "tvm", num_fwd_outputs=1)


@pytest.mark.parametrize(
    "broken, message",
    [
        (lambda forward, backward: (forward, forward), "gradients"),
        (lambda forward, backward: (backward, backward), "a forward that takes 2 inputs"),
    ],
)
def test_a_partition_function_that_returns_other_graphs_is_refused(broken: Any, message: str) -> None:
    def partition(*args: Any, **keywords: Any) -> Any:
        return broken(*aot.default_partition(*args, **keywords))

    compiled = aot.aot_function(lambda x: x.sin(), aot.nop, partition_fn=partition)
    with pytest.raises(OptionError, match=message):
        compiled(torch.ones(2, requires_grad=True))


# ---- graph compilers


def test_boxed_compilers_take_lists() -> None:
    @aot.make_boxed_compiler
    def compiler(gm: fx.GraphModule, inputs: object) -> Any:
        return gm

    gm = fx.symbolic_trace(lambda x: (x + 1,))
    args: list[object] = [torch.ones(2)]
    assert torch.equal(compiler(gm, [])(args)[0], torch.full((2,), 2.0)) and args == []
    assert compiler.__name__ == "compiler"  # type: ignore[attr-defined]


@pytest.mark.parametrize("compiler", [aot.nop, aot.print_compile, aot.ts_compile], ids=["nop", "print", "ts"])
def test_graph_compilers_give_eagers_values(compiler: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return nn.functional.gelu(x @ w).to(torch.float64)

    found = []
    for run in (aot.aot_function(f, compiler), f):
        x, w = torch.ones(2, 3, requires_grad=True), torch.full((3, 2), 0.3, requires_grad=True)
        run(x, w).sum().backward()
        found.append((run(x, w), x.grad, w.grad))
    torch.testing.assert_close(found[0], found[1])
    assert ("torch.ops.aten" in capsys.readouterr().out) is (compiler is aot.print_compile)


def test_memory_efficient_fusion_takes_functions_and_modules() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    torch.testing.assert_close(aot.memory_efficient_fusion(torch.sin)(x), x.sin())
    module, other = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    other.load_state_dict(module.state_dict())
    aot.memory_efficient_fusion(module, fw_compiler=aot.nop, bw_compiler=aot.nop)(x).sum().backward()
    other(x).sum().backward()
    torch.testing.assert_close([p.grad for p in module.parameters()], [p.grad for p in other.parameters()])


def test_graphs_have_names_while_they_are_compiled() -> None:
    names: list[str] = []

    def compiler(gm: fx.GraphModule, inputs: object) -> Any:
        graphs, model, number = aot.get_aot_compilation_context()
        assert aot.get_graph_being_compiled() == f"{model}__{graphs[0]}_{number}"
        names.append(graphs[0].partition("_")[2])
        return gm

    f = aot.aot_function(torch.sin, compiler)
    f(torch.ones(2, requires_grad=True)).sum().backward()
    f(torch.ones(2))
    assert names == ["forward", "backward", "inference"] and aot.get_aot_compilation_context()[0] == []


# ---- keywords


@pytest.mark.parametrize("trained", [False, True])
def test_graphs_without_functionalization_are_those_of_what_writes_nothing(trained: bool) -> None:
    def f(x: Tensor) -> Tensor:
        return (x.view(4, 2) * 2).softmax(1).sum(0)

    texts = []
    for is_off in (False, True):
        found: list[str] = []
        compiler = functools.partial(_keeping, found)
        compiled = aot.aot_function(f, compiler, disable_functionalization=is_off, fallback="error")
        x = torch.randn(2, 4, requires_grad=trained)
        result = compiled(x)
        torch.testing.assert_close(result, f(x))
        if trained:
            result.sum().backward()
        texts.append(found)
    assert texts[0] == texts[1] and len(texts[0]) == 1 + trained


def _keeping(found: list[str], module: fx.GraphModule, _: object) -> fx.GraphModule:
    found.append(module.code)
    return module


def _writes_what_it_makes(x: Tensor) -> Tensor:
    return x.sin().add_(1)


@pytest.mark.parametrize("f", [_writes_what_it_makes, lambda x: x.mul_(2), lambda x: torch.add(x, x, out=x.clone())])
def test_what_writes_is_no_graph_without_functionalization(f: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(Unsupported, match="disable_functionalization=True"):
        aot.aot_function(f, aot.nop, disable_functionalization=True, fallback="error")(torch.ones(3))
    journal.reset()
    found = aot.aot_function(f, aot.nop, disable_functionalization=True)(torch.ones(3))
    torch.testing.assert_close(found, f(torch.ones(3)))
    assert journal.totals()["eager_graphs"] == 1


def test_modules_without_functionalization() -> None:
    x = [torch.ones(3, 2)]
    for module, graphs in ((nn.Linear(2, 2), 0), (nn.ReLU(inplace=True), 1)):
        journal.reset()
        compiled = aot.aot_module_simplified(module, x, aot.nop, disable_functionalization=True)
        torch.testing.assert_close(compiled(x[0].clone()), module(x[0].clone()))
        assert journal.totals()["eager_graphs"] == graphs


def test_enable_log_says_whether_anything_is_dumped(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_DUMP", str(tmp_path))
    aot.aot_function(torch.sin, aot.nop, enable_log=False)(torch.ones(2))
    assert list(tmp_path.iterdir()) == []
    aot.aot_function(torch.sin, aot.nop)(torch.ones(2))
    assert list(tmp_path.iterdir()) != []


@pytest.mark.parametrize("keeps", [False, True])
def test_inference_graphs_write_their_inputs_where_they_are_asked_to(keeps: bool) -> None:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x.mul_(2)
        x.add_(y)
        return x * y, x[1:]

    seen: Seen = {}
    compiled = aot.aot_function(f, **compilers(seen), keep_inference_input_mutations=keeps)
    for _ in range(3):
        x, y = torch.arange(3.0), torch.ones(3)
        want_x = x.clone()
        version = x._version
        want, got = f(want_x, y), compiled(x, y)
        torch.testing.assert_close((x, got), (want_x, want))
        assert x._version - version == 2 and got[1]._base is x
    writes = [n for n in seen["inference"].graph.nodes if n.target is torch.ops.aten.copy_.default]
    assert len(writes) == int(keeps)


def test_writes_that_read_each_other_stay_behind_the_graph() -> None:
    def swap(x: Tensor, y: Tensor) -> Tensor:
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        return x - y

    x, y = torch.zeros(2), torch.ones(2)
    got = aot.aot_function(swap, aot.nop, keep_inference_input_mutations=True)(x, y)
    assert torch.equal(x, torch.ones(2)) and torch.equal(y, torch.zeros(2)) and torch.equal(got, torch.ones(2))


def test_a_leaf_written_without_gradients_is_written_by_the_graph() -> None:
    @torch.no_grad()
    def step(w: Tensor) -> None:
        w.mul_(3)

    w = torch.ones(2, requires_grad=True)
    aot.aot_function(step, aot.nop, keep_inference_input_mutations=True)(w)
    assert torch.equal(w, torch.full((2,), 3.0)) and w.is_leaf and w.grad_fn is None


# ---- simplified modules


class Traced(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("scale", torch.full((3,), 2.0))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return ((self.linear(x) * self.scale).relu() + y,)


def test_a_simplified_module_has_its_modules_parameters() -> None:
    module = fx.symbolic_trace(Traced())
    x = torch.randn(2, 3)
    compiled = aot.aot_module_simplified(module, (x, x), aot.nop)
    compiled(x, x)[0].sum().backward()
    named = dict(compiled.named_parameters())
    assert named.keys() == {"linear.weight", "linear.bias"} and named["linear.bias"].grad is not None
    assert [name for name, _ in compiled.named_buffers()] == ["scale"]
    compiled.zero_grad()
    assert named["linear.bias"].grad is None


def test_a_simplified_module_is_rewritten_before_it_is_recorded() -> None:
    given: list[Any] = []

    def sine_for_relu(gm: fx.GraphModule, args: Any) -> fx.GraphModule:
        given.append(args)
        for node in gm.graph.find_nodes(op="call_method", target="relu"):
            node.target = "sin"
        gm.recompile()
        return gm

    module, x = fx.symbolic_trace(Traced()), torch.randn(2, 3)
    compiled = aot.aot_module_simplified(module, (x, x), aot.nop, pre_grad_passes=sine_for_relu)
    torch.testing.assert_close(compiled(x, x)[0], (module.linear(x) * 2).sin() + x)
    assert given == [(x, x)] or given[0][0] is x


def test_ignore_shape_env_makes_sizes_numbers() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    fake = mode.from_tensor(torch.randn(4, 3))
    for ignore in (False, True):
        seen: Seen = {}
        module = fx.symbolic_trace(lambda x, y: (x + y.sum(0),))
        aot.aot_module_simplified(module, (fake, torch.randn(5, 3)), **compilers(seen), ignore_shape_env=ignore)
        x, y = (node.meta["val"] for node in seen["inference"].graph.find_nodes(op="placeholder"))
        assert isinstance(x.shape[0], torch.SymInt) and isinstance(y.shape[0], torch.SymInt) is not ignore


def test_the_sizes_of_parameters_are_numbers_where_those_of_inputs_are_symbols() -> None:
    """Guards that follow from them are noted where the caller looks for them."""
    seen: Seen = {}
    shape_env = ShapeEnv()
    fake = FakeTensorMode(shape_env=shape_env).from_tensor(torch.randn(7, 4))
    module = nn.Linear(4, 5)
    compiled = aot.aot_module_simplified(module, (fake,), **compilers(seen))
    weight, bias, x = (node.meta["val"] for node in seen["fw"].graph.find_nodes(op="placeholder"))
    assert all(type(size) is int for size in (*weight.shape, *bias.shape)) and isinstance(x.shape[0], torch.SymInt)
    assert [str(guard.expr) for guard in shape_env.guards] == [f"Eq({x.shape[1].node._expr}, 4)"]
    for rows in (7, 2):
        given = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(given), module(given))


def test_a_region_has_its_name_in_what_is_dumped(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_DUMP", str(tmp_path))
    module, x = fx.symbolic_trace(Traced()), torch.randn(2, 3)
    aot.aot_module_simplified(module, (x, x), aot.nop, compile_region_name="block.3")
    assert any(folder.name.endswith("_block_3") for folder in tmp_path.iterdir())
    with pytest.raises(InputMismatch):
        aot.aot_module_simplified(module, (x, x), aot.nop)(x, torch.randn(3, 2))


# ---- as torch's own suites call them


def test_graphs_are_numbered_by_their_compile() -> None:
    """The names of two compiles, the second of which is of the first one's function, and how many nodes each has."""
    seen: list[tuple[str, int]] = []

    def compiler(gm: fx.GraphModule, _: object) -> Any:
        seen.append((aot.get_aot_compilation_context()[0][0], len(gm.graph.nodes)))
        return gm

    def f(x: Tensor) -> Tensor:
        return x.sin().sin()

    out = aot.aot_function(f, compiler)(torch.randn(5, requires_grad=True))
    aot.aot_function(f, compiler)(torch.randn(5))
    out.sum().backward()
    first, second = (int(name.partition("_")[0]) for name, _ in seen[:2])
    assert second == first + 1
    assert seen == [(f"{first}_forward", 4), (f"{second}_inference", 4), (f"{first}_backward", 8)]


@pytest.mark.parametrize("partition", [aot.default_partition, aot.min_cut_rematerialization_partition])
def test_partition_functions_split_what_is_exported(partition: Any) -> None:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * y, y * y.detach()

    x, y = torch.randn(2, requires_grad=True), torch.randn(2, requires_grad=True)
    joint = export.aot_export_joint_simple(f, (x, y), trace_joint=True)
    forward, backward = partition(joint, (x, y), num_fwd_outputs=2)
    outputs = forward(x.detach(), y.detach())
    torch.testing.assert_close(list(outputs[:2]), [each.detach() for each in f(x, y)])
    gradients = backward(*outputs[2:], torch.ones(2), torch.ones(2))
    torch.testing.assert_close(list(gradients), list(torch.autograd.grad([o.sum() for o in f(x, y)], (x, y))))


def test_the_cheapest_cut_saves_one_sum_of_four_inputs() -> None:
    seen: Seen = {}
    f = aot.aot_function(
        lambda a, b, c, d: (a + b + c + d).cos().cos(),
        **compilers(seen),
        partition_fn=aot.min_cut_rematerialization_partition,
        decompositions=aot.default_decompositions,
    )
    f(*(torch.randn(3, requires_grad=True) for _ in range(4))).sum().backward()
    counts = [
        (len(placeholders(seen[h])), len(next(iter(reversed(seen[h].graph.nodes))).args[0])) for h in ("fw", "bw")
    ]
    assert counts == [(4, 2), (2, 4)]


def simplified(gm: fx.GraphModule, inputs: Any) -> Any:
    partition = aot.min_cut_rematerialization_partition
    return aot.aot_module_simplified(gm, inputs, fw_compiler=aot.nop, bw_compiler=aot.nop, partition_fn=partition)


@pytest.mark.parametrize("backend", [simplified, dynamo.compile_fx], ids=["simplified", "compile_fx"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_front_doors_serve_dynamo(backend: Any, dynamic: bool) -> None:
    linear = nn.Linear(3, 3)

    def f(x: Tensor, n: int) -> Tensor:
        inside = checkpoint(lambda y: linear(y).sin().relu(), x, use_reentrant=False)
        return inside.view(-1) * n

    torch._dynamo.reset()
    compiled = torch.compile(f, backend=backend, fullgraph=True, dynamic=dynamic)
    for rows in (2, 4):
        found = []
        for run in (compiled, f):
            x = torch.linspace(-1, 1, 3 * rows).view(rows, 3).requires_grad_()
            out = run(x, rows)
            out.sum().backward()
            found.append((out, x.grad))
        torch.testing.assert_close(found[0], found[1])


def test_front_doors_take_graphs_that_call_modules() -> None:
    """Their parameters are no nodes of the graph."""
    module = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 2), nn.Tanh()))
    x = torch.randn(4, 3)
    for compiled in (dynamo.compile_fx(module, [x]), aot.aot_module_simplified(module, [x], aot.nop)):
        module.zero_grad()
        got = compiled(x)
        got.sum().backward()
        torch.testing.assert_close(got, module(x))
        weight = next(module.parameters())
        torch.testing.assert_close(weight.grad, torch.autograd.grad(module(x).sum(), weight)[0])


def test_aot_module_refuses_fake_parameters() -> None:
    with FakeTensorMode():
        module = nn.Linear(3, 3)
    with pytest.raises(AssertionError, match="fake param weight"):
        aot.aot_module(module, aot.nop)


class Passes(torch.autograd.Function):
    """Hands its input on, with a gradient of its own: what it returns is a view that no chain of views makes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * 0.5


def test_a_simplified_module_that_is_not_taken_runs_in_eager() -> None:
    class Handing(nn.Linear):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return super().forward(x), Passes.apply(x)

    module, x = Handing(3, 2), torch.ones(4, 3, requires_grad=True)
    before = int(str(journal.totals()["eager_graphs"]))
    compiled = aot.aot_module_simplified(module, (x,), aot.nop)
    result, same = compiled(x)
    assert journal.totals()["eager_graphs"] == before + 1 and same.data_ptr() == x.data_ptr()
    torch.testing.assert_close(torch.autograd.grad(same.sum(), x)[0], torch.full((4, 3), 0.5))
    torch.testing.assert_close(result, module(x)[0])
    assert dict(compiled.named_parameters()).keys() == {"weight", "bias"}


@pytest.mark.parametrize("door", ["function", "simplified"])
def test_a_graph_that_reads_a_fake_tensor_is_refused(door: str) -> None:
    mode = FakeTensorMode()
    fake = mode.from_tensor(torch.ones(3))

    class Adds(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            return (x + fake,)

    with pytest.raises(AssertionError, match="Unexpected fake"):
        if door == "simplified":
            aot.aot_module_simplified(Adds(), (mode.from_tensor(torch.ones(3)),), aot.nop)
        else:
            aot.aot_function(Adds(), aot.nop)(mode.from_tensor(torch.ones(3)))


def test_graphs_for_compilers_return_tuples() -> None:
    returned: list[Any] = []

    def compiler(gm: fx.GraphModule, _: object) -> Any:
        returned.append(next(iter(reversed(gm.graph.nodes))).args[0])
        return gm

    aot.aot_function(lambda x: (x.sin(), x.cos()), compiler)(torch.ones(2, requires_grad=True))[0].sum().backward()
    assert len(returned) == 2 and all(isinstance(each, tuple) for each in returned)
