"""A stretch in pieces: hooks of leaves run as soon as their gradients are there, on gradients that are eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.compiler.autograd.whole.pieces import divided
from assay.compiler.entry.compiled_autograd import compiled_autograd
from assay.compiler.entry.dynamo import assay
from assay.compiler.ir.graph.roles import Program, Signature, UserInput, UserOutput

ATEN: dict[str, Any] = {"target": "aten"}


def program(function: Callable[..., tuple[Tensor, ...]], *args: Tensor) -> Program:
    module = torch.fx.experimental.proxy_tensor.make_fx(function, tracing_mode="fake")(*args)
    for node in module.graph.nodes:
        if node.op == "output":
            node.args = (list(node.args[0]),)
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    outputs = len(next(iter(reversed(module.graph.nodes))).args[0])
    return Program(module, Signature(tuple(map(UserInput, range(len(names)))), tuple(map(UserOutput, range(outputs)))))


def run(pieces: Any, known: dict[str, Tensor]) -> dict[int, list[Tensor]]:
    """What each group is given."""
    found: dict[int, list[Tensor]] = {}
    for piece in pieces:
        made = list(piece.program.module(*(known[name] for name in piece.takes)))
        kept = made[len(made) - len(piece.keeps) :]
        known.update(zip(piece.keeps, kept, strict=True))
        found.update((number, made[place : place + 1]) for place, number in enumerate(piece.groups))
    return found


def layers(g: Tensor, x: Tensor, v: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """The gradients of `(x @ w).tanh() @ v`."""
    hidden = x @ w
    before = (g @ v.t()) * (1 - hidden.tanh() ** 2)
    return x.t() @ before, hidden.tanh().t() @ g


def test_pieces_give_the_gradients_of_the_graph_in_its_order() -> None:
    args = tuple(torch.randn(4, 4) for _ in range(4))
    whole = program(layers, *args)
    names = [node.name for node in whole.placeholders]
    pieces = divided(whole, [(0,), (1,)], [set(), set()])
    assert pieces is not None and [piece.groups[0] for piece in pieces] == [0, 1]
    found = run(pieces, dict(zip(names, args, strict=True)))
    for number, expected in enumerate(layers(*args)):
        torch.testing.assert_close(found[number][0], expected)


def test_pieces_read_a_leaf_before_its_hooks() -> None:
    args = tuple(torch.randn(4, 4) for _ in range(4))

    def second_first(g: Tensor, x: Tensor, v: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        of_v = (x @ w).tanh().t() @ g
        return x.t() @ ((g @ v.t()) * (1 - (x @ w).tanh() ** 2)), of_v

    whole = program(second_first, *args)
    names = [node.name for node in whole.placeholders]
    pieces = divided(whole, [(0,), (1,)], [{names[3]}, {names[2]}])
    assert pieces is not None and pieces[0].groups == (1,)
    assert all(names[2] not in piece.takes for piece in pieces[1:])


def test_pieces_copy_a_gradient_that_later_pieces_read() -> None:
    def shared(g: Tensor) -> tuple[Tensor, ...]:
        first = g.sin()
        return first, first.cos()

    g = torch.randn(4)
    pieces = divided(program(shared, g), [(0,), (1,)], [set(), set()])
    assert pieces is not None
    known = {pieces[0].takes[0]: g}
    gradient, kept = pieces[0].program.module(g)
    assert gradient.data_ptr() != kept.data_ptr() and known


@pytest.mark.parametrize("is_tied", [False, True])
def test_whole_backward_calls_hooks_of_leaves_in_eagers_order(is_tied: bool) -> None:
    """Each parameter is written by its hook, and most gradients are gone when a hook is called."""

    def train(wrap: Callable[[nn.Module], Any]) -> list[Any]:
        torch.manual_seed(0)
        module = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)))
        if is_tied:
            module[3].weight = module[0].weight
        log: list[Any] = []

        def step(parameter: Tensor) -> None:
            others = sum(each.grad is not None for each in module.parameters())
            log.append((tuple(parameter.shape), others, parameter.grad.clone()))  # type: ignore[union-attr]
            if not is_tied:
                parameter.data.sub_(parameter.grad, alpha=0.1)  # type: ignore[arg-type]
            parameter.grad = None

        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(step)
        compiled = wrap(module)
        for _ in range(3):
            compiled(torch.ones(2, 4)).sin().sum().backward()
        return log

    expected = train(lambda module: module)
    with compiled_autograd(ATEN):
        found = train(lambda module: torch.compile(module, backend=assay, options=ATEN))
    torch._dynamo.reset()
    assert [each[:2] for each in found] == [each[:2] for each in expected]
    for ours, eagers in zip(found, expected, strict=True):
        torch.testing.assert_close(ours[2], eagers[2], rtol=1e-4, atol=1e-5)
