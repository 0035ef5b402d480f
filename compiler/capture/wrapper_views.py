"""What eager does with a wrapper as a whole (`ir/tensors/wrappers.py`): how it took a view, what `copy_` writes.

    y = x.view(-1)[2:]      steps_from(x, y) == (view([-1]), slice(0, 2))

A graph computes with inner tensors, each of which has a chain of views of its own. The chain of the wrapper is what
autograd notes of it: its view function, which is called once more and watched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.roles import ViewStep
from assay.compiler.ir.graph.trace import Trace
from assay.compiler.ir.graph.wrapper_nodes import is_given
from assay.compiler.ir.tensors.wrappers import Recipe, has_wrapper, inner_tensors, is_wrapper, with_inner
from assay.compiler.ir.typed_nodes import node_argument

ALIASES = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)
"""Views that autograd takes for views of nothing, although they are of something."""


def steps_from(base: torch.Tensor, value: torch.Tensor, trace: Trace) -> tuple[ViewStep, ...]:
    """The calls that make a view of its base. Raises: Unsupported where autograd does not know them."""
    view: Any = value
    with trace.paused(), torch.no_grad():
        start = trace.fake_of(base).detach()
        try:
            with _Watched() as watched:
                end = view._view_func_unsafe(start)
        except (RuntimeError, NotImplementedError) as reason:
            raise Unsupported(f"the program returns a view of a wrapper that no call makes again: {reason}") from reason
    return tuple(_chained(watched.views, start, end))


class _Watched(TorchDispatchMode):
    """Notes each view that is taken, and its result."""

    def __init__(self) -> None:
        super().__init__()
        self.views: list[tuple[Any, Sequence[Any], Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **kwargs or {})
        if func.is_view:
            if kwargs:
                raise Unsupported(f"the program returns a view made by {func} with keyword arguments")
            self.views.append((func, args, result))
        return result


def _chained(views: Sequence[tuple[Any, Sequence[Any], Any]], start: torch.Tensor, end: torch.Tensor) -> list[ViewStep]:
    """The views as steps, each of what the one before gave. Raises: Unsupported where they are no chain."""
    steps: list[ViewStep] = []
    given = [args[0] for _, args, _ in views]
    for (func, args, result), taken, following in zip(views, [start, *given[1:]], [*given[1:], end], strict=True):
        several = isinstance(result, (tuple, list))
        place = next((place for place, one in enumerate(result) if one is following), None) if several else None
        if args[0] is not taken or (place is None and result is not following):
            raise Unsupported("the program returns a view of a wrapper that is no chain of views")
        steps.append(ViewStep(func, tuple(args[1:]), place))
    return steps


def detached_from(value: torch.Tensor, trace: Trace) -> tuple[tuple[fx.Node, ...], ViewStep] | None:
    """Of what a wrapper is an alias that autograd does not know: the nodes of that one's inner tensors, and the call
    that makes the alias. None where it is no such alias."""
    recipe = Recipe.of(value)
    inner = [trace.node_of(getattr(value, name)) for name in recipe.names]
    targets = {node.target for node in inner}
    if len(targets) != 1 or not targets <= set(ALIASES) or any(map(_is_nested(value), recipe.names)):
        return None
    (target,) = targets
    return tuple(node_argument(node, 0) for node in inner), ViewStep(target, ())  # type: ignore[arg-type]


def _is_nested(value: torch.Tensor) -> Callable[[str], bool]:
    return lambda name: is_wrapper(getattr(value, name))


def check_copied(argument: torch.Tensor, trace: Trace) -> None:
    """Raises: Unsupported for a written wrapper whose `copy_` does not copy each of its written inner tensors: by that
    call the values are written back."""
    kind = type(argument).__name__
    with trace.paused(), torch.no_grad():
        old, new = (with_inner(trace.fake_of(argument), torch.empty_like) for _ in range(2))
        try:
            with _Copies() as copies:
                old.copy_(new)
        except Exception as reason:  # the class may raise anything
            raise Unsupported(f"the program writes a {kind}, whose copy_ raises {reason!r}") from reason
    pairs = [(id(into), id(value)) for into, value in zip(inner_tensors(old), inner_tensors(new), strict=True)]
    is_kept = (is_given(trace.node_of(inner)) for inner in inner_tensors(argument))
    written = {pair for pair, kept in zip(pairs, is_kept, strict=True) if not kept}
    if not written <= copies.made <= set(pairs):
        raise Unsupported(f"the program writes a {kind}, whose copy_ leaves out inner tensors")


class _Copies(TorchDispatchMode):
    """Notes which plain tensor is copied to which."""

    def __init__(self) -> None:
        super().__init__()
        self.made: set[tuple[int, int]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if has_wrapper(types):
            return NotImplemented
        if func is torch.ops.aten.copy_.default:
            self.made.add((id(args[0]), id(args[1])))
        return func(*args, **kwargs or {})
