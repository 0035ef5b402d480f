"""Memory that grows with each call is told from what a program keeps once."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch

from assay.harness.calls.clone import Call
from assay.harness.observe import leaks


@pytest.mark.parametrize(("until", "grows"), [(leaks.CALLS, False), (1000, True)])
def test_leaks_are_of_what_never_ends(until: int, grows: bool) -> None:
    """A cache that fills is looked at twice, and has filled by then."""
    kept: list[torch.Tensor] = []

    def invoke(call: Call) -> None:
        if len(kept) < until:
            kept.append(torch.zeros(1 << 18))

    found = leaks.growth_bytes(invoke, lambda: Call(lambda: None, (), {}))
    assert leaks.grows(found, 0) is grows


def of_each_call(kept: list[torch.Tensor]) -> torch.Tensor:
    kept.append(torch.zeros(4))
    return kept[-1]


def of_the_last_call(kept: list[torch.Tensor]) -> torch.Tensor:
    kept[:] = [torch.zeros(4)]
    return kept[-1]


def of_all_calls(kept: list[torch.Tensor]) -> torch.Tensor:
    kept[:] = kept or [torch.zeros(4)]
    return kept[-1].data


@pytest.mark.parametrize(
    ("give", "found"), [(of_each_call, ("output",)), (of_the_last_call, ("output",)), (of_all_calls, ())]
)
def test_leaks_are_results_that_outlive_their_call(
    give: Callable[[list[torch.Tensor]], torch.Tensor], found: tuple[str, ...]
) -> None:
    """Memory of the program's own, which each call gives anew, is none."""
    kept: list[torch.Tensor] = []
    assert leaks.held_after(lambda call: give(kept), lambda: Call(lambda: None, (), {})) == found


def test_leaks_are_inputs_that_a_program_keeps_and_none_that_it_lets_go() -> None:
    kept: list[torch.Tensor] = []

    def call() -> Call:
        return Call(lambda: None, (torch.zeros(4),), {})

    assert leaks.held_after(lambda given: None, call) == ()
    assert leaks.held_after(lambda given: kept.append(given.args[0]), call) == ("input[0][0]",)


@pytest.mark.parametrize(("count", "is_told"), [(1, False), (leaks.ALL_CALLS, True)])
def test_leaks_are_what_each_call_leaves_open(count: int, is_told: bool) -> None:
    """What is opened once, for all calls, is none."""
    before = leaks.opened()
    files = [open(os.devnull) for _ in range(count)]
    try:
        found = leaks.left_by_each_call(before, leaks.opened())
    finally:
        for file in files:
            file.close()
    assert found == (("an open file of each call",) if is_told and leaks.FILES.is_dir() else ())
