"""What eager says about a case, as far as it is asked: two runs, a float64 run, and perturbed runs on demand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from harness.calls.clone import SINGLE, CloneError
from harness.judge.tolerance import Evidence, largest
from harness.observe.observation import Observation, Seen

SAMPLES = 4
PAIRS = 12
"""More of them, as numbers nearby are all that a rounding of float64 is known by."""
Run = tuple[Observation, ...]
BETWEEN = {
    **dict.fromkeys((torch.float64, torch.complex128), torch.float64),
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.complex32), torch.float32),
}
"""The dtype in which a program may be computed between its roundings to another. It is float64, also where inputs are
narrower and a rounding of theirs is too large a step. Halves are computed in float32."""
SINGLE_TO_DOUBLE = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps


@dataclass(slots=True)
class Oracle:
    """Eager's own evidence.

    `wide` is the float64 run, or the reason why there is none. `nudged(k, dtype, moves_whole)` makes run k with every
    number of the call moved by one rounding of its own dtype, or of a wider one in which all is computed. Whole
    numbers may stay. `narrowed(k, is_held)` makes run k in float32, and in float64 on the same numbers. Where float32
    does not hold them, both are in float64, one of them in the precision of float32.
    """

    eager: Run
    again: Run
    wide: Run | str
    nudged: Callable[[int, torch.dtype | None, bool], Run]
    narrowed: Callable[[int, bool], tuple[Run, Run]]
    across: Callable[[], Sequence[Run]] = tuple
    """Makes float64 runs on both sides of the program's kinks."""
    _across_kinks: list[Run] | None = field(default=None, init=False)
    _samples: dict[tuple[torch.dtype | None, bool, int], list[Run]] = field(default_factory=dict, init=False)
    _pairs: dict[bool, list[tuple[Run, Run]]] = field(default_factory=dict, init=False)
    _scales: dict[tuple[int, str], float] = field(default_factory=dict, init=False)

    def evidence(self, step: int, kind: str, path: str) -> Evidence:
        """What the tensor at `path` is judged by. `kind` is values, mutation, gradient or earlier."""
        seen = of_kind(self.eager[step], kind)
        truth, why_not = self._truth(step, kind, path)
        return Evidence(
            truth=truth,
            why_not=why_not,
            samples=lambda: list(self._sampled(step, kind, path, None)),
            more=lambda: list(self._sampled(step, kind, path, None, first=SAMPLES)),
            kept=lambda: list(self._sampled(step, kind, path, None, moves_whole=False)),
            between=lambda: list(self._between(step, kind, path)),
            kinks=lambda: list(self._across(step, kind, path)),
            fan_in=self._fan_in(step, seen[path]),
        )

    def evidence_for_number(self, step: int, path: str) -> Evidence:
        """What a Python float of the result is judged by."""
        numbers = [run[step].scalars.get(path) for run in ([] if isinstance(self.wide, str) else [self.wide])]
        truth = torch.tensor(numbers[0], dtype=torch.float64) if numbers and type(numbers[0]) is float else None
        why_not = self.wide if isinstance(self.wide, str) else ""
        return Evidence(truth, why_not, lambda: list(self._sampled_numbers(step, path)))

    def sure_warnings(self, step: int) -> frozenset[str]:
        """Categories that eager gave in both runs."""
        return frozenset(self.eager[step].warnings.keys() & self.again[step].warnings.keys())

    def any_warnings(self, step: int) -> frozenset[str]:
        """Categories that eager gave in some run."""
        return frozenset(self.eager[step].warnings.keys() | self.again[step].warnings.keys())

    def _scale(self, step: int, kind: str) -> float:
        if (step, kind) not in self._scales:
            seen = of_kind(self.eager[step], kind).values()
            each = (largest(one.value, one.device()) for one in seen if one is not None)
            self._scales[step, kind] = max(each, default=0.0)
        return self._scales[step, kind]

    def _truth(self, step: int, kind: str, path: str) -> tuple[Tensor | None, str]:
        if isinstance(self.wide, str):
            return None, self.wide
        seen = of_kind(self.wide[step], kind).get(path)
        return (None, "the float64 run has no such value") if seen is None else (seen.value, "")

    def _between(self, step: int, kind: str, path: str) -> Iterator[Tensor]:
        eager = of_kind(self.eager[step], kind)[path]
        if eager is not None and (wide := BETWEEN.get(eager.value.dtype)) is not None:
            yield from self._sampled(step, kind, path, wide)
            if eager.value.dtype in SINGLE:
                yield from self._scaled(step, kind, path, eager.value)

    def _scaled(self, step: int, kind: str, path: str, eager: Tensor) -> Iterator[Tensor]:
        """Eager's value with what float32 loses to roundings added to it, in float64's measure."""
        reach = math.sqrt(torch.finfo(torch.float32).eps) * max(self._scale(step, kind), largest(eager))
        errors = list(self._errors(step, kind, path, eager, is_held=True))
        if not all(bool(torch.isfinite(error).all()) for error in errors):
            errors = list(self._errors(step, kind, path, eager, is_held=False))
        for error in errors:
            if largest(error) <= reach and bool(torch.isfinite(error).all()):
                yield eager + error * SINGLE_TO_DOUBLE

    def _errors(self, step: int, kind: str, path: str, eager: Tensor, is_held: bool) -> Iterator[Tensor]:
        """What each pair of runs differs by; not finite where a number in float32 is none."""
        for single, exact in self._narrowed_runs(is_held):
            seen = of_kind(single[step], kind).get(path), of_kind(exact[step], kind).get(path)
            if seen[0] is not None and seen[1] is not None and seen[0].value.shape == eager.shape:
                yield seen[0].value.to(eager.dtype) - seen[1].value

    def _narrowed_runs(self, is_held: bool) -> Sequence[tuple[Run, Run]]:
        """The runs in float32, each with its own in float64, that took eager's path; made when first asked for."""
        if is_held not in self._pairs:
            made = list(self._made_pairs(is_held))
            self._pairs[is_held] = [pair for pair in made if all(takes_path_of(run, self.eager) for run in pair)]
        return self._pairs[is_held]

    def _made_pairs(self, is_held: bool) -> Iterator[tuple[Run, Run]]:
        for index in range(PAIRS):
            try:
                yield self.narrowed(index, is_held)
            except CloneError:  # what float32 cannot hold: no such runs, and the bound stays as it is
                return

    def _sampled(
        self, step: int, kind: str, path: str, wide: torch.dtype | None, moves_whole: bool = True, first: int = 0
    ) -> Iterator[Tensor]:
        for run in self._runs(wide, moves_whole, first):
            seen = of_kind(run[step], kind).get(path)
            if seen is not None:
                yield seen.value

    def _sampled_numbers(self, step: int, path: str) -> Iterator[Tensor]:
        for run in self._runs():
            number = run[step].scalars.get(path)
            if type(number) is float:
                yield torch.tensor(number, dtype=torch.float64)

    def _runs(self, wide: torch.dtype | None = None, moves_whole: bool = True, first: int = 0) -> Sequence[Run]:
        """The perturbed runs from the first on that took eager's path, made when first asked for."""
        key = (wide, moves_whole, first)
        if key not in self._samples:
            self._samples[key] = [run for run in self._made_runs(*key) if takes_path_of(run, self.eager)]
        return self._samples[key]

    def _across(self, step: int, kind: str, path: str) -> Iterator[Tensor]:
        """The values of the float64 runs across kinks; made when first asked for."""
        if self._across_kinks is None:
            self._across_kinks = list(self.across())
        for run in self._across_kinks:
            seen = of_kind(run[step], kind).get(path)
            if seen is not None:
                yield seen.value

    def _made_runs(self, wide: torch.dtype | None, moves_whole: bool, first: int) -> Iterator[Run]:
        for index in range(first, 3 * first or SAMPLES):
            try:
                yield self.nudged(index, wide, moves_whole)
            except CloneError:  # storages of mixed dtypes: no perturbed runs, and the bound stays as it is
                return

    def _fan_in(self, step: int, seen: Seen | None) -> float:
        elements = sum(other.value.numel() for other in self.eager[step].state.values())
        return max(1.0, elements / max(1, seen.value.numel())) if seen is not None else 1.0


