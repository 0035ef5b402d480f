"""Compares two runs field by field. What eager does not agree on with itself is not held against a backend.

Nine comparisons are not equality, each for a reason:
- *stride*: not along a dimension that has no two elements, where a stride addresses nothing.
- *offset*: not of a tensor without elements, for it may follow from such a stride.
- *version*: whether a tensor's version grew, not by how much. Autograd asks only whether a saved tensor's version is
  still the same; a mutation written back once counts as the many that eager made. A tensor that eager changes
  without its version growing (the running statistics of batch norm) is not compared.
- *view*: of which observed tensor an output is a view, and by which view chain. Views of memory that nothing observed
  holds are not compared, because no write can go through their base.
- *gradient*: zeros have no sign. Adding the zero of a path that nothing flowed through takes it away. Products of
  complex numbers by a conjugate and by a copy of it differ in the sign of zeros too.
- *earlier*: what acts before gave, looked at again, unless it was wrong at the time: a backend that hands out one
  buffer twice changes it.
- *error*: a second backward through a graph that was freed may raise where eager has nothing saved in it.
- *growth*: memory may grow with a call by what Python leaves, unless eager's does not and ours does by far more.
- *warnings*: a category is missing if eager gave it in both runs, and extra if eager gave it in neither.

Tags of a case ask for more. `strides` compares all strides and offsets to the letter. `bookkeeping` also compares by
how much versions grew, and whether an output is a view at all. `hooks` compares the order in which gradients arrive at
leaves, which is only noted for other cases.

A backend that promises eager's bits (`numerics="exact"`) is held to them wherever eager's own two runs agree in them.
Which NaN a NaN is counts nowhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.harness.calls.memory import bits, number_bits
from assay.harness.judge import fields
from assay.harness.judge.elements import Elements, elements_of
from assay.harness.judge.oracle import ANCHORED, LEVELS, NUMBER, Oracle, of_kind
from assay.harness.judge.tolerance import (
    DIFFERS,
    EXCUSED,
    UNANCHORED,
    UNSTABLE,
    Finding,
    NotMade,
    explain,
    explain_reals,
    is_eagers,
)
from assay.harness.observe.leaks import LEAST_GROWTH, grows
from assay.harness.observe.observation import Facts, Observation, Place, Seen
from assay.harness.outcome import Difference

OPEN = "open"
"""Of what differs, unless further runs of eager show that it may."""
FROM_DRAWS = ("values", "gradient", "mutation", "random", "earlier")
"""The fields that follow from random numbers: not judged for a backend that draws its own."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs, what eager itself does not settle, what has no oracle, and what is only worth a note."""

    different: tuple[Difference, ...] = ()
    unstable: tuple[Difference, ...] = ()
    unjudged: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    untold: tuple[Difference, ...] = ()
    """What eager is too far from its float64 run to settle."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a case and a backend say of the comparison.

    The optional fields are hooks, what torch keeps of tensors (`with_bookkeeping`), and strides, which that includes.
    """

    has_own_random_stream: bool = False
    with_hooks: bool = False
    with_bookkeeping: bool = False
    with_strides: bool = False
    by_bits: bool = False


def compare(oracle: Oracle, ours: Sequence[Observation], rules: Rules = Rules()) -> Comparison:
    """Ours against eager, every step. Fields in which two eager runs differ are unstable, not different."""
    draws = _draws(oracle, rules)
    unstable, asked = _asked(oracle, rules)
    steady = [found for found in _found(ours, asked) if (found.field, found.path) not in asked.shaky]
    excused = [difference for difference in steady if draws and difference.field in FROM_DRAWS]
    judged = [difference for difference in steady if difference not in excused]
    different, untold, unanchored = (
        tuple(difference for difference in judged if difference.kind == kind)
        for kind in (DIFFERS, UNSTABLE, UNANCHORED)
    )
    unjudged, notes = _unjudged(draws, excused), _notes(oracle.eager, ours, rules.with_hooks)
    return Comparison(different, tuple(unstable), (*unjudged, *unanchored), (*_crossed(judged), *notes), untold)


