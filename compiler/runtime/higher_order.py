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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from assay.compiler.ir.graph.backward.derivative_path import Path
from assay.compiler.ir.graph.roles import GraphCall
from assay.compiler.runtime.call import WRITTEN, in_batch, is_grad_enabled, untraced, without_autocast
from assay.compiler.runtime.expected_inputs import is_plain
from assay.compiler.runtime.saved_values import Sizes, Unpacking, detached, root_as_taken, saved_unless_written
from assay.compiler.torch_compat import unchecked
from assay.compiler.torch_stubs import empty_strided_cpu

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
    its kind; `layouts` bring each into the strides that the graph was built for. `written` are the positions of what
    has to have the version that forward noted. `gradients` are for each input of the call, and then for each tangent of
    the orders before, the graph's output, or None.
    """

    graph: GraphCall
    recorded: GraphCall
    arguments: tuple[tuple[str, int], ...]
    layouts: tuple[Callable[[Tensor], Tensor] | None, ...]
    written: tuple[int, ...]
    gradients: tuple[int | None, ...]
    differentiable: frozenset[int]

    def reads(self, kind: str) -> set[int]:
        """The positions of what the graph takes of a kind."""
        return {index for of, index in self.arguments if of == kind}

    def run(self, saved: Sequence[Tensor | None], sizes: Sequence[int], tangents: Sequence[Tensor]) -> Sequence[Any]:
        kinds: dict[str, Sequence[Any]] = {"saved": saved, "size": sizes, "tangent": tangents}
        given = [kinds[kind][index] for kind, index in self.arguments]
        if any(value is None for value in given):
            raise RuntimeError(WRITTEN)
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
    or (None) behind the node, if it is a leaf. `behind` are the positions among the tensors that the node takes.
    `is_anchored`: one that is not saved may be no leaf, and the node then has an anchor. `sizes` are where the call is
    given its symbolic sizes.
    """

    places: tuple[int, ...]
    count: int
    sources: tuple[int | None, ...]
    behind: tuple[int, ...]
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


@dataclass(slots=True)
class HigherOrder:
    """The gradients of all orders of one call. `make(path, at, is_open)` builds those of one order where the call's
    symbolic sizes are the numbers `at`: torch's formulas of a higher order ask for them.

    `results` are the saved tensors whose versions forward noted, as those of `PartialBackward` are. `check` holds
    written inputs to their versions. `unpack` gives the values that forward would keep, and the sizes,
    from those that it keeps, where hooks on saved tensors are parts of the graphs.
    """

    make: Callable[[Path, Sizes, bool], Order]
    roots: Roots
    results: Mapping[int, int]
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
            self.check(written if self.unpack else [written[index] for index in order.written])
        wanted = order.reads("saved")
        if self.unpack is not None:
            wanted = self.unpack.reads(wanted, len(ctx._raw_saved_tensors) - self.roots.is_anchored)
        saved: Sequence[Tensor | None] = saved_unless_written(ctx, wanted, self.results)
        anchor: Tensor | None = None
        if self.roots.is_anchored:
            *saved, anchor = saved
            if anchor is None and unchecked(ctx._raw_saved_tensors[-1]) is not None:
                _ = ctx.saved_tensors  # raises: autograd gives the anchor with all that was saved, or not at all
        roots = (anchor,) if anchor is not None else tuple(self._roots(ctx, saved))
        kept = tuple(map(detached, saved))
        if self.unpack is not None:
            kept, sizes = self.unpack(kept, sizes)
        at = _At(self, path, roots, kept, sizes, numbers, waiting if anchor is not None else None)
        return at.gradients(order, [tangent for _, tangent in given])

    def _roots(self, ctx: Any, saved: Sequence[Tensor | None]) -> Iterator[Tensor | None]:
        """The inputs themselves: those that were saved, and leaves; None for what has no gradient in the call.

        Raises: what autograd raises for one that was saved and written since, if it has become another function of
        what it was made from.
        """
        for index, behind in zip(self.roots.sources, self.roots.behind, strict=True):
            edge = ctx.next_functions[behind]
            if index is not None and saved[index] is not None:
                yield saved[index]
            elif edge[0] is None:
                yield None
            elif index is None or hasattr(edge[0], "variable"):
                yield edge[0].variable
            else:
                yield root_as_taken(unchecked(ctx._raw_saved_tensors[index]), edge)


@dataclass(frozen=True, slots=True)
class _At:
    """One order of one call's gradients, over what the call saved.

    `roots` are the inputs; or, where gradients of these wait at the call's node, its anchor alone. `at` are what the
    call's symbolic sizes are here.
    """

    higher: HigherOrder
    path: Path
    roots: tuple[Tensor | None, ...]
    saved: tuple[Tensor | None, ...]
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
        ctx.versions = tuple(None if value is None else value._version for value in (*tangents, *at.saved))
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
        fresh: list[Tensor] = []
        places: list[tuple[int, bool]] = []
        for place, index in enumerate(ctx.gradients):
            tangent = None if index is None else given[index]
            if tangent is not None:
                fresh.append(tangent)
                places.append((place, tangent.requires_grad))
        if not fresh:
            return (None,) * (2 + len(ctx.at.roots) + ctx.count)
        path = (*ctx.at.path, tuple(places))
        order = ctx.at.higher.order(path, ctx.at.at, is_grad_enabled())
        if is_grad_enabled():
            _check_roots(ctx)
        tangents, saved = _kept(ctx, order)
        at = replace(ctx.at, path=path, saved=saved)
        found = at.gradients(order, [*tangents, *fresh])
        if at.waiting is None:
            pairs = zip(found, ctx.needs_input_grad[2:], strict=True)
            return (None, None, *(gradient if is_needed else None for gradient, is_needed in pairs))
        inputs = len(at.higher.roots.places)
        at.waiting.add(found[:inputs])
        return (None, None, new_anchor(), *found[inputs:])


def _kept(ctx: Any, order: Order) -> tuple[list[Any], tuple[Tensor | None, ...]]:
    """The tangents and the saved tensors of a node of `Gradients`, for the next order; None for one that was written
    since and that it does not read.

    Raises: what autograd raises for one that it reads, or hands on to the order after it.
    """
    count: int = ctx.count
    tangents = set(range(count)) if is_grad_enabled() else order.reads("tangent") & set(range(count))
    wanted = tangents | {count + index for index in order.reads("saved")}
    kept = saved_unless_written(ctx, wanted, {index: index for index, _ in enumerate(ctx.versions)})
    return kept[:count], tuple(map(detached, kept[count:]))


def _check_roots(ctx: Any) -> None:
    """Raises: RuntimeError where an input that has gradients is another function since of what it was made from."""
    roots = [root for root in ctx.at.roots if root is not None]
    for root, edge in zip(roots, ctx.next_functions, strict=False):
        if edge[0] is not None:
            root_as_taken(root, edge)


def _sum(gradients: Sequence[Tensor | None]) -> Tensor | None:
    """The sum of those that are there."""
    total: Tensor | None = None
    for gradient in gradients:
        if gradient is not None:
            total = gradient if total is None else total + gradient
    return total
