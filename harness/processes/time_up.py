"""A limit of time on what runs in this process: a signal ends it once it is back in Python.

What hangs in compiled code does not come back. Only a process of its own can be ended then (`isolate`).
"""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

AGAIN_S = 5.0
"""After so many seconds the signal comes again, as what hangs may have caught what it raised."""
SHOWN_CALLS = 12


class TimeUp(BaseException):
    """Raised where the time of a `limited` block is up. It is no Exception, so that few programs catch it."""


@dataclass(slots=True)
class Limit:
    """`told` says where the block was when its time was up; "" if it was done in time."""

    seconds: float
    told: str = ""


@contextmanager
def limited(seconds: float) -> Iterator[Limit]:
    """Ends the block after so many seconds, and says where it was.

    There is no limit outside the main thread, which alone gets signals, and where there is no SIGALRM. A timer that was
    set before goes on behind the block.
    """
    limit = Limit(seconds)
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield limit
        return

    def ring(number: int, frame: FrameType | None) -> None:
        calls = traceback.format_stack(frame)[-SHOWN_CALLS:]
        limit.told = limit.told or f"not done after {seconds:g} s. It was at:\n{''.join(calls)}"
        raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    left_s, again_s = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield limit
    except TimeUp:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, left_s, again_s)
        signal.signal(signal.SIGALRM, before)