def is_different(oracle: Oracle, ours: Sequence[Observation], rules: Rules = Rules()) -> bool:
    """Whether `compare` finds that something differs. It looks no further than the first that does for sure."""
    _, asked = _asked(oracle, rules)
    return any(each.kind == DIFFERS and asked.is_held_against(each) for each in _found(ours, asked, is_brief=True))


def _draws(oracle: Oracle, rules: Rules) -> bool:
    """Whether what the program gives follows from random numbers that are not eager's."""
    return rules.has_own_random_stream and any(step.uses_random for step in oracle.eager)


def _asked(oracle: Oracle, rules: Rules) -> tuple[list[Difference], _Asked]:
    """What eager's two runs differ in, and what a comparison judges by."""
    with_strides = rules.with_bookkeeping or rules.with_strides
    asked = _Asked(oracle, rules.with_hooks, rules.with_bookkeeping, with_strides, rules.by_bits)
    unstable = _found(oracle.again, asked)
    shaky = frozenset((difference.field, difference.path) for difference in unstable)
    unheld = FROM_DRAWS if _draws(oracle, rules) else ()
    return unstable, dataclasses.replace(asked, shaky=shaky, unheld=unheld)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a comparison judges by, and which of the optional fields it compares."""

    oracle: Oracle
    with_hooks: bool
    with_bookkeeping: bool
    with_strides: bool
    by_bits: bool
    shaky: frozenset[tuple[str, str]] = frozenset()
    """The fields and paths at which eager differs from itself."""
    unheld: tuple[str, ...] = ()
    """The fields that are held against nobody."""
    known: dict[Place, Finding | None] = field(default_factory=dict)
    """What is known of numbers already."""
    elements: dict[Place, Elements | None] = field(default_factory=dict)
    """Which elements those are judged by that further runs are needed for; None: all."""

    def is_held_against(self, found: Difference) -> bool:
        """Whether a backend that differs so is wrong."""
        return found.field not in self.unheld and (found.field, found.path) not in self.shaky


def _found(ours: Sequence[Observation], asked: _Asked, is_brief: bool = False) -> list[Difference]:
    """What differs, judged by as few further runs of eager as settle it: none, one in float64, two more, all but those
    that are made where something is barely off, all.

    A field in which something differs for sure is lost. What is open in that field stays open: it changes nothing.
    With `is_brief`, the first that differs for sure and is held against a backend is the last that is looked at.
    """
    at = dataclasses.replace(asked, known={}, elements={})
    left: Mapping[Place, Elements | None] = {}
    found: list[Difference] = []
    for makes in LEVELS:
        if makes == ANCHORED:
            at = dataclasses.replace(at, oracle=at.oracle.anchored(left))
        found, lost = _found_with(ours, at, at.oracle.about(left, makes), is_brief)
        if is_brief and lost:
            return found
        settled = {place: told for place, told in at.known.items() if not _is_open(told) or place[1] in lost}
        left = {place: at.elements.get(place) for place in at.known.keys() - settled.keys()}
        if not left:
            break
        at = dataclasses.replace(at, known=settled)
        at.oracle.keep_at(left)
    return [_as_settled(each) for each in found]


def _found_with(
    ours: Sequence[Observation], asked: _Asked, oracle: Oracle, is_brief: bool
) -> tuple[list[Difference], set[str]]:
    """What differs by what that oracle says, and the fields that are lost; no more than the first, if `is_brief`."""
    found, lost = list[Difference](), set[str]()
    for each in _steps(oracle.eager, ours, dataclasses.replace(asked, oracle=oracle)):
        found.append(each)
        if each.kind == DIFFERS and asked.is_held_against(each):
            lost.add(each.field)
            if is_brief:
                break
    return found, lost


def _judged_or_open(judge: Callable[[], Finding | None]) -> Finding | None:
    try:
        return judge()
    except NotMade:
        return Finding(OPEN, "further runs of eager were not made, as this field differs elsewhere")


def _is_open(told: Finding | None) -> bool:
    return told is not None and told.kind == OPEN


def _as_settled(found: Difference) -> Difference:
    """What nothing hangs on any more, and further runs of eager might excuse, is not held against a backend."""
    return dataclasses.replace(found, kind=UNSTABLE) if found.kind == OPEN else found


def is_identical(eager: Sequence[Observation], ours: Sequence[Observation], rules: Rules = Rules()) -> bool:
    """Whether two runs are the same bit for bit, so that `compare` could find no difference whatever its oracle."""
    return all(_is_identical_step(reference, got, rules) for reference, got in zip(eager, ours, strict=True))


def _is_identical_step(eager: Observation, ours: Observation, rules: Rules) -> bool:
    return (
        fields.is_equal_error(_error_of(eager), _error_of(ours))
        and all(
            getattr(eager, name) == getattr(ours, name)
            for name in ("kinds", "aliases", "pokes", "warnings", "random", "ambient", "printed", "arrivals", "held")
        )
        and repr(eager.scalars) == repr(ours.scalars)
        and _grown(eager, rules) == _grown(ours, rules)
        and (eager.hooks == ours.hooks or not rules.with_hooks)
        and not grows(ours.growth_bytes, eager.growth_bytes)
        and all(
            _is_identical_tensors(getattr(eager, name), getattr(ours, name))
            for name in ("outputs", "state", "gradients", "earlier")
        )
    )


def _error_of(observation: Observation) -> BaseException | None:
    return None if observation.error is None else observation.error.error


def _other_bits(ours: Tensor, eager: Tensor) -> str | None:
    """Which elements have other bits than eager's; None if none has."""
    differ = number_bits(ours) != number_bits(eager)
    if not differ.any():
        return None
    differ = differ.any(-1) if ours.is_complex() else differ
    at = tuple(differ.nonzero()[0].tolist())
    told = f"the first at {list(at)}: ours {ours[at].item()!r}, eager {eager[at].item()!r}"
    return f"{int(differ.sum())} of {differ.numel()} elements; {told}. Rule: bit for bit, as the backend promises"


