"""Methods of script objects, recorded as calls of the graph: they are made when the graph runs, in their place.

    queue.push(y)     ->     higher_order.call_torchbind(queue, "push", y)

Each is an effect: its object may change. While it is recorded, a fake object stands for a real one where its class has
one. No gradient flows through it.
"""

from __future__ import annotations

from typing import Any

from torch._higher_order_ops.torchbind import call_torchbind

from assay.compiler.ir.graph.writes.watching import Watching


def record_method(mode: Watching, script_object: object, name: str, *args: Any, **kwargs: Any) -> object:
    """Records a call of a method of a script object; returns what it gives, on fake tensors."""
    return mode.recorded_as_it_is((call_torchbind, (script_object, name, *args), kwargs))


call_torchbind.py_impl(Watching)(record_method)
