"""What a user does with gradients: accumulates, zeroes, scales and clips them, freezes what gets none, watches and
replaces them in hooks, and hands over tangents of any layout.
"""

from __future__ import annotations

import copy
import functools
import io
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.harness.case import Made
from assay.suites.semantics.program import inner, leaf, numbers, program

TRAIN = ("train",)

accumulated = "accumulated-gradients"


def _product(x: Tensor, w: Tensor) -> Tensor:
    return (x * w).exp() * w


def _layers() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


def _kept(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """What the tensors are now: they may be written afterwards."""
    return [None if tensor is None else tensor.detach().clone() for tensor in tensors]


def _grads(module: Any) -> list[Tensor | None]:
    return _kept([parameter.grad for parameter in module.parameters()])


def _into_given(f: Callable[..., Any], x: Tensor, w: Tensor, given: Tensor) -> Any:
    w.grad = given
    f(x, w).sum().backward()
    return w.grad is given, w.grad, given


@program(accumulated, modes=TRAIN, scenario=_into_given)
def gradient_is_added_into_one_that_is_there() -> Made:
    return _product, (numbers(3, 4), leaf(3, 4), numbers(3, 4)), {}


def _beside_its_offset(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    tangent = torch.tensor([2.0, 3.0])
    f(x, w).backward(tangent)
    assert x.grad is not None
    x.grad.mul_(5)
    return x.grad, w.grad, tangent


@program(accumulated, modes=TRAIN, scenario=_beside_its_offset)
def gradient_that_two_receive_is_no_view_of_the_tangent() -> Made:
    """Eager copies a part of the tangent that a leaf and another node receive."""
    return lambda x, w: torch.stack([w.sum(), x + w.sum()]), (leaf(), leaf(3)), {}


@program(accumulated, modes=TRAIN)
def gradient_of_which_another_leaf_receives_a_part() -> Made:
    """Eager copies the one, of which the other is a view: as of two embeddings added to a batch of one."""
    return lambda x, w, b: (torch.cat((w, x)) + b) * 2, (torch.randn(3, 4), leaf(1, 4), leaf(4, 4)), {}


@program(accumulated, modes=TRAIN, scenario=_beside_its_offset)
def gradient_that_one_receives_is_a_view_of_the_tangent() -> Made:
    """Eager takes over a part of the tangent that only a leaf receives: a write of it writes the tangent."""
    return lambda x, w: torch.stack([w.sum(), x - w.sum()]), (leaf(), leaf(3)), {}


def _offsets_of_gradients(f: Callable[..., Any], *leaves: Tensor) -> Any:
    f(*leaves).backward(torch.arange(6.0) + 1)
    return [leaf.grad for leaf in leaves]


def _behind_a_break(join: Callable[[Tensor, Tensor], Tensor], first: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """The gradient of what `join` makes is the second half of another graph's tangent."""
    hidden = join(x, w)
    torch._dynamo.graph_break()
    return torch.cat([first, hidden])


def _handed_on(join: Callable[[Tensor, Tensor], Tensor]) -> Made:
    return functools.partial(_behind_a_break, join), (leaf(3), leaf(3), leaf(3)), {}


@program(accumulated, modes=TRAIN, scenario=_offsets_of_gradients)
def tangent_of_part_of_a_result_is_copied_for_the_first_of_two() -> Made:
    """Two leaves receive the tangent itself: eager copies it for the first, and the last takes it over."""
    return _handed_on(torch.add)


@program(accumulated, modes=TRAIN, scenario=_offsets_of_gradients)
def tangent_that_another_node_receives_is_copied() -> Made:
    """A leaf receives the tangent itself, and another node needs it after that."""
    return _handed_on(lambda x, w: x + w.exp())


def _with_a_hook(f: Callable[..., Tensor], x: Tensor) -> Any:
    calls: list[str] = []
    x.register_hook(lambda gradient: calls.append("hook"))
    x.register_post_accumulate_grad_hook(lambda leaf: calls.append("after accumulation"))
    f(x).sum().backward()
    return calls, x.grad


@program(accumulated, modes=TRAIN, scenario=_with_a_hook)
def view_without_gradients_that_all_follows_from() -> Made:
    """It requires grad, as its leaf does, and has no history: no gradient and no hook comes to the leaf."""

    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            part = x[1]
        return part + 1

    return f, (leaf(3),), {}


@program(accumulated, modes=TRAIN)
def tangent_that_two_nodes_would_receive_is_not_given() -> Made:
    def f(first: Tensor, x: Tensor, w: Tensor) -> Tensor:
        unused, other = x + w.exp(), w.sin()
        torch._dynamo.graph_break()
        return torch.cat([first, other + unused.detach()])

    return f, (leaf(3), leaf(3), leaf(3)), {}


def _beside_one_without(other: Callable[[Tensor, Tensor], Tensor]) -> Made:
    def f(first: Tensor, x: Tensor, w: Tensor) -> Tensor:
        hidden, unused = x + w.exp(), other(x, w)
        torch._dynamo.graph_break()
        return torch.cat([first, hidden + unused.detach()])

    return f, (leaf(3), leaf(3), leaf(3)), {}


@program(accumulated, modes=TRAIN, scenario=_offsets_of_gradients)
def tangent_that_another_node_receives_is_copied_beside_a_result_without_a_gradient() -> Made:
    return _beside_one_without(lambda x, w: w.sin())


@program(accumulated, modes=TRAIN, scenario=_offsets_of_gradients)
def tangent_that_another_node_receives_is_copied_where_nothing_is_added_to_it() -> Made:
    """It would be a sum if a gradient flowed back to the other result of that graph."""
    return _beside_one_without(lambda x, w: x * w)


@program(accumulated, modes=TRAIN, scenario=_offsets_of_gradients)
def tangent_that_one_leaf_receives_is_taken_over() -> Made:
    return _handed_on(lambda x, w: x + w.detach())


@program(accumulated, modes=TRAIN, scenario=_into_given)
def gradient_is_added_into_one_of_other_strides() -> Made:
    return _product, (numbers(3, 4), leaf(3, 4), numbers(4, 3).t()), {}


def _into_given_with_graph(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    given = w.grad = torch.ones_like(w)
    f(x, w).sum().backward(create_graph=True)
    assert w.grad is not None
    found, w.grad = w.grad, None
    return found is given, found.requires_grad, found.detach()


@program(accumulated, modes=TRAIN, scenario=_into_given_with_graph)
def gradient_with_a_graph_is_added_to_one_that_is_there() -> Made:
    return _product, (numbers(3, 4), leaf(3, 4)), {}


def _with_respect_to_the_second(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    f(x, w).sum().backward(inputs=[w])
    return _kept([x.grad, w.grad])


@program(accumulated, modes=TRAIN, scenario=_with_respect_to_the_second)
def backward_to_one_of_two_inputs() -> Made:
    return _product, (leaf(3), leaf(3)), {}


def _with_respect_to_a_result(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    hidden = f(x, w)
    hidden.retain_grad()
    f(hidden, w).sum().backward(inputs=[hidden])
    return _kept([hidden.grad, x.grad, w.grad])


@program(accumulated, modes=TRAIN, scenario=_with_respect_to_a_result)
def backward_to_a_result_of_an_earlier_call() -> Made:
    return _product, (leaf(3), leaf(3)), {}


def _freed_in_turn(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    first, second = f(x, w)
    first.sum().backward()
    second.sum().backward()
    return _kept([x.grad, w.grad])


@program(accumulated, modes=TRAIN, scenario=_freed_in_turn)
def results_that_have_nothing_in_common_freed_in_turn() -> Made:
    return lambda x, w: (x.sin(), w.cos()), (leaf(3), leaf(3)), {}


@program(accumulated, "raises", modes=TRAIN, scenario=_freed_in_turn)
def result_whose_graph_another_one_has_freed_is_an_error() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = x.sin() * w
        return y.exp(), y.cos()

    return f, (leaf(3), leaf(3)), {}


def _zeroed_between(to_none: bool) -> Callable[..., Any]:
    def scenario(f: Any, x: Tensor) -> Any:
        found = []
        for step in range(3):
            f.zero_grad(set_to_none=to_none)
            found.append(_grads(f))
            f(x * (step + 1)).sum().backward()
            found.append(_grads(f))
        return found

    return scenario


@program(accumulated, modes=TRAIN, scenario=_zeroed_between(to_none=True))
def gradients_set_to_none_between_steps() -> Made:
    return _layers(), (numbers(3, 4),), {}


@program(accumulated, modes=TRAIN, scenario=_zeroed_between(to_none=False))
def gradients_set_to_zero_between_steps() -> Made:
    return _layers(), (numbers(3, 4),), {}


def _trained(f: Any, x: Tensor) -> Any:
    optimizer = torch.optim.SGD(f.parameters(), lr=0.125, momentum=0.5)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = f(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, _kept(list(f.parameters()))


@program(accumulated, modes=TRAIN, scenario=_trained)
def steps_of_an_optimizer_between_calls() -> Made:
    return _layers(), (numbers(3, 4),), {}


def _twice_in_one_graph(f: Any, x: Tensor) -> Any:
    f(f(x) * f(x)).sum().backward()
    return _grads(f), x.grad


@program(accumulated, modes=TRAIN, scenario=_twice_in_one_graph)
def one_module_used_thrice_in_one_graph() -> Made:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh()), (leaf(3, 4),), {}


frozen = "frozen"


def _frozen_between(*numbers_of_frozen: Sequence[int]) -> Callable[..., Any]:
    """Calls and backwards, before each of which exactly these parameters are frozen."""

    def scenario(f: Any, x: Tensor) -> Any:
        found: list[Any] = []
        for chosen in numbers_of_frozen:
            f.zero_grad()
            for index, parameter in enumerate(f.parameters()):
                parameter.requires_grad_(index not in chosen)
            y = f(x)
            if y.requires_grad:
                y.sum().backward()
            found.append((y.requires_grad, y.detach(), _grads(f)))
        return found

    return scenario


@program(frozen, modes=TRAIN, scenario=_frozen_between((), (0,), ()))
def parameter_frozen_and_unfrozen_between_calls() -> Made:
    return _layers(), (numbers(3, 4),), {}


@program(frozen, modes=TRAIN, scenario=_frozen_between((0, 1, 2, 3), (0, 1), ()))
def layers_unfrozen_one_by_one() -> Made:
    return _layers(), (numbers(3, 4),), {}


def _input_flag_changed(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    found: list[Any] = []
    for needs in (False, True, False):
        given = x.detach().clone().requires_grad_(needs)
        y = f(given, w)
        y.sum().backward()
        found.append((given.grad, _kept([w.grad])))
        w.grad = None
    return found


@program(frozen, modes=TRAIN, scenario=_input_flag_changed)
def input_that_requires_grad_in_every_second_call() -> Made:
    return _product, (numbers(3), leaf(3)), {}


def _frozen_before_backward(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    y = f(x, w)
    w.requires_grad_(False)
    y.sum().backward()
    w.requires_grad_(True)
    return _kept([x.grad, w.grad])


@program(frozen, modes=TRAIN, scenario=_frozen_before_backward)
def input_frozen_between_call_and_backward() -> Made:
    return _product, (leaf(3), leaf(3)), {}


scaled = "scaled-gradients"


def _scaled(f: Any, x: Tensor) -> Any:
    optimizer = torch.optim.SGD(f.parameters(), lr=0.125)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
    found = []
    for factor in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale(f(x).square().mean() * factor).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        found.append((scaler.get_scale(), _kept(list(f.parameters()))))
    return found


@program(scaled, modes=TRAIN, scenario=_scaled)
def gradients_scaled_and_steps_with_infinities_left_out() -> Made:
    return _layers(), (numbers(3, 4),), {}


def _clipped_by_norm(f: Any, x: Tensor) -> Any:
    f(x).square().sum().backward()
    norm = torch.nn.utils.clip_grad_norm_(f.parameters(), 0.5)
    return norm, _grads(f)


@program(scaled, modes=TRAIN, scenario=_clipped_by_norm)
def gradients_clipped_by_their_norm() -> Made:
    return _layers(), (numbers(3, 4),), {}


def _clipped_by_value(f: Any, x: Tensor) -> Any:
    f(x).square().sum().backward()
    torch.nn.utils.clip_grad_value_(f.parameters(), 0.25)
    return _grads(f)


@program(scaled, modes=TRAIN, scenario=_clipped_by_value)
def gradients_clipped_by_value() -> Made:
    return _layers(), (numbers(3, 4),), {}


hooks = "hooks-of-the-user"


def _hooks_on_a_leaf(f: Callable[..., Any], w: Tensor) -> Any:
    log: list[Any] = []
    handles = [
        w.register_post_accumulate_grad_hook(lambda leaf: log.append(("accumulated", _kept([leaf.grad])))),
        w.register_hook(lambda gradient: log.append(("first", gradient.clone()))),
        w.register_hook(lambda gradient: gradient * 2),
        w.register_hook(lambda gradient: log.append(("third", gradient.clone()))),
    ]
    f(w).sum().backward()
    for handle in handles:
        handle.remove()
    f(w).sum().backward()
    return log, w.grad


@program(hooks, modes=TRAIN, scenario=_hooks_on_a_leaf)
def hooks_of_every_kind_on_a_leaf() -> Made:
    return lambda w: w.sin() * w, (leaf(3),), {}


def _hooks_on_a_result(f: Callable[..., Any], w: Tensor) -> Any:
    log: list[Any] = []
    y = f(w)
    y.retain_grad()
    y.register_hook(lambda gradient: log.append(("first", gradient.clone())))
    y.register_hook(lambda gradient: gradient * 2)
    removed = y.register_hook(lambda gradient: gradient * 100)
    y.register_hook(lambda gradient: log.append(("third", gradient.clone())))
    removed.remove()
    y.exp().sum().backward()
    return log, y.grad, w.grad


@program(hooks, modes=TRAIN, scenario=_hooks_on_a_result)
def hooks_that_replace_the_gradient_of_a_result_in_turn() -> Made:
    """What is retained is what the last hook leaves."""
    return lambda w: w.sin() * w, (leaf(3),), {}


def _hook_gives_infinity(f: Callable[..., Any], w: Tensor) -> Any:
    y, z = f(w)
    y.register_hook(torch.zeros_like)
    z.register_hook(lambda gradient: gradient.new_full((), float("inf")).expand_as(gradient))
    (y * 3 + z).sum().backward()
    return w.grad


@program(hooks, modes=TRAIN, scenario=_hook_gives_infinity)
def hooks_that_replace_gradients_with_zeros_and_an_expanded_infinity() -> Made:
    return lambda w: (w.sin(), w * 2), (leaf(3),), {}


def _hook_writes(f: Callable[..., Any], w: Tensor) -> Any:
    y = f(w)
    y.register_hook(lambda gradient: gradient.mul_(2))
    (y * 3).backward(torch.ones_like(y))
    return w.grad


@program(hooks, modes=TRAIN, scenario=_hook_writes)
def hook_that_writes_the_gradient_in_place() -> Made:
    return lambda w: w.sin() * w, (leaf(3),), {}


def _hook_changes_shape(f: Callable[..., Any], w: Tensor) -> Any:
    y = f(w)
    y.register_hook(lambda gradient: gradient[:1])
    y.sum().backward()
    return w.grad


@program(hooks, "raises", modes=TRAIN, scenario=_hook_changes_shape)
def hook_that_gives_another_shape_is_an_error() -> Made:
    return lambda w: w.sin() * w, (leaf(3),), {}


def _hooks_of_the_node(f: Callable[..., Any], w: Tensor) -> Any:
    log: list[Any] = []
    y = f(w)
    node = y.grad_fn
    assert node is not None
    node.register_prehook(lambda given: log.append(("before", _kept(given))))
    node.register_prehook(lambda given: tuple(None if one is None else one * 2 for one in given))
    node.register_hook(lambda made, given: log.append(("after", _kept(made), _kept(given))))
    node.register_hook(lambda made, given: tuple(None if one is None else one * 3 for one in made))
    y.register_hook(lambda gradient: log.append(("tensor", gradient.clone())))
    y.exp().sum().backward()
    return log, w.grad


@program(hooks, modes=TRAIN, scenario=_hooks_of_the_node)
def hooks_before_and_after_the_node_of_a_result() -> Made:
    """A program of one operation, which is one node in eager too."""
    return lambda w: w.sin(), (leaf(3),), {}


@program(hooks, modes=TRAIN, scenario=_hooks_of_the_node)
def hooks_before_and_after_the_node_of_a_result_of_an_inner_input() -> Made:
    return lambda w: w * 2, (inner(3),), {}


def _hooks_of_the_accumulation(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    log: list[Any] = []
    nodes = [torch.autograd.graph.get_gradient_edge(each).node for each in (x, w)]
    handles = []
    for name, node in zip("xw", nodes, strict=True):
        note = [lambda *given, name=name, when=when: log.append(f"{when} {name}") for when in ("before", "after")]
        handles += [node.register_prehook(note[0]), node.register_hook(note[1])]
    f(x, w).sum().backward()
    for handle in handles:
        handle.remove()
    return sorted(log), x.grad, w.grad


@program(hooks, modes=TRAIN, scenario=_hooks_of_the_accumulation)
def hooks_around_the_accumulation_of_gradients() -> Made:
    return _product, (leaf(3), leaf(3)), {}


def _steps_in_hooks(f: Any, x: Tensor) -> Any:
    """Each parameter makes its step, and frees its gradient, as soon as that is there."""

    def step(parameter: Tensor) -> None:
        with torch.no_grad():
            parameter.sub_(parameter.grad, alpha=0.125)  # type: ignore[arg-type]
        parameter.grad = None

    handles = [parameter.register_post_accumulate_grad_hook(step) for parameter in f.parameters()]
    for _ in range(2):
        f(x).square().sum().backward()
    for handle in handles:
        handle.remove()
    return _kept(list(f.parameters())), _grads(f)


@program(hooks, modes=TRAIN, scenario=_steps_in_hooks)
def optimizer_that_steps_during_backward() -> Made:
    return _layers(), (numbers(3, 4),), {}


def _order_of_arrival(f: Any, x: Tensor) -> Any:
    log: list[str] = []
    handles = [
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: log.append(name.rpartition("_orig_mod.")[2]))
        for name, parameter in f.named_parameters()
    ]
    f(x).sum().backward()
    for handle in handles:
        handle.remove()
    return [name.removeprefix("orig_module.") for name in log]


@program(hooks, modes=TRAIN, scenario=_order_of_arrival)
def order_in_which_gradients_of_parameters_arrive() -> Made:
    return _layers(), (numbers(3, 4),), {}


def _arrivals_together(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    log: list[Any] = []
    y, z = f(x, w)
    torch.autograd.graph.register_multi_grad_hook((y, z), lambda given: log.append(_kept(given)))
    torch.autograd.graph.register_multi_grad_hook((x, w), lambda given: log.append(_kept(given)), mode="all")
    (y * 2).sum().backward(retain_graph=True)
    (y * 2 + z).sum().backward()
    return log, x.grad, w.grad


@program(hooks, modes=TRAIN, scenario=_arrivals_together)
def hook_on_several_gradients_at_once() -> Made:
    return lambda x, w: (x.sin() * w, w.cos()), (leaf(3), leaf(3)), {}


def _retained_inside(f: Callable[..., Any], w: Tensor) -> Any:
    y, z = f(w)
    z.sum().backward()
    return y.grad, w.grad


@program(hooks, modes=TRAIN, scenario=_retained_inside)
def gradient_retained_inside_by_an_intermediate_that_is_returned() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w.sin()
        y.retain_grad()
        return y, y * 3

    return f, (leaf(3),), {}


def _of_results(f: Callable[..., Any], w: Tensor) -> Any:
    log: list[Tensor] = []
    y, z = f(w)
    y.retain_grad()
    y.register_hook(lambda gradient: log.append(gradient.clone()))
    (y.sum() + z.sum()).backward()
    return log, y.grad, w.grad


@program(hooks, modes=TRAIN, scenario=_of_results)
def hook_on_a_result_that_another_result_follows_from() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w.exp()
        return y, y * y

    return f, (leaf(3),), {}


@program(hooks, modes=TRAIN, scenario=_of_results)
def hook_on_one_of_two_results_that_have_nothing_in_common() -> Made:
    return lambda w: (w.exp(), w.sin()), (leaf(3),), {}


def _of_the_other_result(f: Callable[..., Any], w: Tensor) -> Any:
    log: list[Tensor] = []
    y, z = f(w)
    y.register_hook(lambda gradient: log.append(gradient.clone()))
    z.sum().backward()
    return log, w.grad


@program(hooks, modes=TRAIN, scenario=_of_the_other_result)
def hook_on_a_result_through_which_nothing_flows() -> Made:
    return lambda w: (w.exp(), w.sin()), (leaf(3),), {}


def _of_a_leaf_of_the_other_result(f: Callable[..., Any], w: Tensor, x: Tensor) -> Any:
    log: list[Tensor] = []
    w.register_hook(lambda gradient: log.append(gradient.clone()))
    _, z = f(w, x)
    z.sum().backward()
    return log, w.grad, x.grad


@program(hooks, modes=TRAIN, scenario=_of_a_leaf_of_the_other_result)
def hook_on_a_leaf_to_which_nothing_flows() -> Made:
    return lambda w, x: (w.exp(), x.sin()), (leaf(3), leaf(3)), {}


def _of_a_leaf_behind_the_other_result(f: Callable[..., Any], w: Tensor, x: Tensor) -> Any:
    log: list[Any] = []
    w.register_hook(lambda gradient: log.append(gradient.clone()))
    w.register_post_accumulate_grad_hook(lambda leaf: log.append("accumulated"))
    x.register_post_accumulate_grad_hook(lambda leaf: log.append("accumulated too"))
    _, z = f(w * 2, x)
    z.sum().backward(retain_graph=True)
    first = list(log)
    y, z = f(w * 2, x)
    (y + z).sum().backward()
    return first, log, w.grad, x.grad


@program(hooks, modes=TRAIN, scenario=_of_a_leaf_behind_the_other_result)
def hooks_of_a_leaf_behind_an_input_to_which_nothing_flows() -> Made:
    """The next backward reaches it, and finds the hooks as they were."""
    return lambda w, x: (w.exp(), x.sin()), (leaf(3), leaf(3)), {}


def _reached_by_another_way(f: Callable[..., Any], w: Tensor, x: Tensor) -> Any:
    log: list[Any] = []
    w.register_hook(lambda gradient: gradient * 3)
    w.register_post_accumulate_grad_hook(lambda leaf: log.append("accumulated"))
    _, z = f(w, x)
    (z.sum() + w.sum()).backward()
    return log, w.grad, x.grad


@program(hooks, modes=TRAIN, scenario=_reached_by_another_way)
def hooks_of_a_leaf_that_is_reached_by_another_way() -> Made:
    return lambda w, x: (w.exp(), x.sin()), (leaf(3), leaf(3)), {}


def _of_a_backward_that_fails(f: Callable[..., Any], w: Tensor, x: Tensor) -> Any:
    log: list[str] = []
    w.register_hook(lambda gradient: log.append("reached"))
    w.register_post_accumulate_grad_hook(lambda leaf: log.append("accumulated"))
    failing = x.register_hook(lambda gradient: 1 / 0)
    _, z = f(w, x)
    try:
        z.sum().backward()
    except ZeroDivisionError:
        log.append("failed")
    failing.remove()
    for results in (lambda y, z: z, lambda y, z: y + z, lambda y, z: z):
        results(*f(w, x)).sum().backward()
    return log, w.grad, x.grad


@program(hooks, modes=TRAIN, scenario=_of_a_backward_that_fails)
def hooks_of_a_leaf_that_a_failing_backward_does_not_reach() -> Made:
    return lambda w, x: (w.exp(), x.sin()), (leaf(3), leaf(3)), {}


def _hooks_that_go(f: Callable[..., Any], w: Tensor, x: Tensor) -> Any:
    """One takes itself away while backward runs, and another before it."""
    log: list[str] = []
    handles = [w.register_hook(lambda gradient: log.append("never")), x.register_hook(lambda gradient: take_away())]

    def take_away() -> None:
        log.append("once")
        for handle in handles:
            handle.remove()

    for _ in range(2):
        _, z = f(w, x)
        z.sum().backward()
    return log, w.grad, x.grad, len(w._backward_hooks or ()), len(x._backward_hooks or ())


@program(hooks, modes=TRAIN, scenario=_hooks_that_go)
def hooks_taken_away_while_a_backward_spares_them() -> Made:
    return lambda w, x: (w.exp(), x.sin()), (leaf(3), leaf(3)), {}


def _before(log: list[Any], name: str) -> Callable[..., None]:
    """A hook that notes the gradients of a layer's results."""

    def hook(module: nn.Module, given: Any) -> None:
        log.append(("before", name, _kept(given)))

    return hook


def _after(log: list[Any], name: str, factor: float) -> Callable[..., Any]:
    """A hook that notes the gradients of a layer's inputs and results, and multiplies the former."""

    def hook(module: nn.Module, made: Any, given: Any) -> Any:
        log.append(("after", name, _kept(made), _kept(given)))
        return None if factor == 1.0 else tuple(one * factor for one in made)

    return hook


def _hook_of_the_whole(f: Any, x: Tensor) -> Any:
    log: list[Any] = []

    def hook(module: nn.Module, made: Any, given: Any) -> Any:
        log.append((_kept(made), _kept(given)))
        return tuple(one * 2 for one in made)

    handle = f.register_full_backward_hook(hook)
    f(x).exp().sum().backward()
    handle.remove()
    return log, _grads(f), x.grad


@program(hooks, modes=TRAIN, scenario=_hook_of_the_whole)
def full_backward_hook_on_the_compiled_module() -> Made:
    return _layers(), (leaf(3, 4),), {}


def _hooks_of_the_layers(factor: float) -> Callable[..., Any]:
    def scenario(f: Any, x: Tensor) -> Any:
        log: list[Any] = []
        layers = [module for module in f.modules() if isinstance(module, nn.Linear)]
        handles: list[Any] = []
        for name, layer in zip(("first", "second"), layers, strict=True):
            handles.append(layer.register_full_backward_pre_hook(_before(log, name)))
            handles.append(layer.register_full_backward_hook(_after(log, name, factor)))
        f(x).exp().sum().backward()
        for handle in handles:
            handle.remove()
        return log, _grads(f), x.grad

    return scenario


@program(hooks, modes=TRAIN, scenario=_hooks_of_the_layers(1.0))
def full_backward_hooks_on_the_layers_of_a_module() -> Made:
    return _layers(), (leaf(3, 4),), {}


@program(hooks, modes=TRAIN, scenario=_hooks_of_the_layers(2.0))
def full_backward_hooks_that_replace_gradients() -> Made:
    return _layers(), (leaf(3, 4),), {}


class _Refused(Exception):
    """What a hook raises."""


def _refuse(*_: Any) -> None:
    raise _Refused


def _raises(backward: Callable[[], Any]) -> str:
    try:
        backward()
    except Exception as error:
        return type(error).__name__
    return "nothing"


def _hook_raises(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    """Of a result, of the node, of a leaf; each backward is then run again without the hook."""
    found: list[Any] = []
    for place in range(3):
        y = f(x, w)
        assert y.grad_fn is not None
        handle = (y.register_hook, y.grad_fn.register_prehook, w.register_hook)[place](_refuse)
        loss = y.exp().sum()
        found.append(_raises(lambda loss=loss: loss.backward(retain_graph=True)))  # type: ignore[misc]
        handle.remove()
        x.grad = w.grad = None
        loss.backward()
        found.append(_kept([x.grad, w.grad]))
        x.grad = w.grad = None
    return found


@program(hooks, modes=TRAIN, scenario=_hook_raises)
def exception_in_a_hook_and_backward_again_without_it() -> Made:
    return _product, (leaf(3), leaf(3)), {}


def _hook_raises_in_second_order(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    (slope,) = torch.autograd.grad(f(x, w).sum(), x, create_graph=True)
    handle = slope.register_hook(_refuse)
    raised = _raises(lambda: torch.autograd.grad(slope.exp().sum(), (x, w), retain_graph=True))
    handle.remove()
    return raised, torch.autograd.grad(slope.exp().sum(), (x, w))


@program(hooks, modes=TRAIN, scenario=_hook_raises_in_second_order)
def exception_in_a_hook_on_a_gradient() -> Made:
    return _product, (inner(3), leaf(3)), {}


def _watched_with_graph(f: Callable[..., Any], x: Tensor) -> Any:
    log: list[Any] = []
    y = f(x)
    y.register_hook(lambda gradient: log.append((gradient.requires_grad, gradient.detach().clone())))
    y.register_hook(lambda gradient: gradient * y)
    (slope,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    return log, slope.detach(), torch.autograd.grad(slope.sum(), x)


@program(hooks, modes=TRAIN, scenario=_watched_with_graph)
def hook_that_replaces_a_gradient_which_is_differentiated() -> Made:
    return lambda x: x.sin() * x, (leaf(3),), {}


def _packed(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda value: value.double(), lambda value: value.float()):
        y = f(x, w)
    y.sum().backward()
    return x.grad, w.grad


@program(hooks, modes=TRAIN, scenario=_packed)
def saved_tensors_packed_into_another_dtype() -> Made:
    return _product, (leaf(3), leaf(3)), {}


def _packed_in_second_order(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    with torch.autograd.graph.save_on_cpu():
        slopes = torch.autograd.grad(f(x, w).sum(), (x, w), create_graph=True)
    return torch.autograd.grad(slopes[0].sum() + slopes[1].square().sum(), (x, w))


@program(hooks, modes=TRAIN, scenario=_packed_in_second_order)
def saved_tensors_kept_elsewhere_in_second_order() -> Made:
    return _product, (leaf(3), leaf(3)), {}


surroundings = "surroundings-of-backward"


def _in_threads(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    losses = [f(x * scale, w).sum() for scale in (1.0, 2.0)]
    for loss in losses:
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
    return x.grad, w.grad


@program(surroundings, modes=TRAIN, scenario=_in_threads)
def backward_in_another_thread() -> Made:
    return _product, (leaf(3), leaf(3)), {}


def _both_in_threads(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    found: dict[int, Any] = {}

    def run(number: int) -> None:
        found[number] = torch.autograd.grad(f(x * number, w).sum(), (x, w))

    f(x, w)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(3)]


@program(surroundings, modes=TRAIN, scenario=_both_in_threads)
def calls_and_backwards_in_three_threads_at_once() -> Made:
    return _product, (leaf(3), leaf(3)), {}


def _under_no_grad(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    y = f(x, w)
    with torch.no_grad():
        y.backward(torch.ones_like(y))
    return x.grad, w.grad


@program(surroundings, modes=TRAIN, scenario=_under_no_grad)
def backward_under_no_grad() -> Made:
    return _product, (leaf(3), leaf(3)), {}


def _anomalous(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autograd.detect_anomaly(check_nan=True):
            y = f(x, w)
            raised = _raises(lambda: y.sum().backward())
    said = "\n".join(str(warning.message) for warning in caught)
    return raised, "here_it_breaks = x.sqrt()" in said, "it_is_whole = w.sin()" in said


@program(surroundings, modes=TRAIN, scenario=_anomalous)
def anomaly_mode_names_the_line_of_the_user() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        it_is_whole = w.sin()
        here_it_breaks = x.sqrt()
        return here_it_breaks * 0 * it_is_whole

    return f, (torch.zeros(3, requires_grad=True), leaf(3)), {}


@program(surroundings, modes=TRAIN, scenario=_anomalous)
def anomaly_mode_where_nothing_is_wrong() -> Made:
    return _product, (leaf(3), leaf(3)), {}


@program(accumulated, modes=TRAIN)
def gradient_of_a_table_in_halves_that_is_looked_up_often() -> Made:
    """Eager's kernels on a GPU add up in float32 what meets in a row."""

    def f(table: Tensor, x: Tensor) -> Tensor:
        at = torch.arange(2048, device=x.device) % 3
        return F.embedding(at, table) * x

    return f, (torch.ones(4, 8, dtype=torch.bfloat16).requires_grad_(), numbers(2048, 8).bfloat16()), {}


@program(accumulated, modes=TRAIN)
def gradient_of_elements_in_halves_that_are_taken_often() -> Made:
    def f(table: Tensor, x: Tensor) -> Tensor:
        return table[torch.arange(2048, device=x.device) % 3, 1:] * x

    return f, (torch.ones(4, 9, dtype=torch.bfloat16).requires_grad_(), numbers(2048, 8).bfloat16()), {}


def _autocast_at_backward(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    y = f(x, w)
    with torch.autocast("cpu", torch.bfloat16):
        y.backward(torch.ones_like(y))
    return x.grad, w.grad


@program(surroundings, modes=TRAIN, scenario=_autocast_at_backward)
def backward_under_autocast_of_a_call_without() -> Made:
    """Whole numbers, so that rounding is no part of it."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w) * 2 + (x @ x).relu()

    make = torch.arange(-4, 5).view(3, 3).float
    return f, (make().requires_grad_(), make().t().clone().requires_grad_()), {}


def _autocast_at_forward(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        y = f(x, w)
    y.float().square().sum().backward()
    return y.dtype, x.grad, w.grad


@program(surroundings, modes=TRAIN, scenario=_autocast_at_forward)
def backward_outside_of_the_autocast_of_the_call() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w) * 2

    make = torch.arange(-4, 5).view(3, 3).float
    return f, (make().requires_grad_(), make().t().clone().requires_grad_()), {}


def _norms_under_autocast(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        y = f(x, w)
    y.sum().backward()
    return y, x.grad, w.grad


@program(surroundings, modes=TRAIN, scenario=_norms_under_autocast)
def norms_of_a_product_under_autocast() -> Made:
    """Beside parameters in float32 the norms save in float32 what their fakes have in halves. The tangent is expanded:
    all that was saved is fitted to what was recorded."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        row = torch.nn.functional.layer_norm(x @ w, (8,), w[0], w[1])
        return torch.nn.functional.group_norm(row.unsqueeze(-1) * 2, 2, w[2], w[3])

    return f, (leaf(4, 8), leaf(8, 8)), {}


def _under_autocast(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return f(x, w)


@program(surroundings, scenario=_under_autocast)
def autocast_switched_off_inside() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return (x @ w).sin() @ w

    return f, (numbers(4, 8), leaf(8, 8)), {}


class _ProductByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        gradient = gradient.float() * 0.3
        return gradient @ w.t(), x.t() @ gradient


@program(surroundings, modes=TRAIN, scenario=_autocast_at_forward)
def backward_of_the_users_outside_of_the_autocast_of_the_call() -> Made:
    """What it multiplies are no numbers of bfloat16."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        return _ProductByHand.apply(x, w)  # type: ignore[no-any-return, no-untyped-call]

    make = torch.arange(-4, 5).view(3, 3).float
    return f, (make().requires_grad_(), make().t().clone().requires_grad_()), {}


@contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def _deterministic_at(forward: bool, backward: bool) -> Callable[..., Any]:
    def scenario(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
        with _deterministic() if forward else warnings.catch_warnings():
            y = f(x, w)
        with _deterministic() if backward else warnings.catch_warnings():
            y.sum().backward()
        return y.detach(), x.grad, w.grad

    return scenario


def _lookup(x: Tensor, w: Tensor) -> Tensor:
    rows = x[torch.tensor([0, 2, 0])]
    return rows * w + x.gather(0, torch.zeros(3, 3, dtype=torch.int64))


@program(surroundings, modes=TRAIN, scenario=_deterministic_at(forward=True, backward=True))
def deterministic_mode_throughout() -> Made:
    return _lookup, (leaf(3, 3), leaf(3, 3)), {}


@program(surroundings, modes=TRAIN, scenario=_deterministic_at(forward=False, backward=True))
def deterministic_mode_at_backward_alone() -> Made:
    return _lookup, (leaf(3, 3), leaf(3, 3)), {}


@program(surroundings, modes=TRAIN, scenario=_deterministic_at(forward=True, backward=False))
def deterministic_mode_at_the_call_alone() -> Made:
    return _lookup, (leaf(3, 3), leaf(3, 3)), {}


def _unpooled(x: Tensor, w: Tensor) -> Tensor:
    pooled, places = F.max_pool1d(x[None], 2, return_indices=True)
    return F.max_unpool1d(pooled * w[:1, None, :1], places, [2])


@program(surroundings, "raises", modes=TRAIN, scenario=_deterministic_at(forward=True, backward=True))
def operator_without_a_deterministic_form_is_an_error() -> Made:
    return _unpooled, (leaf(2, 4), leaf(3, 3)), {}


copies = "copies"


def _of_a_deep_copy(f: Any, x: Tensor) -> Any:
    f(x).sum().backward()
    other = copy.deepcopy(f)
    for parameter in other.parameters():
        parameter.data.mul_(2)
    other.zero_grad()
    y = other(x)
    y.square().sum().backward()
    return y.detach(), _grads(f), _grads(other), f(x).detach()


@program(copies, modes=TRAIN, scenario=_of_a_deep_copy)
def deep_copy_of_a_module_that_has_run() -> Made:
    return _layers(), (numbers(3, 4),), {}


def _of_a_pickle(f: Any, x: Tensor) -> Any:
    f(x).sum().backward()
    inner_module = getattr(f, "_orig_mod", getattr(f, "orig_module", f))
    other = pickle.loads(pickle.dumps(inner_module))
    y = other(x)
    y.square().sum().backward()
    return y.detach(), _grads(f), _grads(other), f(x).detach()


@program(copies, modes=TRAIN, scenario=_of_a_pickle)
def pickle_of_the_module_behind_a_compiled_one() -> Made:
    return _layers(), (numbers(3, 4),), {}


def _state_saved_and_loaded(f: Any, x: Tensor) -> Any:
    before = f(x).detach()
    kept = io.BytesIO()
    torch.save(f.state_dict(), kept)
    with torch.no_grad():
        for parameter in f.parameters():
            parameter.zero_()
    between = f(x).detach()
    kept.seek(0)
    f.load_state_dict(torch.load(kept))
    y = f(x)
    y.sum().backward()
    return before, between, y.detach(), _grads(f)


@program(copies, modes=TRAIN, scenario=_state_saved_and_loaded)
def state_of_a_compiled_module_saved_and_loaded() -> Made:
    return _layers(), (numbers(3, 4),), {}


def _deep_copy_of_inputs(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    f(x, w).sum().backward()
    x2, w2 = copy.deepcopy((x, w))
    f(x2, w2).sum().backward()
    return x.grad, w.grad, x2.grad, w2.grad


@program(copies, modes=TRAIN, scenario=_deep_copy_of_inputs)
def deep_copies_of_leaves_with_gradients() -> Made:
    return _product, (leaf(3), leaf(3)), {}


tangents = "tangents"


def _under(make: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """The gradients under the tangent that `make` makes in the shape of the result, which is returned too."""

    def scenario(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
        y = f(x, w)
        tangent = make(y.detach())
        return torch.autograd.grad(y, (x, w), tangent), tangent

    return scenario


def _mixed(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).exp() + w


def _expanded(y: Tensor) -> Tensor:
    return y[:1].expand_as(y)


def _transposed(y: Tensor) -> Tensor:
    return y.t().contiguous().t()


def _stepped(y: Tensor) -> Tensor:
    return y.repeat_interleave(2, -1)[..., ::2]


def _flipped_offset(y: Tensor) -> Tensor:
    return torch.cat([y, y, y])[2 : 2 + len(y)]


def _overlapping(y: Tensor) -> Tensor:
    return torch.linspace(-1, 1, 8).as_strided(y.shape, (1, 1))


@program(tangents, modes=TRAIN, scenario=_under(_expanded))
def tangent_that_is_expanded() -> Made:
    return _mixed, (leaf(4, 4), leaf(4, 4)), {}


@program(tangents, modes=TRAIN, scenario=_under(_transposed))
def tangent_that_is_transposed() -> Made:
    return _mixed, (leaf(4, 4), leaf(4, 4)), {}


@program(tangents, modes=TRAIN, scenario=_under(_stepped))
def tangent_of_every_second_element() -> Made:
    return _mixed, (leaf(4, 4), leaf(4, 4)), {}


@program(tangents, modes=TRAIN, scenario=_under(_flipped_offset))
def tangent_with_an_offset() -> Made:
    return _mixed, (leaf(4, 4), leaf(4, 4)), {}


@program(tangents, modes=TRAIN, scenario=_under(_overlapping))
def tangent_that_overlaps_itself() -> Made:
    return _mixed, (leaf(4, 4), leaf(4, 4)), {}


@program(tangents, modes=TRAIN, scenario=_under(_transposed))
def parts_of_a_tangent_that_is_transposed() -> Made:
    return lambda x, w: torch.cat([x.t(), w.view(2, 8).view(4, 4)], 0), (leaf(4, 4), leaf(4, 4)), {}


@program(tangents, modes=TRAIN, scenario=_under(_expanded))
def parts_of_an_expanded_tangent_beside_what_is_computed_of_it() -> Made:
    return lambda x, w: torch.cat([x, w.sin(), x[:, 1:3].flatten().view(2, 4)], 0), (leaf(4, 4), leaf(4, 4)), {}


def _overlapping_pair(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    y, z = f(x, w)
    memory = torch.linspace(-1, 1, 6)
    return torch.autograd.grad((y, z), (x, w), (memory[:4], memory[2:]))


@program(tangents, modes=TRAIN, scenario=_overlapping_pair)
def tangents_that_overlap_each_other() -> Made:
    return lambda x, w: ((x * w).exp(), x + w.sin()), (leaf(4), leaf(4)), {}


def _one_tangent_for_two(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    y, z = f(x, w)
    given = torch.linspace(-1, 1, 4)
    return torch.autograd.grad((y, z), (x, w), (given, given)), given


@program(tangents, modes=TRAIN, scenario=_one_tangent_for_two)
def one_tangent_for_two_results() -> Made:
    return lambda x, w: ((x * w).exp(), x + w.sin()), (leaf(4), leaf(4)), {}


@program(tangents, modes=TRAIN, scenario=_under(torch.clone))
def tangent_without_elements() -> Made:
    return lambda x, w: (x * w).exp() + x.sum(), (leaf(0, 4), leaf(4)), {}


@program(tangents, modes=TRAIN, scenario=_under(Tensor.double))
def tangent_of_a_wider_dtype() -> Made:
    return _mixed, (leaf(4, 4), leaf(4, 4)), {}


@program(tangents, "raises", modes=TRAIN, scenario=_under(lambda y: y[:1]))
def tangent_of_another_shape_is_an_error() -> Made:
    return _mixed, (leaf(4, 4), leaf(4, 4)), {}


@program(tangents, modes=TRAIN, scenario=_under(lambda y: y.contiguous(memory_format=torch.channels_last)))
def tangent_in_channels_last_for_a_result_in_rows() -> Made:
    return lambda x, w: F.conv2d(x, w, padding=1).tanh(), (leaf(2, 3, 4, 4), leaf(4, 3, 3, 3)), {}


@program(tangents, modes=TRAIN, scenario=_under(torch.Tensor.contiguous))
def tangent_in_rows_for_a_result_in_channels_last() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w, padding=1).tanh().contiguous(memory_format=torch.channels_last)

    return f, (leaf(2, 3, 4, 4), leaf(4, 3, 3, 3)), {}


@program(tangents, modes=TRAIN, scenario=_under(lambda y: y.conj()))
def tangent_that_is_conjugated_lazily() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return torch.complex(x, w).exp()

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(tangents, modes=TRAIN, scenario=_under(lambda y: torch._neg_view(-y)))
def tangent_that_is_negated_lazily() -> Made:
    return _mixed, (leaf(4, 4), leaf(4, 4)), {}


def _none_for_one(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    y, z = f(x, w)
    torch.autograd.backward([y, z], [None, torch.ones_like(z)])
    return x.grad, w.grad


@program(tangents, modes=TRAIN, scenario=_none_for_one)
def tangent_that_is_none_for_a_number() -> Made:
    return lambda x, w: ((x * w).sum(), w.sin()), (leaf(3), leaf(3)), {}


def _none_for_several(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    y = f(x, w)
    return torch.autograd.grad([y], [x, w], [None])


@program(tangents, "raises", modes=TRAIN, scenario=_none_for_several)
def tangent_that_is_none_for_several_numbers_is_an_error() -> Made:
    return _product, (leaf(3), leaf(3)), {}


@program(tangents, modes=TRAIN, scenario=_under(torch.clone))
def gradients_of_an_addition_may_be_the_tangent_itself() -> Made:
    return lambda x, w: x + w, (leaf(3), leaf(3)), {}


def _written_tangent(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    y = f(x, w)
    tangent = torch.ones_like(y)
    found = _kept(torch.autograd.grad(y, (x, w), tangent, retain_graph=True))
    tangent.mul_(3)
    return found, _kept(torch.autograd.grad(y, (x, w), tangent))


@program(tangents, modes=TRAIN, scenario=_written_tangent)
def tangent_written_between_two_backwards() -> Made:
    return _product, (leaf(3), leaf(3)), {}


def _batch_of_tangents(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    y = f(x, w)
    return torch.autograd.grad(y, (x, w), torch.eye(y.numel()), is_grads_batched=True)


@program(tangents, modes=TRAIN, scenario=_batch_of_tangents)
def tangents_in_a_batch() -> Made:
    return _product, (leaf(3), leaf(3)), {}


@program(tangents, modes=TRAIN, scenario=_batch_of_tangents)
def tangents_in_a_batch_through_a_product_of_matrices() -> Made:
    return lambda x, w: (x @ w).tanh() @ w[:, 0], (leaf(3, 3), leaf(3, 3)), {}


def _dual(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    with torch.autograd.forward_ad.dual_level():
        y = f(torch.autograd.forward_ad.make_dual(x.detach(), torch.ones_like(x)), w.detach())
        return tuple(torch.autograd.forward_ad.unpack_dual(y))


@program(tangents, scenario=_dual)
def forward_mode_through_a_call() -> Made:
    return _product, (leaf(3), leaf(3)), {}


@program("gradient", modes=("train",))
def result_of_one_graph_written_between_it_and_the_next() -> Made:
    """What backward runs through has saved what is written; in eager nothing that is differentiated leads there."""

    def f(a: Tensor) -> Tensor:
        y = a.prod(0)
        with torch.no_grad():
            y.normal_()
        y.bernoulli_(0.5, generator=torch.Generator().manual_seed(3))  # Dynamo ends its graph here
        result = a @ a
        y.div_(result)
        return result

    return f, (leaf(1),), {}


def _through_a_row_that_is_written(f: Any, start: Tensor, w: Tensor) -> Any:
    f(start.clone().t(), w).square().sum().backward()
    return start.grad, w.grad


@program(surroundings, modes=TRAIN, scenario=_through_a_row_that_is_written)
def column_whose_transposed_copy_is_written() -> Made:
    """The gradient of the row gets to the column through a view: the stride of its dimension of size 1 may stay."""

    def f(row: Tensor, w: Tensor) -> Tensor:
        row.add_(w)
        return row * w

    return f, (leaf(4, 1), leaf(1, 4)), {}


undefined = "undefined-gradients"


def _of_an_inner_input(f: Callable[..., Any], x: Tensor) -> Any:
    f(x * 1).sum().backward()
    return x.grad


@program(undefined, modes=TRAIN, scenario=_of_an_inner_input)
def norm_of_order_zero_of_an_input_that_is_no_leaf() -> Made:
    """Its gradient is undefined, which is no zero."""
    return lambda x: torch.linalg.vector_norm(x, -0.0, 1), (leaf(3, 4),), {}


@program(undefined, modes=TRAIN)
def logit_with_a_negative_bound() -> Made:
    """The bound is none: the gradient outside of [0, 1] is not a number."""
    return lambda x: x.logit(-9), (torch.tensor([0.25, 0.5, 2.0, -1.0], requires_grad=True),), {}


@program(undefined, modes=TRAIN)
def logit_with_a_negative_bound_near_zero() -> Made:
    """It is no bound, forward either: what lies outside of [0, 1] has no logit."""
    return lambda x: x.logit(-1e-3), (torch.tensor([0.25, 0.5, 2.0, -1.0], requires_grad=True),), {}


@program("gradients of memory that overlaps itself", modes=TRAIN)
def spectrum_of_an_expanded_leaf() -> Made:
    """Elements that share a place have the mean of their gradients, as `as_strided` gives it."""

    def f(x: Tensor) -> Tensor:
        return torch.view_as_real(torch.stft(x, 4, 1, window=torch.ones(4), center=False, return_complex=True))

    return f, (torch.randn(3, 1).expand(3, 6).requires_grad_(),), {}


def _of_inner_inputs(f: Callable[..., Any], *leaves: Tensor) -> Any:
    result = f(*(leaf.clone() for leaf in leaves))
    result.backward(torch.ones_like(result))
    return result, [leaf.grad for leaf in leaves]


@program("written inner inputs", modes=TRAIN, scenario=_of_inner_inputs)
def complex_input_divided_in_place_by_zero() -> Made:
    """The gradient is an infinity beside NaN, to which not even zeros may be added."""
    return lambda x: x.div_(-0.0), (torch.tensor([1.5 + 0j, -2.0 + 1j], requires_grad=True),), {}


@program("written inner inputs", modes=TRAIN, scenario=_of_inner_inputs)
def input_multiplied_in_place_by_negative_zero() -> Made:
    """The gradient is -0.0, to which not even zeros may be added."""

    def f(x: Tensor, y: Tensor) -> Tensor:
        return x.mul_(-0.0) + y.mul_(x)

    return f, (leaf(3), leaf(3)), {}


in_form = "gradients-of-a-form"


@program(in_form)
def means_of_losses_over_no_elements() -> Made:
    """Each loss is no number, and its gradient has no elements."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        losses = (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss, F.kl_div)
        return tuple(loss(x * 2, y) for loss in losses)

    return f, (leaf(0, 4), numbers(0, 4)), {}


@program(in_form)
def affine_grids_of_images_and_volumes() -> Made:
    def f(x: Tensor, volume: Tensor, theta: Tensor, other: Tensor) -> tuple[Tensor, ...]:
        flat = (F.affine_grid(theta, list(x.shape), align_corners=align) for align in (False, True))
        deep = (F.affine_grid(other, list(volume.shape), align_corners=align) for align in (False, True))
        return *(F.grid_sample(x, grid, align_corners=False) for grid in flat), *deep

    return f, (leaf(2, 3, 5, 6), leaf(2, 3, 4, 5, 6), leaf(2, 2, 3), leaf(2, 3, 4)), {}


@program(in_form)
def images_made_smaller_without_aliasing() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        modes = ("bilinear", "bicubic")
        return tuple(F.interpolate(each, size=(3, 4), mode=mode, antialias=True) for each in (x, y) for mode in modes)

    images = torch.randn(2, 4, 7, 9).contiguous(memory_format=torch.channels_last)
    return f, (leaf(2, 3, 7, 9), images.requires_grad_()), {}
