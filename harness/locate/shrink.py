"""A failing case made smaller, within a time, in a process of its own that nothing it does can take with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.harness import outcome
from assay.harness.case import Case
from assay.harness.locate.ladder import Found
from assay.harness.outcome import Result
from assay.harness.processes.child import sharing
from assay.harness.processes.worker import ask

WORKER = "assay.harness.locate.shrink_worker"
GRACE_S = 120.0
"""How much longer than its limit the process may take: the last program that it tries, and its imports."""


class NotShrunk(Exception):
    """No graph of the case fails by itself; the message says why."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest program found: its text, how it fails, how many calls it has left."""

    body: str
    inputs: str
    source: str
    operators: tuple[str, ...]
    numbers: int
    is_text_alone: bool
    row: Result
    on_backend: bool
    """Whether it fails in the same way on the whole backend, and not on the rung alone."""

    @staticmethod
    def of(line: Mapping[str, Any], on_backend: bool) -> Shrunk:
        row = outcome.read(line["row"])
        return Shrunk(
            line["body"], line["inputs"], line["source"], tuple(line["operators"]), line["numbers"],
            line["is_text_alone"], row, on_backend,
        )  # fmt: skip


def shrunk(case: Case, found: Found, backend: str, *, size: str, seed: int, limit_s: float) -> Shrunk:
    """The smallest program that fails as the case does on its first failing rung.

    Raises: NotShrunk where no graph of the case fails by itself.
    """
    kind = found.kind
    request = {
        "origin": case.origin, "case": case.name, "mode": found.mode, "size": size, "seed": seed,
        "rung": found.first.rung.backend, "backend": backend, "limit_s": limit_s,
        "kind": [kind.verdict, sorted(kind.fields), kind.error],
    }  # fmt: skip
    environment = {**sharing(), **dict(found.first.rung.environment)}
    answer = ask(WORKER, request, limit_s + GRACE_S, environment)
    programs = [line for line in answer.lines if "source" in line]
    ended = next((line for line in answer.lines if "done" in line), {})
    if not programs:
        raise NotShrunk(ended.get("why") or ": ".join(answer.failure or ("it said nothing",)))
    return Shrunk.of(programs[-1], bool(ended.get("on_backend")))
