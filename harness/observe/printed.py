"""What a program prints: the text that one thread writes to standard output."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any


class _Heard:
    """Standard output, which keeps what one thread writes; what others write goes where it went."""

    def __init__(self, output: Any) -> None:
        self._output, self._thread = output, threading.get_ident()
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        if threading.get_ident() != self._thread:
            return int(self._output.write(text) or 0)
        self.texts.append(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


@contextlib.contextmanager
def heard() -> Iterator[list[str]]:
    """Keeps what this thread prints within, and shows none of it."""
    before, own = sys.stdout, _Heard(sys.stdout)
    sys.stdout = own  # type: ignore[assignment]
    try:
        yield own.texts
    finally:
        sys.stdout = before
