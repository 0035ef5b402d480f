"""Whole backwards while the program changes what they go through.

Hooks come and go, saved tensors are written, threads share a leaf, and user code gives back what eager refuses.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.case import Case
from assay.suites.semantics.whole_backward import Log, kept, made_wave, whole, whole_case

Wave = Callable[[Tensor, Tensor], Tensor]
Scenario = Callable[[Wave, Tensor, Tensor], Any]
CASES: list[Case] = []


def _changing(scenario: Scenario) -> Scenario:
    """Declares a case by the name of its scenario."""
    CASES.append(whole(scenario))
    return scenario


# Hooks that come and go while backward runs.


@_changing
def _of_equal_hooks_one_taken_away(f: Wave, x: Tensor, w: Tensor) -> Any:
    """Two tensors have the same function as their hook; one of them loses it."""
    log: Log = []

    def note(gradient: Tensor) -> None:
        log.append(kept(gradient))

    y = f(x, w)
    taken = y.register_hook(note)
    x.register_hook(note)
    z = y.exp()
    z.register_hook(lambda g: taken.remove())
    z.sum().backward()
    return log, x.grad, w.grad


@_changing
def _of_a_hook_put_twice_and_taken_once(f: Wave, x: Tensor, w: Tensor) -> Any:
    log: Log = []

    def note(gradient: Tensor) -> None:
        log.append("called")

    y = f(x, w)
    taken = [y.register_hook(note), y.register_hook(note)][0]
    z = y.exp()
    z.register_hook(lambda g: taken.remove())
    z.sum().backward()
    return log, x.grad, w.grad


@_changing
def _of_equal_hooks_of_nodes_one_taken_away(f: Wave, x: Tensor, w: Tensor) -> Any:
    log: Log = []

    def note(made: Any, given: Any) -> None:
        log.append(kept(given))

    parts = [f(x, w)]
    for _ in range(3):
        parts.append(parts[-1].sin())
    nodes = [part.grad_fn for part in parts[1:]]
    taken = [node.register_hook(note) for node in nodes if node is not None]
    parts[-1].register_hook(lambda g: taken[1].remove())
    parts[-1].sum().backward()
    return log, x.grad, w.grad


@_changing
def _of_a_hook_taken_away_by_its_neighbour(f: Wave, x: Tensor, w: Tensor) -> Any:
    """The first hook of each kind takes the second of the same tensor or node away, whose turn has begun."""
    log: Log = []
    y = f(x, w)
    z = y.exp()
    node: Any = z.grad_fn
    ways = {
        "tensor": y.register_hook,
        "leaf": x.register_hook,
        "accumulated": x.register_post_accumulate_grad_hook,
        "before": node.register_prehook,
        "after": node.register_hook,
    }
    seconds: dict[str, Any] = {}
    for name, register in ways.items():
        register(lambda *_, n=name: log.append((n, 1)) or seconds[n].remove())  # type: ignore[func-returns-value]
        seconds[name] = register(lambda *_, n=name: log.append((n, 2)))
    for _ in range(2):
        z.sum().backward(retain_graph=True)
    return log, x.grad, w.grad


@_changing
def _of_a_hook_taken_away_by_its_neighbour_while_others_come(f: Wave, x: Tensor, w: Tensor) -> Any:
    log: Log = []
    y = f(x, w)
    z = y.exp()
    seconds: list[Any] = []

    def first(gradient: Tensor) -> None:
        log.append("first")
        seconds[0].remove()
        y.register_hook(lambda g: log.append("new"))
        x.register_hook(lambda g: log.append("leaf"))

    y.register_hook(first)
    seconds.append(y.register_hook(lambda g: log.append("second")))
    z.sum().backward()
    return log, x.grad, w.grad


@_changing
def _of_hooks_that_call_once(f: Wave, x: Tensor, w: Tensor) -> Any:
    """One function for all parameters, each of which takes its own hook away."""
    log: Log = []
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    handles: dict[Tensor, Any] = {}

    def once(parameter: Tensor) -> None:
        log.append(tuple(parameter.shape))
        handles[parameter].remove()

    for parameter in module.parameters():
        handles[parameter] = parameter.register_post_accumulate_grad_hook(once)
    for _ in range(3):
        module(f(x, w)).sum().backward()
    return log, x.grad, [parameter.grad for parameter in module.parameters()]


@_changing
def _of_hooks_that_come_late(f: Wave, x: Tensor, w: Tensor) -> Any:
    """A hook puts others on tensors, some of which have hooks already, and on leaves."""
    log: Log = []
    y = f(x, w)
    z = y.exp() * 2
    y.register_hook(lambda g: log.append("early") or g * 2)  # type: ignore[func-returns-value]
    y.retain_grad()

    def put(gradient: Tensor) -> None:
        y.register_hook(lambda g: log.append(("late", kept(g))) or g + 1)  # type: ignore[func-returns-value]
        z.register_hook(lambda g: log.append("too late"))
        x.register_hook(lambda g: log.append(("leaf", kept(g))) or g * 3)  # type: ignore[func-returns-value]
        x.register_post_accumulate_grad_hook(lambda leaf: log.append(("accumulated", kept(leaf.grad))))

    z.register_hook(put)
    z.sum().backward()
    return log, y.grad, x.grad, w.grad


@_changing
def _of_a_late_hook_that_raises(f: Wave, x: Tensor, w: Tensor) -> Any:
    def refuse(gradient: Tensor) -> None:
        raise ValueError("late")

    y = f(x, w)
    z = y.exp()
    z.register_hook(lambda g: y.register_hook(refuse) and None)
    found: Log = []
    try:
        z.sum().backward()
    except ValueError as error:
        found.append(str(error))
    f(x, w).sum().backward()
    return found, x.grad, w.grad


@_changing
def _of_a_late_hook_of_one_of_two_results(f: Wave, x: Tensor, w: Tensor) -> Any:
    log: Log = []
    one, other = f(x, w).split(2, 1)
    z = (one * 2 + other.exp()).sin()
    z.register_hook(lambda g: other.register_hook(lambda g: log.append(kept(g)) or g * 0) and None)  # type: ignore[func-returns-value]
    z.sum().backward()
    return log, x.grad, w.grad


@_changing
def _of_a_late_hook_of_what_is_asked_for(f: Wave, x: Tensor, w: Tensor) -> Any:
    log: Log = []
    y = f(x, w)
    z = y.exp()
    z.register_hook(lambda g: y.register_hook(lambda g: log.append(kept(g)) or g * 2) and None)  # type: ignore[func-returns-value]
    return torch.autograd.grad(z.sum(), [y, x, w]), log


# Saved tensors that are written while backward runs.


def _writing(write: Callable[[Tensor, Tensor, Tensor], None]) -> Scenario:
    """A hook writes what a later node has saved, and eager raises when it comes there."""

    def scenario(f: Wave, x: Tensor, w: Tensor) -> Any:
        y = f(x, w) * 1
        z = (y * w).exp()
        z.register_hook(lambda g: write(y, z, w))
        try:
            z.sum().backward()
        except RuntimeError as error:
            return str(error).split("[")[0], x.grad, w.grad
        return x.grad, w.grad

    return scenario


@torch.no_grad()
def _write_leaf(y: Tensor, z: Tensor, w: Tensor) -> None:
    w.mul_(2)


WRITES: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "result": lambda y, z, w: y.detach().mul_(2) is None,
    "result_of_the_node": lambda y, z, w: z.detach().mul_(2) is None,
    "leaf": _write_leaf,
    "data_of_a_result": lambda y, z, w: y.data.mul_(2) is None,
}


def _without_result(write: Callable[[Tensor, Tensor, Tensor], Any]) -> Callable[[Tensor, Tensor, Tensor], None]:
    def writing(y: Tensor, z: Tensor, w: Tensor) -> None:
        write(y, z, w)

    return writing


CASES += [
    whole_case(_writing(_without_result(write)), f"whole_backward_whose_hook_writes_{name}", made_wave)
    for name, write in WRITES.items()
]


# What eager refuses, in its words.


def _function(give: Callable[[Tensor], Any]) -> Any:
    class Given(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
            return x * factor

        @staticmethod
        def backward(ctx: Any, *given: Tensor) -> Any:
            return give(given[0])

    return Given


def _of_function(give: Callable[[Tensor], Any]) -> Scenario:
    def scenario(f: Wave, x: Tensor, w: Tensor) -> Any:
        function = _function(give)
        found: Log = []
        for _ in range(2):
            try:
                function.apply(f(x, w), 2.0).sum().backward()
            except (RuntimeError, TypeError) as error:
                found.append((type(error).__name__ == "TypeError", str(error)))
        return found, x.grad, w.grad

    return scenario


RESULTS: dict[str, Callable[[Tensor], Any]] = {
    "a_number": lambda g: (3, None),
    "a_gradient_of_a_number": lambda g: (g, g),
    "a_list": lambda g: [g, None],
    "too_few": lambda g: g,
    "nones_too_many": lambda g: (g, None, None),
    "too_many": lambda g: (g, None, g),
    "nothing": lambda g: (None, None),
    "another_shape": lambda g: (torch.ones(5), None),
    "a_wider_shape": lambda g: (g.expand(2, 3, 4), None),
    "another_dtype": lambda g: (g.double(), None),
    "a_complex_one": lambda g: (g.to(torch.complex64), None),
    "integers": lambda g: (torch.ones(3, 4, dtype=torch.long), None),
}
CASES += [
    whole_case(_of_function(give), f"whole_backward_function_that_gives_{name}", made_wave)
    for name, give in RESULTS.items()
]


def _of_node(is_before: bool, give: Callable[[Any], Any]) -> Scenario:
    """A hook before or behind the node of a product of two tensors."""

    def scenario(f: Wave, x: Tensor, w: Tensor) -> Any:
        y = f(x, w)
        node: Any = (y * w).exp().grad_fn
        product = node.next_functions[0][0]
        if is_before:
            product.register_prehook(give)
        else:
            product.register_hook(lambda made, given: give(made))
        try:
            torch.autograd.backward([torch.autograd.graph.GradientEdge(node, 0)], [torch.ones(3, 4)])
        except (RuntimeError, TypeError) as error:
            return type(error).__name__, str(error), x.grad, w.grad
        return x.grad, w.grad

    return scenario


NODES: dict[str, Callable[[Any], Any]] = {
    "a_number": lambda given: 3,
    "a_list": list,
    "a_tensor": lambda given: given[0],
    "none_for_the_first": lambda given: (None, *given[1:]),
    "an_empty_tuple": lambda given: (),
    "a_tuple_of_numbers": lambda given: (3,) * len(given),
    "doubled_ones": lambda given: tuple(each * 2 for each in given),
    "another_shape": lambda given: tuple(each[0] for each in given),
}
CASES += [
    whole_case(_of_node(is_before, give), f"whole_backward_hook_{where}_node_gives_{name}", made_wave)
    for name, give in NODES.items()
    for where, is_before in (("before", True), ("behind", False))
]


def _of_accumulation(give: Callable[[Tensor], Any]) -> Scenario:
    def scenario(f: Wave, x: Tensor, w: Tensor) -> Any:
        x.register_post_accumulate_grad_hook(give)
        try:
            f(x, w).sum().backward()
        except (RuntimeError, TypeError) as error:
            return type(error).__name__, str(error), x.grad
        return x.grad, w.grad

    return scenario


LEAVES: dict[str, Callable[[Tensor], Any]] = {
    "a_number": lambda leaf: 3,
    "the_leaf": lambda leaf: leaf,
    "another_tensor": lambda leaf: leaf.grad,
    "another_shape": lambda leaf: leaf[0],
}
CASES += [
    whole_case(_of_accumulation(give), f"whole_backward_hook_of_an_accumulation_gives_{name}", made_wave)
    for name, give in LEAVES.items()
]


def _of_unpacking(give: Callable[[Tensor], Any]) -> Scenario:
    def scenario(f: Wave, x: Tensor, w: Tensor) -> Any:
        y = f(x, w)
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, give):
            z = y.exp()
        try:
            z.sum().backward()
        except (RuntimeError, TypeError, KeyError) as error:
            return type(error).__name__, str(error), x.grad, w.grad
        return x.grad, w.grad

    return scenario


def _gone(packed: Tensor) -> Tensor:
    raise KeyError("gone")


UNPACKED: dict[str, Callable[[Tensor], Any]] = {
    "a_number": lambda packed: 3,
    "none": lambda packed: None,
    "doubles": lambda packed: packed.double(),
    "another_shape": lambda packed: packed[:, :2],
    "an_error": _gone,
}
CASES += [
    whole_case(_of_unpacking(give), f"whole_backward_unpacking_gives_{name}", made_wave)
    for name, give in UNPACKED.items()
]


def _reads_saved(count: int) -> Scenario:
    """A function of the user's reads what it has saved so many times: the hook unpacks it each time, or never."""

    def scenario(f: Wave, x: Tensor, w: Tensor) -> Any:
        log: Log = []

        class Reading(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
                ctx.save_for_backward(a, b)
                return a * b

            @staticmethod
            def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
                log.append("backward")
                read = [ctx.saved_tensors for _ in range(count)]
                a, b = read[-1] if read else (gradient, gradient)
                log.append(any(one is other for one, other in zip(*read, strict=True)) if count == 2 else None)
                return gradient * b, gradient * a

        def unpack(saved: Tensor) -> Tensor:
            log.append("unpack")
            return saved.clone()

        y = f(x, w)
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.detach(), unpack):
            z = Reading.apply(y, w)
        z.register_hook(lambda gradient: log.append("hook"))
        z.sum().backward()
        return log, x.grad, w.grad

    return scenario


