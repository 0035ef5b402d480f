"""torch's compiled autograd around graphs of ours: it has Dynamo trace a whole backward, which may not enter ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, fx, nn
from torch._dynamo import compiled_autograd
from torch.nn import functional as F

from assay.compiler import journal
from assay.compiler.capture.list_arguments import without_lists
from assay.compiler.entry.dynamo import assay, compile_graph
from assay.compiler.errors import Unsupported
from assay.compiler.options import Options
from assay.harness.backends.registry import BackendError, graph_compiler, resolve
from assay.harness.cli.commands import commands

Found = list[Any]
Train = Callable[[Callable[..., Any], nn.Module, Tensor], Found]


@pytest.fixture(autouse=True)
def from_the_start() -> Iterator[None]:
    torch._dynamo.reset()
    journal.reset()
    yield
    torch._dynamo.reset()
    assert torch._C._functorch.maybe_current_level() is None
    assert torch._C._vmapmode_increment_nesting() == 1, "a trace has left a level of vmap behind"
    torch._C._vmapmode_decrement_nesting()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def gradients(module: nn.Module) -> Found:
    return [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def plainly(run: Callable[..., Any], module: nn.Module, x: Tensor) -> Found:
    run(x).square().sum().backward()
    return gradients(module)


def twice_into_one_gradient(run: Callable[..., Any], module: nn.Module, x: Tensor) -> Found:
    run(x).square().sum().backward()
    run(x * 2).sum().backward()
    return gradients(module)


def with_hooks(run: Callable[..., Any], module: nn.Module, x: Tensor) -> Found:
    seen: list[Tensor] = []
    first = next(module.parameters())
    hooks = [first.register_hook(lambda g: g * 3), first.register_hook(lambda g: seen.append(g.clone()))]
    hooks.append(first.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad + 1)))
    y = run(x)
    y.register_hook(lambda g: g / 2)
    y.sum().backward()
    for hook in hooks:
        hook.remove()
    return [*gradients(module), *seen]


def with_the_graph_kept(run: Callable[..., Any], module: nn.Module, x: Tensor) -> Found:
    loss = run(x).pow(3).mean()
    loss.backward(retain_graph=True)
    loss.backward()
    return gradients(module)


def of_an_input_and_a_view(run: Callable[..., Any], module: nn.Module, x: Tensor) -> Found:
    leaf = x.clone().requires_grad_()
    run(leaf * 2)[1:].sum().backward()
    return [leaf.grad, *gradients(module)]


def through_dropout(run: Callable[..., Any], module: nn.Module, x: Tensor) -> Found:
    torch.manual_seed(3)
    F.dropout(run(x), 0.5).sum().backward()
    return gradients(module)


TRAIN: tuple[Train, ...] = (
    plainly,
    twice_into_one_gradient,
    with_hooks,
    with_the_graph_kept,
    of_an_input_and_a_view,
    through_dropout,
)


def assert_same(found: Found, expected: Found) -> None:
    for ours, eagers in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, eagers, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("train", TRAIN)
def test_compiled_autograd_of_a_compiled_module(train: Train) -> None:
    x, module = torch.randn(5, 8), model()
    expected = train(module, module, x)
    module = model()
    run = torch.compile(module, backend=assay)
    for _ in range(3):
        module.zero_grad()
        with compiled_autograd._enable(torch.compile(backend=assay)):
            found = train(run, module, x)
        assert_same(found, expected)
    assert journal.totals()["eager_graphs"] == 0


def test_compiled_autograd_of_a_whole_step() -> None:
    x = torch.randn(5, 8)
    module = model()
    expected = plainly(module, module, x)

    def step() -> None:
        module(x).square().sum().backward()

    with torch._dynamo.config.patch(compiled_autograd=True):
        run = torch.compile(step, backend=assay)
        for _ in range(3):
            module.zero_grad()
            run()
            assert_same(gradients(module), expected)


def test_compiled_autograd_leaves_nothing_behind() -> None:
    """Traced into, a backward of ours left a level of vmap open, and no later backward ran."""
    x, module = torch.randn(5, 8), model()
    run = torch.compile(module, backend=assay)
    with compiled_autograd._enable(torch.compile(backend="eager")):
        plainly(run, module, x)
    other = model()
    assert_same(plainly(run, module, x), [g * 2 for g in plainly(other, other, x)])


def test_compiled_autograd_does_not_record_what_the_compiler_differentiates() -> None:
    """A call that is compiled within a backward, as that of a gradient of a gradient is."""
    x = torch.randn(5, 8)
    module = model()

    def penalised(run: Callable[..., Any], module: nn.Module, x: Tensor) -> Found:
        leaf = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(run(leaf).sum(), leaf, create_graph=True)
        return [slope.detach()]

    expected = penalised(module, module, x)
    run = torch.compile(module, backend=assay, dynamic=True, options={"fallback": "error"})
    with compiled_autograd._enable(torch.compile(backend=assay, dynamic=True, options={"fallback": "error"})):
        assert_same(penalised(run, module, x), expected)


def listed(values: list[Tensor], factor: Tensor) -> tuple[Tensor, list[Tensor]]:
    return values[0] * factor + values[1], values


def graph_of_lists(is_given_away: bool) -> fx.GraphModule:
    gm = fx.symbolic_trace(listed)
    first = next(iter(gm.graph.nodes))
    gm.graph.output_node().args = ((gm.graph.output_node().args[0][0],),)  # type: ignore[index]
    first.meta["steal_arg"] = is_given_away
    gm.recompile()
    return gm


@pytest.mark.parametrize("is_given_away", [False, True])
def test_a_graph_may_take_lists(is_given_away: bool) -> None:
    values, factor = [torch.randn(3), torch.randn(3)], torch.tensor(2.0)
    expected = values[0] * 2 + values[1]
    run = compile_graph(graph_of_lists(is_given_away), [values, factor], Options.of({"fallback": "error"}, None))
    assert len(values) == 2, "what compiling is shown stays"
    (found,) = run(values, factor)
    torch.testing.assert_close(found, expected)
    assert len(values) == (0 if is_given_away else 2)


def test_a_list_of_lists_runs_in_eager() -> None:
    gm = fx.symbolic_trace(lambda values: values[0][0] + 1)
    given = [[torch.ones(2)]]
    with pytest.raises(Unsupported, match="list of lists"):
        without_lists(gm, [given])
    assert compile_graph(gm, [given], Options.of(None, None))(given).tolist() == [2, 2]
    assert journal.totals()["eager_graphs"] == 1


def test_the_harness_compiles_whole_backwards() -> None:
    backend = resolve("assay,compiled_autograd")
    with backend.ambient():
        assert compiled_autograd.compiled_autograd_enabled
    assert not compiled_autograd.compiled_autograd_enabled
    with pytest.raises(BackendError, match="there is only a graph here"):
        graph_compiler("assay,compiled_autograd")


def test_a_bench_refuses_whole_backwards() -> None:
    outcome = CliRunner().invoke(commands, ["bench", "zoo", "--backend", "assay,compiled_autograd"])
    assert outcome.exit_code == 2 and "is for `assay run`" in outcome.output
