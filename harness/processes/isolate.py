"""A case in a process of its own, from filled caches too; and that process, which runs it and writes its row."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.harness import timed_alone
from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.outcome import Result
from assay.harness.processes import row_process
from assay.harness.run import DEFAULT_REQUEST, RunRequest, run_case


@dataclass(frozen=True, slots=True)
class Request:
    """What a process is told of a row that it is to run: where its case is found, and what `run_case` takes."""

    origin: str
    case: str
    mode: str
    backend: str
    asked: RunRequest

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return dataclasses.asdict(self)

    def lost(self, verdict: str, detail: str) -> Result:
        """The row of a process that gave none."""
        return row_process.lost(self.data(), verdict, detail)

    @staticmethod
    def of(case: Case, mode: str, backend: str, asked: RunRequest) -> Request:
        """Raises: ValueError for a case that `discover` did not find, since another process could not find it either,
        and for a protocol, which a process is not told."""
        if not case.origin:
            found = "only cases that discover() found can be run in a process"
            raise ValueError(f"case {case.name} has no origin: {found}")
        if asked.protocol is not None:
            raise ValueError(f"case {case.name} is run in a process of its own, by the protocol that it has there")
        return Request(case.origin, case.name, mode, backend, asked)


def ran(request: Mapping[str, Any]) -> Result:
    """The row that a request's plain data asks for, run in this process."""
    (case,) = [found for found in discover((request["origin"],)) if found.name == request["case"]]
    return run_case(case, request["mode"], request["backend"], RunRequest(**request["asked"]))


def run_isolated(
    case: Case,
    mode: str,
    backend: str,
    asked: RunRequest = DEFAULT_REQUEST,
    timeout_s: float = 300.0,
    environment: Mapping[str, str] | None = None,
) -> Result:
    """What `run_case` gives, from a process of its own; `timeout` or `crash` where that process gave nothing.

    `environment`: variables of that process beside those of this one.
    Raises: ValueError, as `Request.of` does.
    """
    return row_process.row_apart(Request.of(case, mode, backend, asked).data(), timeout_s, environment)


def run_warm(
    case: Case, mode: str, backend: str, asked: RunRequest = DEFAULT_REQUEST, timeout_s: float = 300.0,
    before: Sequence[str] = (),
) -> Result:  # fmt: skip
    """What `run_isolated` gives of a process whose caches another one has filled; `row_process.warm_row` says more.

    Raises: ValueError, as `Request.of` does.
    """
    return row_process.warm_row(Request.of(case, mode, backend, asked).data(), timeout_s, before)


def main(argument: str, path: str) -> None:
    """The child: runs what the request names and writes its row, whole or not at all."""
    timed_alone.join()
    result = ran(json.loads(argument))
    row = Path(path)
    part = row.with_suffix(".part")
    part.write_text(json.dumps(dataclasses.asdict(result)))
    part.rename(row)


if __name__ == "__main__":
    main(*sys.argv[1:])
