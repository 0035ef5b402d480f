"""Decides whether two tensors hold the same numbers, up to the rounding that eager itself shows.

Of one tensor there are ours `o`, eager's `e`, and the numbers `t` of the same program in float64 on the same inputs.
More runs `r` of eager's, each on neighbouring numbers, are made when they are needed. Some stray further than roundings
go: a row of one number has no variance, and its neighbours have some. Where all do, equal numbers are moved alike. The
first rule that applies decides:

1. *Exact* kinds (integers, booleans) are equal. NaN and infinities stand where eager's stand.
2. *Equal bits* are the same, but a zero has eager's sign where all else is equal. An element within 4 units in the last
   place of eager's is the same, whatever else is known.
3. *Elements.* |o - t| <= 4 E + 4 units in the last place of t. E is the largest of |r - t| that eager itself shows at
   elements of like magnitude: the 64 that are beside it in the order of |t|, of all elements or of some 100,000 that
   are evenly chosen. So a large element's error never excuses a small one's. What is beyond it by less than 4 times is
   measured by 8 more runs. Of more than 100,000 elements the factor grows, to 5 at most: see the docstring of
   harness/judge/envelope.py.
4. *Tensors* of 64 elements or more: rms(o - t) <= 3 rms(r - t) + 2 units in the last place of rms(t). Roundings have
   either sign and average out; a factor of 0.7 does not. Not of a `t` that is zero, next to what roundings leave.
5. *Kinks* (relu, comparisons, sort, floor; harness/judge/kinks.py). What fails 1, 3 or 4 is held against more float64
   runs, in which operands that lie within rounding of a kink are moved across it. It is the same if 3 and 4 hold around
   one of them. Or else an exact element may be that of any of these runs, and the numbers between them all take the
   place of `t`. That may be so for 1 % of the elements (or for one). Where no kind is exact it may be so for more, as
   far as it moves the tensor by 10 %. Beyond that it is `unstable`.
6. *Eager is no oracle* where rms(e - t) is beyond an eighth of rms(t), or 32 roots of the precision. An exception is
   rms(e - t) of 8 rms(t) or more, also in a neighbouring run if `e` is 0: there `t` is zero, and `e` only rounding.
   Where eager is no oracle, only rule 2 makes an element the same. What breaks rule 3 differs. So does what leaves
   eager where its own neighbours stay together, and what is further from `t` than twice eager. All else is `unstable`.
7. *No float64 run.* Eager is the centre, and its neighbours give E. Within 4 units in the last place, times the root of
   how many inputs there are for each element, it is the same; within 3, `no-oracle`.

A backend may keep in float32 what eager rounds to halves. Where eager's halves overflow on the way, its float32 run is
the reference. Nothing wider anchors float64. There an error of eager's is the difference between a run in float32 and
one in float64 on the very same numbers, times the ratio of the precisions. Both are runs `r` as well.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import torch
from torch import Tensor

from assay.harness.calls.clone import HALVES
from assay.harness.calls.memory import bits
from assay.harness.judge.elements import Elements
from assay.harness.judge.envelope import FACTOR, LIKE, ULPS, Bounds, Precision, greatest_of, real

RMS_FACTOR = 3.0
RMS_ULPS = 2.0
MOST_EXCUSED = 0.01
MOST_MOVED = 0.1
NO_ORACLE = 1 / 8
FAR_ROOTS = 32.0
STEADY = 1 / 8
STRAYED = 16.0
BARELY = 4.0
LARGE, SPARSE = 1 << 16, 8
"""A tensor of so many elements, of which one in so many at most is not zero, is judged by these first."""
PIECE = 1 << 22
"""Elements that are judged at once, each in a dozen float64 numbers."""

Samples = Callable[[], Sequence[Tensor]]
DIFFERS, UNSTABLE, UNANCHORED, EXCUSED = "differs", "unstable", "no-oracle", "excused"


@dataclass(frozen=True, slots=True)
class Finding:
    """What there is to say of a tensor: it differs, eager is too unstable to tell, or there is no oracle.

    With the kind `excused` it is the same, and the text says how many elements lie across a kink.
    """

    kind: str
    text: str


def is_same(finding: Finding | None) -> bool:
    """Whether the tensor is the same."""
    return finding is None or finding.kind == EXCUSED


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the judgement of one tensor rests on.

    `truth` is the float64 value or None, `why_not` says why it is None. The others give values of further runs, and are
    asked for only when needed. `samples` and `more` are of eager on neighbouring numbers, and `few` the first of them.
    `kept` and `more_kept` are the same, but whole numbers stay, as labels do, and equal numbers stay equal.
    `between` is of eager in the dtype between its roundings, `kinks` of float64 runs across kinks, and `few_kinks` the
    first of those. `fan_in` is how many input elements there are for each of this tensor.
    """

    truth: Tensor | None = None
    why_not: str = ""
    few: Samples = tuple
    samples: Samples = tuple
    more: Samples = tuple
    kept: Samples = tuple
    more_kept: Samples = tuple
    between: Samples = tuple
    few_kinks: Samples = tuple
    kinks: Samples = tuple
    fan_in: float = 1.0
    rounded: torch.dtype | None = None
    """The dtype to which autocast has rounded on the way."""
    some: Elements | None = None
    """The elements that this is about, where it is not about all (harness/judge/elements.py)."""
    is_first: bool = True
    """Whether nobody has seen yet that eager's one run does not show enough."""

    def precision(self, dtype: torch.dtype) -> Precision:
        """That of numbers of a dtype. Numbers in float32 that were rounded to halves on their way have no more."""
        own = Precision.of(dtype)
        if self.rounded is None or dtype not in (torch.float32, *HALVES):
            return own
        return max(own, Precision.of(self.rounded), key=lambda precision: precision.epsilon)

    def of(self, piece: slice, numel: int) -> Evidence:
        """What some of the `numel` elements are judged by, where all are in a row."""
        return self._each(lambda value: value.reshape(-1)[piece] if value.numel() == numel else value)

    def beside(self, places: Tensor, numel: int) -> Evidence:
        """What the elements at some of `numel` places are judged by, where runs are zero at all others. A run that is
        not is left out."""

        def change(value: Tensor) -> Tensor:
            if value.numel() != numel:
                return value
            found = value.reshape(-1).index_select(0, places)
            return found if int(found.count_nonzero()) == int(value.count_nonzero()) else value.new_zeros(0)

        return dataclasses.replace(self._each(change), some=None)

    def on(self, device: torch.device) -> Evidence:
        """The same, on a device, where it is asked for."""
        return self._each(lambda value: value.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Evidence:
        def changed(samples: Samples) -> Samples:
            return lambda: [change(sample) for sample in samples()]

        truth = None if self.truth is None else change(self.truth)
        runs: dict[str, Any] = {name: changed(getattr(self, name)) for name in RUNS}
        return dataclasses.replace(self, truth=truth, **runs)

    def without(self, unmade: Collection[str]) -> Evidence:
        """The same without some of the further runs: whoever asks for them meets NotMade."""

        def refuse() -> Sequence[Tensor]:
            raise NotMade

        runs: dict[str, Any] = dict.fromkeys(unmade, refuse)
        return dataclasses.replace(self, **runs)


class NotMade(Exception):
    """Further runs are needed that are not made yet."""


RUNS = ("few", "samples", "more", "kept", "more_kept", "between", "few_kinks", "kinks")
"""What evidence has of further runs."""


def explain(ours: Tensor, eager: Tensor, evidence: Evidence, on: torch.device | None = None) -> Finding | None:
    """Why the numbers of `ours` are not those of `eager`: the worst element and the rule; None if they are.

    Both have the same shape and dtype. They are judged `on` a device, or else where they lie.
    """
    if eager.numel() > PIECE:
        return _explain_pieces(ours.reshape(-1), eager.reshape(-1), evidence, on)
    if on is not None and eager.device != on:
        return explain(ours.to(on), eager.to(on), evidence.on(on))
    if not (eager.is_floating_point() or eager.is_complex()):
        return _explain_exact(ours, eager, evidence)
    if torch.equal(bits(ours), bits(eager)):
        return None
    if _is_same_beside_zeros(ours, eager, evidence):
        return None
    truth = None if evidence.truth is None else real(evidence.truth)
    found = explain_reals(real(ours), real(eager), truth, evidence, evidence.precision(eager.dtype))
    if found is None or found.kind == EXCUSED or eager.dtype not in HALVES:
        return found
    return None if _is_between(ours, eager, truth, evidence) else found


def is_eagers(ours: Tensor, eager: Tensor, on: torch.device | None = None) -> bool:
    """Whether rules 1 and 2 alone settle that the numbers are the same, whatever the float64 run is.

    Both have the same shape and dtype. They are judged `on` a device, or else where they lie.
    """
    if torch.equal(bits(ours), bits(eager)):
        return True
    if not (eager.is_floating_point() or eager.is_complex()):
        return False
    pieces = zip(*(each.reshape(-1).split(PIECE) for each in (ours, eager)), strict=True)
    precision = Precision.of(eager.dtype)
    return all(
        _is_eagers(real(one.to(on or one.device)), real(other.to(on or other.device)), precision)
        for one, other in pieces
    )


def _is_eagers(ours: Tensor, eager: Tensor, precision: Precision) -> bool:
    finite = torch.isfinite(eager) & torch.isfinite(ours)
    if _explain_nonfinite(ours, eager) is not None:
        return False
    ours, eager = _at(ours, finite), _at(eager, finite)
    if torch.equal(ours, eager):
        return _explain_zeros(ours, eager, None) is None
    return bool(((ours - eager).abs() <= precision.ulps(eager.abs())).all())


def _explain_pieces(ours: Tensor, eager: Tensor, evidence: Evidence, on: torch.device | None) -> Finding | None:
    """What differs in the first piece where something does; what cannot be told, only if nothing is sure to differ."""
    numel, untold = eager.numel(), None
    for start in range(0, numel, PIECE):
        piece = slice(start, min(start + PIECE, numel))
        found = explain(ours[piece], eager[piece], evidence.of(piece, numel), on)
        if found is not None and found.kind == DIFFERS:
            return dataclasses.replace(found, text=f"of elements {start} to {piece.stop - 1}: {found.text}")
        untold = untold or found
    return untold


def _is_same_beside_zeros(ours: Tensor, eager: Tensor, evidence: Evidence) -> bool:
    """Whether a large tensor that is nearly all zeros, as the gradient of an embedding is, is the same by its other
    elements. Some of the zeros stay, as the least of magnitudes; all count as elements that are no further off.
    """
    numel, truth = eager.numel(), evidence.truth
    if numel < LARGE or eager.is_complex() or truth is None or truth.shape != eager.shape:
        return False
    if SPARSE * int(eager.count_nonzero()) > numel:
        return False
    is_blank = ((bits(ours) | bits(eager)) == 0).reshape(-1) & (truth == 0).reshape(-1)
    told = (~is_blank).nonzero()[:, 0]
    if SPARSE * told.numel() > numel:
        return False
    places = torch.cat([is_blank.nonzero()[: 2 * LIKE, 0], told])
    one, other = (tensor.reshape(-1).index_select(0, places) for tensor in (ours, eager))
    return explain(one, other, evidence.beside(places, numel)) is None


def _is_between(ours: Tensor, eager: Tensor, truth: Tensor | None, evidence: Evidence) -> bool:
    """Whether halves are what eager computes in float32, rounded once: where its own overflow on the way."""
    runs = [run.to(eager.dtype) for run in evidence.between() if run.shape == eager.shape]
    if not runs:
        return False
    samples = runs[1:]
    apart = dataclasses.replace(
        evidence,
        few=tuple,
        samples=lambda: samples,
        more=tuple,
        kept=tuple,
        more_kept=tuple,
        between=tuple,
        is_first=True,
    )
    return is_same(explain_reals(real(ours), real(runs[0]), truth, apart, Precision.of(eager.dtype)))


def explain_reals(
    ours: Tensor, eager: Tensor, truth: Tensor | None, evidence: Evidence, precision: Precision
) -> Finding | None:
    """`explain` for numbers that are in float64 already."""
    if (found := _explain_nonfinite(ours, eager)) is not None:
        return found
    finite = torch.isfinite(eager) & torch.isfinite(ours)
    ours, eager = _at(ours, finite), _at(eager, finite)
    if torch.equal(ours, eager):
        return _explain_zeros(ours, eager, truth)
    anchor, why_not = _anchor(truth, finite, evidence.why_not or "there is no float64 run")
    return _Judge(ours, eager, anchor, finite, evidence, precision, why_not).finding()


def _anchor(truth: Tensor | None, finite: Tensor, why_not: str) -> tuple[Tensor | None, str]:
    """The float64 numbers where both are finite; None, and why, where they are none to judge by."""
    if truth is None:
        return None, why_not
    if truth.shape != finite.shape:
        return None, f"the float64 run has shape {list(truth.shape)}"
    if not bool(torch.isfinite(truth[finite]).all()):
        return None, "the float64 run is not finite where eager is"
    return _at(truth, finite), ""


@dataclass(frozen=True, slots=True)
class _Judge:
    """The judgement of numbers that are finite in float64, zeros in the place of all others."""

    ours: Tensor
    eager: Tensor
    truth: Tensor | None
    finite: Tensor
    evidence: Evidence
    precision: Precision
    why_not: str
    _converted: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False)
    """What was made of runs, by the id of each, which is kept."""
    _bounds: list[Bounds] = field(default_factory=list, init=False)

    def finding(self) -> Finding | None:
        if self.truth is None:
            return self._unanchored()
        if bool(self._is_near().all()):
            return None
        is_oracle = self._is_settled_on(self.truth)
        if is_oracle and self.evidence.is_first and self._is_within(self.truth, [self.eager]):
            return None
        few = self._same_computations(self.truth, self.evidence.few)
        if is_oracle and self._is_within(self.truth, [self.eager, *few]):
            return None
        runs = [self.eager, *self._near_runs(self.truth)]
        if is_oracle and self._is_within(self.truth, runs):
            return None
        between = self._runs(self.evidence.between)
        runs += between
        if (between or not is_oracle) and (is_oracle or self._cancels(runs)) and self._is_within(self.truth, runs):
            return None
        found = self._across_kinks(self.truth, runs)
        if is_oracle and found is not None and found.kind == DIFFERS and self._is_barely_off(runs):
            runs = [*runs, *self._either(self.truth, self.evidence.more, self.evidence.more_kept)]
            return None if self._is_within(self.truth, runs) else self._across_kinks(self.truth, runs)
        return found

    def _cancels(self, runs: Sequence[Tensor]) -> bool:
        """Whether eager's roundings cancel to zeros, but at neighbouring numbers leave what the float64 run is nothing
        beside."""
        assert self.truth is not None
        left = max(rms(run - self.truth) for run in runs)
        return not bool(self.eager.any()) and left >= rms(self.truth) / NO_ORACLE > 0

    def _is_barely_off(self, runs: Sequence[Tensor]) -> bool:
        """Whether each element is within a few times its bound: then more of eager's runs may tell."""
        assert self.truth is not None
        bound = self._bounds_around(self.truth).of([(run - self.truth).abs() for run in runs])
        return bool((((self.ours - self.truth).abs() <= BARELY * bound) | self._is_near()).all())

    def _runs(self, samples: Samples) -> list[Tensor]:
        found = [self._run(sample) for sample in samples()]
        return [run for run in found if run.numel() == self.finite.numel()]

    def _run(self, sample: Tensor) -> Tensor:
        """The numbers of a run where both are finite; none where they are none to judge by."""
        if id(sample) not in self._converted:
            run = real(sample)
            is_one = run.shape == self.finite.shape and not bool((self.finite & ~torch.isfinite(run)).any())
            self._converted[id(sample)] = sample, _at(run, self.finite) if is_one else run.new_zeros(0)
        return self._converted[id(sample)][1]

    def _bounds_around(self, centre: Tensor) -> Bounds:
        """The bounds around a centre, which were asked for before if they were."""
        known = next((bounds for bounds in self._bounds if bounds.centre is centre), None)
        if known is None:
            some = self.evidence.some
            self._bounds.append(known := Bounds(centre, self.precision, some.numel if some else 0))
        return known

    def _neighbours(self) -> list[Tensor]:
        return self._runs(self.evidence.samples) or self._runs(self.evidence.kept)

    def _near_runs(self, centre: Tensor) -> list[Tensor]:
        """Eager's runs on neighbouring numbers."""
        return self._either(centre, self.evidence.samples, self.evidence.kept)

    def _either(self, centre: Tensor, samples: Samples, kept: Samples) -> list[Tensor]:
        """The runs of the first kind; where these are another computation, those of the second."""
        return self._same_computations(centre, samples) or self._same_computations(centre, kept)

    def _same_computations(self, centre: Tensor, samples: Samples) -> list[Tensor]:
        """Those of the runs that are no other computation: by far further off than eager, and than roundings go. A zero
        of eager's says nothing of how far those go. If the float64 run is zero too, the nearest of several tells."""
        runs, is_zero = self._runs(samples), not self.eager.any()
        if is_zero and centre.any():
            return runs
        off = [float((run - self.eager).abs().max()) for run in runs]
        nearest = min(off) if len(off) > 1 else 0.0
        error = nearest if is_zero else float((self.eager - centre).abs().max())
        reach = max(math.sqrt(self.precision.epsilon) * float(self.eager.abs().max()), STRAYED * error)
        return [run for run, far in zip(runs, off, strict=True) if far <= reach]

    def _is_near(self) -> Tensor:
        return (self.ours - self.eager).abs() <= self.precision.ulps(self.eager.abs())

    def _is_settled_on(self, centre: Tensor) -> bool:
        return self._is_oracle(self.eager - centre)

    def _is_oracle(self, error: Tensor) -> bool:
        """Whether eager is near the float64 run, or what is left is nothing but rounding: zero, if it were exact."""
        assert self.truth is not None
        least = min(NO_ORACLE, FAR_ROOTS * math.sqrt(self.precision.epsilon)) * rms(self.truth)
        return not least < rms(error) < rms(self.truth) / NO_ORACLE

    def _is_within(self, centre: Tensor, runs: Sequence[Tensor]) -> bool:
        """Whether rules 3 and 4 hold around a centre."""
        ours = (self.ours - centre).abs()
        errors = [(run - centre).abs() for run in runs]
        bounds = self._bounds_around(centre)
        return self._has_rms(ours, errors, centre) and bounds.hold(ours, errors, self._is_near())

    def _has_rms(self, ours: Tensor, errors: Sequence[Tensor], centre: Tensor) -> bool:
        ours, centre, *errors = (self._evenly(each) for each in (ours, centre, *errors))
        if centre.numel() < LIKE or max(map(rms, errors), default=0.0) >= rms(centre) / NO_ORACLE:
            return True  # too few, or nothing but rounding, which another order may leave more of
        bound = RMS_FACTOR * max(map(rms, errors), default=0.0)
        return rms(ours) <= bound + RMS_ULPS * self.precision.epsilon * rms(centre) + ULPS * self.precision.smallest

    def _evenly(self, numbers: Tensor) -> Tensor:
        """Those of the elements that stand for all: suspects are off by more than most."""
        return numbers if self.evidence.some is None else numbers[: self.evidence.some.even]

    def _told(self, excused: int) -> tuple[str, bool]:
        """How many elements lie across a kink, in words, and whether these are more than may. Of some elements, the
        suspects are the only ones that can lie there."""
        some, numel = self.evidence.some, self.ours.numel()
        count, numel = (excused, numel) if some is None else (math.ceil(excused * some.share), some.numel)
        return f"{count} of {numel} elements lie across a kink", count > max(1, MOST_EXCUSED * numel)

    def _across_kinks(self, truth: Tensor, runs: Sequence[Tensor]) -> Finding | None:
        """Rules 5 and 6, with the first runs across kinks and, where they do not do, with all of them."""
        few = self._runs(self.evidence.few_kinks)
        found = self._around(truth, runs, few)
        if is_same(found):
            return found
        kinks = self._runs(self.evidence.kinks)
        return self._around(truth, runs, kinks) if len(kinks) > len(few) else found

    def _around(self, truth: Tensor, runs: Sequence[Tensor], kinks: Sequence[Tensor]) -> Finding | None:
        others = [truth, *kinks]
        if (found := self._is_one_of(others, runs)) is not None:
            return found
        low, high = _least_of(others), greatest_of(others)
        errors = [(run - run.clamp(low, high)).abs() for run in runs]
        bound = self._bounds_around(truth).of(errors)
        centre = self.ours.clamp(low, high)
        if not self._is_oracle(errors[0]):
            return self._beyond_oracle(truth, bound, len(runs))
        off = (self.ours - centre).abs()
        is_within = (off <= bound) | self._is_near()
        if not bool(is_within.all()) or not self._has_rms(off, errors, truth):
            return self._differs(centre, bound, len(runs))
        excused = int((((self.ours - truth).abs() > bound) & ~self._is_near()).sum())
        told, are_many = self._told(excused)
        if are_many and rms(high - low) > MOST_MOVED * rms(truth):
            return Finding(UNSTABLE, f"{told}, which moves the tensor by more than a tenth")
        return Finding(EXCUSED, told) if excused else None

    def _is_one_of(self, others: Sequence[Tensor], runs: Sequence[Tensor]) -> Finding | None:
        """Says so where ours is a float64 run that took other sides, within the bounds of rules 3 and 4 around it. Each
        run of eager's is measured from the one that is nearest to it."""
        truth, nearest = others[0], _nearest(self.ours, others)
        if nearest is truth or not self._is_settled_on(_nearest(self.eager, others)):
            return None
        errors = [(run - _nearest(run, others)).abs() for run in runs]
        off = (self.ours - nearest).abs()
        bound = self._bounds_around(nearest).of(errors)
        if not bool((off <= bound).all()) or not self._has_rms(off, errors, nearest):
            return None
        crossed = int(((nearest - truth).abs() > bound).sum())
        return Finding(EXCUSED, self._told(crossed)[0])

    def _beyond_oracle(self, truth: Tensor, bound: Tensor, count: int) -> Finding:
        """Rule 6, where not all elements are near eager's."""
        if bool(((self.ours - truth).abs() > bound).logical_and(~self._is_near()).any()):
            return self._differs(truth, bound, count)
        neighbours = self._neighbours()
        spread = _largest_of([(run - self.eager).abs() for run in neighbours], self.eager)
        is_steady = (spread <= STEADY * self.eager.abs()) & bool(neighbours and self.evidence.rounded is None)
        allowed = FACTOR * spread + self._floor_without_anchor()
        is_apart = is_steady & ((self.ours - self.eager).abs() > allowed)
        if bool(is_apart.any()):
            return self._differs(self.eager, torch.where(is_steady, allowed, math.inf), count)
        if rms(self.ours - truth) > 2 * rms(self.eager - truth):
            return self._differs(truth, bound, count)
        told = f"eager's own error is {rms(self.eager - truth) / rms(truth):.2g} of the float64 run's size"
        if self.evidence.rounded is not None:
            return Finding(EXCUSED, f"under autocast {told}, and ours is within its bound")
        return Finding(UNSTABLE, f"{told}: neither is an oracle")

    def _floor_without_anchor(self) -> Tensor:
        return math.sqrt(self.evidence.fan_in) * self.precision.ulps(self.eager.abs() + typical(self.eager))

    def _unanchored(self) -> Finding | None:
        """Rule 7."""
        off = (self.ours - self.eager).abs()
        floor = self._floor_without_anchor()
        if bool((off <= floor).all()):
            return None
        runs = [*self._neighbours(), *self._runs(self.evidence.between)]
        bound = self._bounds_around(self.eager).of([(run - self.eager).abs() for run in runs]) + floor
        if bool((off <= bound).all()):
            return Finding(UNANCHORED, f"{self.why_not}; as near as eager's {len(runs)} neighbours are to it")
        return self._differs(self.eager, bound, len(runs))

    def _differs(self, centre: Tensor, bound: Tensor, count: int) -> Finding:
        off = (self.ours - centre).abs()
        wrong = (off > bound) & ~self._is_near()
        rule = f"unanchored ({self.why_not})" if self.truth is None else "anchored on float64"
        factor = self._bounds_around(centre).factor
        said = f"Rule: {rule}: {factor:.3g} * eager's error at like magnitudes, from {count} runs, + {ULPS:g} ulps"
        if not bool(wrong.any()):
            told = f"each element is within its bound, but rms {rms(off):.3g} is not what roundings average to"
            return Finding(DIFFERS, f"{told}: more than {RMS_FACTOR:g} * eager's. {said}")
        index = _index(torch.where(wrong, off / bound.clamp(min=self.precision.smallest), -1.0))
        some = self.evidence.some
        where = list(index if some is None else some.index(index[0]))
        of_more = "" if some is None else f" that were judged of {some.numel}"
        return Finding(
            DIFFERS,
            f"{int(wrong.sum())} of {wrong.numel()} elements{of_more}; the worst at {where}: "
            f"ours {self.ours[index].item():.9g}, eager {self.eager[index].item():.9g}, "
            f"centre {centre[index].item():.9g}, off by {off[index].item():.3g}, bound {bound[index].item():.3g}. "
            f"{said}",
        )


