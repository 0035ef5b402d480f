"""Processes that compile Triton programs side by side: a third of what Triton does is Python, which runs one at a time.

    parent -> worker    a pickled `Wanted`             worker -> parent    `Built`, or what Triton said of it

A worker is a fresh interpreter without torch: it knows nothing of the parent's device, nor of its main module. It ends
with its parent, or when nothing came for a while. Where none starts, programs are compiled in this process.
"""

from __future__ import annotations

import atexit
import os
import pickle
import queue
import select
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

from assay.compiler import FOLDER
from assay.compiler.toolchain.gpu.triton_build import Built, NotBuilt, Wanted, build

MOST_WORKERS = 32
"""Processes that compile Triton programs, on machines of as many processors: each loads Triton for itself."""
FEW = 2
"""Programs that are compiled sooner here than by workers that are still to start."""
IDLE_S = 120.0
"""How long a worker waits for something to do."""
END_S = 2.0
"""How long one may take to end, when it has been told to."""
SOURCE = "import sys; sys.path[:0] = {paths!r}; from {module} import main; main()"
"""What a worker runs: this module, found where the parent finds it."""
_LENGTH = struct.Struct("<Q")

Answer = Built | NotBuilt
_lock = threading.Lock()


class Workers:
    """Up to `count` workers, started when there is work for them."""

    def __init__(self, count: int, command: Sequence[str] = ()) -> None:
        paths = [str(FOLDER.parents[1]), *filter(None, sys.path)]
        own = (sys.executable, "-c", SOURCE.format(paths=paths, module="assay.compiler.toolchain.gpu.triton_workers"))
        self.count, self.command = count, command or own
        self.idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self.are_there = True

    def build_all(self, wanted: Sequence[Wanted]) -> list[Answer]:
        """An answer for each program."""
        distinct = list(dict.fromkeys(wanted))
        is_few = len(distinct) <= FEW and self.idle.empty()
        is_here = not distinct or is_few or not self.are_there or self.count < 2
        if is_here:  # one by one: Python 3.11 raises SystemError where two threads make syntax trees
            found = {each: _answer(each) for each in distinct}
        else:
            with ThreadPoolExecutor(max_workers=min(self.count, len(distinct))) as pool:
                found = dict(zip(distinct, pool.map(self._asked, distinct), strict=True))
        return [found[each] for each in wanted]

    def _asked(self, wanted: Wanted) -> Answer:
        """What a worker answers; of one that ends on a program, that it did."""
        worker = self._taken()
        if worker is None:
            with _lock:
                return _answer(wanted)
        try:
            to_worker, from_worker = _pipes(worker)
            send(to_worker, wanted)
            answer: Answer = receive(from_worker)
        except (EOFError, BrokenPipeError):
            worker.wait()
            return NotBuilt(f"the process that compiled it ended with {worker.returncode}")
        self.idle.put(worker)
        return answer

    def _taken(self) -> subprocess.Popen[bytes] | None:
        """A worker that has nothing to do; None where none starts."""
        while True:
            try:
                worker = self.idle.get_nowait()
            except queue.Empty:
                return self._started()
            if worker.poll() is None:
                return worker

    def _started(self) -> subprocess.Popen[bytes] | None:
        try:
            worker = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            receive(_pipes(worker)[1])  # that it is there
        except (OSError, EOFError):
            self.are_there = False
            return None
        return worker

    def close(self) -> None:
        """Ends those that have nothing to do."""
        ended = []
        while not self.idle.empty():
            worker = self.idle.get_nowait()
            _pipes(worker)[0].close()
            ended.append(worker)
        for worker in ended:
            try:
                worker.wait(END_S)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            _pipes(worker)[1].close()


def _answer(wanted: Wanted) -> Answer:
    try:
        return build(wanted)
    except NotBuilt as error:
        return error


def _pipes(worker: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    """What a worker reads, and what it writes."""
    assert worker.stdin is not None and worker.stdout is not None
    return worker.stdin, worker.stdout


def send(stream: IO[bytes], value: object) -> None:
    data = pickle.dumps(value)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Raises: EOFError where the other side is gone."""
    length = _LENGTH.unpack(_whole(stream, _LENGTH.size))[0]
    return pickle.loads(_whole(stream, length))


def _whole(stream: IO[bytes], size: int) -> bytes:
    """So many bytes, in as many reads as it takes: one of a pipe gives what is there."""
    data = b""
    while len(data) < size:
        more = stream.read(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


_known: dict[int, Workers] = {}


def workers() -> Workers:
    """Those of this process, which end with it; a fork of it has its own."""
    own = _known.get(os.getpid())
    if own is None:
        own = _known.setdefault(os.getpid(), Workers(min(MOST_WORKERS, os.cpu_count() or 1)))
        atexit.register(_end, os.getpid())
    return own


def _end(process: int) -> None:
    """At the end of a process, which may be a fork of that whose workers they are."""
    if process == os.getpid():
        _known[process].close()


def _tasks(stream: IO[bytes], idle_s: float) -> Iterator[Wanted]:
    """What the parent sends, until it is gone or nothing came for so long."""
    while select.select([stream], [], [], idle_s)[0]:
        try:
            yield receive(stream)
        except EOFError:
            return


def main(idle_s: float = IDLE_S) -> None:
    """A worker. What Triton prints goes to the errors, as answers have the output to themselves."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    send(answers, "ready")
    for wanted in _tasks(os.fdopen(0, "rb", buffering=0), idle_s):
        try:
            send(answers, _answer(wanted))
        except BrokenPipeError:
            return
