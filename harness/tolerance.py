"""Decides whether two tensors hold the same numbers, up to the rounding that eager itself shows.

Exact kinds (integers, booleans, index-valued outputs with them) must be equal, up to their margin: an element may be
what the float64 run gives, as the position of the greatest is where a rounding of eager's decided it; and where inputs
are so many that nobody chose them one by one, what eager gives on neighbouring numbers. For floating numbers:

*Non-finite.* NaN and each infinity stand where eager's stand.

*Bitwise.* Equal bits are the same. If nothing but signs of zeros differs, that is a difference wherever the float64
run has a zero of eager's sign too (without a float64 run: everywhere): such a result did eager's arithmetic and then
lost a sign, which `1 / x` shows. Where other bits differ, rounding may have moved the zeros: no judgement of signs.

*Anchored.* The anchor `t` is the same program in float64, on the same numbers. Eager's error `e - t` has two
envelopes, one absolute and one relative to magnitude:

    A = max_j |e_j - t_j|            R = max_j |e_j - t_j| / (|t_j| + s)         s = median of the |t_j| that are not 0
    bound_i = 4 * min(A, R * (|t_i| + s)) + 4 ulps of t_i

Every element must satisfy |o_i - t_i| <= bound_i. It is a maximum over elements, never a mean, so one bad element in
a million is seen. The smaller envelope keeps a large element's error from excusing a small one. The factor 4 is for
another order of summation, which draws another error of the same size; 4 ulps is for eager being exact by luck.

*Sampled.* Where eager is lucky on few elements (a gradient that is zero but for rounding; a scalar), its one error
says little about the size of the error. So a difference is said only after up to four more eager runs, each with every
input, parameter, cotangent and drawn number moved to a neighbouring number, whose errors join `A` and `R`. A run whose
exact outputs change by that, or whose numbers move further than the reach below, took another path, and is not
counted. Where none is left, whole numbers were perhaps labels that a comparison reads: four runs in which they stay
count instead.

*Between roundings.* A backend may keep in float32 what eager rounds to halves, and where eager's roundings cancel by
luck (x / |x| of one element) a rounding of float32 terms is left. So halves are also measured by four runs of eager in
float32, which the anchor vouches for; and where eager's halves overflowed on the way, so that it gives zero or an
infinity in the place of a number, those runs are the reference. Results in float64 of narrower inputs are measured by
four runs with inputs widened first, as one rounding of the narrow ones moves such a result beyond reach.

*Scaled.* Nothing wider tells what eager's own roundings are in float64, and neighbouring inputs show few of those that
happen between operators (1 - tanh(x)^2 far out is a rounding of the tanh, which no step of x moves; the sum of 1 and
what is small is always rounded alike). So the program also runs in float32, a dozen times, on numbers nearby, and each
time in float64 on those very numbers: what lies between, times the ratio of the two precisions, is an error of eager's.
Roundings add up in the first order, so their size goes with the precision.

*Unanchored.* There is no anchor when the float64 run is impossible, draws other random numbers, or took another path
(its exact outputs differ, or it is further from eager than the reach: the square root of the precision, times the
largest number of the same kind, which are outputs, state and gradients; of all kinds where the exact result is less
than a rounding of that, and so nothing but a rest of what cancelled). Then eager is the centre, the samples give
`A` and `R`, and the floor is 4 ulps of (|e_i| + s), times the square root of how many input elements there are for
each element. Where every sample strays too, eager itself is ill-conditioned here (a ReLU that flips moves a gradient):
how far its neighbouring inputs move it is then the only measure of its own error, and samples count up to the fourth
root of the precision. Further than that is another result, not rounding; unless all samples are further, one of them
at least as far as ours, and numbers so many that nobody chose them: then nothing can be told (`UNTOLD`): in a network
of fifty normalized layers a rounding may turn the sign of what its first weights get. A result in float64 may hold
what was rounded to float32 on the way: without an anchor, the reach is that of the narrowest dtype among inputs and
results.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.float64 import HALVES
from harness.memory import bits

FACTOR = 4.0
FLOOR_ULPS = 4.0
UNCHOSEN = 10_000
"""Numbers that a program takes, of which a tie is nothing that it is about."""
PIECE = 1 << 26
"""Elements that are judged at once, each in a dozen float64 numbers; of more, each piece by its own envelopes."""
TYPICAL = 1 << 24
"""Elements of which the median is taken; of more, of some that are evenly spaced."""
UNTOLD = "eager on neighbouring numbers goes as far"
"""How an explanation begins of a difference that may be a rounding or none."""

Samples = Callable[[], Sequence[Tensor]]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the judgement of one tensor rests on.

    `truth` is the float64 value or None, `why_not` says why it is None. `samples` gives the values of perturbed
    eager runs, `kept` those of such in which whole numbers stay, `between` those of runs in the dtype between its
    roundings, `elsewhere` those of perturbed runs with other exact values; all are asked for only when needed. `scale`
    is the largest magnitude among tensors of the same kind, `beyond` among those of all kinds, `fan_in` how many input
    elements there are for each element of this tensor. `precision` is that of the narrowest dtype that the program is
    seen to compute in.
    """

    truth: Tensor | None = None
    why_not: str = ""
    samples: Samples = tuple
    kept: Samples = tuple
    between: Samples = tuple
    elsewhere: Samples = tuple
    scale: float = 0.0
    beyond: float = 0.0
    fan_in: float = 1.0
    precision: float = 0.0

    def is_unchosen(self, eager: Tensor) -> bool:
        """Whether the program takes so many numbers that nobody chose them one by one."""
        return self.fan_in * max(1, eager.numel()) >= UNCHOSEN

    def of(self, piece: slice, numel: int) -> Evidence:
        """What some of the `numel` elements are judged by, where all are in a row."""

        return self._each(lambda value: value.reshape(-1)[piece] if value.numel() == numel else value)

    def on(self, device: torch.device) -> Evidence:
        """The same, on a device, where it is asked for."""
        return self._each(lambda value: value.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Evidence:
        def changed(samples: Samples) -> Samples:
            return lambda: [change(sample) for sample in samples()]

        return dataclasses.replace(
            self, truth=None if self.truth is None else change(self.truth), samples=changed(self.samples),
            kept=changed(self.kept), between=changed(self.between), elsewhere=changed(self.elsewhere),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Bound:
    """A bound for every element, around a centre, with the rule that made it."""

    centre: Tensor
    bound: Tensor
    rule: str


def explain(ours: Tensor, eager: Tensor, evidence: Evidence, on: torch.device | None = None) -> str | None:
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
    epsilon = torch.finfo(eager.dtype).eps
    smallest = torch.finfo(eager.dtype).smallest_normal * epsilon
    truth = None if evidence.truth is None else _real(evidence.truth)
    found = explain_reals(_real(ours), _real(eager), truth, evidence, epsilon, smallest)
    if found is None or truth is None or eager.dtype not in HALVES:
        return found
    return None if _is_between(ours, eager, truth, evidence) else found


def _explain_pieces(ours: Tensor, eager: Tensor, evidence: Evidence, on: torch.device | None) -> str | None:
    """What differs in the first piece where something does; what cannot be told, only if nothing is sure to differ."""
    numel, untold = eager.numel(), None
    for start in range(0, numel, PIECE):
        piece = slice(start, min(start + PIECE, numel))
        found = explain(ours[piece], eager[piece], evidence.of(piece, numel), on)
        if found is not None and not found.startswith(UNTOLD):
            return f"of elements {start} to {piece.stop - 1}: {found}"
        untold = untold or found
    return untold


def _is_between(ours: Tensor, eager: Tensor, truth: Tensor, evidence: Evidence) -> bool:
    """Whether halves are what eager computes in float32, rounded once. Its own halves tell of its error there where
    they are near: not where they overflowed."""
    runs = [run.to(eager.dtype) for run in evidence.between() if run.shape == eager.shape]
    if not runs:
        return False
    epsilon = torch.finfo(eager.dtype).eps
    smallest = torch.finfo(eager.dtype).smallest_normal * epsilon
    first, own = _real(runs[0]), _real(eager)
    is_near = (own - first).abs() <= math.sqrt(epsilon) * first.abs()
    samples = [*runs[1:], torch.where(is_near, own, first)]
    apart = dataclasses.replace(evidence, samples=lambda: samples, kept=tuple, between=tuple)
    return explain_reals(_real(ours), first, truth, apart, epsilon, smallest) is None


def explain_reals(
    ours: Tensor, eager: Tensor, truth: Tensor | None, evidence: Evidence, epsilon: float, smallest: float
) -> str | None:
    """`explain` for numbers that are in float64 already, of a precision given by `epsilon`."""
    finite = torch.isfinite(eager)
    if not bool(finite.all()) or not bool(torch.isfinite(ours).all()):
        if (found := _explain_nonfinite(ours, eager)) is not None:
            return found
    if torch.equal(_at(ours, finite), _at(eager, finite)):
        return _explain_zeros(ours, eager, truth)
    is_rest = truth is not None and largest(truth) <= epsilon * evidence.beyond
    scale = max(evidence.scale, evidence.beyond) if is_rest else evidence.scale
    truth, why_not = _usable(truth, evidence.why_not, eager, finite, scale, epsilon)
    ours, eager, truth = _at(ours, finite), _at(eager, finite), None if truth is None else _at(truth, finite)
    rule = _Rule(evidence, why_not, epsilon, smallest)
    if bool(((ours - (made := rule.bound(eager, truth, ())).centre).abs() <= made.bound).all()):
        return None
    reach = _reach(eager, scale, epsilon if truth is not None else max(epsilon, evidence.precision))
    samples = _numbers(evidence.samples, finite)
    near = [sample for sample in samples if _distance(sample, eager) <= reach]
    near = near or [sample for sample in _numbers(evidence.kept, finite) if _distance(sample, eager) <= reach]
    if truth is not None:
        near += _numbers(evidence.between, finite)
    if not near and truth is None:
        far = reach / epsilon**0.25
        near = [sample for sample in samples if _distance(sample, eager) <= far]
    made = rule.bound(eager, truth, near)
    excess = (ours - made.centre).abs() - made.bound
    if bool((excess <= 0).all()):
        return None
    worst = _worst(ours, eager, made, excess)
    if near or truth is not None or not samples or not evidence.is_unchosen(eager):
        return worst
    strayed = max(_distance(sample, eager) for sample in samples)
    return f"{UNTOLD}, {strayed:.3g}: {worst}" if _distance(ours, eager) <= strayed < math.inf else worst


def _numbers(samples: Samples, finite: Tensor) -> list[Tensor]:
    return [_at(_real(sample), finite) for sample in samples() if _real(sample).shape == finite.shape]


def _at(tensor: Tensor, finite: Tensor) -> Tensor:
    """The numbers, with zero wherever eager's are not finite: those have been judged."""
    return torch.where(finite, tensor, 0.0)


def largest(tensor: Tensor, on: torch.device | None = None) -> float:
    """The largest finite magnitude in a tensor, found `on` a device or where it lies; 0 for one without numbers."""
    if tensor.numel() == 0 or not (tensor.is_floating_point() or tensor.is_complex()):
        return 0.0
    pieces = (piece.to(on or tensor.device) for piece in tensor.reshape(-1).split(PIECE))
    return max(float(torch.nan_to_num(_real(piece), 0.0, 0.0, 0.0).abs().max()) for piece in pieces)


def _real(tensor: Tensor) -> Tensor:
    """The numbers in float64, complex ones as pairs."""
    plain = torch.view_as_real(tensor.to(torch.complex128)) if tensor.is_complex() else tensor
    return plain.to(torch.float64)


def _explain_exact(ours: Tensor, eager: Tensor, evidence: Evidence) -> str | None:
    wrong = ours != eager
    if not bool(wrong.any()) or not bool((wrong := wrong & ~_within_margin(ours, eager, evidence)).any()):
        return None
    index = _index(wrong.to(torch.uint8))
    return (
        f"{int(wrong.sum())} of {wrong.numel()} elements differ; at {list(index)} ours is {ours[index].item()}, "
        f"eager's {eager[index].item()}. Rule: {eager.dtype} is exact"
    )


def _within_margin(ours: Tensor, eager: Tensor, evidence: Evidence) -> Tensor:
    """Which elements are what eager gives where no rounding, or another one, decides."""
    found = torch.zeros_like(eager, dtype=torch.bool)
    if evidence.truth is not None and (evidence.truth.shape, evidence.truth.dtype) == (eager.shape, eager.dtype):
        found |= ours == evidence.truth
    if evidence.is_unchosen(eager):
        for sample in evidence.elsewhere():
            if sample.shape == eager.shape:
                found |= ours == sample
    return found


def _explain_nonfinite(ours: Tensor, eager: Tensor) -> str | None:
    either = ~(torch.isfinite(ours) & torch.isfinite(eager))
    wrong = either & ~((ours == eager) | (ours.isnan() & eager.isnan()))
    if not bool(wrong.any()):
        return None
    index = _index(wrong.to(torch.uint8))
    return (
        f"{int(wrong.sum())} of {wrong.numel()} elements; at {list(index)} ours is {ours[index].item()}, eager's "
        f"{eager[index].item()}. Rule: NaN and infinities stand where eager's stand"
    )


def _explain_zeros(ours: Tensor, eager: Tensor, truth: Tensor | None) -> str | None:
    wrong = (eager == 0) & (ours == 0) & (ours.signbit() != eager.signbit())
    if truth is not None:
        wrong &= (truth == 0) & (truth.signbit() == eager.signbit())
    if not bool(wrong.any()):
        return None
    index = _index(wrong.to(torch.uint8))
    return (
        f"the sign of zero differs in {int(wrong.sum())} of {wrong.numel()} elements; at {list(index)} ours is "
        f"{ours[index].item()}, eager's {eager[index].item()}. Rule: all other bits are equal, so the sign must be"
    )


def _usable(
    truth: Tensor | None, why_not: str, eager: Tensor, finite: Tensor, scale: float, epsilon: float
) -> tuple[Tensor | None, str]:
    """The anchor if it is close enough to eager to be the same program; otherwise None and the reason."""
    if truth is None:
        return None, why_not or "there is no float64 run"
    if truth.shape != eager.shape:
        return None, f"the float64 run has shape {list(truth.shape)}"
    if not bool(torch.isfinite(truth[finite]).all()):
        return None, "the float64 run is not finite where eager is"
    error = _distance(_at(truth, finite), _at(eager, finite))
    reach = _reach(_at(eager, finite), scale, epsilon)
    if error > reach:
        return None, f"eager is {error:.3g} from the float64 run, further than {reach:.3g}: it took another path"
    return truth, ""


def _distance(one: Tensor, other: Tensor) -> float:
    """The largest distance between elements; infinite if a number of either is not finite."""
    return float(torch.nan_to_num((one - other).abs(), math.inf, math.inf).max())


def _reach(eager: Tensor, scale: float, epsilon: float) -> float:
    """How far from eager a run may be that is still the same computation."""
    return math.sqrt(epsilon) * max(scale, float(eager.abs().max()))


@dataclass(frozen=True, slots=True)
class _Rule:
    """What makes bounds for one tensor: its evidence, and the precision and smallest number of its dtype."""

    evidence: Evidence
    why_not: str
    epsilon: float
    smallest: float

    def bound(self, eager: Tensor, truth: Tensor | None, samples: Sequence[Tensor]) -> _Bound:
        """The bound around the anchor, or around eager where there is none."""
        centre = eager if truth is None else truth
        magnitude = centre.abs() + self.smallest
        typical = _typical(centre)
        runs = [*([] if truth is None else [eager]), *samples]
        errors = [(run - centre).abs() for run in runs]
        absolute = max((float(error.max()) for error in errors), default=0.0)
        relative = max((float((error / (magnitude + typical)).max()) for error in errors), default=0.0)
        envelope = torch.clamp(relative * (magnitude + typical), max=absolute)
        floor = FLOOR_ULPS * self.epsilon * (magnitude if truth is not None else self._roots() * (magnitude + typical))
        counted = f"; eager's error from {len(runs)} runs, at most {absolute:.3g}"
        return _Bound(centre, FACTOR * envelope + floor + FLOOR_ULPS * self.smallest, self._said(truth) + counted)

    def _roots(self) -> float:
        return math.sqrt(self.evidence.fan_in)

    def _said(self, truth: Tensor | None) -> str:
        if truth is not None:
            return f"anchored on float64: {FACTOR:g} * eager's own error + {FLOOR_ULPS:g} ulps"
        floor = f"{FLOOR_ULPS:g} ulps * sqrt({self.evidence.fan_in:.3g})"
        return f"unanchored ({self.why_not}): {FACTOR:g} * eager's own spread + {floor}"


def _typical(centre: Tensor) -> float:
    """The median magnitude of the numbers that are not zero."""
    magnitude = centre.reshape(-1)[:: 1 + centre.numel() // TYPICAL].abs()
    return float(magnitude[magnitude > 0].median()) if bool((magnitude > 0).any()) else 0.0


def _worst(ours: Tensor, eager: Tensor, made: _Bound, excess: Tensor) -> str:
    index = _index(torch.nan_to_num((ours - made.centre).abs() / made.bound, posinf=torch.finfo(torch.float64).max))
    off, bound = float((ours[index] - made.centre[index]).abs()), float(made.bound[index])
    return (
        f"{int((excess > 0).sum())} of {excess.numel()} elements; the worst at {list(index)}: "
        f"ours {ours[index].item():.9g}, eager {eager[index].item():.9g}, "
        f"centre {made.centre[index].item():.9g}, off by {off:.3g}, bound {bound:.3g}. Rule: {made.rule}"
    )


def _index(weights: Tensor) -> tuple[int, ...]:
    """Where the largest element is."""
    return tuple(int(part) for part in torch.unravel_index(weights.argmax(), weights.shape)) if weights.dim() else ()
