"""`StretchCall`: a stretch of a whole backward as the emitted backward calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from assay.compiler.assembly.collecting_later import collecting_later
from assay.compiler.assembly.compilers import Compilers
from assay.compiler.autograd.whole.traced import Traced, run_steps, trace_stretch
from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.backward.engine_steps import Backward, Stretch, Value
from assay.compiler.ir.graph.roles import GraphCall
from assay.compiler.ir.tensors.changing_sizes import Kind, Moving
from assay.compiler.journal import Journal, count_eager_backward
from assay.compiler.passes.runner import optimize, written

MOST_VARIANTS = 8
"""For how many kinds of tensors one stretch is compiled; for others its steps run one by one."""


@dataclass(slots=True)
class Variant:
    """A stretch, compiled for tensors and numbers of one kind. `run` is None where its steps run one by one; `symbols`
    are the numbers that it is given; `holds` tells whether it is right for other sizes."""

    kind: Kind
    run: GraphCall | None
    places: tuple[int | None, ...] = ()
    symbols: tuple[int, ...] = ()
    holds: Callable[[Sequence[Any], Sequence[float]], bool] | None = None

    def serves(self, kind: Kind, given: Sequence[Any]) -> bool:
        if self.holds is None:
            return self.kind == kind
        return self.kind.is_alike(kind) and self.holds(given, kind.numbers)


@dataclass(slots=True)
class StretchCall:
    """A stretch as the emitted backward calls it: compiled anew for tensors of another kind."""

    backward: Backward
    stretch: Stretch
    compilers: Compilers
    journal: Journal
    variants: list[Variant] = field(default_factory=list)

    def __call__(self, given: list[Any], numbers: tuple[float, ...]) -> Sequence[Any]:
        kind = Kind.of(given, numbers)
        for variant in self.variants:
            if variant.serves(kind, given):
                break
        else:
            variant = self._compile(given, kind)
        if variant.run is None:
            return self._run(given, numbers)
        if None in kind.outlines:
            given = [value for value in given if value is not None]
        given += [numbers[place] for place in variant.symbols]
        found = variant.run(given)
        return [None if place is None else found[place] for place in variant.places]

    def _known(self, numbers: tuple[float, ...]) -> dict[Value, Any]:
        return dict(zip(self.stretch.numbers, numbers, strict=True))

    def _compile(self, given: list[Any], kind: Kind) -> Variant:
        """A variant for these tensors; where others of other sizes came before, for all sizes that have changed."""
        made = Variant(kind, None)
        if len(self.variants) < MOST_VARIANTS:
            try:
                with collecting_later():
                    made = self._variant(given, kind)
            except Unsupported as reason:
                count_eager_backward(str(reason))
        else:
            count_eager_backward("a part of it has been compiled for too many kinds of tensors")
        self.variants.insert(0, made)
        del self.variants[2 * MOST_VARIANTS :]
        return made

    def _traced(self, given: list[Any], kind: Kind, moving: Moving | None) -> Traced:
        """The stretch with symbols for what is moving; with numbers alone where formulas refuse the symbols, as they do
        where one of two equal sizes is a number. What they refuse as numbers eager refuses too, in words of its own."""
        table = self.compilers.decompositions
        if moving is not None:
            with suppress(RuntimeError):
                return trace_stretch(self.backward, self.stretch, given, self._known(kind.numbers), table, moving)
        try:
            return trace_stretch(self.backward, self.stretch, given, self._known(kind.numbers), table)
        except Unsupported:
            raise
        except RuntimeError:
            self._run(list(given), kind.numbers)  # raises what eager does; an error of the trace alone stands
            raise

    def _run(self, given: list[Any], numbers: tuple[float, ...]) -> Sequence[Any]:
        """What the steps give, run one by one; `given` is emptied."""
        known = self._known(numbers) | dict(zip(self.stretch.takes, given, strict=True))
        given.clear()
        return run_steps(self.backward, self.stretch, known)

    def _variant(self, given: list[Any], kind: Kind) -> Variant:
        moving = Moving.between(kind, [variant.kind for variant in self.variants])
        with self.journal.stage("record backward"):
            traced = self._traced(given, kind, moving)
        program = optimize(traced.program, self.compilers.passes, self.journal, "backward_stretch")
        program = written(program, self.compilers.write, self.journal)
        run = self.compilers.inference(program)
        holds = None if traced.assumed is None else traced.assumed.test()
        return Variant(kind, run, traced.places, traced.symbols, holds)