def takes_path_of(run: Run, eager: Run) -> bool:
    """Whether a run is the same computation as eager's, as far as exact values tell: integers, booleans, random
    state, structure and errors are equal."""
    return all(_is_same_path(got, reference) for got, reference in zip(run, eager, strict=True))


def is_alike(run: Run, eager: Run) -> bool:
    """Whether a run draws the same numbers, and gives the same kinds of things, whatever their values."""
    return all(
        (got.error is None) == (reference.error is None)
        and got.random == reference.random
        and got.kinds.keys() == reference.kinds.keys()
        for got, reference in zip(run, eager, strict=True)
    )


def _is_same_path(got: Observation, reference: Observation) -> bool:
    return is_alike((got,), (reference,)) and all(
        torch.equal(got.outputs[path].value, seen.value)
        for path, seen in reference.outputs.items()
        if not (seen.value.is_floating_point() or seen.value.is_complex()) and path in got.outputs
    )


KINDS = ("values", "mutation", "gradient", "earlier")


def of_kind(observation: Observation, kind: str) -> Mapping[str, Seen | None]:
    kinds: dict[str, Mapping[str, Seen | None]] = {
        "values": observation.outputs,
        "mutation": observation.state,
        "gradient": observation.gradients,
        "earlier": observation.earlier,
    }
    return kinds[kind]
