"""Results as views, replayed on what the graph returned, so that they alias as eager's do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import torch

from assay.compiler.codegen.call.source import LITERALS, Source, name_of, name_of_kept, name_of_result
from assay.compiler.ir.graph.roles import Base, Constant, Input, Result, Same, Size, UserOutput, View, ViewStep
from assay.compiler.runtime.call import outside_inference

aten = torch.ops.aten

METHODS = {
    aten.as_strided.default: "as_strided",
    aten.detach.default: "detach",
    aten.diagonal.default: "diagonal",
    aten.expand.default: "expand",
    aten.permute.default: "permute",
    aten.select.int: "select",
    aten.squeeze.default: "squeeze",
    aten.squeeze.dim: "squeeze",
    aten.squeeze.dims: "squeeze",
    aten.t.default: "t",
    aten.transpose.int: "transpose",
    aten.unbind.int: "unbind",
    aten.unfold.default: "unfold",
    aten.unsqueeze.default: "unsqueeze",
    aten.view.default: "view",
    aten.view.dtype: "view",
}
"""Views that are a method of the tensor, with the operator's own arguments."""
SPREAD = (aten.expand.default, aten.permute.default, aten.view.default)
"""Those whose sizes or dimensions cost half a microsecond less as arguments of their own than as a list."""
MOST_INLINE = 4
"""Written inputs up to which each has a line that asks whether it is an inference tensor: beyond, they share one."""


def is_ahead(result: Result) -> TypeGuard[View]:
    """Whether a result is a view that is made before the graph runs, and so before the versions of inputs grow."""
    return isinstance(result, View) and result.is_early and not result.needs_sizes


def is_behind(result: Result) -> TypeGuard[View]:
    """Whether a result is a view that is made after the graph, which gives its sizes, but before any input changes."""
    return isinstance(result, View) and result.is_early and result.needs_sizes


def emit_result(source: Source, index: int, result: Result, names: Mapping[int, str]) -> str:
    """The text of one result; a view is made on the lines before."""
    match result:
        case Constant(value):
            return repr(value) if isinstance(value, LITERALS) else source.bind("constant", value)
        case Input(of):
            return f"keep_{of.index}"
        case Same(first):
            return names[first]
        case View():
            return emit_view(source, index, result, names)
    return name_of(result)


def emit_view(source: Source, index: int, view: View, names: Mapping[int, str]) -> str:
    match view.of:
        case Same(first):
            text = names[first]
        case UserOutput() | Base():
            text = name_of(view.of)
        case _:
            text = name_of_kept(view.of)
    name = name_of_result(index)
    guard = "" if view.is_in_grad_mode else source.unrecorded()
    if index in source.views_outside:
        guard = f"with {source.bind('outside_inference', outside_inference)}(): "
    for place, step in enumerate(view.how):
        text = step_text(source, text, step)
        if step.item is not None:
            item = _Piece(index, place, step.item, is_last=place + 1 == len(view.how))
            text = _piece(source, guard, text, item, view.is_early)
    source.line(1, f"{guard}{name} = {text}")
    return name


@dataclass(frozen=True, slots=True)
class _Piece:
    """The piece `item` of what the step `place` of a result's view gives; `is_last` where the result is this piece."""

    result: int
    place: int
    item: int
    is_last: bool


def _piece(source: Source, guard: str, call: str, piece: _Piece, is_early: bool) -> str:
    """The text of one of the pieces that a call gives.

    Results that are pieces of one tensor come of one call, as in eager. Autograd then puts their gradients side by
    side. Those of two calls would be added, each among zeros.
    """
    key = guard, call, is_early
    name, taken = source.pieces.get(key, ("", set[int]()))
    if not name or (piece.is_last and piece.item in taken):  # two results are never one object
        name, taken = source.pieces[key] = f"pieces_{piece.result}_{piece.place}", set()
        source.line(1, f"{guard}{name} = {call}")
    if piece.is_last:
        taken.add(piece.item)
    return f"{name}[{piece.item}]"


def step_text(source: Source, value: str, step: ViewStep) -> str:
    """One step of a view's chain, all pieces that it gives. A method of the tensor costs a third of the operator."""
    given: Sequence[object] = step.arguments
    if step.target in SPREAD and len(given) == 1 and isinstance(given[0], (list, tuple)) and given[0]:
        given = given[0]
    arguments = ", ".join(_argument(source, argument) for argument in given)
    if step.target == "data":
        return f"{value}.data"
    method = METHODS.get(step.target)
    if method is not None:
        return f"{value}.{method}({arguments})"
    operator = source.bind(str(step.target).removesuffix(".default").replace(".", "_"), step.target)
    return f"{operator}({value}{', ' if arguments else ''}{arguments})"


def _argument(source: Source, value: object) -> str:
    if isinstance(value, Size):
        return name_of(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_argument(source, item) for item in value) + "]"
    return repr(value) if isinstance(value, LITERALS) else source.bind("constant", value)
