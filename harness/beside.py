"""What to do where a gradient has a step: at a ReLU whose operand is a rounding away from zero, two right programs end
up on two sides, and the gradients of all that lies before it are apart by far more than rounding.

Nothing says there which side is right. So the program is judged where eager itself is on one side: on numbers that are
each one rounding away, at which eager's gradients stay where they were. A program that is wrong is wrong there, too.
Of many steps others lie between the two on other numbers: each gradient has to be eager's on some of them.

Only programs of so many numbers that nobody chose them one by one are judged so. In a small one a tie or a zero may be
what the case is about, and of one tie a neighbour may keep eager's side; of many ties any neighbour undoes some, a
gradient moves with all of its neighbours, and what differs there has differed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from harness.observe import Observation
from harness.oracle import SAMPLES, Oracle, Run, takes_path_of
from harness.outcome import Difference

MARGIN = 10.0
"""How much nearer than the program's gradients eager's neighbours must stay to eager's."""
LEAST_NUMBERS = 10_000
NOTE = "at the numbers given a step of the gradient lies between eager and it; judged on neighbouring ones"


def steady_neighbours(oracle: Oracle, ours: Run, differences: Sequence[Difference]) -> Iterator[tuple[int, set[str]]]:
    """The numbers of the neighbours at which eager stays on its side, and the paths of the differences where it does;
    none where more than gradients differ."""
    if not are_gradients(differences):
        return
    if sum(seen.value.numel() for seen in oracle.eager[0].gradients.values() if seen is not None) < LEAST_NUMBERS:
        return
    apart = {each.path: _distance(oracle.eager, ours, _place(each.path)) for each in differences}
    for index in range(SAMPLES):
        run = oracle.nudged(index, None, True)
        if not takes_path_of(run, oracle.eager):
            continue
        moved = {path: _distance(oracle.eager, run, _place(path)) for path in apart}
        if steady := {path for path, far in apart.items() if moved[path] * MARGIN <= far}:
            yield index, steady


def are_gradients(differences: Sequence[Difference]) -> bool:
    """Whether gradients differ and nothing else."""
    return bool(differences) and all(difference.field == "gradient" for difference in differences)


def _place(path: str) -> tuple[int, str]:
    """`step 2: parameter.weight.grad` -> 1, `parameter.weight`"""
    step, _, name = path.partition(": ")
    return int(step.removeprefix("step ")) - 1, name.removesuffix(".grad")


def _distance(one: Run, other: Run, place: tuple[int, str]) -> float:
    step, name = place
    values = [_gradient(run[step], name) for run in (one, other)]
    if values[0] is None or values[1] is None or values[0].shape != values[1].shape:
        return 0.0
    return float((values[0].double() - values[1].double()).abs().max()) if values[0].numel() else 0.0


def _gradient(observation: Observation, name: str) -> torch.Tensor | None:
    seen = observation.gradients.get(name) or observation.gradients.get(f"{name}.grad")
    return None if seen is None else seen.value
