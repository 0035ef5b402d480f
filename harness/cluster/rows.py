"""Runs rows as tasks of Dask, and gives each as it ends.

A task is one case in one mode on one backend, in a process of its own on its worker, with the time limit of a run in
processes. A task whose worker dies runs again, on another worker. One that kills two is a crash, and says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask
import distributed

from assay.harness.outcome import Result
from assay.harness.processes.child import sharing
from assay.harness.processes.row_process import lost, row_apart, warm_row

RETRIES = 1
"""How many workers a task may take with it before it is a crash, less one."""
LOCAL = "local"
ANSWER_S, WORKERS_S = 20.0, 60.0
"""How long a scheduler may take to answer, and how long it may be without any worker."""
RESTART_S = 600.0
"""How long a worker of this machine may take to start again. Dask takes one for lost after 15 seconds, and starts none
in its place. A busy machine needs more, and tasks would wait for ever."""


@dataclass(frozen=True, slots=True)
class Task:
    """A row to run, how long it may take, and whether from caches that another process has filled."""

    request: Mapping[str, Any]
    """Plain data, as harness/processes/row_process.py says: a worker that reads it imports no torch."""
    timeout_s: float = 600.0
    is_warm: bool = False


def run_task(task: Task) -> Result:
    """A task on its worker."""
    if task.is_warm:
        return warm_row(task.request, task.timeout_s)
    return row_apart(task.request, task.timeout_s, sharing())


Run = Callable[[Task], Result]


@contextmanager
def client_of(address: str, jobs: int) -> Iterator[distributed.Client]:
    """A client of an existing scheduler; or of processes of this machine, which end with it.

    Raises: OSError where no scheduler answers, or none of its workers.
    """
    if address != LOCAL:
        with distributed.Client(address, timeout=ANSWER_S) as client:
            _wait_for_a_worker(client)
            yield client
        return
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": RESTART_S}),
        distributed.LocalCluster(
            n_workers=jobs, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def _wait_for_a_worker(client: distributed.Client) -> None:
    """Raises: OSError where none is there in time: tasks would wait for one for ever."""
    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
    except TimeoutError as error:
        raise TimeoutError(f"the scheduler has had no worker for {WORKERS_S:g} s") from error


def run_tasks(client: distributed.Client, tasks: Sequence[Task], run: Run = run_task) -> Iterator[Result]:
    """The rows of tasks, each as it ends. They begin in their order.

    Raises: OSError where no worker is left.
    """
    with _allowed(client):
        futures = {_submitted(client, run, task, -place): task for place, task in enumerate(tasks)}
        killed = []
        for future in _as_they_end(client, futures):
            try:
                yield _result(futures[future], future)
            except distributed.KilledWorker:  # or another task that was on the same worker
                killed.append(futures[future])
        yield from (_alone(client, run, task) for task in killed)


def _as_they_end(client: distributed.Client, futures: Iterable[distributed.Future]) -> Iterator[distributed.Future]:
    """Each future once it has ended, in whatever way. Raises: OSError where no worker is left."""
    left = set(futures)
    while left:
        try:
            for future in distributed.as_completed(left, raise_errors=False, timeout=WORKERS_S):
                left.discard(future)
                yield future
        except TimeoutError:
            _wait_for_a_worker(client)


def _submitted(client: distributed.Client, run: Run, task: Task, priority: int = 0) -> distributed.Future:
    key = f"{task.request['case']}-{os.urandom(8).hex()}"
    return client.submit(run, task, pure=False, key=key, priority=priority)


def _alone(client: distributed.Client, run: Run, task: Task) -> Result:
    """A task that may have ended workers, once more with no other task beside it."""
    (future,) = _as_they_end(client, [_submitted(client, run, task)])
    try:
        return _result(task, future)
    except distributed.KilledWorker:
        told = f"it ended {RETRIES + 1} workers of the cluster with no other task on them"
        return lost(task.request, "crash", told)


@contextmanager
def _allowed(client: distributed.Client) -> Iterator[None]:
    """How many workers a task may kill is the scheduler's to know."""

    def allow(dask_scheduler: Any = None) -> int:
        before = dask_scheduler.allowed_failures
        dask_scheduler.allowed_failures = RETRIES
        return int(before)

    def restore(before: int, dask_scheduler: Any = None) -> None:
        dask_scheduler.allowed_failures = before

    before = client.run_on_scheduler(allow)
    try:
        yield
    finally:
        client.run_on_scheduler(restore, before)


def _result(task: Task, future: distributed.Future) -> Result:
    """A task's row. Raises: distributed.KilledWorker where workers died with it."""
    try:
        return future.result()  # type: ignore[no-any-return]
    except distributed.KilledWorker:
        raise
    except Exception as error:  # of the harness itself: that row's crash, as in a single process
        return lost(task.request, "crash", f"in the harness: {error!r}")