CASES += [
    whole_case(_reads_saved(count), f"whole_backward_of_a_function_that_reads_what_it_saved_{name}", made_wave)
    for name, count in {"never": 0, "once": 1, "twice": 2}.items()
]


@_changing
def _of_a_context_that_is_asked(f: Wave, x: Tensor, w: Tensor) -> Any:
    """What a function's backward learns of its context, and leaves there."""
    log: Log = []

    class Asking(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, *given: Tensor) -> Tensor:
            is_node = isinstance(ctx, torch.autograd.function.BackwardCFunction)
            log.append((ctx.name(), is_node, ctx.needs_input_grad, ctx.metadata.get("given"), hasattr(ctx, "none")))
            log.append((torch.is_grad_enabled(), given[0].requires_grad))
            ctx.metadata["left"] = ctx.left = 7
            found: Tensor = given[0] * ctx.saved_tensors[0].cos()
            return found

    y = Asking.apply(f(x, w))
    y.grad_fn.metadata["given"] = 3
    y.sum().backward()
    return log, y.grad_fn.metadata["left"], y.grad_fn.left, x.grad


@_changing
def _of_a_callback_that_goes_backward(f: Wave, x: Tensor, w: Tensor) -> Any:
    """Callbacks run as hooks do: nothing that they compute is recorded."""
    engine, log = torch.autograd.Variable._execution_engine, Log()
    x.register_hook(lambda g: engine.queue_callback(lambda: log.append((w * 2).requires_grad)))
    f(x, w).sum().backward()
    return log, x.grad, w.grad


