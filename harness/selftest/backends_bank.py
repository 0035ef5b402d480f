"""The bank of wrong backends: each is tried in a process of its own, with a cache folder of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from assay.harness import outcome
from assay.harness.processes.child import sharing
from assay.harness.processes.worker import Answer, ask, cold_environment
from assay.harness.selftest.record import Asked, Kill, Member, Tried
from assay.harness.selftest.wrong_backends import BANK, CORRECT

ALONE_S = 900.0
"""How long one row may take by itself."""
WORKER = "assay.harness.selftest.rows_worker"
PLACE = "assay.harness.selftest.wrong_backends"


class WrongBackends:
    """The bank `backends`."""

    name = "backends"

    def members(self) -> Sequence[Member]:
        controls = [Member(name, "controls", said, is_right=True) for name, said in CORRECT.items()]
        return (*controls, *(Member(fault.name, fault.kind, fault.wrong, fault.mode) for fault in BANK.values()))

    def tried(self, member: Member, asked: Asked) -> Tried:
        """Raises: RuntimeError if the process ended before its first row, which tells nothing of the backend."""
        start = time.perf_counter()
        processes = BANK[member.name].processes if member.name in BANK else 1
        with cold_environment() as environment:
            kill, rows, left = None, 0, 0
            for _ in range(processes):
                kill, count, left = tried_rows(request_for(member, asked), asked.timeout_s, environment)
                rows += count
                if kill is not None:
                    break
        fault = (self.name, member.name, member.kind, member.wrong)
        seconds = time.perf_counter() - start
        return Tried(*fault, kill is not None, kill, seconds, rows, left=left, is_right=member.is_right)


def tried_rows(
    request: Mapping[str, Any], timeout_s: float, environment: Mapping[str, str]
) -> tuple[Kill | None, int, int]:
    """What a backend is killed by, how many rows ended, and how many are left as time was up.

    Time that is up kills nothing: the row that is under way then is run by itself.
    Raises: RuntimeError if the process ended before its first row.
    """
    rows, environment = request["rows"], {**environment, **sharing()}
    kill, ended = killed_by(ask(WORKER, request, timeout_s, environment))
    if kill is None or kill.verdict != "timeout" or not ended:
        return kill, ended, 0
    alone = {**request, "rows": [rows[ended]]}
    kill, count = killed_by(ask(WORKER, alone, ALONE_S, environment))
    return kill, ended + count, 0 if kill else len(rows) - ended - count


def request_for(member: Member, asked: Asked) -> Mapping[str, Any]:
    """The rows in the order of their cases; for a fault of one mode, the rows of that mode first or alone."""
    pairs = [(case, mode) for case in asked.rows for mode in asked.modes]
    if member.mode != "both":
        pairs.sort(key=lambda pair: pair[1] != member.mode)
        pairs = [pair for pair in pairs if pair[1] == member.mode or not asked.own_mode_only]
    rows = [(origin, name, mode) for (origin, name), mode in pairs]
    return {"backend": f"{PLACE}:{member.name}", "size": asked.size, "seed": asked.seed, "rows": rows}


def killed_by(answer: Answer) -> tuple[Kill | None, int]:
    """What the answer's last row was killed by, if it was, and how many rows ended.

    Raises: RuntimeError if the process ended before its first row.
    """
    ended = [outcome.read(line["row"]) for line in answer.lines if "row" in line]
    begun = [line["begins"] for line in answer.lines if "begins" in line]
    if not begun:
        raise RuntimeError(f"no row began: {answer.failure}")
    if ended and ended[-1].verdict != "same":
        return kill_of(ended[-1]), len(ended)
    if answer.failure is None:
        return None, len(ended)
    verdict, said = answer.failure
    case, mode = begun[-1]
    return Kill(case, mode, verdict, detail=said), len(ended)


def kill_of(result: outcome.Result) -> Kill:
    row = (result.case, result.mode, result.verdict)
    if not result.differences:
        return Kill(*row, detail=result.detail)
    first = result.differences[0]
    return Kill(*row, first.field, first.path, first.detail)
