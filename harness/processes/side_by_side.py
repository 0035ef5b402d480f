"""Rows in a few processes at once, each of which runs one row after another.

    python -m assay.harness.processes.side_by_side

The child takes one request a line on its standard input, as `isolate` has them, and answers each with its row. A child
that dies is a crash of the row that it ran, and another one takes its place. While a row is timed the other children
stand still (`harness/timed_alone.py`).
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from assay.harness import outcome, timed_alone
from assay.harness.calls.cycles import set_aside
from assay.harness.outcome import Result
from assay.harness.processes.child import Child, Lost, last_words, sharing
from assay.harness.processes.isolate import Request, ran


def run_side_by_side(requests: Sequence[Request], jobs: int, begins: Callable[[int], None]) -> Iterator[Result]:
    """The result of each request as it ends, of `jobs` requests at a time. `begins` is told the place of each one that
    begins."""
    with timed_alone.shared_folder(), ThreadPoolExecutor(jobs) as pool:
        crew = _Crew(jobs, begins)
        try:
            for each in as_completed([pool.submit(crew.ran, *each) for each in enumerate(requests)]):
                yield each.result()
        finally:
            crew.stopped.set()
            pool.shutdown(cancel_futures=True)
            crew.end()


def run_in_threads(pieces: Sequence[Callable[[], Result]], jobs: int) -> Iterator[Result]:
    """What each function gives, as they end, of `jobs` functions at a time. Each runs its row in a process."""
    with timed_alone.shared_folder(), ThreadPoolExecutor(jobs) as pool:
        try:
            for each in as_completed([pool.submit(piece) for piece in pieces]):
                yield each.result()
        except BaseException:  # a key was pressed, or nobody wants more rows
            timed_alone.end_others()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


@dataclass(slots=True)
class _Crew:
    """The children of a run, as many as there are places."""

    jobs: int
    begins: Callable[[int], None]
    stopped: threading.Event = field(default_factory=threading.Event)
    _free: queue.Queue[Child | None] = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        for _ in range(self.jobs):
            self._free.put(None)

    def ran(self, place: int, request: Request) -> Result:
        """What a child that is free says of a request."""
        child = self._free.get() or self._begun()
        self.begins(place)
        try:
            child.tell(json.dumps(request.data()))
            row = json.loads(child.line(math.inf, self.stopped.is_set))
        except (Lost, BrokenPipeError) as lost:
            child.end()
            timed_alone.leave(child.number)
            self._free.put(None)
            told = lost.told if isinstance(lost, Lost) else "it had ended before"
            return request.lost("crash", f"{told}. Last of its standard error:\n{last_words(child.said())}")
        self._free.put(child)
        return outcome.read(row)

    def _begun(self) -> Child:
        return Child("assay.harness.processes.side_by_side", environment=sharing(), speaks=True, listens=True)

    def end(self) -> None:
        """Ends the children, which are all free by now."""
        for _ in range(self.jobs):
            if (child := self._free.get()) is not None:
                child.end()


def main() -> None:
    """The child. What its rows print goes to standard error."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    timed_alone.join()
    for line in sys.stdin:
        row = dataclasses.asdict(ran(json.loads(line)))
        print(json.dumps(row), file=output, flush=True)
        set_aside()


if __name__ == "__main__":
    main()
