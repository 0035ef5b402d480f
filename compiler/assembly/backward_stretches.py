"""`StretchCall`: a stretch of a whole backward as the emitted backward calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from assay.compiler.assembly.collecting_later import collecting_later
from assay.compiler.assembly.compilers import Compilers
from assay.compiler.autograd.whole.pieces import Piece, divided
from assay.compiler.autograd.whole.traced import PLAIN, Traced, run_steps, trace_stretch
from assay.compiler.capture.decompositions.kept_whole import operators_whole
from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.backward.engine_steps import Backward, Stretch, Value
from assay.compiler.ir.graph.roles import GraphCall, Program
from assay.compiler.ir.tensors.changing_sizes import Kind, Moving, as_data
from assay.compiler.journal import Journal, count_eager_backward
from assay.compiler.passes.runner import optimize, written
from assay.compiler.torch_stubs import tensor_guards

Groups = tuple[tuple[int, ...], ...]
MOST_VARIANTS = 8
"""For how many kinds of tensors one stretch is compiled; for others its steps run one by one."""


@dataclass(slots=True)
class Variant:
    """A stretch, compiled for tensors and numbers of one kind. `run` is None where its steps run one by one; `symbols`
    are the numbers that it is given; `holds` tells whether it is right for other sizes. Where leaves have hooks,
    `pieces` run in its place."""

    kind: Kind
    run: GraphCall | None
    places: tuple[int | None, ...] = ()
    symbols: tuple[int, ...] = ()
    holds: Callable[[Sequence[Any], Sequence[float]], bool] | None = None
    pieces: tuple[tuple[Piece, GraphCall], ...] = ()

    def serves(self, kind: Kind, given: Sequence[Any]) -> bool:
        if self.holds is None:
            return self.kind == kind
        return self.kind.is_alike(kind) and self.holds(given, kind.numbers)


@dataclass(frozen=True, slots=True)
class Latest:
    """The variant of the call before, and what tells that a call is like that one, in sizes too.

    Cost: 0.02 us a tensor, where `Kind.of` takes 1 us.
    """

    variant: Variant
    check: Callable[..., bool]
    is_absent: tuple[bool, ...]
    numbers: tuple[float, ...]

    @staticmethod
    def of(variant: Variant, given: Sequence[Any], numbers: tuple[float, ...]) -> Latest | None:
        """None for tensors of other classes than torch's own."""
        tensors = _present(given)
        if not all(type(value) in PLAIN and value.layout is torch.strided for value in tensors):
            return None
        sizes, strides = [list(value.shape) for value in tensors], [list(value.stride()) for value in tensors]
        check = tensor_guards(tensors, sizes, strides).check
        return Latest(variant, check, tuple([value is None for value in given]), numbers)

    def is_like(self, given: Sequence[Any], numbers: tuple[float, ...]) -> bool:
        if numbers != self.numbers:
            return False
        if True not in self.is_absent:
            return self.check(*given)
        is_absent = tuple([value is None for value in given])
        return is_absent == self.is_absent and self.check(*_present(given))


def _present(given: Sequence[Any]) -> list[torch.Tensor]:
    return [value for value in given if value is not None]


