"""Gradients that are views of a tangent, taken of the very tensor that backward is given.

    y = cat([x, w], 1)   ->   grad_w = tangent[:, 3:], however the tangent lies

A graph takes a tangent as it was recorded, and one that lies otherwise is copied for it. The graph's view is then a
part of that copy. Eager's is a part of the tangent, and its strides and its offset are others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Of:
    """An argument of a step: the tangent, a saved size or the result of an earlier step, by its position among these.

    `kind` is "tangent", "size" or "step".
    """

    kind: str
    index: int


@dataclass(frozen=True, slots=True)
class TangentView:
    """The calls that lead from a tangent to a view of it, each a function with its arguments; the last is the view."""

    steps: tuple[tuple[Callable[..., Any], tuple[object, ...]], ...]

    def __call__(self, tangent: torch.Tensor, sizes: Sequence[Any]) -> torch.Tensor:
        made: list[Any] = []
        known: Mapping[str, Sequence[Any]] = {"tangent": (tangent,), "size": sizes, "step": made}
        for function, arguments in self.steps:
            made.append(function(*(_filled(argument, known) for argument in arguments)))
        view: torch.Tensor = made[-1]
        return view


def _filled(argument: object, known: Mapping[str, Sequence[Any]]) -> object:
    if isinstance(argument, Of):
        return known[argument.kind][argument.index]
    return [_filled(item, known) for item in argument] if isinstance(argument, list | tuple) else argument
