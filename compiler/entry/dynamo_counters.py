"""Dynamo's counters of the graphs that a backend was given, which users read as `counters["aot_autograd"]`.

total = ok + not_ok      not_ok: the graph runs in eager as a whole, or its compile raised
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch._dynamo.utils import counters

from assay.compiler.journal import totals


@contextmanager
def counted() -> Iterator[None]:
    """Counts the graph that is compiled while it is open. Pieces of a graph are not counted."""
    counts, given_back = counters["aot_autograd"], totals()["eager_graphs"]
    counts["total"] += 1
    try:
        yield
    except Exception:
        counts["not_ok"] += 1
        raise
    counts["ok" if totals()["eager_graphs"] == given_back else "not_ok"] += 1