def _nearest(run: Tensor, others: Sequence[Tensor]) -> Tensor:
    """That of the others which a run is nearest to, by the root mean square; the first of those that are as near."""
    return min(others, key=lambda other: rms(run - other))


def _largest_of(errors: Sequence[Tensor], like: Tensor) -> Tensor:
    return greatest_of(errors) if errors else torch.zeros_like(like)


def _least_of(runs: Sequence[Tensor]) -> Tensor:
    return -greatest_of([-run for run in runs])


def rms(numbers: Tensor) -> float:
    """The root of the mean square."""
    return float(numbers.square().mean().sqrt()) if numbers.numel() else 0.0


def typical(numbers: Tensor) -> float:
    """The median magnitude of the numbers that are not zero."""
    magnitude = numbers.reshape(-1)[:: 1 + numbers.numel() // (1 << 24)].abs()
    return float(magnitude[magnitude > 0].median()) if bool((magnitude > 0).any()) else 0.0


def _at(tensor: Tensor, finite: Tensor) -> Tensor:
    """The numbers, with zero wherever one is not finite: those have been judged."""
    return torch.where(finite, tensor, 0.0)


def largest(tensor: Tensor, on: torch.device | None = None) -> float:
    """The largest finite magnitude in a tensor, found `on` a device or where it lies; 0 for one without numbers."""
    if tensor.numel() == 0 or not (tensor.is_floating_point() or tensor.is_complex()):
        return 0.0
    pieces = (piece.to(on or tensor.device) for piece in tensor.reshape(-1).split(PIECE))
    return max(float(torch.nan_to_num(real(piece), 0.0, 0.0, 0.0).abs().max()) for piece in pieces)


def _explain_exact(ours: Tensor, eager: Tensor, evidence: Evidence) -> Finding | None:
    if not bool((ours != eager).any()):
        return None
    found = _explain_steps(ours, eager, evidence.truth, evidence.few_kinks)
    return found if is_same(found) else _explain_steps(ours, eager, evidence.truth, evidence.kinks)


def _explain_steps(ours: Tensor, eager: Tensor, truth: Tensor | None, kinks: Samples) -> Finding:
    """Of exact elements that are not all equal: each has to be eager's, or that of a float64 run."""
    wrong, others = ours != eager, [other for other in (truth, *kinks()) if _is_like(other, eager)]
    for other in others:
        wrong &= ours != other
    if not bool(wrong.any()):
        return _excused_exact(ours, eager, any(torch.equal(ours, other) for other in others))
    index = _index(wrong.to(torch.uint8))
    return Finding(
        DIFFERS,
        f"{int(wrong.sum())} of {wrong.numel()} elements differ; at {list(index)} ours is {ours[index].item()}, "
        f"eager's {eager[index].item()}. Rule: {eager.dtype} is exact",
    )


def _is_like(other: Tensor | None, eager: Tensor) -> TypeGuard[Tensor]:
    return other is not None and (other.shape, other.dtype) == (eager.shape, eager.dtype)


def _excused_exact(ours: Tensor, eager: Tensor, is_one_run: bool) -> Finding:
    count = int((ours != eager).sum())
    told = f"{count} of {eager.numel()} elements lie across a kink"
    is_few = count <= max(1, MOST_EXCUSED * eager.numel())
    return Finding(EXCUSED if is_few or is_one_run else UNSTABLE, told)


def _explain_nonfinite(ours: Tensor, eager: Tensor) -> Finding | None:
    either = ~(torch.isfinite(ours) & torch.isfinite(eager))
    if not bool(either.any()):
        return None
    wrong = either & ~((ours == eager) | (ours.isnan() & eager.isnan()))
    if not bool(wrong.any()):
        return None
    index = _index(wrong.to(torch.uint8))
    return Finding(
        DIFFERS,
        f"{int(wrong.sum())} of {wrong.numel()} elements; at {list(index)} ours is {ours[index].item()}, eager's "
        f"{eager[index].item()}. Rule: NaN and infinities stand where eager's stand",
    )


def _explain_zeros(ours: Tensor, eager: Tensor, truth: Tensor | None) -> Finding | None:
    wrong = (eager == 0) & (ours == 0) & (ours.signbit() != eager.signbit())
    if truth is not None and truth.shape == wrong.shape:
        wrong &= (truth == 0) & (truth.signbit() == eager.signbit())
    if not bool(wrong.any()):
        return None
    index = _index(wrong.to(torch.uint8))
    return Finding(
        DIFFERS,
        f"the sign of zero differs in {int(wrong.sum())} of {wrong.numel()} elements; at {list(index)} ours is "
        f"{ours[index].item()}, eager's {eager[index].item()}. Rule: all other bits are equal, so the sign must be",
    )


def _index(weights: Tensor) -> tuple[int, ...]:
    """Where the largest element is."""
    return tuple(int(part) for part in torch.unravel_index(weights.argmax(), weights.shape)) if weights.dim() else ()
