"""What a worker that shrinks says and leaves to the next: the programs that it tries, and the smallest of them."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any

from assay.harness.locate.shrinking.graph_program import GraphProgram
from assay.harness.locate.source.source_program import SourceProgram
from assay.harness.outcome import Result
from assay.harness.protocol.acts import Protocol
from assay.harness.report.documents import finite

BEST, TRYING, TRIED = "best", "trying", "tried"
"""The files of a search: its smallest program, the one that is being tried, the digests of some that were."""
Program = GraphProgram | SourceProgram


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program, and how it is run: a run that is not quick sees more, and takes longer. `is_last`: it is tried on the
    whole backend, and nothing comes after it. `acts`: what its caller does, if not what programs go through by default.
    """

    program: Program
    is_quick: bool
    is_last: bool = False
    acts: Protocol = ()

    @property
    def digest(self) -> str:
        """What tells it from others."""
        return hashlib.sha256(f"{self.is_quick} {self.acts} {self.program.source()}".encode()).hexdigest()


def told(candidate: Candidate, row: Result, mode: str) -> dict[str, Any]:
    """What is said of a program that fails: its row, its acts, its text, and how much of it there is."""
    program = candidate.program
    return {
        "source": program.source(), "body": program.body(), "inputs": program.inputs_text(),
        "numbers": program.numbers(), "operators": program.operators(mode), "is_text_alone": program.is_text_alone,
        "is_case": isinstance(program, SourceProgram), "row": finite(dataclasses.asdict(row)),
        "acts": [dataclasses.asdict(act) for act in candidate.acts],
    }  # fmt: skip
