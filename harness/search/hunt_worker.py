"""The child of a hunt: draws programs, runs each on every backend, makes the failing ones smaller.

It says what it does in lines of JSON on its standard output, each at once, so that its parent knows which program
ended it:

    {"event": "begin", "index": 7}                            before the program is drawn
    {"event": "drawn", "index": 7, "source": "..."}           before it runs
    {"event": "alive", "source"}                              a smaller program is tried
    {"event": "failure", "index": 7, "result": {...}, ...}    it fails; its smallest form, if there was one to make
    {"event": "end", "index": 7, "verdicts": [...], ...}      all of its runs have ended
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
import json
import logging
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TextIO

from assay.compiler import journal
from assay.harness.calls.cycles import set_aside
from assay.harness.outcome import Result
from assay.harness.processes import many_compiles
from assay.harness.protocol.acts import FEW
from assay.harness.run import RunRequest, run_case
from assay.harness.search.generated import Generator, Kind, Program, case_of, kind_of
from assay.harness.search.shrink import shrink

ALONE = "eager"
"""Dynamo with nothing behind it: what fails there too is no fault of a backend. Sizes are symbols where they are in
the backend."""

AS_MUCH = "as much"
"""What is said of Dynamo alone where it fails in the same way."""


@dataclass(frozen=True, slots=True)
class Request:
    """Which programs to run, and how. `shrinks` bounds how many failures of one kind are made smaller."""

    generator: str
    seed: int
    indices: tuple[int, ...]
    backends: tuple[str, ...]
    modes: tuple[str, ...]
    shrink_s: float
    shrinks: int
    with_variants: bool = False
    device: str = "cpu"


@dataclass(slots=True)
class _Worker:
    """One child's work."""

    request: Request
    say: Callable[[dict[str, Any]], None]
    shrunk: Counter[Kind] = field(default_factory=Counter)

    def run(self) -> None:
        generator: Generator = importlib.import_module(self.request.generator)
        self.say({"event": "alive", "source": ""})
        for index in self.request.indices:
            set_aside()
            self.say({"event": "begin", "index": index})
            program = generator.draw(f"{self.request.seed}:{index}")
            self.say({"event": "drawn", "index": index, "source": program.source()})
            self._run_program(index, program)

    def _run_program(self, index: int, program: Program) -> None:
        verdicts, given_back = [], False
        raises = program.raises()
        forms = (program, *(program.variants() if self.request.with_variants else ()))
        for form in filter(self._may_run, forms):
            for backend, mode in itertools.product(self.request.backends, self.request.modes):
                before = journal.totals()["eager_graphs"]
                result = tried(form, mode, backend, self.request.device)
                given_back = given_back or journal.totals()["eager_graphs"] != before
                verdicts.append(result.verdict)
                if result.verdict != "same":
                    self._fail(index, form, result, raises)
        self.say(
            {
                "event": "end",
                "index": index,
                "verdicts": verdicts,
                "raises": raises,
                "given_back": given_back,
                "coverage": program.coverage,
            }
        )

    def _fail(self, index: int, program: Program, result: Result, raises: bool) -> None:
        kind = kind_of(result)
        self.shrunk[kind] += 1
        if result.verdict == "fell-back" and self.shrunk[kind] > 1:
            return  # it is right: one of a kind tells what the limit is, and the verdict is counted
        smallest = None
        if self.shrunk[kind] <= self.request.shrinks:
            smallest = shrink(program, functools.partial(self._fails_so, result, kind), self.request.shrink_s)
        self.say(
            {
                "event": "failure",
                "index": index,
                "kind": str(kind),
                "is_smallest": smallest is not None,
                **_told(smallest or program, result, raises, self.request.device),
            }
        )

    def _may_run(self, program: Program) -> bool:
        """Whether the program leaves its process as it was.

        An index out of range raises on a CPU. On a GPU it is an assertion, after which nothing runs there any more.
        """
        return self.request.device == "cpu" or not program.raises()

    def _fails_so(self, result: Result, kind: Kind, program: Program) -> bool:
        self.say({"event": "alive", "source": program.source()})
        if not self._may_run(program):
            return False
        again = tried(program, result.mode, result.backend, self.request.device)
        return again.verdict != "same" and kind.includes(kind_of(again))


def _told(program: Program, result: Result, raises: bool, device: str) -> dict[str, Any]:
    """The failing program and its result, run once more, and whether Dynamo alone fails too."""
    again = tried(program, result.mode, result.backend, device)
    again = result if again.verdict == "same" else again
    name = f"programs.{'raises.' if raises else ''}{'+'.join(program.operations) or 'nothing'}"
    return {
        "source": program.source(),
        "operations": program.operations,
        "alone": _alone(program, again, device),
        "result": dataclasses.asdict(dataclasses.replace(again, case=name)),
    }


def _alone(program: Program, result: Result, device: str) -> str:
    """What Dynamo with nothing behind it comes to: `AS_MUCH` where it fails in the same way."""
    is_dynamic = "dynamic" in result.backend.split(",")
    alone = tried(program, result.mode, f"{ALONE},dynamic" if is_dynamic else ALONE, device)
    if alone.verdict == "same" or result.verdict == "same":
        return alone.verdict
    return AS_MUCH if kind_of(alone).includes(kind_of(result)) else alone.verdict


def tried(program: Program, mode: str, backend: str, device: str = "cpu") -> Result:
    """The program's row. A program whose text cannot even be run is `no-oracle`."""
    try:
        case = case_of(program.source(), "program")
    except Exception as error:
        return Result("program", mode, backend, "no-oracle", detail=f"{type(error).__name__}: {error}")
    acts = None if case.numbers else FEW[mode]
    return run_case(case, mode, backend, RunRequest(device=device, timed=False, protocol=acts, quick=True))


def read_request(text: str) -> Request:
    data = json.loads(text)
    lists = {name: tuple(data[name]) for name in ("indices", "backends", "modes")}
    return Request(**{**data, **lists})


def main(argument: str) -> None:
    """Runs a request; whatever a program prints goes to standard error."""
    with _own_output() as output:
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        many_compiles.measure_no_guards()
        _Worker(read_request(argument), lambda event: print(json.dumps(event), file=output, flush=True)).run()


def _own_output() -> TextIO:
    """The standard output for events alone: from now on others' prints go to standard error."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return output


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The events that a child has said."""
    return (json.loads(line) for line in lines)


if __name__ == "__main__":
    main(sys.argv[1])
