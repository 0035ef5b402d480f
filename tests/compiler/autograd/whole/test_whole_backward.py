"""A compiled backward is eager's, and the reference's: hook by hook, gradient by gradient."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from assay.compiler import journal
from assay.compiler.assembly.whole_backward import Run, eager_engine, engine_hook
from assay.compiler.autograd.whole.eager_order import Roots, pop, push
from assay.compiler.autograd.whole.missing_gradients import noting
from assay.compiler.autograd.whole.recorder import Recorder
from assay.compiler.codegen.call.gradients.forward_half import SavedValues
from assay.compiler.entry.compiled_autograd import compiled_autograd
from assay.compiler.entry.dynamo import assay
from assay.compiler.ir.graph.backward.engine_steps import Backward
from assay.compiler.runtime.engine_calls import accumulate_each
from assay.reference.whole_backward import run_backward
from assay.suites.semantics import whole_backward as cases

ATEN: dict[str, Any] = {"target": "aten"}
Program = Callable[[list[Any]], tuple[Tensor, list[Tensor]]]


@contextmanager
def by_reference(recorded: list[Backward] | None = None) -> Iterator[None]:
    """Backwards are recorded, and run by the reference; in the engine's order, for which no roots are known."""

    def compile(backward: Backward, _: object) -> Any:
        if recorded is not None:
            recorded.append(backward)
        return run, functools.partial(run_backward, backward)

    def run(call: Callable[..., Any], *given: Any) -> Any:
        outer = engine_hook.set_autograd_compiler(None, False)
        try:
            return call(*given)
        finally:
            engine_hook.set_autograd_compiler(*outer)

    engine_hook.clear_cache()
    outer = engine_hook.set_autograd_compiler(lambda: Recorder(compile, lambda names: None, 0), True)
    try:
        with mock.patch.object(FunctionCtx, "set_materialize_grads", noting(FunctionCtx.set_materialize_grads)):
            yield
    finally:
        engine_hook.set_autograd_compiler(*outer)
        engine_hook.clear_cache()


def run_case(scenario: Callable[..., Any]) -> Any:
    torch.manual_seed(0)
    f, args, _ = cases.made_wave()
    return scenario(f, *args)


def assert_same(one: Any, two: Any) -> None:
    if isinstance(one, Tensor):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(two)
        for first, second in zip(one, two, strict=True):
            assert_same(first, second)
    else:
        assert one == two


@pytest.mark.parametrize("kind", cases.HOOKS)
def test_whole_backward_reference_calls_every_kind_of_hook_as_eager(kind: str) -> None:
    expected = run_case(cases._hooked(kind))
    with by_reference():
        found = run_case(cases._hooked(kind))
    with compiled_autograd(ATEN):
        compiled = run_case(cases._hooked(kind))
    assert_same(found, expected)
    assert_same(compiled, expected)


@pytest.mark.parametrize("name", [*cases.FUNCTIONS, *cases.VIEWS, *cases.PACKED])
def test_whole_backward_reference_is_eager(name: str) -> None:
    """Functions of the user's, writes through views and packed tensors."""
    if name == "gives_too_many_gradients":
        pytest.skip("the engine refuses it before the reference sees it")
    makers: dict[str, Any] = {
        **{n: functools.partial(cases._through, use) for n, use in cases.FUNCTIONS.items()},
        **{n: functools.partial(cases._written, view) for n, view in cases.VIEWS.items()},
        **{n: functools.partial(cases._packed, *both) for n, both in cases.PACKED.items()},
    }
    expected = run_case(makers[name]())
    with by_reference():
        assert_same(run_case(makers[name]()), expected)
    with compiled_autograd(ATEN):
        assert_same(run_case(makers[name]()), expected)


@pytest.mark.parametrize("backend", ["eager", assay])
def test_whole_backward_runs_inside_a_compiled_function(backend: Any) -> None:
    """Dynamo traced into the engine: the function raised, and a level of vmap was left behind."""
    x, y = torch.arange(8.0).view(2, 4), torch.ones(2, 4, requires_grad=True)

    def step() -> Tensor:
        y.grad = None
        loss = (x * y).sin().sum()
        loss.backward()
        return loss

    torch._dynamo.reset()
    with compiled_autograd(ATEN):
        found = [torch.compile(step, backend=backend)() for _ in range(2)]
    assert y.grad is not None
    torch.testing.assert_close(found, [x.sin().sum()] * 2)
    torch.testing.assert_close(y.grad, x * x.cos())
    assert torch._C._vmapmode_increment_nesting() == 1
    torch._C._vmapmode_decrement_nesting()