def _grown(observation: Observation, rules: Rules) -> dict[str, int]:
    """By how much each version grew, where the rules ask for that; else whether it did."""
    exact = rules.with_bookkeeping
    return {path: version if exact else int(version > 0) for path, version in observation.versions.items()}


def _is_identical_tensors(eager: Mapping[str, Seen | None], ours: Mapping[str, Seen | None]) -> bool:
    return eager.keys() == ours.keys() and all(_is_identical(seen, ours[path]) for path, seen in eager.items())


def _is_identical(eager: Seen | None, ours: Seen | None) -> bool:
    if eager is None or ours is None:
        return eager is ours
    return eager.facts == ours.facts and torch.equal(bits(eager.value), bits(ours.value))


def _unjudged(draws: bool, excused: Sequence[Difference]) -> tuple[Difference, ...]:
    """Says that values which follow from draws were not judged, whether or not any differed."""
    if not draws:
        return ()
    detail = f"no oracle: the backend draws its own random numbers, so {', '.join(FROM_DRAWS)} were not judged"
    worst = f" ({len(excused)} differ; first {excused[0].path})" if excused else ""
    return (Difference("random", "run", detail + worst),)


def _notes(eager: Sequence[Observation], ours: Sequence[Observation], with_hooks: bool) -> tuple[str, ...]:
    moved = any(ref.hooks != got.hooks and not got.error for ref, got in zip(eager, ours, strict=True))
    return ("gradients arrive at leaves in another order than eager's",) if moved and not with_hooks else ()


