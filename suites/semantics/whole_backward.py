"""Whole backwards: what compiled autograd has to keep of eager's engine.

Every kind of hook stands alone and beside every other, before and after forward. Then come what hooks give back,
packed saved tensors, functions of the user's, and writes through views. The last are backwards asked for in parts,
twice, inside each other, in threads, and those that fail.

Our own backends compile these cases with whole backwards, as `assay,own_backward` does.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from assay.harness.case import SHAPES, Case, Made, case
from assay.suites.semantics.program import leaf, numbers

Log = list[Any]
Place = Callable[[Log, Tensor, Tensor], None]
"""Puts a hook on a leaf or on a result, which notes what it sees."""


def kept(value: Any) -> Any:
    """What tensors are now: they may be written afterwards."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return [kept(each) for each in value] if isinstance(value, (tuple, list)) else value


def whole_case(scenario: Callable[..., Any], name: str, make: Callable[[], Made]) -> Case:
    """A case of one backward, whose gradients and log are compared to the letter."""
    declare = case(
        modes=("train",), tags=("bookkeeping", "whole-backward"), shapes=SHAPES, scenario=scenario, name=name
    )
    return declare(make)


def _wave(x: Tensor, w: Tensor) -> Tensor:
    return (x * w).sin() + w


def made_wave() -> Made:
    return _wave, (leaf(3, 4), leaf(3, 4)), {}


def whole(scenario: Callable[..., Any]) -> Case:
    """A case of the program `sin(x * w) + w`, by the name of its scenario."""
    return whole_case(scenario, "whole_backward_" + scenario.__name__.lstrip("_"), made_wave)


# Every kind of hook, alone and in pairs.


def _of_leaf(log: Log, x: Tensor, y: Tensor) -> None:
    x.register_hook(lambda g: log.append(("leaf", kept(g))))


def _of_result(log: Log, x: Tensor, y: Tensor) -> None:
    y.register_hook(lambda g: log.append(("result", kept(g))))


def _that_doubles(log: Log, x: Tensor, y: Tensor) -> None:
    y.register_hook(lambda g: log.append(("doubled", kept(g))) or g * 2)  # type: ignore[func-returns-value]


def _that_writes(log: Log, x: Tensor, y: Tensor) -> None:
    def hook(gradient: Tensor) -> None:
        log.append(("written", kept(gradient.mul_(3))))

    y.register_hook(hook)


def _retained(log: Log, x: Tensor, y: Tensor) -> None:
    y.retain_grad()


def _node_of(y: Tensor) -> Any:
    assert y.grad_fn is not None
    return y.grad_fn


def _before_node(log: Log, x: Tensor, y: Tensor) -> None:
    _node_of(y).register_prehook(lambda given: log.append(("before", kept(given))))


def _after_node(log: Log, x: Tensor, y: Tensor) -> None:
    _node_of(y).register_hook(lambda made, given: log.append(("after", kept(made), kept(given))))


def _before_leaf(log: Log, x: Tensor, y: Tensor) -> None:
    node = torch.autograd.graph.get_gradient_edge(x).node
    log.append(node.register_prehook(lambda given: log.append(("before leaf", kept(given)))) is not None)
    _HELD.append(node)


def _after_leaf(log: Log, x: Tensor, y: Tensor) -> None:
    node = torch.autograd.graph.get_gradient_edge(x).node
    node.register_hook(lambda made, given: log.append(("after leaf", len(made), kept(given))))
    _HELD.append(node)


_HELD: list[Any] = []
"""Nodes of leaves, which go with their hooks when nobody holds them."""


def _after_accumulation(log: Log, x: Tensor, y: Tensor) -> None:
    x.register_post_accumulate_grad_hook(lambda leaf: log.append(("accumulated", kept(leaf.grad))))


def _of_several(log: Log, x: Tensor, y: Tensor) -> None:
    torch.autograd.graph.register_multi_grad_hook((x, y), lambda grads: log.append(("several", kept(grads))))


