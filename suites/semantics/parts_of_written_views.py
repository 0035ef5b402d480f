"""Parts of an input with gaps, behind a write into it: copied where eager copies, and views where eager's are.

What is recorded in the place of the written input has no gaps. So a part of it seems to lie close, where eager's has
gaps, and `contiguous()` copies in eager alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.harness.case import Case, Made
from assay.suites.semantics.program import numbers, program

parts_of_written_views = "parts-of-written-views"

INPUTS: dict[str, Callable[[], Tensor]] = {
    "gaps": lambda: numbers(8, 6)[::2],
    "columns": lambda: numbers(4, 10)[:, 1:7],
    "every_other_column": lambda: numbers(4, 12)[:, ::2],
    "columns_turned": lambda: numbers(6, 7)[:, :4].t(),
}
PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda x: x[1:3],
    "row": lambda x: x[1],
    "column": lambda x: x[:, 2],
    "chunk": lambda x: x.chunk(2, 1)[1],
    "turned": lambda x: x[1:].t(),
    "all": lambda x: x[:],
}
LAID_OUT: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x.contiguous(),
    "reshaped": lambda x: x.reshape(-1),
    "flat": lambda x: torch.flatten(x),
}


def _case(given: str, part: str, lay_out: str) -> Case:
    def f(x: Tensor) -> tuple[Any, ...]:
        x.mul_(2)
        result = LAID_OUT[lay_out](PARTS[part](x))
        return result, result + 1, x

    def make() -> Made:
        return f, (INPUTS[given](),), {}

    make.__name__ = f"{lay_out}_{part}_of_written_{given}"
    return program(parts_of_written_views, modes=("infer",))(make)


def _image_by_channels() -> Made:
    """Of images with gaps between them, one in the format of channels last."""

    def f(x: Tensor) -> tuple[Any, ...]:
        x.add_(1)
        return x[1:].contiguous(memory_format=torch.channels_last), x[:1].contiguous(), x

    return f, (numbers(3, 4, 5, 6)[:, :2],), {}


CASES = [_case(*names) for names in itertools.product(INPUTS, PARTS, LAID_OUT)]
CASES.append(program(parts_of_written_views, modes=("infer",))(_image_by_channels))
