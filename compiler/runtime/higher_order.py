"""Backward when its own gradients are asked for: `create_graph=True`, at any order.

    Gradients(inputs, tangents)    the gradients of a call as a node of their own, over what the call's node saved

To autograd, that node leads to the tangents and to the inputs of the call, where these are at hand: they were saved
anyway, or are leaves. For another input the call's own node has an anchor, an output of no elements, which stands for
all inputs:

    Gradients(anchor, tangents)    what it finds for the inputs waits at the call's node (`Waiting`) until the engine,
                                   which runs a node after all that lead to it, comes there

So whoever never asks pays for an empty tensor at most, and no memory is held for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from assay.compiler.ir.graph.backward.derivative_path import Path
from assay.compiler.ir.graph.roles import GraphCall
from assay.compiler.runtime.call import in_batch, is_grad_enabled, untraced, without_autocast
from assay.compiler.runtime.expected_inputs import is_plain
from assay.compiler.torch_stubs import empty_strided_cpu

Sizes = tuple[int, ...]
MOST_ORDERS = 256
"""How many orders of one call are held, over all sizes; beyond that the oldest goes."""


def new_anchor() -> Tensor:
    """An output of no elements. Cost: 0.4 us."""
    made: Tensor = empty_strided_cpu((0,), (1,), torch.float32)
    return made


@dataclass(frozen=True, slots=True)
class Order:
    """The gradients of one order, built; `recorded` runs them operator by operator, on what no kernel takes.

    `arguments` are what the graph takes: a saved tensor, a saved size or a tangent, each by its position among those of
    its kind; `layouts` bring each into the strides that the graph was built for. `gradients` are for each input of the
    call, and then for each tangent of the orders before, the graph's output, or None.
    """

    graph: GraphCall
    recorded: GraphCall
    arguments: tuple[tuple[str, int], ...]
    layouts: tuple[Callable[[Tensor], Tensor] | None, ...]
    gradients: tuple[int | None, ...]
    differentiable: frozenset[int]

    def run(self, saved: Sequence[Tensor], sizes: Sequence[int], tangents: Sequence[Tensor]) -> Sequence[Any]:
        kinds: dict[str, Sequence[Any]] = {"saved": saved, "size": sizes, "tangent": tangents}
        given = [kinds[kind][index] for kind, index in self.arguments]
        laid_out = [
            value if layout is None else layout(value) for layout, value in zip(self.layouts, given, strict=True)
        ]
        is_taken = not in_batch() and all(map(is_plain, tangents))
        return self.graph(laid_out) if is_taken else self.recorded(laid_out)


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the gradients of a call's inputs go.

    `places` are, for each input that the call has gradients of, its position among what the call's node takes, `count`
    how many these are. `sources` tell where autograd's knowledge of each is found: in a saved tensor, by its position,
    or behind the node, by the position of a tensor that it takes, if that is a leaf. `is_anchored`: one may be no leaf,
    and the node then has an anchor. `sizes` are where the call is given its symbolic sizes.
    """

    places: tuple[int, ...]
    count: int
    sources: tuple[tuple[str, int], ...]
    is_anchored: bool
    sizes: tuple[tuple[int, int | None], ...]


@dataclass(slots=True)
class Waiting:
    """Gradients of a call's inputs that have been found and that its node has not returned yet, by the run of the
    engine in which they were."""

    found: dict[int, list[list[Tensor | None]]] = field(default_factory=dict)

    def add(self, gradients: list[Tensor | None]) -> None:
        self.found.setdefault(torch._C._current_graph_task_id(), []).append(gradients)

    def take(self) -> list[list[Tensor | None]]:
        return self.found.pop(torch._C._current_graph_task_id(), [])


@dataclass(frozen=True, slots=True)
class Unpacking:
    """How the values that forward would keep are found in what it keeps where hooks on saved tensors are parts of the
    graphs.

    `tensors` has, for each value that forward would keep, what lays it out as the graphs expect, and where it is.
    Without a structure it is the value at a position among what is kept. With a structure it is what the hook makes of
    leaves in it. Each leaf is a position, or a constant in a tuple of its own.
    """

    hook: Callable[[Any], Tensor]
    tensors: tuple[tuple[Callable[[Tensor], Tensor], pytree.TreeSpec | None, tuple[Any, ...]], ...]
    sizes: tuple[int, ...]

    def __call__(self, saved: Sequence[Tensor], sizes: Sizes) -> tuple[tuple[Tensor, ...], Sizes]:
        kept = (*saved, *sizes)
        found: list[Tensor] = []
        for laid_out, structure, leaves in self.tensors:
            values = [leaf[0] if isinstance(leaf, tuple) else kept[leaf] for leaf in leaves]
            if structure is None:
                found.append(values[0])
            else:
                found.append(laid_out(self.hook(pytree.tree_unflatten(values, structure)).detach()))
        return tuple(found), tuple(sizes[index] for index in self.sizes)


