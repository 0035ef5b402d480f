"""Loops whose steps are one call: the values and gradients of steps that are calls of their own, to the last bit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._higher_order_ops import map as mapped
from torch._higher_order_ops import scan, while_loop
from torch.utils import _pytree as pytree

from assay.compiler import journal
from assay.compiler.assembly.step_loops import Shape
from assay.compiler.entry.pieces import step_loops
from assay.compiler.entry.pieces.piece import LoopCompiler
from assay.compiler.entry.pieces.step_loops import StepLoops

Program = Callable[..., Any]


def inputs(length: int = 5, width: int = 6, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """A state, rows, a second operand for each row, and two parameters."""
    shapes = ((width,), (length, width), (length, width), (width,), (width, width))
    return [torch.rand(shape, dtype=dtype) - 0.5 for shape in shapes]


def state_space(h: Tensor, xs: Tensor, steps: Tensor, w: Tensor, a: Tensor) -> Any:
    def step(h: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x, delta = row
        h = torch.exp(delta[:, None] * a) * h + (delta * x)[:, None] * w[None, :]
        return h, (h * x[None, :]).sum(-1) + w * x

    return scan(step, h[:, None] * w, (xs, steps))


def several_carries(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    def step(carried: dict[str, Any], row: list[Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
        one, (other, count) = carried["one"], carried["pair"]
        one = (one * w + row[0]).tanh()
        new = {"one": one, "pair": (other * 0.5 + one.sum(), count + 1)}
        return new, {"a": one * other, "b": row[1] + count}

    return scan(step, {"one": h, "pair": (h.sum(), torch.zeros(()))}, [xs, ys])


def an_integer_carried(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    """Torch itself fails to record its gradients."""
    init = (h, torch.zeros((), dtype=torch.int64))
    return scan(lambda c, x: ((c[0] * w + x, c[1] + 2), (c[0] * c[1], c[1] > 4)), init, xs)


def from_the_end(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    return scan(lambda c, x: (c * w + x, c.sin() * x), h, xs, reverse=True)


def along_the_last_dimension(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    return scan(lambda c, x: ((c * w + x).tanh(), c * x), h, xs.t(), dim=1)


def over_rows(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    return mapped(lambda row, w: (row[0] * w).sum(-1) * row[1], (xs, ys), w)  # type: ignore[arg-type]


def state_alone(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    """What the steps give is not used, so that no gradient flows back through it."""
    return scan(lambda c, x: ((c * w + x).tanh(), c.exp()), h, xs)[0]


def rows_alone(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    """The last state is not used: an infinite one times a gradient of zeros would not be a number."""
    return scan(lambda c, x: ((c * w + x), (c * x).tanh()), h, xs)[1]


def rows_that_the_next_step_replaces(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    """The state is the last row, so that gradients flow through the last step alone."""
    return scan(lambda c, x: (x * w, c * 2), h, xs)[0]


def a_state_that_only_counts(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    """A state of floats through which no gradient flows."""
    return scan(lambda c, x: (c + 1, x * w * c), torch.zeros(()), xs)


def a_state_that_needs_gradients_later(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    return scan(lambda c, x: (c * 0.5 + x * w, c.sum()), torch.zeros(xs.shape[1]), xs)


def equal_results(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    return scan(lambda c, x: (c * w + x, (c * w + x).clone()), h, xs)


def a_view_as_result(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        new = c * 0.5 + x[:, None] * a
        return new, (new.t() * w)[1:, ::2].t()

    return scan(step, h[:, None] * w, xs)


def a_loop_that_counts(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    return while_loop(lambda i, c: i < 9, lambda i, c: (i + 1, (c * 0.9).sin() * w), (torch.tensor(0), h))


def a_loop_that_ends_by_its_values(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    return while_loop(
        lambda c, d: (c.abs().sum() > 0.01) & (d.sum() < 100), lambda c, d: (c * 0.5 + d * 1e-4, d + 1), (h, xs[0])
    )


def a_loop_of_no_steps(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    return while_loop(lambda i, c: i < 0, lambda i, c: (i + 1, c * w), (torch.tensor(0), h))


PROGRAMS = (
    state_space,
    several_carries,
    from_the_end,
    along_the_last_dimension,
    over_rows,
    state_alone,
    rows_alone,
    rows_that_the_next_step_replaces,
    a_state_that_only_counts,
    a_state_that_needs_gradients_later,
    equal_results,
    a_view_as_result,
)


def observed(f: Program, given: Sequence[Tensor], trains: bool) -> list[Any]:
    """The results of a program with their strides and whether they need gradients, and the gradients of its inputs."""
    args = [value.clone().requires_grad_(trains) for value in given]
    with torch.set_grad_enabled(trains):
        results = pytree.tree_leaves(f(*args))
    flowing = [result for result in results if result.requires_grad]
    if flowing:
        torch.autograd.backward(flowing, [result.detach().cos() for result in flowing])
    outlines = [(result.detach(), result.stride(), result.requires_grad) for result in results]
    return [*outlines, *(arg.grad for arg in args)]


def by_steps(monkeypatch: pytest.MonkeyPatch, f: Program, given: Sequence[Tensor], trains: bool) -> list[Any]:
    """What is observed where each step is a call of its own."""
    with monkeypatch.context() as patched:
        patched.setattr(StepLoops, "_known", lambda *args: None)
        torch._dynamo.reset()
        return observed(torch.compile(f, backend="assay"), given, trains)


def assert_same(ours: object, theirs: object, is_exact: bool = True) -> None:
    for mine, other in zip(pytree.tree_leaves(ours), pytree.tree_leaves(theirs), strict=True):
        if isinstance(mine, Tensor) and isinstance(other, Tensor) and not is_exact:
            torch.testing.assert_close(mine, other)
        elif isinstance(mine, Tensor):
            assert torch.equal(mine, other) or torch.equal(mine.isnan(), other.isnan())
        else:
            assert mine == other


INFERRED = (an_integer_carried, a_loop_that_counts, a_loop_that_ends_by_its_values, a_loop_of_no_steps)
CASES = [(f, trains) for f in PROGRAMS for trains in (False, True)] + [(f, False) for f in INFERRED]


@pytest.mark.parametrize("f, trains", CASES, ids=lambda each: getattr(each, "__name__", "train" if each else "infer"))
def test_step_loops_have_the_bits_of_steps(f: Program, trains: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given = inputs()
    expected = by_steps(monkeypatch, f, given, trains)
    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(f, backend="assay")
    for _ in range(3):
        assert_same(observed(compiled, given, trains), expected)
    counted = journal.totals()
    assert counted["loops"] == 1 and not counted["stepwise"] and not counted["eager"]
    assert_same(expected, observed(f, given, trains), is_exact=False)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("f", [a_loop_that_counts, a_loop_that_ends_by_its_values], ids=lambda f: f.__name__)
def test_loops_whose_end_is_data_have_the_gradients_of_steps(
    f: Program, dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call counts the steps, and another runs as many: no step is Python's."""
    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(f, backend="assay", dynamic=dynamic)
    found = []
    for scale in (1.0, 1.5, 2.0):
        given = [value * scale for value in inputs()]
        found.append((given, observed(compiled, given, True)))
    counted = journal.totals()
    assert counted["loops"] == 2 and not counted["stepwise"] and not counted["eager"]
    for given, ours in found:
        assert_same(ours, by_steps(monkeypatch, f, given, True))