def _of_any(log: Log, x: Tensor, y: Tensor) -> None:
    torch.autograd.graph.register_multi_grad_hook((x, y), lambda grad: log.append(("any", kept(grad))), mode="any")


HOOKS: dict[str, Place] = {
    "of_leaf": _of_leaf,
    "of_result": _of_result,
    "that_doubles": _that_doubles,
    "that_writes": _that_writes,
    "retained": _retained,
    "before_node": _before_node,
    "after_node": _after_node,
    "before_leaf": _before_leaf,
    "after_leaf": _after_leaf,
    "after_accumulation": _after_accumulation,
    "of_several": _of_several,
    "of_any": _of_any,
}


def _hooked(*kinds: str) -> Callable[..., Any]:
    """A step whose hooks are put on the leaf and on a result, in this order."""

    def scenario(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
        _HELD.clear()
        log: Log = []
        y = f(x, w)
        z = y.exp() * x
        for kind in kinds:
            HOOKS[kind](log, x, z)
        (z.cos() + y).sum().backward()
        return log, x.grad, w.grad, z.grad if z.retains_grad else None

    return scenario


CASES = [whole_case(_hooked(kind), f"whole_backward_hook_{kind}", made_wave) for kind in HOOKS]
CASES += [
    whole_case(_hooked(one, two), f"whole_backward_hooks_{one}_and_{two}", made_wave)
    for one, two in itertools.combinations(HOOKS, 2)
]


def _before_forward(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    log: Log = []
    x.register_hook(lambda g: log.append(("leaf", kept(g))))
    x.register_post_accumulate_grad_hook(lambda leaf: log.append(("accumulated", kept(leaf.grad))))
    f(x, w).sum().backward()
    return log, x.grad, w.grad


def _in_order_of_registration(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """Three hooks of one tensor, the first of which is taken away before backward."""
    log: Log = []
    y = f(x, w)
    handles = [y.register_hook(lambda g, n=n: log.append((n, kept(g))) or g + n) for n in range(3)]  # type: ignore[func-returns-value,misc]
    handles[0].remove()
    y.register_hook(lambda g: log.append((3, kept(g))))
    y.sum().backward()
    return log, x.grad, w.grad


def _of_branches(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """Eager runs the youngest node that is ready first."""
    log: Log = []
    y = f(x, w)
    old, young = y.sin() * w, y.exp() + x
    parts = {"y": y, "old": old, "young": young, "x": x, "w": w}
    for name, part in parts.items():
        part.register_hook(lambda g, name=name: log.append((name, kept(g))))  # type: ignore[misc]
    (young.sum() + (old * young).sum()).backward()
    return log, x.grad, w.grad


def _that_return(*given: Callable[[Tensor], Any]) -> Callable[..., Any]:
    def scenario(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
        y = f(x, w)
        for make in given:
            y.register_hook(make)
        try:
            y.exp().sum().backward()
        except Exception as error:
            return type(error).__name__, x.grad, w.grad
        return x.grad, w.grad

    return scenario


GIVEN: dict[str, Callable[[Tensor], Any]] = {
    "nothing": lambda g: None,
    "the_same": lambda g: g,
    "a_view": lambda g: g.view(12).view(3, 4),
    "a_transposed_one": lambda g: g.t().contiguous().t(),
    "an_expanded_one": lambda g: g[:1].expand(3, 4),
    "zeros": torch.zeros_like,
    "another_shape": lambda g: g[0],
    "another_dtype": lambda g: g.double(),
    "a_number": lambda g: 3,
    "one_that_was_written": lambda g: g.mul_(2),
}
CASES += [
    whole_case(_that_return(make), f"whole_backward_hook_gives_{name}", made_wave) for name, make in GIVEN.items()
]


def _that_raises(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """The backward after it is as if nothing had been."""

    def refuse(*_: Any) -> None:
        raise ValueError("refused")

    found: Log = []
    for place in range(5):
        x.grad = w.grad = None
        y = f(x, w)
        node = _node_of(y)
        places = (y.register_hook, node.register_prehook, node.register_hook, x.register_hook)
        put = (*places, x.register_post_accumulate_grad_hook)[place]
        handle = put(refuse)
        try:
            y.exp().sum().backward()
        except ValueError as error:
            found.append(str(error))
        handle.remove()
        x.grad = w.grad = None
        f(x, w).sum().backward()
        found.append(kept([x.grad, w.grad]))
    return found


def _taken_away_by_another(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """A hook of a tensor that comes later is taken away while backward runs."""
    log: Log = []
    y = f(x, w)
    z = y.exp()
    later = y.register_hook(lambda g: log.append("later"))
    z.register_hook(lambda g: later.remove())
    z.sum().backward()
    return log, x.grad, w.grad


def _queued_callbacks(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    log: Log = []
    engine = torch.autograd.Variable._execution_engine

    def last() -> None:
        log.append(("first callback", x.grad is not None))
        engine.queue_callback(lambda: log.append("callback of a callback"))

    y = f(x, w)
    y.register_hook(lambda g: engine.queue_callback(last))
    x.register_hook(lambda g: log.append("leaf"))
    y.sum().backward()
    return log, x.grad


def _steps_in_hooks(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """An optimizer in hooks: each leaf makes its step, and frees its gradient, as soon as that is there."""

    def step(leaf: Tensor) -> None:
        with torch.no_grad():
            leaf.sub_(leaf.grad, alpha=0.125)  # type: ignore[arg-type]
        leaf.grad = None

    for each in (x, w):
        each.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        f(x, w).square().sum().backward()
    return kept([x, w]), x.grad, w.grad


# Saved tensors that are packed.


def _packed(pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> Callable[..., Any]:
    def scenario(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
        log: Log = []

        def packing(tensor: Tensor) -> Any:
            log.append("pack")
            return pack(tensor)

        def unpacking(given: Any) -> Tensor:
            log.append("unpack")
            return unpack(given)

        y = f(x, w)
        with torch.autograd.graph.saved_tensors_hooks(packing, unpacking):
            z = (y.exp() * x).tanh()
        z.register_hook(lambda g: log.append("hook"))
        z.sum().backward()
        return log, x.grad, w.grad

    return scenario


PACKED: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]] = {
    "as_they_are": (lambda t: t, lambda t: t),
    "as_copies": (lambda t: t.detach().clone(), lambda t: t.clone()),
    "in_doubles": (lambda t: t.detach().double(), lambda t: t.float()),
    "as_numpy": (lambda t: t.detach().numpy().copy(), lambda a: torch.from_numpy(a)),
    "in_a_tuple": (lambda t: (t.detach(), t.shape), lambda p: p[0].view(p[1])),
}
CASES += [whole_case(_packed(*both), f"whole_backward_saved_{name}", made_wave) for name, both in PACKED.items()]


def _checkpointed(use_reentrant: bool) -> Callable[..., Any]:
    def scenario(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
        y = checkpoint(lambda a, b: (a.sin() * b).exp(), f(x, w), w, use_reentrant=use_reentrant)
        y.sum().backward()
        return x.grad, w.grad

    return scenario


CASES += [
    whole_case(_checkpointed(False), "whole_backward_of_a_checkpoint", made_wave),
    whole_case(_checkpointed(True), "whole_backward_inside_a_backward", made_wave),
]


# Functions of the user's.


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        y = x**3 * factor
        ctx.save_for_backward(x, y)
        ctx.factor, ctx.calls = factor, []
        return y

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor, None]:
        x, y = ctx.saved_tensors
        ctx.calls.append(tuple(y.shape))
        return given[0] * 3 * x * x * ctx.factor, None


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return given[0] * x.exp()


class _Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Tensor:
        return given[0] * 2


def _doubled_in_part(y: Tensor) -> Tensor:
    _Dirty.apply(y.t()[1:3])
    return y


class _Two(torch.autograd.Function):
    """Two results, of which a step uses one; gradients that are missing are zeros, or None."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, materialize: bool, marks: bool) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(materialize)
        first, second = x * 2, x + 1
        if marks:
            ctx.mark_non_differentiable(second)
        return first, second

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, None, None]:
        SEEN.append([one is None for one in given])
        found = [one for one in given if one is not None]
        return (sum(found[1:], found[0] * 2) if found else None), None, None


SEEN: Log = []
"""What the functions' backwards were given."""


class _Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> None:
        return None


class _Named(torch.autograd.Function):
    """A function whose backward goes by its other name."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def vjp(ctx: Any, *given: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return given[0] * x.exp() * 2


class _Boxed(torch.autograd.Function):
    """A function that takes its gradients as a list."""

    boxed_grads_call = True

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x + 1

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Tensor:
        SEEN.append([type(each).__name__ for each in given])
        first, second = given[0] if len(given) == 1 else given
        return first * 2 + second


class _Without(torch.autograd.Function):
    """A function without a backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()


class _Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor, Tensor]:
        return given[0], given[0]


def _through(use: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    def scenario(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
        SEEN.clear()
        log: Log = []
        y = f(x, w)
        y.register_hook(lambda g: log.append(kept(g)))
        z = use(y, w)
        try:
            (z.sin() * x).sum().backward()
        except RuntimeError as error:  # NotImplementedError is one
            return type(error).__name__, log, x.grad, w.grad
        return log, x.grad, w.grad, list(SEEN)

    return scenario


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "saves_inputs_and_results": lambda y, w: _Cube.apply(y, 0.5),
    "twice": lambda y, w: _Cube.apply(_Cube.apply(y, 0.5), 2.0) + _Cube.apply(w, 1.0),
    "once_differentiable": lambda y, w: _Once.apply(y),
    "marks_dirty": lambda y, w: _Dirty.apply(y * 1),
    "marks_a_view_dirty": lambda y, w: _doubled_in_part(y * 1),
    "missing_gradient_materialized": lambda y, w: _Two.apply(y, True, False)[0],
    "missing_gradient_is_none": lambda y, w: _Two.apply(y, False, False)[0],
    "of_a_result_without_gradient": lambda y, w: _Two.apply(y, True, True)[0],
    "both_results": lambda y, w: torch.add(*_Two.apply(y, True, False)),
    "by_its_other_name": lambda y, w: _Named.apply(y),
    "of_a_list": lambda y, w: torch.mul(*_Boxed.apply(y)),
    "without_a_backward": lambda y, w: _Without.apply(y),
    "behind_no_gradient_materialized": lambda y, w: _Nothing.apply(_Two.apply(y, True, False)[0]) + w,
    "behind_no_gradient": lambda y, w: _Nothing.apply(_Once.apply(y)) + w,
    "gives_no_gradient": lambda y, w: _Nothing.apply(y) + w,
    "gives_too_many_gradients": lambda y, w: _Wrong.apply(y),
}
CASES += [whole_case(_through(use), f"whole_backward_function_{name}", made_wave) for name, use in FUNCTIONS.items()]


# Writes through views.


def _written(view: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def scenario(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
        log: Log = []
        y = f(x, w) * 1
        part = view(y)
        part.mul_(x.flatten()[: part.numel()].view(part.shape))
        y.register_hook(lambda g: log.append(kept(g)))
        (y * y).sum().backward()
        return log, x.grad, w.grad

    return scenario


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "row": lambda y: y[1],
    "column": lambda y: y[:, 2],
    "slice": lambda y: y[1:],
    "steps": lambda y: y[:, ::2],
    "transposed": lambda y: y.t(),
    "transposed_slice": lambda y: y.t()[1:3],
    "flat": lambda y: y.view(12)[3:9],
    "diagonal": lambda y: y.diagonal(),
    "selected": lambda y: y.select(1, 0),
    "squeezed": lambda y: y[:, :1].squeeze(1),
    "swapped": lambda y: y.swapaxes(0, 1)[0],
    "as_strided": lambda y: y.as_strided((2, 2), (4, 2), 1),
    "unsqueezed": lambda y: y.unsqueeze(1),
    "detached_rows": lambda y: y.narrow(0, 0, 2),
}
CASES += [
    whole_case(_written(view), f"whole_backward_of_a_write_through_{name}", made_wave) for name, view in VIEWS.items()
]


# Backwards that are asked for otherwise.


def _for_inputs(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    y = f(x, w)
    z = y.exp()
    z.sum().backward(inputs=[x], retain_graph=True)
    first = kept([x.grad]), w.grad
    z.sum().backward(inputs=[w])
    return first, x.grad, w.grad


def _of_grad(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    y = f(x, w)
    unused = torch.ones(2, requires_grad=True)
    found = torch.autograd.grad(y.exp().sum(), [x, y, unused], allow_unused=True, retain_graph=True)
    zeros = torch.autograd.grad(y.exp().sum(), [w, unused], allow_unused=True, materialize_grads=True)
    return found, zeros, x.grad, w.grad


def _of_several_results(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    y = f(x, w)
    torch.autograd.backward([y, y.sin().sum(), x * 2], [torch.ones_like(y), None, w.detach()])
    return x.grad, w.grad


def _to_third_order(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    found: Log = []
    value = f(x, w).exp().sum()
    for _ in range(3):
        (gradient,) = torch.autograd.grad(value, x, create_graph=True)
        found.append(kept(gradient))
        value = gradient.sin().sum()
    value.backward()
    return found, x.grad, w.grad


def _of_a_step_inside_a_step(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """The same function before and behind a step along its gradient, through which backward goes too."""
    (slope,) = torch.autograd.grad(f(x, w).exp().sum(), w, create_graph=True)
    f(x, w - 0.1 * slope).sin().sum().backward()
    return x.grad, w.grad


def _twice(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """The second time it keeps nothing, and the third time it raises."""
    loss = f(x, w).exp().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    found = kept([x.grad, w.grad])
    try:
        loss.backward()
    except RuntimeError as error:
        return found, str(error).split("(")[0]
    return found


def _over_micro_batches(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    for part in range(3):
        (f(x, w)[part] / 3).square().sum().backward()
    return x.grad, w.grad


def _into_another_layout(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    x.grad = torch.ones(4, 3).t()
    given = x.grad
    f(x, w).square().sum().backward()
    return x.grad is given, x.grad, w.grad


def _under_autocast(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        y = f(x, w) @ w.t()
    y.float().sum().backward()
    return x.grad, w.grad


def _tangent_is_copied(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """Eager takes over no gradient that somebody holds."""
    tangent = torch.ones(3, 4)
    f(x, w).backward(tangent)
    z = x + w
    z.backward(tangent)
    assert x.grad is not None and w.grad is not None
    x.grad.mul_(2)
    return x.grad, w.grad, tangent


def _of_sparse_gradients(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    table = nn.Embedding(5, 4, sparse=True)
    with torch.no_grad():
        table.weight.copy_(torch.arange(20.0).view(5, 4))
    for _ in range(2):
        (table(torch.tensor([1, 3, 1])) * f(x, w)).sum().backward()
    assert table.weight.grad is not None
    return table.weight.grad.is_sparse, table.weight.grad.to_dense(), x.grad, w.grad


class _Given(torch.autograd.Function):
    """Gives a gradient that is chosen in forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gradient: Tensor) -> Tensor:
        ctx.gradient = gradient
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor, None]:
        return ctx.gradient, None


def _of_sparse_gradients_that_meet_dense_ones(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """A leaf gets several gradients, of both layouts, in each order."""
    dense = f(x, w).detach()
    sparse = dense.relu().to_sparse()
    found: Log = []
    for given in ((sparse, dense), (dense, sparse), (sparse, dense, sparse), (sparse, sparse)):
        y = x.detach().requires_grad_(True)
        sum(_Given.apply(y, each) for each in given).sum().backward()  # type: ignore[union-attr]
        assert y.grad is not None
        found.append((str(y.grad.layout), y.grad.to_dense()))
    return found


def _of_a_sparse_gradient_of_one_row(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """Its values are one row, shown thrice; the leaf gets rows of its own."""
    values = f(x, w).detach()[:1].expand(3, 4)
    gradient = torch.sparse_coo_tensor(torch.ones(1, 1, dtype=torch.long).expand(1, 3), values, (3, 4))
    y = x.detach().requires_grad_(True)
    for _ in range(2):
        _Given.apply(y, gradient).sum().backward()  # type: ignore[union-attr]
    assert y.grad is not None
    return y.grad._values().is_contiguous(), y.grad.to_dense(), values


def _of_sparse_leaves(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """A sparse leaf gets a dense gradient, and then another."""
    seen: Log = []
    leaf = f(x, w).detach().relu().to_sparse().requires_grad_(True)
    leaf.register_post_accumulate_grad_hook(lambda each: seen.append(str(each.grad.layout)))
    for _ in range(2):
        torch.mm(leaf, w.t()).sum().backward()
    assert leaf.grad is not None
    return seen, str(leaf.grad.layout), leaf.grad.to_dense(), w.grad


def _of_other_sizes(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    for size in (3, 1, 2, 3, 2):
        f(x, w)[:size].exp().mean().backward()
    return x.grad, w.grad


def _of_another_graph_each_step(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    for step in range(6):
        y = f(x, w)
        for _ in range(step % 3):
            y = y.sin()
        y.sum().backward()
    return x.grad, w.grad


def _of_other_numbers(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """What the program multiplies with is another number at each step."""
    found: Log = []
    for step in range(4):
        (f(x, w) * (step + 0.5) + step).pow(2).sum().mul(step).backward()
        found.append(kept(x.grad))
    return found, w.grad


def _of_a_leaf_used_often(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    y = f(x, w)
    for step in range(60):
        y = y + (x * (step * 0.01)).sin()
    y.sum().backward()
    return x.grad, w.grad


def _of_a_frozen_leaf(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    x.requires_grad_(False)
    f(x, w).sum().backward()
    first = x.grad, kept(w.grad)
    x.requires_grad_(True)
    f(x, w).sum().backward()
    return first, x.grad, w.grad


def _in_threads(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    made = [[each.detach().clone().requires_grad_(True) for each in (x, w)] for _ in range(3)]
    losses = [f(*pair).exp().sum() for pair in made]
    threads = [threading.Thread(target=loss.backward) for loss in losses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [[each.grad for each in pair] for pair in made]


def _in_a_hook(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """A hook goes backward through another graph."""
    other = torch.ones(3, requires_grad=True)
    y = f(x, w)
    y.register_hook(lambda g: other.exp().sum().backward())
    y.sum().backward()
    return x.grad, w.grad, other.grad


def _under_anomaly_detection(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    try:
        with torch.autograd.detect_anomaly(check_nan=True):
            (f(x, w) * 0).sqrt().sum().backward()
    except RuntimeError as error:
        return str(error).split(" returned")[0], x.grad, w.grad
    return x.grad, w.grad


def _of_a_module_with_hooks(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    log: Log = []
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    for name, layer in module.named_children():
        layer.register_full_backward_pre_hook(lambda m, given, n=name: log.append((n, "before", kept(given))))  # type: ignore[misc]
        layer.register_full_backward_hook(lambda m, made, given, n=name: log.append((n, kept(made), kept(given))))  # type: ignore[misc]
    module(f(x, w)).square().sum().backward()
    return log, x.grad, w.grad, [parameter.grad for parameter in module.parameters()]


def _of_a_version_that_has_changed(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """What was saved has been written since."""
    y = f(x, w)
    z = y.exp()
    loss = z.sum()
    z.detach().mul_(2)
    try:
        loss.backward()
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error), x.grad, w.grad
    return x.grad, w.grad


def _of_a_gradient_that_a_node_of_a_leaf_is_given(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """A hook behind the node of a leaf is given the gradient that has become the leaf's own."""
    log: Log = []
    node: Any = x.view_as(x).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
    x.register_post_accumulate_grad_hook(lambda leaf: [leaf.grad.add_(0.5)].clear())
    node.register_hook(lambda made, given: log.append((given[0] is x.grad, kept(given))))
    for _ in range(2):
        f(x, w).sum().backward()
    return log, x.grad, w.grad


def _under_a_mode_that_sees_operators(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """What counts operators counts each once."""

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(str(operator))
            return operator(*args, **(kwargs or {}))

    names: list[str] = []
    y = f(x, w).tanh()
    with Names():
        y.sum().backward()
    return names.count("aten.tanh_backward.default"), x.grad, w.grad


def _that_keeps_the_context(keeps_graph: bool) -> Callable[..., Any]:
    """What a function's context tells after its backward: the saved tensors are gone, or still there."""

    def scenario(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
        contexts: list[Any] = []

        class Keeps(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, value: Tensor) -> Tensor:
                ctx.save_for_backward(value)
                return value * 2

            @staticmethod
            def backward(ctx: Any, *given: Tensor) -> Tensor:
                contexts.append(ctx)
                return given[0] * ctx.saved_tensors[0]

        Keeps.apply(f(x, w)).sum().backward(retain_graph=keeps_graph)
        try:
            return [kept(context.saved_tensors) for context in contexts], x.grad, w.grad
        except RuntimeError as error:
            return type(error).__name__, x.grad, w.grad

    scenario.__name__ = f"that_keeps_the_context{'_and_the_graph' * keeps_graph}"
    return scenario


def _of_no_gradient(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """Nothing flows to one of the leaves, whose `.grad` is none and no zero."""
    y = f(x.detach(), w)
    (y + (x * 0).detach()).sum().backward()
    return x.grad, w.grad


def _scenarios() -> Iterator[Callable[..., Any]]:
    names: Sequence[Callable[..., Any]] = (
        _before_forward, _in_order_of_registration, _of_branches, _that_raises, _taken_away_by_another,
        _queued_callbacks, _steps_in_hooks, _for_inputs, _of_grad, _of_several_results, _to_third_order, _twice,
        _of_a_step_inside_a_step,
        _over_micro_batches, _into_another_layout, _under_autocast, _tangent_is_copied, _of_sparse_gradients,
        _of_sparse_gradients_that_meet_dense_ones, _of_sparse_leaves, _of_a_sparse_gradient_of_one_row,
        _of_other_sizes, _of_another_graph_each_step, _of_other_numbers, _of_a_leaf_used_often, _of_a_frozen_leaf,
        _in_threads, _in_a_hook, _under_anomaly_detection, _of_a_module_with_hooks, _of_a_version_that_has_changed,
        _of_no_gradient, _of_a_gradient_that_a_node_of_a_leaf_is_given, _under_a_mode_that_sees_operators,
        _that_keeps_the_context(False), _that_keeps_the_context(True),
    )  # fmt: skip
    return iter(names)


CASES += [whole(scenario) for scenario in _scenarios()]


def _of_numbers_alone() -> Made:
    return _wave, (leaf(3, 4), numbers(3, 4)), {}


def _plain(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    f(x, w).sum().backward()
    return x.grad, w.grad


CASES.append(whole_case(_plain, "whole_backward_beside_numbers", _of_numbers_alone))
