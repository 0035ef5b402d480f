"""`collecting_later`: no search for garbage meanwhile.

A compile makes many objects and drops few. Each search goes through all of them, and through all that was imported.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collecting_later() -> Iterator[None]:
    """While it is entered, Python looks for no cycles among objects; unless whoever calls has switched that off, it
    does so again afterwards."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
