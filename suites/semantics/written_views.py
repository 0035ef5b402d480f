"""Views that require grad and are written: the gradient of their base is eager's, to the sign of each zero.

Each program is called with a view of a base that a leaf was copied to. Then gradients come from the base, from the
results, and from each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from assay.harness.case import Case, Made
from assay.suites.semantics.program import leaf, program

written_views = "written-views"

VIEWS: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "part": lambda base: (base[1:5],),
    "gaps": lambda base: (base[::2],),
    "column": lambda base: (base.view(4, 2)[:, 1],),
    "whole": lambda base: (base.view(2, 4),),
    "transposed_part": lambda base: (base[1:7].view(2, 3).t()[1:],),
    "no_view": lambda base: (base,),
    "two_that_overlap": lambda base: (base[1:5], base[3:7]),
    "two_apart": lambda base: (base[1:3], base[5:7]),
    "base_and_part": lambda base: (base, base[2:5]),
    "part_and_base": lambda base: (base[2:5], base),
}
"""What a program is given, over a base of 8 numbers."""


def _scaled(view: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
    return (view.mul_(-0.0),)


def _part_scaled(view: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
    view.mul_(2)[1:].mul_(-0.0)
    return (view,)


def _zeroed(view: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
    return (view.zero_(),)


def _added_to_itself(view: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
    return (view.add_(view, alpha=-0.0),)


def _read_before(view: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    read = (rest[0] if rest else view) * 3
    return view.mul_(-0.0), read


def _read_between(view: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    view.mul_(2)
    read = (rest[0] if rest else view) * 3
    return view.mul_(-0.0), read


def _read_after(view: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    view.mul_(-0.0)
    return view, (rest[0] if rest else view) * 3


def _all_written(*views: Tensor) -> tuple[Tensor, ...]:
    return tuple(view.mul_(-0.0) for view in views)


WRITES = (_scaled, _part_scaled, _zeroed, _added_to_itself, _read_before, _read_between, _read_after, _all_written)


def _sources(base: Tensor, results: tuple[Tensor, ...]) -> Iterator[tuple[Tensor, ...]]:
    yield (base,)
    yield results
    yield (*results, base)
    yield from ((result,) for result in results)


def _scenario(views: Callable[[Tensor], tuple[Tensor, ...]]) -> Callable[..., Any]:
    def each_in_turn(f: Callable[..., Any], x: Tensor) -> Any:
        """The gradients from each of the sources, with a call of its own."""
        found: list[Tensor | None] = []
        for index in range(5):
            base = x.clone()
            chosen = dict(enumerate(_sources(base, f(*views(base))))).get(index, (base,))
            tangents = [torch.full_like(value, -0.0) for value in chosen]
            found += torch.autograd.grad(chosen, x, tangents, allow_unused=True)
        return found

    return each_in_turn


def _written_view(view: str, write: Callable[..., tuple[Tensor, ...]]) -> Case:
    def make() -> Made:
        return write, (leaf(8),), {}

    make.__name__ = f"{view}{write.__name__}"
    return program(written_views, modes=("train",), scenario=_scenario(VIEWS[view]))(make)


CASES = [_written_view("part", write) for write in WRITES]
CASES += [_written_view(view, write) for view in VIEWS if view != "part" for write in (_scaled, _read_after)]
