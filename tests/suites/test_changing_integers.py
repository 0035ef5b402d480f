"""A slice of the integers that change from call to call; the whole is `python -m assay.suites.changing_integers`."""

from __future__ import annotations

import pytest

from assay.suites.changing import sliced
from assay.suites.changing_integers import FAR, NEAR, Run, differences, runs

EVERY = 200
MENDED = ("select", "slice from", "slice until", "write select", "roll", "pad both", "correction of a variance")
"""Forms that once read or wrote beside their memory, took what eager refuses, or did not compile."""
FAR_MENDED = ("chunk", "arange of a few", "arange by long steps")
"""Forms of far numbers whose sums overflow in eager."""
CHOSEN = [
    *(run for run in runs() if run.form in MENDED and run.numbers is NEAR and run.dynamic is None),
    *(run for run in runs() if run.form in FAR_MENDED and run.numbers is FAR and run.dynamic),
]


@pytest.mark.parametrize("run", [*CHOSEN, *sliced(runs(), EVERY)], ids=lambda run: run.name)
def test_changing_integers_are_as_in_eager(run: Run) -> None:
    found = run.differences()
    assert not found, "\n".join(map(str, found))


def test_changing_integers_finds_a_wrong_form() -> None:
    """A form that is not the same from call to call stands for one that is compiled wrongly."""
    calls = iter(range(100))
    assert differences("other each time", lambda x, n: x * n + next(calls), (2, 3), False)