def test_a_loop_that_ends_before_its_first_step_passes_gradients_on() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(a_loop_that_ends_by_its_values, backend="assay")
    for h in (torch.full((6,), 0.5), torch.zeros(6)):  # as it was compiled with steps, and then with none
        _, xs, *others = inputs()
        h.requires_grad_()
        c, _ = compiled(h, xs, *others)
        c.sum().backward()
    assert torch.equal(h.grad, torch.ones(6))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_step_loops_round_sums_of_gradients_as_eager_does(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    given = inputs(dtype=dtype)
    expected = by_steps(monkeypatch, from_the_end, given, True)
    torch._dynamo.reset()
    assert_same(observed(torch.compile(from_the_end, backend="assay"), given, True), expected)


def test_step_loops_serve_any_length() -> None:
    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(state_space, backend="assay", dynamic=True)
    for length in (3, 7, 20):
        given = inputs(length)
        assert_same(observed(compiled, given, True), observed(state_space, given, True), is_exact=False)
    assert journal.totals()["loops"] == 1


def test_step_loops_of_one_step_are_as_eager() -> None:
    torch._dynamo.reset()
    given = inputs(length=1)
    compiled = torch.compile(state_space, backend="assay")
    assert_same(observed(compiled, given, True), observed(state_space, given, True), is_exact=False)


@pytest.mark.parametrize("f", [state_space, over_rows], ids=lambda f: f.__name__)
def test_step_loops_of_no_steps_are_as_torch_has_them(f: Program) -> None:
    """Which refuses a scan of nothing."""
    torch._dynamo.reset()
    given = inputs(length=0)
    for called in (f, torch.compile(f, backend="assay")):
        with pytest.raises(RuntimeError):
            called(*given)


def a_cell(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    """A step that calls a product of ATen's."""

    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        new = torch.tanh(c @ a + x[None] * w)
        return new, new.sum(0) * 2

    return scan(step, torch.stack([h, h * 2]), xs)


def a_cell_under_autocast(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return scan(lambda c, x: ((c @ a).float() + x, (a @ x).float()), h[None], xs)


@pytest.mark.parametrize("trains", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("f", [a_cell, a_cell_under_autocast], ids=lambda f: f.__name__)
def test_step_loops_that_call_aten_run_step_by_step(f: Program, trains: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given = inputs()
    expected = by_steps(monkeypatch, f, given, trains)
    torch._dynamo.reset()
    journal.reset()
    assert_same(observed(torch.compile(f, backend="assay"), given, trains), expected)
    counted: Any = journal.totals()
    assert counted["loops"] == 0 and counted["stepwise"] == {"a step calls aten.mm.default": 1}


def drawn(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    return scan(lambda c, x: (c * w + x, nn.functional.dropout(x * w, 0.5)), h, xs)


def test_step_loops_that_draw_numbers_are_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    given = inputs()
    torch.manual_seed(1)
    expected = by_steps(monkeypatch, drawn, given, False)
    torch._dynamo.reset()
    journal.reset()
    torch.manual_seed(1)
    assert_same(observed(torch.compile(drawn, backend="assay"), given, False), expected)
    counted: Any = journal.totals()
    assert counted["loops"] == 0 and len(counted["stepwise"]) == 1


def looked_up(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
    at = (ys[:, 0].abs() * 8).long()
    return scan(lambda c, row: (c * 0.5 + row[0], w[row[1][None]] * c), h, (xs, at))


def test_step_loops_raise_what_a_step_raises() -> None:
    given = inputs()
    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(looked_up, backend="assay")
    assert_same(observed(compiled, given, False), observed(looked_up, given, False), is_exact=False)
    given[2][3, 0] = 40
    with torch.no_grad(), pytest.raises(IndexError):
        compiled(*given)
    assert journal.totals()["loops"] == 1


def test_loops_whose_end_is_data_raise_what_a_step_raises() -> None:
    def f(at: Tensor, w: Tensor) -> Any:
        return while_loop(lambda i, c: i < 20, lambda i, c: (i + 1, c + w[i[None]].sum()), (at, w.sum()))

    torch._dynamo.reset()
    compiled = torch.compile(f, backend="assay")
    w = torch.rand(20)
    torch.testing.assert_close(compiled(torch.tensor(3), w), f(torch.tensor(3), w))
    with pytest.raises(IndexError):
        compiled(torch.tensor(-30), w)


def test_loops_whose_end_is_data_call_aten_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(h: Tensor, xs: Tensor, ys: Tensor, w: Tensor, a: Tensor) -> Any:
        return while_loop(lambda i, c: i < 4, lambda i, c: (i + 1, (c @ a).sin()), (torch.tensor(0), xs * 1))

    given = inputs()
    expected = by_steps(monkeypatch, f, given, False)
    torch._dynamo.reset()
    journal.reset()
    assert_same(observed(torch.compile(f, backend="assay"), given, False), expected)
    assert journal.totals()["stepwise"] == {"a step calls aten.mm.default": 1}


def gradients_of_gradients(f: Program, given: Sequence[Tensor]) -> list[Tensor | None]:
    args = [value.clone().requires_grad_() for value in given]
    first = torch.autograd.grad([each.sin().sum() for each in f(*args)], args, create_graph=True, allow_unused=True)
    torch.autograd.backward([each.square().sum() for each in first if each is not None])
    return [arg.grad for arg in args]


def test_step_loops_have_gradients_of_gradients() -> None:
    """Held to the same steps as Python runs them in eager, whose own operator has none."""

    def unrolled(h: Tensor, xs: Tensor, steps: Tensor, w: Tensor, a: Tensor) -> Any:
        state, rows = h[:, None] * w, []
        for x, delta in zip(xs, steps, strict=True):
            state = torch.exp(delta[:, None] * a) * state + (delta * x)[:, None] * w[None, :]
            rows.append((state * x[None, :]).sum(-1) + w * x)
        return state, torch.stack(rows)

    given = inputs(dtype=torch.float64)
    torch._dynamo.reset()
    compiled = torch.compile(state_space, backend="assay")
    torch.testing.assert_close(gradients_of_gradients(compiled, given), gradients_of_gradients(unrolled, given))


def test_step_loops_take_batches_of_gradients() -> None:
    torch._dynamo.reset()
    args = [value.requires_grad_() for value in inputs()]
    _, rows = torch.compile(state_space, backend="assay")(*args)
    tangents = torch.stack([torch.ones_like(rows), rows.detach()])
    found = torch.autograd.grad(rows, args, tangents, is_grads_batched=True)
    _, rows = torch.compile(state_space, backend="assay")(*args)
    for number, tangent in enumerate(tangents):
        expected = torch.autograd.grad(rows, args, tangent, retain_graph=True)
        torch.testing.assert_close([each[number] for each in found], list(expected))


def test_step_loops_notice_what_is_written_before_backward() -> None:
    torch._dynamo.reset()
    h, xs, ys, w, a = inputs()
    result = torch.compile(state_space, backend="assay")(h, xs, ys, w.requires_grad_(), a)[1]
    xs.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_step_loops_are_right_in_a_whole_backward() -> None:
    torch._dynamo.reset()
    given = inputs()
    expected = observed(state_space, given, True)
    compiled = torch.compile(state_space, backend="assay", options={"compiled_autograd": True})
    assert_same(observed(compiled, given, True), expected, is_exact=False)
    torch.compiler.reset()


def test_step_loops_are_right_in_a_whole_backward_of_torchs() -> None:
    torch._dynamo.reset()
    args, others = ([value.clone().requires_grad_() for value in given] for given in [inputs()] * 2)
    state_space(*others)[1].cos().sum().backward()
    loss = torch.compile(state_space, backend="assay")(*args)[1].cos().sum()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        loss.backward()
    torch.testing.assert_close([arg.grad for arg in args], [other.grad for other in others])


def test_step_loops_go_back_twice_where_the_graph_is_kept() -> None:
    torch._dynamo.reset()
    args = [value.requires_grad_() for value in inputs()]
    result = torch.compile(state_space, backend="assay")(*args)[1]
    once = torch.autograd.grad(result.sum(), args, retain_graph=True)
    assert_same(torch.autograd.grad(result.sum(), args), once)
    with pytest.raises(RuntimeError, match="second time"):
        result.sum().backward()


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.decay, self.scale = nn.Parameter(torch.rand(6)), nn.Parameter(torch.rand(6))

    def forward(self, xs: Tensor) -> Tensor:
        def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            new = c * self.decay + x * self.scale
            return new, new.tanh()

        return scan(step, torch.zeros(6), xs)[1]  # type: ignore[no-any-return]


def test_step_loops_train_a_module() -> None:
    torch._dynamo.reset()
    journal.reset()
    ours = Cell()
    theirs = copy.deepcopy(ours)
    compiled = torch.compile(ours, backend="assay")
    for model, called in ((ours, compiled), (theirs, theirs)):
        torch.manual_seed(3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            called(torch.randn(7, 6)).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(list(ours.parameters()), list(theirs.parameters()))
    assert journal.totals()["loops"] == 1


def test_step_loops_tell_constants_apart_by_their_signs() -> None:
    shape = Shape(1, 0)
    assert step_loops._kind(shape, 1, 0.0) != step_loops._kind(shape, 1, -0.0)
    assert step_loops._kind(shape, 1, 1) != step_loops._kind(shape, 1, True)
    assert step_loops._kind(shape, 1, float("nan")) == step_loops._kind(shape, 1, float("nan"))


def test_step_loops_of_one_body_are_told_apart_by_their_conditions() -> None:
    body = fx.symbolic_trace(lambda x: (x + 1,))
    conditions = [fx.symbolic_trace(lambda x: (x.sum() < 3,)), fx.symbolic_trace(lambda x: (x.sum() < 30,))]
    made: list[fx.GraphModule] = []

    def turns(condition: fx.GraphModule, *_: object) -> Any:
        made.append(condition)
        return condition

    loops = step_loops.StepLoops(LoopCompiler(steps=turns, turns=turns))
    found = [loops._turns(condition, body, 1, (torch.ones(2),)) for condition in (*conditions, *conditions)]
    assert len(made) == 2 and found[0] is found[2] and found[1] is found[3] and found[0] is not found[1]