@dataclass(slots=True)
class StretchCall:
    """A stretch as the emitted backward calls it: compiled anew for tensors of another kind. `groups` are the leaves
    with hooks right behind it, each by the places of its gradients among what the stretch gives."""

    backward: Backward
    stretch: Stretch
    compilers: Compilers
    journal: Journal
    groups: Groups = ()
    variants: list[Variant] = field(default_factory=list)
    latest: Latest | None = None

    def __call__(self, given: list[Any], numbers: tuple[float, ...]) -> Sequence[Any]:
        variant = self._variant_for(given, numbers)
        if variant.run is None:
            return self._run(given, numbers)
        if None in variant.kind.outlines:
            given = _present(given)
        moving = (numbers[place] for place in variant.symbols)
        given += [as_data(number) if type(number) is float else number for number in moving]
        found = variant.run(given)
        return [None if place is None else found[place] for place in variant.places]

    def by_leaves(
        self, given: list[Any], numbers: tuple[float, ...], leaves: Sequence[torch.Tensor], left: list[Any]
    ) -> Iterator[tuple[int, list[Any]]]:
        """The gradients of each group, with its number, as soon as they are there; what no group takes goes to `left`
        at the end. A group's gradients are held by nobody else."""
        variant = self._variant_for(given, numbers, leaves)
        taken = {place for group in self.groups for place in group}
        if not variant.pieces:
            found = list(self(given, numbers))
            for number, group in enumerate(self.groups):
                yield number, [_taken(found, place) for place in group]
        else:
            found = [None] * len(variant.places)
            yield from self._by_pieces(variant, given, found)
        left += [value for place, value in enumerate(found) if place not in taken]

    def _by_pieces(self, variant: Variant, given: list[Any], found: list[Any]) -> Iterator[tuple[int, list[Any]]]:
        """Runs the pieces one by one; what no group takes comes into `found`."""
        names = (f"input_{place}" for place, value in enumerate(given) if value is not None)
        known = dict(zip(names, (value for value in given if value is not None), strict=True))
        given.clear()
        rest = tuple(place for place in range(len(found)) if all(place not in group for group in self.groups))
        for piece, run in variant.pieces:
            made = list(run([known.pop(name) if name in piece.last else known[name] for name in piece.takes]))
            known.update(zip(reversed(piece.keeps), (made.pop() for _ in piece.keeps), strict=True))
            made.reverse()
            for number in piece.groups:
                group = self.groups[number] if number < len(self.groups) else rest
                values = [None if variant.places[place] is None else made.pop() for place in group]
                if group is rest:
                    for place in reversed(rest):
                        found[place] = values.pop()
                else:
                    yield number, values

    def _variant_for(
        self, given: list[Any], numbers: tuple[float, ...], leaves: Sequence[torch.Tensor] = ()
    ) -> Variant:
        if self.latest is not None and self.latest.is_like(given, numbers):
            return self.latest.variant
        kind = Kind.of(given, numbers)
        found = next((variant for variant in self.variants if variant.serves(kind, given)), None)
        found = self._compile(given, kind, leaves) if found is None else found
        self.latest = Latest.of(found, given, numbers)
        return found

    def _known(self, numbers: tuple[float, ...]) -> dict[Value, Any]:
        return dict(zip(self.stretch.numbers, numbers, strict=True))

    def _compile(self, given: list[Any], kind: Kind, leaves: Sequence[torch.Tensor]) -> Variant:
        """A variant for these tensors; where others of other sizes came before, for all sizes that have changed."""
        made = Variant(kind, None)
        if len(self.variants) < MOST_VARIANTS:
            try:
                with collecting_later():
                    made = self._variant(given, kind, leaves)
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
            with operators_whole():  # as they stand in the graphs of compiled calls, which are traced anew here
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

    def _variant(self, given: list[Any], kind: Kind, leaves: Sequence[torch.Tensor]) -> Variant:
        moving = Moving.between(kind, [variant.kind for variant in self.variants])
        with self.journal.stage("record backward"):
            traced = self._traced(given, kind, moving)
        program = optimize(traced.program, self.compilers.passes, self.journal, "backward_stretch")
        holds = None if traced.assumed is None else traced.assumed.test()
        pieces = self._pieces(program, traced, [set(_showing(leaf, given)) for leaf in leaves])
        run = pieces[0][1] if pieces else self._built(program)
        return Variant(kind, run, traced.places, traced.symbols, holds, pieces)

    def _built(self, program: Program, build: Callable[[Program], GraphCall] | None = None) -> GraphCall:
        return (build or self.compilers.inference)(written(program, self.compilers.write, self.journal))

    def _pieces(
        self, program: Program, traced: Traced, leaves: Sequence[set[str]]
    ) -> tuple[tuple[Piece, GraphCall], ...]:
        """The pieces of a stretch with leaves that have hooks; () where it runs as one."""
        if not leaves or traced.symbols:
            return ()
        places = [[traced.places[each] for each in group] for group in self.groups]
        groups = [tuple(place for place in group if place is not None) for group in places]
        pieces = divided(program, groups, leaves) or ()
        return tuple((piece, self._built(piece.program, self.compilers.between_hooks)) for piece in pieces)


def _showing(leaf: torch.Tensor, given: Sequence[Any]) -> Iterator[str]:
    """The names of the inputs that show a leaf's memory."""
    for place, value in enumerate(given):
        if value is not None and value.untyped_storage()._cdata == leaf.untyped_storage()._cdata:
            yield f"input_{place}"


def _taken(found: list[Any], place: int) -> Any:
    """A value that the list no longer holds."""
    value, found[place] = found[place], None
    return value
