"""What the plugin for pytest does once a test asks: a user's function held to eager, and kept in a store of runs."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.harness.backends.registry import BackendError, resolve
from assay.harness.captor import Test, name_of
from assay.harness.case import Case
from assay.harness.case_of_a_test import mode_of
from assay.harness.judge import ledger
from assay.harness.outcome import Result
from assay.harness.processes.isolate import run_isolated
from assay.harness.processes.time_up import limited
from assay.harness.report.documents import Row
from assay.harness.report.environment import environment
from assay.harness.run import RunRequest, run_case

SHOWN = 5
TIMEOUT_S = 300.0


def why_not(backend: str) -> str:
    """Why there is no such backend; "" if there is one."""
    try:
        resolve(backend)
    except BackendError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """How functions are held: on which backend, for how long at most, and whether each in a process of its own."""

    backend: str
    timeout_s: float = TIMEOUT_S
    is_isolated: bool = False


@dataclass(frozen=True, slots=True)
class Holder:
    """Holds functions to eager; `keep` takes what was found, `calls` counts those of each test."""

    wanted: Wanted
    keep: Callable[[Result], None]
    calls: Counter[str] = field(default_factory=Counter)

    @staticmethod
    @contextmanager
    def open(wanted: Wanted, url: str) -> Iterator[Holder]:
        """A holder that keeps its results in the store of a URL; nowhere without one."""
        if not url:
            yield Holder(wanted, lambda result: None)
            return
        store = importlib.import_module("assay.harness.remember.store").Store.open(url)
        run = store.begin(environment(), {"pytest": wanted.backend})
        known, today = ledger.read(), datetime.date.today()
        yield Holder(wanted, lambda result: store.add(run, Row(result, ledger.judge(result, known, today))))
        store.end(run)

    def hold(self, test: Test, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result:
        """The row of a function with its arguments, in training where anything requires gradients. What hangs is a
        `timeout`."""
        self.calls[test.name] += 1
        name = name_of(test.name, self.calls[test.name])
        mode = mode_of(function, args, kwargs)
        origin = f"{test.path}::{name.partition('::')[2]}"
        case = Case(name, lambda: (function, tuple(args), dict(kwargs)), (mode,), (), ("tiny",), origin)
        result = self._isolated(case, mode) if self.wanted.is_isolated else self._in_time(case, mode)
        self.keep(result)
        return result

    def _in_time(self, case: Case, mode: str) -> Result:
        """The row, from this process."""
        found = Result(case.name, mode, self.wanted.backend, "timeout")
        with without_traces(), limited(self.wanted.timeout_s) as limit:
            found = run_case(case, mode, self.wanted.backend, RunRequest(timed=False))
        return dataclasses.replace(found, verdict="timeout", differences=(), detail=limit.told) if limit.told else found

    def _isolated(self, case: Case, mode: str) -> Result:
        """The row, from a process that runs the test up to this call and holds what the test hands over there."""
        path, _, name = case.origin.partition("::")
        found = dataclasses.replace(case, name=f"{Path(path).name}::{name}")
        row = run_isolated(found, mode, self.wanted.backend, RunRequest(timed=False), self.wanted.timeout_s)
        return dataclasses.replace(row, case=case.name)


@contextmanager
def without_traces() -> Iterator[None]:
    """What torch logs of each step of a compile is not handed to pytest, which shows it below a test that fails. Where
    the user has asked torch to write it to a file, torch still does."""
    log = logging.getLogger("torch.__trace")
    before = list(log.handlers)
    log.handlers[:] = [handler for handler in before if type(handler).__module__.startswith("torch.")]
    try:
        yield
    finally:
        log.handlers[:] = before


def told(result: Result) -> str:
    """What a failing test shows: the first place of each field that differs, and at how many others it does."""
    counts = Counter(each.field for each in result.differences)
    first = {each.field: each for each in reversed(result.differences)}
    lines = [f"{each.field} at {each.path}: {each.detail}{_more(counts[name] - 1)}" for name, each in first.items()]
    return "\n".join([f"{result.backend}, {result.mode}: {result.verdict} {result.detail}".rstrip(), *lines[:SHOWN]])


def _more(count: int) -> str:
    return f" (and at {count} more {'place' if count == 1 else 'places'})" if count else ""