@pytest.mark.parametrize("is_none", [False, True])
def test_whole_backward_knows_what_a_forward_before_it_has_set(is_none: bool) -> None:
    """A function that was called before anything was compiled is given None, or zeros, as in eager."""
    x = torch.ones(2, requires_grad=True)
    found: list[Any] = []

    class Asks(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Tensor) -> Tensor:
            if is_none:
                ctx.set_materialize_grads(False)
            return value * 2

        @staticmethod
        def backward(ctx: Any, *given: Tensor | None) -> Tensor | None:
            found.extend(given)
            return given[0]

    class Nothing(Asks):
        @staticmethod
        def backward(ctx: Any, *given: Tensor | None) -> None:
            return None

    class Zeros(Asks):
        @staticmethod
        def forward(ctx: Any, value: Tensor) -> Tensor:
            return value * 2

    y = Nothing.apply((Asks if is_none else Zeros).apply(x)).sum()
    with compiled_autograd(ATEN):
        y.backward()
    assert [None if each is None else each.tolist() for each in found] == ([None] if is_none else [[0, 0]])


def _layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 2))


def _step(module: nn.Module, rows: int = 3) -> list[Tensor | None]:
    module.zero_grad()
    module(torch.ones(rows, 4).cumsum(0)).square().sum().backward()
    return [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def test_whole_backward_is_one_stretch_without_hooks() -> None:
    before = journal.totals()["backwards"]
    expected = _step(_layers())
    with compiled_autograd(ATEN):
        module = _layers()
        assert_same(_step(module), expected)
        assert_same(_step(module), expected)
    assert journal.totals()["backwards"] == before + 1  # type: ignore[operator]


def test_whole_backward_recompiles_once_for_other_sizes() -> None:
    module = _layers()
    with compiled_autograd(ATEN):
        _step(module, 3)
        before = journal.totals()["nodes"]
        _step(module, 4)
        compiled = journal.totals()["nodes"]
        found = [_step(module, rows) for rows in (5, 7, 2, 3)]
        assert journal.totals()["nodes"] == compiled != before
    for rows, gradients in zip((5, 7, 2, 3), found, strict=True):
        assert_same(gradients, _step(_layers(), rows))


def test_whole_backward_context_restores_what_was_there() -> None:
    engine = torch.autograd.Variable._execution_engine
    with pytest.raises(ValueError, match="leave"), compiled_autograd(ATEN), compiled_autograd(ATEN):
        raise ValueError("leave")
    assert torch.autograd.Variable._execution_engine is engine
    assert engine_hook.set_autograd_compiler(None, False) == (None, False)


def test_whole_backward_respects_a_stance_that_forces_eager() -> None:
    before = journal.totals()["backwards"]
    with compiled_autograd(ATEN), torch.compiler.set_stance("force_eager"):
        _step(_layers())
    assert journal.totals()["backwards"] == before


def test_whole_backward_prints_the_node_of_each_line() -> None:
    recorded: list[Backward] = []
    with by_reference(recorded):
        _step(_layers())
    text = recorded[0].text()
    assert "GeluBackward0" in text and "accumulate(leaf_" in text


@pytest.mark.parametrize("numbers, expected", [((7,) * 6, "acfebd"), ((3, 7, 7, 1, 7, 3, 3), "bcefgad")])
def test_eager_order_takes_equals_as_the_library_does(numbers: tuple[int, ...], expected: str) -> None:
    """As `std::priority_queue` of g++ gives pairs that are compared by their first part alone."""
    heap: list[Any] = []
    for number, name in zip(numbers, "abcdefg", strict=False):
        push(heap, (number, name))  # type: ignore[arg-type]
    assert "".join(str(pop(heap)[1]) for _ in numbers) == expected


def test_eager_order_refuses_an_order_that_it_does_not_know() -> None:
    x = torch.ones(2, requires_grad=True)
    loss = x.sin().sum()
    assert loss.grad_fn is not None
    assert Roots((loss.grad_fn,), None).places(["root", "SinBackward0"]) is None


def test_whole_backward_is_an_option_of_the_backend() -> None:
    before = journal.totals()["backwards"]
    module = _layers()
    compiled = torch.compile(module, backend=assay, options=ATEN | {"compiled_autograd": True})
    expected = _step(_layers())
    module.zero_grad()
    compiled(torch.ones(3, 4).cumsum(0)).square().sum().backward()
    assert_same([parameter.grad for parameter in module.parameters()], expected)
    assert journal.totals()["backwards"] == before + 1  # type: ignore[operator]
    torch._dynamo.reset()
    assert engine_hook.set_autograd_compiler(None, False) == (None, False)


def test_whole_backward_inlines_backwards_of_our_own() -> None:
    """One graph of what two compiled parts and the part between them go back through."""
    parts = [torch.compile(lambda x: x.sin() * x, backend=assay, options=ATEN) for _ in range(2)]
    x = torch.arange(3.0).requires_grad_(True)
    recorded: list[Backward] = []
    with by_reference(recorded):
        parts[1](parts[0](x).exp()).sum().backward()
    assert {step.kind for step in recorded[0].steps} == {"formula", "accumulate"}
    torch._dynamo.reset()


def test_whole_backward_inlines_backwards_that_hold_constants() -> None:
    """A power of two that is folded, and positions that forward was given as a literal."""

    def f(x: Tensor) -> Tensor:
        rows = torch.ones(3, 1).scatter_add(0, torch.tensor([[0], [1], [1]]), torch.ones(3, 1))
        return torch.ldexp(x, torch.tensor(-2)) * rows

    journal.reset()
    x = torch.randn(3, 3, requires_grad=True)
    call = torch.compile(f, backend="assay")
    for _ in range(2):
        with compiled_autograd():
            call(x).sum().backward()
    assert journal.totals()["backwards"] and not journal.totals()["eager_backwards"]
    (expected,) = torch.autograd.grad(f(x).sum(), x)
    assert x.grad is not None and torch.equal(x.grad, 2 * expected)


@pytest.mark.parametrize("is_after", [False, True])
def test_whole_backward_calls_no_hook_of_a_leaf_behind_a_written_view_that_gets_nothing(is_after: bool) -> None:
    def f(a: Tensor, c: Tensor) -> Tensor:
        result = a + 1
        c[:3] += 1
        return result

    seen: list[object] = []
    a, leaf = torch.ones(4, requires_grad=True), torch.ones(1, requires_grad=True)
    if is_after:
        leaf.register_post_accumulate_grad_hook(seen.append)
    else:
        leaf.register_hook(seen.append)
    result = torch.compile(f, backend="assay")(a, leaf.clone()[0:1].view(1, 1).t())
    with compiled_autograd():
        result.sum().backward()
    assert a.grad is not None and leaf.grad is None and not seen


def test_whole_backward_places_gradients_by_a_mask() -> None:
    """How many rows a mask has is no part of its shape."""
    x = torch.arange(-6.0, 7.0).requires_grad_()
    with compiled_autograd():
        x[x > 1].sum().backward()
    assert x.grad is not None and torch.equal(x.grad, (x > 1).float())


def shrunk(shrink: Callable[..., Tensor], x: Tensor, bound: int) -> Tensor:
    return shrink(x, bound) * x.sum()


TAKEN_APART: dict[str, Callable[[Tensor, int], Tensor]] = {
    "hardshrink": functools.partial(shrunk, nn.functional.hardshrink),
    "softshrink": functools.partial(shrunk, nn.functional.softshrink),
    "bilinear": lambda x, n: nn.functional.interpolate(x.expand(n, 2, 3, 3), scale_factor=2, mode="bilinear").sin(),
    "nearest": lambda x, n: nn.functional.interpolate(x.expand(n, 2, 3, 3), scale_factor=2).sin(),
    "margins": lambda x, n: nn.functional.multi_margin_loss(x[0, 0].repeat(n, 1), torch.zeros(3 * n, dtype=torch.long)),
}


@pytest.mark.parametrize("is_restored", [False, True])
@pytest.mark.parametrize("name", TAKEN_APART)
def test_whole_backward_reads_what_forward_has_saved(name: str, is_restored: bool, tmp_path: Path) -> None:
    """Of symbols these operators are taken apart, of numbers they are not, and they save other values then."""
    function = TAKEN_APART[name]
    for _ in range(1 + is_restored):
        torch._dynamo.reset()
        journal.reset()
        call = torch.compile(function, backend=functools.partial(assay, options={"cache": str(tmp_path), "warm": True}))
        for number in (2, 3, 4):
            x = torch.randn(1, 2, 3, 3, requires_grad=True)
            with compiled_autograd():
                call(x, number).sum().backward()
            (expected,) = torch.autograd.grad(function(x, number).sum(), x)
            torch.testing.assert_close(x.grad, expected)
        assert not journal.totals()["eager_backwards"]
    assert bool(journal.totals()["restored"]) == is_restored


def test_saved_values_are_enough_for_a_backward_of_the_same_tensors() -> None:
    saved = SavedValues(("x", "y"), ("n", "k"))
    assert saved.are_enough_for(SavedValues(("x", "y"), ("k",)))
    assert not saved.are_enough_for(SavedValues(("x",), ("n", "k")))
    assert not saved.are_enough_for(SavedValues(("y", "x"), ("n", "k")))
    assert not saved.are_enough_for(SavedValues(("x", "y"), ("n", "m")))


def test_numbers_of_one_name_that_were_recorded_as_different_sizes_are_not_the_same() -> None:
    env = ShapeEnv()
    n, k = (env.create_unbacked_symint() for _ in range(2))
    saved = SavedValues((), ("n", "k"), (n, k))
    assert saved.are_enough_for(SavedValues((), ("k", "n"), (k, n)))
    assert not saved.are_enough_for(SavedValues((), ("n",), (k,)))


@pytest.mark.parametrize("place", [1, 3])
def test_a_backward_of_symbolic_places_is_recorded_again_as_its_forward_has_saved(place: int) -> None:
    """The number of elements before a place is found from another node there than in the call's own program."""

    def program(x: Tensor, place: int) -> Tensor:
        return x.flatten()[:-place].sum()

    x = torch.randn(3, 4, requires_grad=True)
    compiled = torch.compile(program, backend="assay", dynamic=True)
    with compiled_autograd():
        compiled(x, place).backward()
    assert x.grad is not None and x.grad.flatten().tolist() == [1.0] * (12 - place) + [0.0] * place


def test_whole_backward_inlines_backwards_with_symbolic_sizes() -> None:
    """A compiled part whose sizes are symbols is a formula that takes them, also when they change."""
    part = torch.compile(lambda x: x.sin() * x.shape[0] + x.mean(0), backend=assay, options=ATEN, dynamic=True)
    recorded: list[Backward] = []
    for rows in (3, 5, 4):
        x, y = (torch.arange(2.0 * rows).view(rows, 2).requires_grad_(True) for _ in range(2))
        (x.sin() * rows + x.mean(0)).exp().sum().backward()
        with by_reference(recorded):
            part(y).exp().sum().backward()
        assert {step.kind for step in recorded[-1].steps} == {"formula", "accumulate"}
        assert "sizes[0]" in recorded[-1].text()
        assert_same([x.grad], [y.grad])
        y.grad = None
        with compiled_autograd(ATEN):
            part(y).exp().sum().backward()
        assert_same([x.grad], [y.grad])
    torch._dynamo.reset()


def test_whole_backward_keeps_operators_whole_that_compiled_calls_keep(tmp_path: Path) -> None:
    """A backward that makes an interpolation again calls ATen's, as the backward of the part alone does."""

    def program(x: Tensor, w: Tensor, classes: Tensor) -> Tensor:
        wide = nn.functional.interpolate(nn.functional.conv2d(x, w), size=(128, 128), mode="bilinear")
        return nn.functional.cross_entropy(wide, classes)

    w = torch.randn(20, 8, 1, 1, requires_grad=True)
    loss = torch.compile(program, backend=assay)(torch.randn(4, 8, 32, 32), w, torch.zeros(4, 128, 128).long())
    with compiled_autograd({"dump": str(tmp_path)}):
        loss.backward()
    (stretch,) = tmp_path.glob("*/*_backward_stretch.py")
    text = stretch.read_text()
    assert "upsample_bilinear2d.default" in text and "_unsafe_index" not in text
    torch._dynamo.reset()


@pytest.mark.parametrize("are_shared", [False, True])
def test_neighbouring_leaves_accumulate_in_order(are_shared: bool) -> None:
    """Sums in place, first gradients and missing ones, also where two leaves have one `.grad`."""
    leaves = [torch.ones(2, requires_grad=True) for _ in range(4)]
    leaves[0].grad = torch.ones(2)
    leaves[1].grad = leaves[0].grad if are_shared else torch.ones(2)
    given = torch.full((2,), 3.0)
    accumulate_each(leaves, [torch.full((2,), 2.0), given, None, given])
    found = [None if leaf.grad is None else leaf.grad.tolist() for leaf in leaves]
    assert found == ([[6.0, 6.0]] * 2 if are_shared else [[3.0, 3.0], [4.0, 4.0]]) + [None, [3.0, 3.0]]
    assert leaves[3].grad is not given and leaves[0].grad._version == 1 + are_shared


def test_the_compiler_is_switched_off_only_when_the_engine_has_asked_for_it() -> None:
    """Else the engine, which reads it without a lock, calls a compiler that is gone."""
    switch, run, order = eager_engine, Run((), ()), list[str]()
    assert switch.offer(run)
    run.taken.clear()  # as where a compiler is on

    def other() -> None:
        with switch:
            order.append("off")

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(0.2)
    order.append("asked")
    run.taken.set()
    thread.join(60)
    switch.offered = None
    assert order == ["asked", "off"] and not switch.count


def test_no_backward_is_offered_while_the_compiler_is_switched_off() -> None:
    with eager_engine:
        assert not eager_engine.offer(Run((), ()))
    assert eager_engine.offered is None
