"""The process that makes a failing case smaller: a graph of it that fails by itself, or else the case's own text.

    python -m assay.harness.locate.shrinking.shrink_worker

It forks a worker for each request that it is told, so that one after another begins at once. It has imported all that
they need, and run nothing. A request is a line:

    {"origin", "case", "mode", "size", "seed", "rung", "is_warm", "backend", "kind": [verdict, [field], error],
     "acts": how many are enough or null, "step": the act that failed first or null, "folder", "left_s",
     "most": how many programs to try or null, "is_apart": whether a worker runs one program alone,
     "is_last": whether it runs the best on the real backend}

A worker says `{}` before each program that it tries, and `{"source", ...}` for each that fails, the smallest last. It
ends with one of these lines. Where a worker dies, `{"ended": ...}` is said for it.

    {"next": true}                       another worker is to go on
    {"found": true}                      nothing smaller fails: another worker is to run the best on the real backend
    {"done": true, "why": ...}           no program of the case fails by itself
    {"done": true, "on_backend": ...}    whether the best fails on the real backend, in a process that ran nothing else

In the folder lie the program that it is trying, the best so far, and the digests of those that are not to be tried. A
worker that finds them there goes on from them.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
import pickle
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.harness.calls.cycles import set_aside
from assay.harness.case import Case
from assay.harness.locate.runner import is_akin, is_alike, is_failure
from assay.harness.locate.shrinking.candidates import BEST, TRIED, TRYING, Candidate, told
from assay.harness.locate.shrinking.graph_program import GraphProgram, Unprintable
from assay.harness.locate.shrinking.recorded_graphs import case_of, recorded
from assay.harness.locate.source.source_program import SourceProgram
from assay.harness.locate.source.written_values import Unwritable
from assay.harness.outcome import Result
from assay.harness.processes.child import ending
from assay.harness.processes.worker import cold_environment
from assay.harness.protocol.acts import FEW, Protocol, chosen, shorter
from assay.harness.run import RunRequest, run_case
from assay.harness.search.generated import Kind, kind_of

Say = Callable[[dict[str, Any]], None]
OUTPUT = re.compile(r"\boutput\[(\d+)\]")
"""How a row names a result."""
FOR_PIECES = 1 / 3
"""The part of the time that pieces of large graphs may take."""


class AnotherProcess(Exception):
    """This one has run a program, and is to run no other."""


class Shrinking:
    """The search of one process."""

    def __init__(self, request: Mapping[str, Any], say: Say) -> None:
        verdict, fields, error = request["kind"]
        self.request, self.say, self.mode = request, say, request["mode"]
        self.kind = Kind(verdict, frozenset(fields), error)
        self.end_s = time.monotonic() + request["left_s"]
        self.folder = Path(request["folder"])
        known = self.folder / TRIED
        self.tried = set(known.read_text().split()) if known.is_file() else set()
        self.may_raise = "error" in fields
        self.why = "Dynamo makes no graph of it"
        self.has_run = False

    def run(self) -> None:
        """Says every smaller program that fails, and what is to come after this worker."""
        if self.request["is_last"]:
            last = dataclasses.replace(self._left(), is_last=True)
            self.say({"done": True, "on_backend": self._row(last, self.request["backend"]) is not None})
            return
        try:
            self.say({"found": True} if self._finds() else {"done": True, "why": self.why})
        except AnotherProcess:
            self.say({"next": True})

    def _finds(self) -> bool:
        """Whether a program fails. The smallest one is then left in the folder. Raises: AnotherProcess."""
        best = self._best()
        if best is None:
            return False
        best = self._smallest(best)
        if (written := next(filter(self._fails, self._written(best)), None)) is not None:
            self._smallest(written)
        return True

    def _left(self) -> Candidate:
        return pickle.loads((self.folder / BEST).read_bytes())  # type: ignore[no-any-return]

    def _best(self) -> Candidate | None:
        """What a worker before this one came to; or else the first program of the case that fails by itself."""
        if (self.folder / BEST).is_file():
            return self._left()
        return next(filter(self._fails, self._programs()), None)

    def _programs(self) -> Iterator[Candidate]:
        """Graphs first, as they are the smallest, after pieces of large ones; then the text of the case, and last what
        sees more of graphs."""
        graphs = list(self._graphs(case_of(self.request)))
        for acts in self._protocols():
            yield from (dataclasses.replace(each, acts=acts) for each in self._of_graphs(graphs, acts))
        texts = list(self._texts())
        yield from texts
        yield from (Candidate(program, is_quick=False) for program in graphs if not texts)
        self.why += "; and its own text does not fail in that way" * bool(texts)

    def _protocols(self) -> Sequence[Protocol]:
        """What the caller of a graph does, the fewest acts first. `()` is a few calls. Where the case fails after more
        of them, that is what it went through until then: a graph by another name would go through other acts."""
        case, step = case_of(self.request), self.request["step"] or 0
        if step <= len(FEW[self.mode]) or case.scenario is not None or case.numbers:
            return ((),)
        acts = chosen(case.name, self.mode)[1][:step]
        return shorter(acts) if len(acts) == step else ((),)

    def _of_graphs(self, graphs: Sequence[GraphProgram], acts: Protocol) -> Iterator[Candidate]:
        """Pieces of large graphs, then the graphs."""
        if not self.request["is_apart"]:
            yield from self._accused(graphs, acts)
            yield from itertools.takewhile(self._is_early(), self._pieces(graphs))
        yield from (Candidate(program, is_quick=True) for program in graphs)

    def _accused(self, graphs: Sequence[GraphProgram], acts: Protocol) -> Iterator[Candidate]:
        """Of each large graph, pieces that end with the first call of which the result differs, if one does."""
        for program in graphs:
            if program.is_large and (name := self._first_wrong(program, acts)) is not None:
                yield from (Candidate(piece, is_quick=True) for piece in program.pieces_before(name))

    def _first_wrong(self, program: GraphProgram, acts: Protocol) -> str | None:
        """The call with which a graph begins to differ; None where nothing differs once every result is returned."""
        exposed = Candidate(program.exposed(), is_quick=True, acts=acts)
        if not self._is_new(exposed) or (row := self._row(exposed, self.request["rung"])) is None:
            return None
        found = [OUTPUT.search(each.path) for each in row.differences if each.field in self.kind.fields]
        places = [int(match[1]) for match in found if match is not None]
        return program.exposed().outputs[min(places)] if places else None

    def _pieces(self, graphs: Sequence[GraphProgram]) -> Iterator[Candidate]:
        yield from (Candidate(piece, is_quick=True) for program in graphs for piece in program.pieces())

    def _is_early(self) -> Callable[[object], bool]:
        """Whether a part of the time from now on is left, when it is called."""
        now = time.monotonic()
        until = now + FOR_PIECES * (self.end_s - now)
        return lambda _: time.monotonic() < until

    def _texts(self) -> Iterator[Candidate]:
        """The text of the case, if it has one; gone through quickly, and by all of its acts."""
        try:
            program = SourceProgram.of(case_of(self.request), self.request["size"], self.may_raise)
        except Unwritable as error:
            self.why += f"; and it has no text of its own: {error}"
            return
        yield Candidate(program, is_quick=True)
        yield Candidate(program, is_quick=False)

    def _graphs(self, case: Case) -> Iterator[GraphProgram]:
        for gm, inputs in recorded(case, self.request):
            try:
                yield GraphProgram.of(gm, inputs, self.may_raise)
            except Unprintable as error:
                self.why = f"a graph has no text in torch alone: {error}"
            else:
                self.why = "no graph of it fails by itself: what fails is around the graphs, or between calls"

    def _written(self, best: Candidate) -> Iterator[Candidate]:
        """What may stand for a graph with inputs that were recorded, as no file can hold them. It is tried although the
        time be up."""
        if isinstance(best.program, GraphProgram) and not best.program.is_text_alone:
            yield dataclasses.replace(best, program=best.program.drawn())
            yield from self._texts()

    def _smallest(self, best: Candidate) -> Candidate:
        while (smaller := self._smaller(best)) is not None:
            best = smaller
        return best

    def _smaller(self, best: Candidate) -> Candidate | None:
        for program in best.program.simpler():
            if self._is_over():
                return None
            if self._fails(candidate := dataclasses.replace(best, program=program)):
                return candidate
        return None

    def _is_over(self) -> bool:
        most = self.request["most"]
        return time.monotonic() > self.end_s or (most is not None and len(self.tried) >= most)

    def _fails(self, candidate: Candidate) -> bool:
        """Whether a program that was not tried before fails as the case does. One that does is said.

        Raises: AnotherProcess where a worker is to run one program alone, and has.
        """
        if self.request["is_apart"] and self.has_run and candidate.digest not in self.tried:
            raise AnotherProcess
        row = self._row(candidate, self.request["rung"]) if self._is_new(candidate) else None
        if row is not None:
            os.replace(self.folder / TRYING, self.folder / BEST)
            self.say(told(candidate, row, self.mode))
        return row is not None

    def _is_new(self, candidate: Candidate) -> bool:
        """Whether a program was not tried before, by this worker or one before it. From now on it was."""
        if candidate.digest in self.tried:
            return False
        self.tried.add(candidate.digest)
        with (self.folder / TRIED).open("a") as file:
            file.write(candidate.digest + "\n")
        return True

    def _row(self, candidate: Candidate, backend: str) -> Result | None:
        """The row of a program that fails as the case does; None for any other, and for what is no program."""
        (self.folder / TRYING).write_bytes(pickle.dumps(candidate))
        self.say({})
        if not candidate.program.is_program(self.mode):
            return None
        self.has_run = True
        set_aside()
        case, is_quick = candidate.program.case("shrunk", self.mode), candidate.is_quick
        acts = candidate.acts or (FEW[self.mode][: self.request["acts"]] if is_quick else None)
        asked = RunRequest(timed=False, protocol=acts, quick=is_quick)
        with cold_environment() as fresh:
            if self.request["is_warm"]:
                os.environ.update(fresh)  # what an earlier program left in the cache is not to decide
            row = run_case(case, self.mode, backend, asked)
        is_like = is_akin if candidate.is_last else is_alike
        return row if is_failure(row) and is_like(kind_of(row), self.kind) else None


def main() -> None:
    """The process: forks a worker a request, and says how one ended that did not come to its end."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)

    def say(event: dict[str, Any]) -> None:
        print(json.dumps(event), file=output, flush=True)

    for line in sys.stdin:
        if (worker := os.fork()) == 0:
            _work(json.loads(line), say)
        status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        if status:
            say({"ended": ending(status)})


def _work(request: Mapping[str, Any], say: Say) -> None:
    """The worker. What a wrong backend has left behind may not let the interpreter end."""
    try:
        Shrinking(request, say).run()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
