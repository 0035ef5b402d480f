"""`compile_fx` on structures, plain modules and graphs with pytree code; the keywords of `compile_fx_inner`."""

from __future__ import annotations

import collections
import functools
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from assay.compiler import journal
from assay.compiler.entry.dynamo import compile_fx, compile_fx_inner
from assay.compiler.entry.inner_keywords import InnerKeywords
from assay.compiler.errors import InputMismatch, OptionError, Unsupported

Pair = collections.namedtuple("Pair", "first second")


class Structured(nn.Module):
    """A graph whose placeholders are structures, as a tracer that is told nothing of them makes it."""

    def forward(self, x: Any, y: Any) -> Any:
        return {"sum": x["a"] + x["b"][0] * y[0], "parts": [x["b"][1].relu(), (y[1],)]}


def structures(grad: bool = False) -> tuple[Any, ...]:
    x = [torch.randn(3, requires_grad=grad) for _ in range(5)]
    return {"a": x[0], "b": [x[1], x[2]]}, (x[3], x[4])


@pytest.mark.parametrize("traced", [False, True])
def test_compile_fx_takes_structures(traced: bool) -> None:
    model = fx.symbolic_trace(Structured()) if traced else Structured()
    compiled = compile_fx(model, structures())
    for _ in range(2):
        args = structures()
        torch.testing.assert_close(compiled(*args), Structured()(*args))


def test_compile_fx_differentiates_through_structures() -> None:
    compiled = compile_fx(fx.symbolic_trace(Structured()), structures(grad=True))
    args = structures(grad=True)
    leaves = [*args[0]["b"], args[0]["a"], *args[1]]
    found = []
    for run in (compiled, Structured()):
        out = run(*args)
        total = out["sum"].square().sum() + out["parts"][0].sum() + out["parts"][1][0].sum()
        found.append(torch.autograd.grad(total, leaves))
    torch.testing.assert_close(found[0], found[1])


def test_compile_fx_names_inputs_of_another_structure_or_with_other_constants() -> None:
    def f(x: Any, n: Any) -> Any:
        return x["a"] * n[0]

    class Scaled(nn.Module):
        def forward(self, x: Any, n: Any) -> Any:
            return f(x, n)

    x = torch.ones(2)
    compiled = compile_fx(Scaled(), ({"a": x}, [3]))
    assert torch.equal(compiled({"a": x}, [3]), x * 3)
    with pytest.raises(InputMismatch, match="leaf 1 of the inputs is 4 where it was 3"):
        compiled({"a": x}, [4])
    with pytest.raises(InputMismatch, match="the graph was compiled for"):
        compiled({"b": x}, [3])
    with pytest.raises(InputMismatch, match="input 0 has shape"):
        compiled({"a": torch.ones(5)}, [3])


def test_compile_fx_takes_a_plain_module_and_trains_it() -> None:
    module, other = (nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)) for _ in range(2))
    other.load_state_dict(module.state_dict())
    x = torch.randn(6, 4)
    compiled = compile_fx(module, [x])
    for _ in range(2):
        x = torch.randn(6, 4)
        got, want = compiled(x), other(x)
        torch.testing.assert_close(got, want)
        got.square().sum().backward()
        want.square().sum().backward()
    torch.testing.assert_close([p.grad for p in module.parameters()], [p.grad for p in other.parameters()])
    torch.testing.assert_close(dict(module.named_buffers()), dict(other.named_buffers()))


class Named(nn.Module):
    def forward(self, pair: Any) -> Any:
        return Pair(pair.first.sin(), [pair.second * 2])


def test_compile_fx_takes_graphs_with_pytree_code() -> None:
    gm = make_fx(lambda pair: {"out": pair[0] + 1, "more": (pair[1],)})((torch.ones(2), torch.ones(3)))
    code, codegen = gm.code, gm.graph._codegen
    compiled = compile_fx(gm, [(torch.ones(2), torch.ones(3))])
    given = (torch.randn(2), torch.randn(3))
    torch.testing.assert_close(compiled(given), gm(given))
    assert gm.code == code and gm.graph._codegen is codegen, "the caller's graph is left as it was"


def test_compile_fx_takes_exported_modules() -> None:
    args = (Pair(torch.randn(3), torch.randn(2)),)
    compiled = compile_fx(torch.export.export(Named(), args).module(), args)
    args = (Pair(torch.randn(3), torch.randn(2)),)
    got = compiled(*args)
    assert isinstance(got, Pair)
    torch.testing.assert_close(list(got), list(Named()(*args)))


