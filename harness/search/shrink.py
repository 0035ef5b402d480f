"""Makes a failing program smaller as long as it fails in the same way: greedy, and bounded in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from assay.harness.search.generated import Program

Fails = Callable[[Program], bool]


def shrink(program: Program, fails: Fails, limit_s: float) -> Program:
    """The smallest program found in the time; it fails as `program` does.

    Cost: one run a candidate. Whenever one fails, its own simpler programs are tried next, so that the order in which
    a program offers them decides how fast this is.
    """
    end_s = time.monotonic() + limit_s
    tried = {program.source()}
    while (smaller := next(_failing(program, fails, tried, end_s), None)) is not None:
        program = smaller
    return program


def _failing(program: Program, fails: Fails, tried: set[str], end_s: float) -> Iterator[Program]:
    for candidate in program.simpler():
        if time.monotonic() > end_s:
            return
        source = candidate.source()
        if source not in tried:
            tried.add(source)
            if fails(candidate):
                yield candidate
