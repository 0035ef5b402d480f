"""What the plugin for pytest does once a test asks: a user's function held to eager, and kept in a store of runs."""

from __future__ import annotations

import datetime
import importlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from assay.harness.backends.registry import BackendError, resolve
from assay.harness.case import Case
from assay.harness.case_of_a_test import mode_of
from assay.harness.judge import ledger
from assay.harness.outcome import Result
from assay.harness.report.documents import Row
from assay.harness.report.environment import environment
from assay.harness.run import RunRequest, run_case

SHOWN = 5


def why_not(backend: str) -> str:
    """Why there is no such backend; "" if there is one."""
    try:
        resolve(backend)
    except BackendError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Holder:
    """Holds functions to eager on a backend; `keep` takes what was found."""

    backend: str
    keep: Callable[[Result], None]

    @staticmethod
    @contextmanager
    def open(backend: str, url: str) -> Iterator[Holder]:
        """A holder that keeps its results in the store of a URL; nowhere without one."""
        if not url:
            yield Holder(backend, lambda result: None)
            return
        store = importlib.import_module("assay.harness.remember.store").Store.open(url)
        run = store.begin(environment(), {"pytest": backend})
        known, today = ledger.read(), datetime.date.today()
        yield Holder(backend, lambda result: store.add(run, Row(result, ledger.judge(result, known, today))))
        store.end(run)

    def hold(self, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result:
        """The row of a function with its arguments, in training where anything requires gradients."""
        mode = mode_of(function, args, kwargs)
        case = Case(name, lambda: (function, tuple(args), dict(kwargs)), (mode,), (), ("tiny",))
        with without_traces():
            result = run_case(case, mode, self.backend, RunRequest(timed=False))
        self.keep(result)
        return result


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