def test_compile_fx_takes_graphs_that_return_structures() -> None:
    x = torch.randn(3)
    for f in (lambda x: x + 1, lambda x: [x.sin(), {"k": x * 2}], lambda x: torch.max(x, 0)):
        gm = fx.symbolic_trace(f)
        got, want = compile_fx(gm, [x])(x), gm(x)
        torch.testing.assert_close(flat(got), flat(want))


def flat(value: Any) -> list[Any]:
    return pytree.tree_leaves(list(value) if isinstance(value, tuple) else value)


# ---- keywords


def test_an_inner_compiler_gets_its_keywords() -> None:
    told: list[dict[str, Any]] = []
    graphs: list[fx.GraphModule] = []

    def inner(gm: fx.GraphModule, example_inputs: Any, **keywords: Any) -> Any:
        told.append(keywords)
        graphs.append(gm)
        return compile_fx_inner(gm, example_inputs, **keywords)

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 3))

        def forward(self, x: Tensor) -> Any:
            return ((x @ self.weight).relu(),)

    module, x = Linear(), torch.randn(2, 3)
    compiled = compile_fx(module, [x], inner, compile_region_name="layer")
    compiled(x)[0].sum().backward()
    torch.testing.assert_close(module.weight.grad, torch.autograd.grad(module(x)[0].sum(), module.weight)[0])
    forward, backward = told
    assert forward["is_inference"] is False and "is_backward" not in forward and backward["is_backward"] is True
    assert forward["static_input_idxs"] == [0] and forward["graph_id"] == backward["graph_id"]
    assert {each["compile_region_name"] for each in told} == {"layer"} and not forward["cudagraphs"]
    assert forward["get_decomp_fn"]() and set(forward) - {"compile_region_name"} <= InnerKeywords.__annotations__.keys()
    names = [[node.name for node in gm.graph.find_nodes(op="placeholder")] for gm in graphs]
    assert names[0] == ["primals_1", "primals_2"] and names[1][-1] == "tangents_1"
    with torch.no_grad():
        compile_fx(module, [x], inner)(x)
    assert told[-1]["is_inference"] is True


def test_an_inner_compiler_may_be_partial_and_unboxed() -> None:
    x = torch.randn(3)
    gm = fx.symbolic_trace(lambda x: (x.sin(),))
    inner = functools.partial(compile_fx_inner, layout_opt=False)
    assert torch.equal(compile_fx(gm, [x], inner)(x)[0], compile_fx(gm, [x])(x)[0])
    assert torch.equal(compile_fx(gm, [x], lambda graph, inputs, **keywords: graph)(x)[0], x.sin())


TAKEN: dict[str, Any] = {
    "cudagraphs": None, "static_input_idxs": (0,), "is_backward": False, "graph_id": 3, "cpp_wrapper": False,
    "fx_wrapper": False, "is_inference": True, "boxed_forward_device_index": None, "layout_opt": None,
    "extern_node_serializer": None, "aot_mode": False, "get_decomp_fn": dict,
}  # fmt: skip
"""What torch tells its own builder of graphs by default."""
REFUSED: dict[str, Any] = {
    "cpp_wrapper": True,
    "fx_wrapper": True,
    "layout_opt": True,
    "aot_mode": True,
    "extern_node_serializer": print,
}


def test_compile_fx_inner_takes_its_keywords() -> None:
    x = torch.randn(3)
    gm = make_fx(lambda x: (x.sin() + 1,))(x)
    assert TAKEN.keys() == InnerKeywords.__annotations__.keys()
    torch.testing.assert_close(compile_fx_inner(gm, [x], "region", **TAKEN)([x])[0], x.sin() + 1)


def test_compile_fx_inner_takes_graphs_that_were_recorded_with_real_tensors() -> None:
    """Each node then has a value of a fake mode of its own, and one that returns nothing has none."""

    def f(x: Tensor, y: Tensor) -> list[Tensor]:
        copies = [x.clone(), y.clone()]
        torch._foreach_add_(copies, [y, x])
        x.copy_(copies[0])
        return [copies[1] * 2]

    inputs = torch.arange(3.0), torch.ones(3)
    gm = make_fx(f)(*map(torch.clone, inputs))
    compiled = compile_fx_inner(gm, [*map(torch.clone, inputs)])
    ours, eagers = [*map(torch.clone, inputs)], [*map(torch.clone, inputs)]
    torch.testing.assert_close(list(compiled(list(ours))), f(*eagers))
    torch.testing.assert_close(ours, eagers)