@dataclass(slots=True)
class HigherOrder:
    """The gradients of all orders of one call. `make(path, at, is_open)` builds those of one order where the call's
    symbolic sizes are the numbers `at`: torch's formulas of a higher order ask for them.

    `check` holds written inputs to their versions. `unpack` gives the values that forward would keep, and the sizes,
    from those that it keeps, where hooks on saved tensors are parts of the graphs.
    """

    make: Callable[[Path, Sizes, bool], Order]
    roots: Roots
    check: Callable[[Any], None]
    unpack: Unpacking | None = None
    orders: dict[tuple[Path, Sizes, bool], Order] = field(default_factory=dict)

    def order(self, path: Path, at: Sizes, is_open: bool) -> Order:
        found = self.orders.get((path, at, is_open))
        if found is None:
            if len(self.orders) >= MOST_ORDERS:
                del self.orders[next(iter(self.orders))]
            found = self.orders[path, at, is_open] = self.make(path, at, is_open)
        return found

    def __call__(
        self,
        backward: Callable[[], Sequence[Tensor | None]],
        ctx: Any,
        tangents: tuple[Tensor | None, ...],
        ticket: Tensor | None = None,
    ) -> tuple[Tensor | None, ...]:
        """What the call's node returns where gradients of gradients are recorded, or come back to it.

        `backward()` is what it returns where neither is the case.
        """
        waiting = ctx.__dict__.setdefault("waiting", Waiting())
        found = waiting.take() if ticket is not None else []
        if any(tangent is not None for tangent in tangents):
            if is_grad_enabled():
                found.append(self._recorded(ctx, tangents, waiting))
            else:
                values = backward()
                found.append([values[place] for place in self.roots.places])
        returned: list[Tensor | None] = [None] * self.roots.count
        for index, place in enumerate(self.roots.places):
            returned[place] = _sum([gradients[index] for gradients in found])
        return tuple(returned)

    def _recorded(self, ctx: Any, tangents: tuple[Tensor | None, ...], waiting: Waiting) -> list[Tensor | None]:
        """The gradients of the call, recorded by autograd."""
        given = [(index, tangent) for index, tangent in enumerate(tangents) if tangent is not None]
        path = (tuple((index, tangent.requires_grad) for index, tangent in given),)
        numbers, sizes = getattr(ctx, "at", ()), getattr(ctx, "sizes", ())
        order = self.order(path, numbers, is_grad_enabled())
        if not any(kind == "saved" for kind, _ in order.arguments):
            # they follow from the tangents alone: what was saved may have been written since
            at = _At(self, path, (None,) * len(self.roots.places), (), sizes, numbers, None)
            return at.gradients(order, [tangent for _, tangent in given])
        if written := getattr(ctx, "written", None):
            self.check(written)
        saved: Sequence[Tensor] = ctx.saved_tensors
        anchor: Tensor | None = None
        if self.roots.is_anchored:
            *saved, anchor = saved
        roots = (anchor,) if anchor is not None else tuple(self._roots(ctx, saved))
        kept = tuple(value.detach() for value in saved)
        if self.unpack is not None:
            kept, sizes = self.unpack(kept, sizes)
        at = _At(self, path, roots, kept, sizes, numbers, waiting if anchor is not None else None)
        return at.gradients(order, [tangent for _, tangent in given])

    def _roots(self, ctx: Any, saved: Sequence[Tensor]) -> Iterator[Tensor | None]:
        """The inputs themselves: those that were saved, and leaves; None for what has no gradient in the call."""
        for kind, index in self.roots.sources:
            if kind == "saved":
                yield saved[index]
            else:
                node = ctx.next_functions[index][0]
                yield None if node is None else node.variable


@dataclass(frozen=True, slots=True)
class _At:
    """One order of one call's gradients, over what the call saved.

    `roots` are the inputs; or, where gradients of these wait at the call's node, its anchor alone. `at` are what the
    call's symbolic sizes are here.
    """

    higher: HigherOrder
    path: Path
    roots: tuple[Tensor | None, ...]
    saved: tuple[Tensor, ...]
    sizes: Sizes
    at: Sizes
    waiting: Waiting | None

    def gradients(self, order: Order, tangents: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of the call's inputs, then those of the tangents of the orders before the last."""
        if is_grad_enabled():
            values = Gradients.apply(self, order, *self.roots, *tangents)
        else:
            values = order.run(self.saved, self.sizes, tangents)
        return [None if index is None else values[index] for index in order.gradients]


class Gradients(torch.autograd.Function):
    """Gradients of one order, as a node that has gradients itself. It takes the roots, then the tangents."""

    @staticmethod
    def forward(ctx: Any, at: _At, order: Order, *roots_and_tangents: Any) -> tuple[Tensor, ...]:
        tangents = roots_and_tangents[len(at.roots) :]
        values = tuple(order.run(at.saved, at.sizes, tangents))
        ctx.at = replace(at, saved=())
        ctx.gradients = order.gradients
        ctx.count = len(tangents)
        ctx.save_for_backward(*tangents, *at.saved)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(v for index, v in enumerate(values) if index not in order.differentiable))
        return values

    @staticmethod
    @untraced
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        return without_autocast(Gradients.of_gradients, ctx, *given)

    @staticmethod
    def of_gradients(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of the inputs and of the tangents."""
        kept = ctx.saved_tensors
        tangents, saved = kept[: ctx.count], tuple(value.detach() for value in kept[ctx.count :])
        fresh: list[Tensor] = []
        places: list[tuple[int, bool]] = []
        for place, index in enumerate(ctx.gradients):
            tangent = None if index is None else given[index]
            if tangent is not None:
                fresh.append(tangent)
                places.append((place, tangent.requires_grad))
        if not fresh:
            return (None,) * (2 + len(ctx.at.roots) + ctx.count)
        at = replace(ctx.at, path=(*ctx.at.path, tuple(places)), saved=saved)
        order = at.higher.order(at.path, at.at, is_grad_enabled())
        found = at.gradients(order, [*tangents, *fresh])
        if at.waiting is None:
            pairs = zip(found, ctx.needs_input_grad[2:], strict=True)
            return (None, None, *(gradient if is_needed else None for gradient, is_needed in pairs))
        inputs = len(at.higher.roots.places)
        at.waiting.add(found[:inputs])
        return (None, None, new_anchor(), *found[inputs:])


def _sum(gradients: Sequence[Tensor | None]) -> Tensor | None:
    """The sum of those that are there."""
    total: Tensor | None = None
    for gradient in gradients:
        if gradient is not None:
            total = gradient if total is None else total + gradient
    return total
