"""Runs rows as tasks of Dask, and gives them in the order that they were asked for.

A task is one case in one mode on one backend, in a process of its own on its worker, with the time limit of a run in
processes. A task whose worker dies runs again, on another worker. One that kills two is a crash, and says so.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import distributed

from assay.harness import outcome
from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.outcome import Result
from assay.harness.processes.child import sharing
from assay.harness.processes.isolate import run_isolated
from assay.harness.report.documents import finite
from assay.harness.run import RunRequest

RETRIES = 1
"""How many workers a task may take with it before it is a crash, less one."""
LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Task:
    """A row to run: where its case is found, and what `run_isolated` takes."""

    origin: str
    case: str
    mode: str
    backend: str
    size: str = "tiny"
    seed: int = 0
    timeout_s: float = 600.0

    @staticmethod
    def of(case: Case, mode: str, backend: str, **rest: Any) -> Task:
        return Task(case.origin, case.name, mode, backend, **rest)


def run_task(task: Task) -> dict[str, Any]:
    """A task on its worker; the row as plain data."""
    (case,) = [found for found in discover((task.origin,)) if found.name == task.case]
    result = run_isolated(
        case,
        task.mode,
        task.backend,
        RunRequest(size=task.size, seed=task.seed),
        timeout_s=task.timeout_s,
        environment=sharing(),
    )
    return finite(dataclasses.asdict(result))  # type: ignore[no-any-return]


@contextmanager
def client_of(address: str, jobs: int) -> Iterator[distributed.Client]:
    """A client of an existing scheduler; or of processes of this machine, which end with it.

    Raises: OSError where no scheduler answers.
    """
    if address != LOCAL:
        with distributed.Client(address, timeout=20) as client:
            yield client
        return
    with (
        distributed.LocalCluster(
            n_workers=jobs, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def run_tasks(
    client: distributed.Client, tasks: Sequence[Task], run: Callable[[Task], dict[str, Any]] = run_task
) -> Iterator[Result]:
    """The rows of tasks, in their order, each as soon as it and those before it have ended."""
    with _allowed(client):
        futures = [_submitted(client, run, task) for task in tasks]
        for task, future in zip(tasks, futures, strict=True):
            try:
                yield _result(task, future)
            except distributed.KilledWorker:  # or another task that was on the same worker
                distributed.wait(futures)
                yield _alone(client, run, task)


def _submitted(client: distributed.Client, run: Callable[[Task], dict[str, Any]], task: Task) -> distributed.Future:
    return client.submit(run, task, pure=False, key=f"{task.case}-{os.urandom(8).hex()}")


def _alone(client: distributed.Client, run: Callable[[Task], dict[str, Any]], task: Task) -> Result:
    """A task that may have ended workers, once more with no other task beside it."""
    try:
        return _result(task, _submitted(client, run, task))
    except distributed.KilledWorker:
        told = f"it ended {RETRIES + 1} workers of the cluster with no other task on them"
        return Result(task.case, task.mode, task.backend, "crash", detail=told)


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
        return outcome.read(future.result())
    except distributed.KilledWorker:
        raise
    except Exception as error:  # of the harness itself: that row's crash, as in a single process
        return Result(task.case, task.mode, task.backend, "crash", detail=f"in the harness: {error!r}")