@pytest.mark.parametrize("name", REFUSED)
def test_compile_fx_inner_refuses_by_name_what_it_cannot_do(name: str) -> None:
    gm = make_fx(lambda x: (x.sin(),))(torch.ones(2))
    with pytest.raises(OptionError, match=name):
        compile_fx_inner(gm, [torch.ones(2)], **{name: REFUSED[name]})


def test_compile_fx_inner_names_a_keyword_that_does_not_exist() -> None:
    gm = make_fx(lambda x: (x.sin(),))(torch.ones(2))
    with pytest.raises(OptionError, match="takes no 'cudagraph'; it takes cudagraphs, "):
        compile_fx_inner(gm, [torch.ones(2)], cudagraph=True)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="static_input_idxs has 4; the graph has 1 inputs"):
        compile_fx_inner(gm, [torch.ones(2)], static_input_idxs=[4])


def test_compile_fx_inner_has_its_keywords_in_the_names_of_dumps(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("ASSAY_DUMP", str(tmp_path))
    gm = make_fx(lambda x: (x.sin(),))(torch.ones(2))
    compile_fx_inner(gm, [torch.ones(2)], "block", is_backward=True, graph_id=7)
    assert [folder.name.partition("_block_")[2] for folder in tmp_path.iterdir()] == ["backward_7"]


@pytest.mark.gpu
def test_compile_fx_inner_records_a_cuda_graph_where_it_is_asked_to() -> None:
    class Index:
        value: int | None = None

        def set(self, index: int | None) -> None:
            self.value = index

    x, index = torch.randn(64, device="cuda"), Index()
    gm = make_fx(lambda x: (x.sin() + 1,))(x)
    run = compile_fx_inner(gm, [x], cudagraphs=True, boxed_forward_device_index=index)
    for _ in range(6):
        x = torch.randn(64, device="cuda")
        torch.testing.assert_close(run([x])[0], x.sin() + 1)
    assert index.value == 0


def test_ignore_shape_env_of_compile_fx_makes_sizes_numbers() -> None:
    mode, sizes = FakeTensorMode(shape_env=ShapeEnv()), []
    fake = mode.from_tensor(torch.randn(4, 3))

    def inner(gm: fx.GraphModule, inputs: Any, **keywords: Any) -> Any:
        sizes.append([type(value.shape[0]) is int for value in inputs])
        return gm

    gm = fx.symbolic_trace(lambda x, y: (x + y.sum(0),))
    for ignore in (False, True):
        compile_fx(gm, [fake, torch.randn(5, 3)], inner, ignore_shape_env=ignore)
    assert sizes == [[False, False], [False, True]]


def written_over_itself(x: Tensor) -> tuple[Tensor]:
    """Torch functionalizes no write to memory that overlaps itself: the compiler does not take that node."""
    z = x.new_zeros(1).expand(3)
    z.zero_()
    return ((x.sin() * 2 + z.sum()).cos(),)


@pytest.mark.parametrize("fallback", ("eager", "error"))
def test_compile_fx_cuts_out_what_the_compiler_does_not_take(fallback: str) -> None:
    def backend(gm: fx.GraphModule, given: Any) -> Any:
        return compile_fx(gm, given, config_patches={"fallback": fallback})

    x = torch.randn(3)
    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(written_over_itself, backend=backend)
    if fallback == "error":
        with pytest.raises(BackendCompilerFailed, match="overlaps itself"):
            compiled(x)
        return
    torch.testing.assert_close(compiled(x), written_over_itself(x))
    assert journal.totals()["cuts"] == 1 and journal.totals()["eager_graphs"] == 0


def test_compile_fx_with_an_inner_compiler_gives_back_what_the_compiler_does_not_take() -> None:
    gm, x = fx.symbolic_trace(written_over_itself), torch.randn(3)
    journal.reset()
    torch.testing.assert_close(compile_fx(gm, [x], compile_fx_inner)(x), gm(x))
    assert journal.totals()["eager_graphs"] == 1
    with pytest.raises(Unsupported):
        compile_fx(gm, [x], compile_fx_inner, config_patches={"fallback": "error"})