@_changing
def _of_a_trunk_behind_a_hook_that_raises(f: Wave, x: Tensor, w: Tensor) -> Any:
    """What eager had not come to when a hook raised can still go backward."""

    def refuse(gradient: Tensor) -> None:
        raise ValueError("refused")

    y = f(x, w)
    trunk = y.exp()
    handle = trunk.register_hook(refuse)
    try:
        (trunk * 2).sum().backward()
    except ValueError:
        handle.remove()
    (trunk * 3).sum().backward()
    return x.grad, w.grad


@_changing
def _in_threads_of_one_leaf(f: Wave, x: Tensor, w: Tensor) -> Any:
    """Threads that accumulate into the same leaves: each gradient counts, and each calls the leaf's hook."""
    calls: Log = []
    x.register_post_accumulate_grad_hook(lambda leaf: calls.append(1))
    for _ in range(20):
        losses = [f(x, w).mul(2).sum() for _ in range(4)]
        threads = [threading.Thread(target=loss.backward) for loss in losses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return len(calls), x.grad, w.grad


# Floats that change from step to step: of the compiled program, and of formulas of the engine's own.

FACTORS = (0.3, 0.5, 0.0, 1.0, -0.7, 2.5, 0.25, 1e-30, 3.0, 0.31, 0.32, -4.0)


def _scaled(x: Tensor, w: Tensor, factor: float) -> Tensor:
    return (x * w).sin() * factor + w / (factor + 8)


def _by_factors(rows: Callable[[int], int]) -> Callable[..., Any]:
    def scenario(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
        kept = []
        for step, factor in enumerate(FACTORS):
            y = f(x[: rows(step)], w[: rows(step)], factor)
            y = torch.nn.functional.leaky_relu(y, factor).clamp(max=factor + 3)
            torch.add(y, y.cos(), alpha=factor).sum().backward()
            kept += [x.grad, w.grad]
            x.grad = w.grad = None
        return kept

    return scenario


CASES += [
    whole_case(_by_factors(rows), f"whole_backward_of_a_float_that_changes{where}", lambda: (_scaled, *made_wave()[1:]))
    for where, rows in {"": lambda step: 3, "_beside_sizes": lambda step: 2 + step % 2}.items()
]


def _picked(x: Tensor, w: Tensor, place: int) -> Tensor:
    return (x * w).sin().flatten()[-place] + w.flatten()[:-place].sum()


def _by_places(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """Counted from the end: a number that is negative, and another one at each step."""
    kept = []
    for place in range(1, 12):
        y = f(x, w, place) + (x * x).flatten()[-place] + w.exp().flatten()[:-place].sum()
        y.backward()
        kept += [x.grad, w.grad]
        x.grad = w.grad = None
    return kept


CASES.append(whole_case(_by_places, "whole_backward_of_a_place_that_changes", lambda: (_picked, *made_wave()[1:])))


# Formulas of the engine that ask a saved tensor whether it requires grad.


def _solved(
    shape: tuple[int, ...], is_left: bool = True, dtype: torch.dtype | None = None, is_batch: bool = False
) -> Scenario:
    """A system of three equations, or a batch of these, whose right side has this shape."""

    def scenario(f: Wave, x: Tensor, w: Tensor) -> Any:
        matrix = f(x, w)[:, :3] + 4 * torch.eye(3)
        if is_batch:
            matrix = torch.stack([matrix, matrix * 2])
        if dtype is not None:
            matrix = matrix.to(dtype) * (1 + 0.5j)
        right = (x.flatten()[: math.prod(shape)].view(shape) + 1).to(matrix.dtype)
        found = torch.linalg.solve(matrix, right, left=is_left)
        (found.real if found.is_complex() else found).square().sum().backward()
        return found.detach(), x.grad, w.grad

    return scenario


SYSTEMS = {
    "a_vector": _solved((3,)),
    "columns": _solved((3, 2)),
    "rows": _solved((2, 3), is_left=False),
    "a_batch": _solved((3, 2), is_batch=True),
    "a_batch_and_a_vector": _solved((3,), is_batch=True),
    "complex_numbers": _solved((3, 1), dtype=torch.complex64),
}
CASES += [
    whole_case(scenario, f"whole_backward_of_a_system_of_{name}", made_wave) for name, scenario in SYSTEMS.items()
]
