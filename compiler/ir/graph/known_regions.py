"""What torch remembers of regions while they are recorded: one graph for all calls of a region, and one per layout of
tangents for their backwards. Torch keeps it in its tracing context, of which a recording has its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch._guards import HopDispatchSetCache, TracingContext, tracing


class KnownRegions:
    """The regions of one recording, which may be left and entered again."""

    def __init__(self) -> None:
        self._alone = TracingContext(None)

    @contextmanager
    def known(self) -> Iterator[None]:
        """While it is open, torch knows the regions of this recording and no others."""
        context = TracingContext.try_get()
        if context is None:
            with tracing(self._alone):
                yield
            return
        others, context.hop_dispatch_set_cache = context.hop_dispatch_set_cache, self._cache
        try:
            yield
        finally:
            context.hop_dispatch_set_cache = others

    @property
    def _cache(self) -> HopDispatchSetCache:
        return self._alone.hop_dispatch_set_cache