def _crossed(found: Sequence[Difference]) -> Iterator[str]:
    """What is the same but for elements across kinks: the first such tensor, and how many more there are."""
    crossed = [difference for difference in found if difference.kind == EXCUSED]
    if crossed:
        others = f", and so in {len(crossed) - 1} more tensors" if crossed[1:] else ""
        yield f"{crossed[0].path}: {crossed[0].detail}{others}"


def _steps(eager: Sequence[Observation], ours: Sequence[Observation], asked: _Asked) -> Iterator[Difference]:
    wrong: set[str] = set()  # what was wrong when it came out: no news when looked at again
    for index, (reference, got) in enumerate(zip(eager, ours, strict=True)):
        found = list(_Pair(reference, got, asked, index).differences())
        for difference in found:
            if difference.field != "earlier" or difference.path not in wrong:
                yield dataclasses.replace(difference, path=f"step {index + 1}: {difference.path}", act=reference.act)
        wrong |= {f"{each.path} of step {index + 1}" for each in found if each.field in ("values", "gradient")}


@dataclass(frozen=True, slots=True)
class _Pair:
    """One step of eager beside the same step of another run."""

    eager: Observation
    ours: Observation
    asked: _Asked
    index: int
    firsts: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """The first path of a tensor that has several, by the kind of thing that it is and both copies of its numbers."""

    @property
    def oracle(self) -> Oracle:
        return self.asked.oracle

    def differences(self) -> Iterator[Difference]:
        if self.is_refused_rightly():
            return
        yield from self._error()
        if self.eager.is_spent:
            return  # how far a backward came before it found nothing is the engine's own order
        yield from self._tensors(self.eager.outputs, self.ours.outputs, "values")
        if (self.eager.error is None) != (self.ours.error is None):
            return  # what one of them did after the other stopped is no difference of its own
        yield from fields.plain("structure", self.eager.kinds, self.ours.kinds)
        yield from self._scalars()
        yield from self._tensors(self.eager.state, self.ours.state, "mutation")
        yield from self._gradients()
        yield from self._versions()
        yield from self._aliases()
        yield from self._tensors(self.eager.earlier, self.ours.earlier, "earlier", facts=False)
        yield from self._ambient()
        yield from self._hooks()
        yield from self._leaks()

    def is_refused_rightly(self) -> bool:
        """Whether a graph that was freed is not gone through again, where eager had nothing to free."""
        eager, ours = self.eager.error, self.ours.error
        return self.eager.is_spent and eager is None and ours is not None and isinstance(ours.error, RuntimeError)

    def _error(self) -> Iterator[Difference]:
        eager, ours = self.eager.error, self.ours.error
        during = eager.during if eager else "", ours.during if ours else ""
        field = "freed" if self.eager.is_spent and ours is None else "error"
        yield from fields.errors("call", _error_of(self.eager), _error_of(self.ours), during, field)

    def _scalars(self) -> Iterator[Difference]:
        for path in self.eager.scalars.keys() & self.ours.scalars.keys():
            eager, ours = self.eager.scalars[path], self.ours.scalars[path]
            name = "values" if path.startswith("output") else "mutation"
            if type(eager) is not type(ours):
                continue
            if type(eager) is float:
                yield from _told(name, path, self._explain_number(path, eager, ours))
            elif eager != ours:
                yield Difference(name, path, f"ours is {ours!r}, eager's {eager!r}")

    def _explain_number(self, path: str, eager: float, ours: float) -> Finding | None:
        """A Python float came out of a tensor, if it differs at all: judged with the default dtype's precision."""
        if repr(eager) == repr(ours):
            return None
        return self._known(NUMBER, path, lambda: self._judge_number(path, eager, ours))

    def _known(self, name: str, path: str, judge: Callable[[], Finding | None]) -> Finding | None:
        """What is known of the numbers, or else what the judgement of them is."""
        place = (self.index, name, path)
        if place not in self.asked.known:
            self.asked.known[place] = _judged_or_open(judge)
        return self.asked.known[place]

    def _judge_number(self, path: str, eager: float, ours: float) -> Finding | None:
        evidence = self.oracle.evidence_for_number(self.index, path)
        numbers = [torch.tensor(number, dtype=torch.float64) for number in (ours, eager)]
        precision = evidence.precision(torch.get_default_dtype())
        return explain_reals(numbers[0], numbers[1], evidence.truth, evidence, precision)

    def _tensors(
        self, eager: Mapping[str, Seen], ours: Mapping[str, Seen], name: str, facts: bool = True
    ) -> Iterator[Difference]:
        for path in eager.keys() & ours.keys() - (self._settled_before() if name == "earlier" else frozenset()):
            if facts:
                yield from self._facts(path, eager[path].facts, ours[path].facts)
            yield from _told(name, path, self._explain(name, path, eager[path], ours[path]))

    def _settled_before(self) -> frozenset[str]:
        """What has the numbers, in eager and in ours, that it was judged by when it came out."""
        return self.eager.unchanged & self.ours.unchanged

    def _gradients(self) -> Iterator[Difference]:
        for path in fields.either(self.eager.gradients, self.ours.gradients):
            eager, ours = self.eager.gradients.get(path), self.ours.gradients.get(path)
            where = f"{path}.grad"
            yield from fields.presence(where, eager, ours)
            if eager is None or ours is None:
                continue
            # whether a gradient is conjugated now or when it is read tells nothing
            facts = [dataclasses.replace(seen.facts, conj=False, neg=False) for seen in (eager, ours)]
            yield from self._facts(where, facts[0], facts[1])
            yield from _told("gradient", where, self._explain("gradient", path, eager, ours))

    def _facts(self, path: str, eager: Facts, ours: Facts) -> Iterator[Difference]:
        asked = self.asked
        return fields.facts(path, eager, ours, with_strides=asked.with_strides, with_bases=asked.with_bookkeeping)

    def _explain(self, name: str, path: str, eager: Seen, ours: Seen) -> Finding | None:
        if eager.value.shape != ours.value.shape or eager.value.dtype != ours.value.dtype:
            return None  # a difference of shape or dtype, said already
        first = self.firsts.setdefault((name, id(eager.value), id(ours.value)), path)
        return self._known(name, first, lambda: self._judge(name, first, eager, ours))

    def _judge(self, name: str, path: str, eager: Seen, ours: Seen) -> Finding | None:
        if name == "gradient" or eager.value.is_complex():
            eager, ours = _without_signs_of_zero(eager), _without_signs_of_zero(ours)
        if self.asked.by_bits and self._is_steady(name, path, eager):
            told = _other_bits(ours.value, eager.value)
            return None if told is None else Finding(DIFFERS, told)
        if is_eagers(ours.value, eager.value, eager.device()):
            return None
        place, elements = (self.index, name, path), self.asked.elements
        if (some := elements.get(place)) is not None:
            evidence = self.oracle.evidence(*place, some)
            return explain(some.of(ours.value), some.of(eager.value), evidence, eager.device())
        evidence = self.oracle.evidence(*place)
        try:
            return explain(ours.value, eager.value, evidence, eager.device())
        except NotMade:
            elements.setdefault(place, elements_of(ours.value, eager.value, evidence.truth))
            raise

    def _is_steady(self, name: str, path: str, eager: Seen) -> bool:
        """Whether eager's other run gave the same bits."""
        again = of_kind(self.oracle.again[self.index], name).get(path)
        return again is not None and torch.equal(number_bits(again.value), number_bits(eager.value))

    def _versions(self) -> Iterator[Difference]:
        eager, ours = self.eager.versions, self.ours.versions
        return fields.versions(eager, ours, self._written_unseen(), by_how_much=self.asked.with_bookkeeping)

    def _written_unseen(self) -> frozenset[str]:
        """What eager has written in some step, though no version grew. A NaN that is written over a NaN is seen there
        alone."""
        steps = self.oracle.eager
        return frozenset(path for step in steps for path in step.written if not step.versions.get(path))

    def _aliases(self) -> Iterator[Difference]:
        yield from fields.aliases(self.eager.aliases, self.ours.aliases)
        if self.eager.aliases == self.ours.aliases:
            yield from self._pokes()

    def _pokes(self) -> Iterator[Difference]:
        for path in self.eager.pokes.keys() & self.ours.pokes.keys():
            eager, ours = self.eager.pokes[path], self.ours.pokes[path]
            if eager != ours:
                told = [", ".join(changed) or "nothing" for changed in (ours, eager)]
                yield Difference("poke", path, f"a write to it changes {told[0]} in ours, {told[1]} in eager")

    def _ambient(self) -> Iterator[Difference]:
        for name, eager in self.eager.random.items():
            if self.ours.random.get(name) != eager:
                yield Difference("random", name, "the random state after the call is not eager's")
        yield from fields.ambient(self.eager.ambient, self.ours.ambient)
        if self.eager.printed != self.ours.printed:
            told = [_first_line(each.printed) for each in (self.ours, self.eager)]
            yield Difference("printed", "standard output", f"ours prints {told[0]}; eager {told[1]}")
        for category in sorted(self._missing_warnings()):
            said = _first_line(self.eager.warnings[category])
            yield Difference("warnings", category, f"eager warns, ours does not: {said}")
        for category in sorted(self.ours.warnings.keys() - self.oracle.any_warnings(self.index)):
            said = _first_line(self.ours.warnings[category])
            yield Difference("warnings", category, f"ours warns, eager does not: {said}")

    def _hooks(self) -> Iterator[Difference]:
        for path in fields.either(self.eager.arrivals, self.ours.arrivals):
            eager, ours = self.eager.arrivals.get(path, "none"), self.ours.arrivals.get(path, "none")
            if eager != ours:
                yield Difference("hooks", path, f"hooks of this leaf saw {ours}; in eager {eager}")
        if self.asked.with_hooks and self.eager.hooks != self.ours.hooks:
            told = [", ".join(hooks) or "none" for hooks in (self.ours.hooks, self.eager.hooks)]
            yield Difference("hooks", "order", f"gradients arrive in the order {told[0]}; in eager {told[1]}")

    def _leaks(self) -> Iterator[Difference]:
        for path in sorted(set(self.ours.held) - set(self.eager.held)):
            yield Difference("held", path, "it is alive after the call, though nobody holds it; in eager it is freed")
        if grows(self.ours.growth_bytes, self.eager.growth_bytes):
            told = f"each call leaves {self.ours.growth_bytes} bytes in ours, {self.eager.growth_bytes} in eager"
            yield Difference("growth", "memory", f"{told}. Rule: at most twice eager's, and {LEAST_GROWTH} bytes")

    def _missing_warnings(self) -> frozenset[str]:
        return self.oracle.sure_warnings(self.index) - self.ours.warnings.keys()


def _told(field: str, path: str, finding: Finding | None) -> Iterator[Difference]:
    if finding is not None:
        yield Difference(field, path, finding.text, kind=finding.kind)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else "nothing"


def _without_signs_of_zero(seen: Seen) -> Seen:
    has_zeros = seen.value.is_floating_point() or seen.value.is_complex()
    return dataclasses.replace(seen, value=_plus_zero(seen.value)) if has_zeros else seen


def _plus_zero(value: torch.Tensor) -> torch.Tensor:
    """The value with 0 for -0. No kernel adds numbers of 8 bits."""
    return value + 0 if value.element_size() > 1 else (value.float() + 0).to(value.dtype)
