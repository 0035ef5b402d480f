"""`torch._higher_order_ops.print`, recorded as a call of the graph: it prints when the graph runs, in its place.

    print("loss {}", y)     ->     higher_order.print("loss {}", y)

It is an effect like any other. What is printed has no history: a graph's values have none.
"""

from __future__ import annotations

from typing import Any

import torch

from assay.compiler.ir.graph.writes.watching import Watching

PRINT: Any = getattr(torch.ops.higher_order, "print", None)  # which older versions of torch have not


def record_print(mode: Watching, form: str, *args: Any, **kwargs: Any) -> None:
    """Records a print of values as they are at this place."""
    mode.recorded_as_it_is((PRINT, (form, *args), kwargs))


if PRINT is not None:
    PRINT.py_impl(Watching)(record_print)
