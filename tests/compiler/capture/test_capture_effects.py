"""Capture against its mirror: what the signature says of writes and aliases is what running the call shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.compiler.assembly.compilers import Compilers
from assay.compiler.autograd.joint import differentiate
from assay.compiler.capture.decompositions.table import DECOMPOSITIONS
from assay.compiler.capture.functionalize import capture
from assay.compiler.capture.inputs import Call, fake_leaf
from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.roles import (
    Base,
    Constant,
    Gradient,
    Input,
    Mutation,
    Program,
    Result,
    Same,
    Tangent,
    UserInput,
    UserOutput,
    View,
)
from assay.compiler.journal import Journal
from assay.compiler.options import Options
from assay.compiler.passes import PASSES, Pass
from assay.compiler.pipeline import compile
from assay.reference.eager import eager
from assay.reference.effects import effects
from assay.reference.evaluate import evaluate

Function = Callable[..., list[Any]]


def writes_and_returns(x: Tensor, y: Tensor) -> list[Any]:
    x.add_(y)
    return [x, x * 2]


def writes_through_views(x: Tensor, y: Tensor) -> list[Any]:
    x[0].mul_(2)
    x.t()[1].zero_()
    return [y + x]


def early_view_of_a_written_input(x: Tensor, y: Tensor) -> list[Any]:
    v = x.view(-1)
    x.mul_(y)
    return [v, v[2:]]


def views_of_inputs(x: Tensor, y: Tensor) -> list[Any]:
    return [x.t(), y[1:], y.view(-1)[3:5], x.detach(), x]


def views_of_an_intermediate(x: Tensor, y: Tensor) -> list[Any]:
    z = x * y
    return [z.view(-1), z.t(), z[0]]


def views_of_a_result(x: Tensor, y: Tensor) -> list[Any]:
    z = x.exp()
    return [z[0], z, z, z.unsqueeze(0), y * 1]


def pieces(x: Tensor, y: Tensor) -> list[Any]:
    return [*(x + y).unbind(0), *x.split(1)]


def hidden_writes(x: Tensor, y: Tensor) -> list[Any]:
    with torch.no_grad():
        x.add_(1)
    return [x * y, None, 7, "name"]


def softmax_of_a_product(x: Tensor, y: Tensor) -> list[Any]:
    z = x @ y.t()
    return [torch.softmax(z, -1), torch.nn.functional.gelu(z).sum(0), (z > 0).any()]


def repeated_work(x: Tensor, y: Tensor) -> list[Any]:
    return [x.exp() + x.exp(), (x * 2).sin() * (x * 2).cos(), x.expand(3, 4) * y.view(3, 4)]


FUNCTIONS: list[Function] = [
    writes_and_returns,
    writes_through_views,
    early_view_of_a_written_input,
    views_of_inputs,
    views_of_an_intermediate,
    views_of_a_result,
    pieces,
    hidden_writes,
    softmax_of_a_product,
    repeated_work,
]
each_function = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
each_grad = pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])


def leaves(grad: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(3, 4, generator=generator, requires_grad=grad) for _ in range(2)]


def inputs(grad: bool) -> list[Tensor]:
    """Two inputs that are no leaves, so that a program may write them under autograd."""
    return [value + 0 for value in leaves(grad)] if grad else leaves(grad)


def call_of(function: Function, values: list[Tensor]) -> Call:
    mode = FakeTensorMode()
    leaves = tuple(fake_leaf(UserInput(index), value, mode) for index, value in enumerate(values))
    return Call(lambda args: function(*args), leaves, mode)


def relation(result: Result, results: tuple[Result, ...]) -> tuple[Any, ...]:
    """What the mirror calls the way in which a result is made."""
    match result:
        case Constant(value):
            return ("value", value)
        case Same(index):
            return ("result", index)
        case Input(of):
            return ("input", of.index)
        case View(of=UserInput(index)):
            return ("input view", index)
        case View(of=UserOutput(index)):
            return ("result view", index)
        case View(of=Base()):
            return ("base view", result.of)
    return ("new",)


@each_grad
@each_function
def test_capture_says_what_running_shows(function: Function, grad: bool) -> None:
    seen = effects(function, inputs(grad))
    signature = capture(call_of(function, inputs(grad)), DECOMPOSITIONS).signature
    assert {r.of.index for r in signature.outputs if isinstance(r, Mutation)} == seen.data
    assert not seen.metadata
    bases = list(dict.fromkeys(r.of for r in signature.results if isinstance(r, View) and isinstance(r.of, Base)))
    said = [relation(result, signature.results) for result in signature.results]
    assert [(n, bases.index(r[0])) if n == "base view" else (n, *r) for n, *r in said] == list(seen.results)


@each_grad
@each_function
def test_compiled_call_does_what_eager_does(function: Function, grad: bool) -> None:
    roots = leaves(grad), leaves(grad)
    ours, theirs = ([value + 0 for value in root] for root in roots)
    compilers = Compilers(*[lambda program: lambda args: program.module(*args)] * 3)  # type: ignore[arg-type]
    compiled = compile(call_of(function, inputs(grad)), compilers, Journal.open(Options.of({"target": "aten"}, None)))
    for _ in range(2):
        got, want = list(compiled(list(ours))), eager(function, *theirs)
        for a, b in zip([*got, *ours], [*want, *theirs], strict=True):
            if not isinstance(b, Tensor):
                assert a == b
                continue
            torch.testing.assert_close(a, b, rtol=0, atol=0)
            facts = [(t.stride(), t.requires_grad, t.is_leaf, t._is_view(), t._version) for t in (a, b)]
            assert facts[0] == facts[1]
        if grad:
            assert_gradients_equal((got, want), roots)
            ours, theirs = ([value + 0 for value in root] for root in roots)


def assert_gradients_equal(results: tuple[list[Any], list[Any]], roots: tuple[list[Tensor], list[Tensor]]) -> None:
    flowing = [[r for r in found if isinstance(r, Tensor) and r.requires_grad] for found in results]
    for a, b in zip(_grads(flowing[0], roots[0]), _grads(flowing[1], roots[1]), strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            torch.testing.assert_close(a, b)


def _grads(results: list[Tensor], inputs: list[Tensor]) -> tuple[Tensor | None, ...]:
    total = torch.stack([(r * torch.arange(1.0, r.numel() + 1).view_as(r)).sum() for r in results]).sum()
    return torch.autograd.grad(total, inputs, allow_unused=True)


@pytest.mark.parametrize("step", PASSES, ids=lambda step: step.name)
@each_function
def test_exact_pass_keeps_every_bit(function: Function, step: Pass) -> None:
    """Every pass of the list, alone, on joint graphs: the reference evaluates the graph before and after."""
    joint = joint_of(function)
    if joint is None:
        return
    generator = torch.Generator().manual_seed(2)
    given = [torch.randn(node.meta["val"].shape, generator=generator) for node in joint.placeholders]
    before = evaluate(joint.module, [value.clone() for value in given])
    step.run(joint)
    joint.module.graph.lint()
    joint.module.recompile()
    after = evaluate(joint.module, given)
    assert step.kind == "exact", "a rounding pass needs a bound here"
    for a, b in zip(after, before, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def joint_of(function: Function) -> Program | None:
    try:
        captured = capture(call_of(function, inputs(True)), DECOMPOSITIONS)
        return differentiate(captured) if captured.needs_gradient else None
    except Unsupported:
        return None


def test_passes_do_something_on_some_graph() -> None:
    changed = {step.name: 0 for step in PASSES}
    for function in FUNCTIONS:
        joint = joint_of(function)
        for step in PASSES if joint is not None else ():
            changed[step.name] += step.run(joint)  # type: ignore[arg-type]
    assert all(changed[name] for name in ("remove_no_ops", "eliminate_common_subexpressions")), changed


def test_joint_signature_has_a_tangent_a_differentiable_output_and_gradients_of_leaves() -> None:
    joint = joint_of(softmax_of_a_product)
    assert joint is not None
    tangents = [role.of for role in joint.signature.inputs if isinstance(role, Tangent)]
    assert set(tangents) == joint.signature.differentiable == {UserOutput(0), UserOutput(1)}
    assert [r.of for r in joint.signature.outputs if isinstance(r, Gradient)] == [UserInput(0), UserInput(1)]
