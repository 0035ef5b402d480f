"""What a caller does with a compiled program, as data: sequences of acts.

An act is a call, a backward, or both. A call is given one of several sets of numbers: those of the case (1), and
others of the same kind (2, 3, ...; harness/protocol/fresh_numbers.py). It gets them in tensors of its own (`FRESH`),
which may lie one behind the other in one storage (`PLACED`). Or they are written into the tensors of the call
before: as programs do (`REWRITTEN`), or through memory that these share, as with NumPy, so that no version grows
(`UNSEEN`). Or it is given those tensors as the call before left them (`SAME`). Parameters, buffers and whatever else
the program holds get other numbers before an act that `moves_state`.

`DEFAULT` is what every case goes through. `FURTHER` and `WAYS` are the acts that may follow. Each case gets one of
the former and two of the latter by its name; a thorough run has all.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import torch

FRESH, PLACED, REWRITTEN, UNSEEN, SAME = "fresh", "placed", "rewritten", "unseen", "same"
HANDED_ON = (REWRITTEN, UNSEEN, SAME)
"""How a call is given the tensors of the call before."""
ALL, LARGEST, SUMMED, IN_COLUMNS = "all", "largest", "summed", "in columns"
TWICE, THRICE, ONE, NONE = "twice", "thrice", "one", "none"
"""Each tensor that has the batch's dimension, with as many rows again once or twice, its first row alone, or no row."""
INFERENCE, AUTOCAST = "inference", "autocast"
"""Within `torch.inference_mode()`, and within `torch.autocast` to `AUTOCAST_DTYPE`."""
AUTOCAST_DTYPE = torch.bfloat16


GIVEN: Mapping[str, str] = {
    FRESH: "",
    PLACED: " in tensors that lie behind each other in one storage",
    REWRITTEN: " in the tensors of the call before",
    UNSEEN: " in the tensors of the call before, whose versions did not grow",
    SAME: " in the same tensors",
}
"""How each is said in words."""
SIZES: Mapping[str, str] = {
    "": "",
    TWICE: "with twice the batch",
    THRICE: "with three times the batch",
    ONE: "with a batch of one",
    NONE: "with a batch of none",
}
ENDS: Mapping[str, str] = {
    ALL: "",
    LARGEST: " from the largest result alone",
    SUMMED: " from the sum of each result but the loss",
    IN_COLUMNS: " from the largest result alone, whose gradient lies in columns",
}
WITHIN: Mapping[str, str] = {"": "", INFERENCE: "in inference mode", AUTOCAST: "under autocast to bfloat16"}


@dataclass(frozen=True, slots=True)
class Act:
    """A call with the numbers `numbers`, if not 0; then, if `back` is not 0, a backward from the results of a call:
    1 for the latest, 2 for the one before it.

    `is_spent`: of a graph that was gone through and freed, so that eager raises, unless nothing was saved in it.
    `ends` says which results have a tangent: all (or the loss, where there is one), or the largest alone. Or all but
    the loss have one number expanded to their size, as the gradient of a sum is. Or the largest has one in columns.
    `retains`: the graph may be gone back through again. `accumulates`: gradients are added to those of the act before.
    `relays_gradients`: these lie otherwise in memory first. `in_part`: every other leaf alone is asked for.
    `in_other_dtype`: arguments and state are converted first, and converted back before the next act that is not.
    `gives_up`: the caller lets go of the arguments after the act, and other things are written where they lay.
    `within` says in which context the call is made, and `sizes` with how many rows. `freezes`: every other parameter
    requires no gradient during the act. `turns`: floating arguments require gradients where they did not, and none
    where they did. `relays`: the last two dimensions of each argument lie in the other order in memory. `expands`: the
    first row of each stands for all of its rows. `blots`: one number of each floating argument is NaN. `strays`: one
    number of each whole one is out of every range, so that eager raises where it is an index.
    """

    numbers: int = 0
    back: int = 0
    given: str = FRESH
    ends: str = ALL
    retains: bool = False
    accumulates: bool = False
    relays_gradients: bool = False
    in_part: bool = False
    is_spent: bool = False
    moves_state: bool = False
    in_other_mode: bool = False
    in_other_dtype: bool = False
    in_thread: bool = False
    gives_up: bool = False
    sizes: str = ""
    within: str = ""
    freezes: bool = False
    turns: bool = False
    relays: bool = False
    expands: bool = False
    blots: bool = False
    strays: bool = False

    @property
    def calls(self) -> bool:
        return self.numbers > 0

    @property
    def is_unusual(self) -> bool:
        """Whether its call is made in one of the ways of `FURTHER` or `WAYS`."""
        named = (self.sizes, self.within, self.freezes, self.turns, self.relays, self.expands, self.blots, self.strays)
        return any((*named, self.in_other_mode, self.in_other_dtype, self.in_thread))

    def __str__(self) -> str:
        """`call with numbers 2, backward`, as a failing row says it."""
        called = f"call with numbers {self.numbers}" if self.calls else ""
        called += GIVEN[self.given] if self.calls else ""
        return ", ".join(part for part in (called, self._said_of_backward(), *self._said_of_place()) if part)

    def _said_of_backward(self) -> str:
        if not self.back:
            return ""
        of = "" if self.back == 1 else f" of the call {self.back - 1} before"
        into = " into the gradients there" if self.accumulates else ""
        into += ", which lie otherwise in memory" if self.relays_gradients else ""
        return f"backward{of}{ENDS[self.ends]}{into}" + (" for every other leaf" if self.in_part else "")

    def _said_of_place(self) -> tuple[str, ...]:
        return (
            "in the other mode" if self.in_other_mode else "",
            "in another dtype" if self.in_other_dtype else "",
            "in another thread" if self.in_thread else "",
            SIZES[self.sizes],
            WITHIN[self.within],
            "with every other parameter frozen" if self.freezes else "",
            "with arguments that require gradients where they did not" if self.turns else "",
            "with arguments that lie otherwise in memory" if self.relays else "",
            "with the first row of each argument expanded" if self.expands else "",
            "with a NaN in each argument" if self.blots else "",
            "with an index out of range" if self.strays else "",
            "whose arguments are then given up" if self.gives_up else "",
        )


Protocol = tuple[Act, ...]


def step(numbers: int, **how: object) -> Act:
    """A call and the backward from all of its results, with other parameters than the act before."""
    return replace(Act(numbers, back=1, moves_state=True), **how)  # type: ignore[arg-type]


def steps(mode: str, count: int) -> Protocol:
    """So many calls, each with a backward in training, and each with numbers and parameters of its own."""
    return tuple(Act(n, back=int(mode == "train"), moves_state=n > 1) for n in range(1, count + 1))


def needed_for(acts: Protocol, indices: Collection[int]) -> frozenset[int]:
    """Some acts, and those before that each of them goes back from, adds to, or takes its tensors from."""
    found: set[int] = set()
    pending = list(indices)
    while pending:
        index = pending.pop()
        if index not in found:
            found.add(index)
            pending += _leant_on(acts, index)
    return frozenset(found)


def shorter(acts: Protocol) -> tuple[Protocol, ...]:
    """Acts that may show what the last act shows, the fewest first.

    The fewest are the first act, the last one, and those that it needs. Then the unusual ones between come in, and then
    all. Acts that go back from a call before the latest need all: which call is meant depends on them.
    """
    last = len(acts) - 1
    unusual = [place for place, act in enumerate(acts) if act.is_unusual]
    kept = [sorted({0, *needed_for(acts, [*others, last])}) for others in ((), unusual)]
    made = [tuple(acts[place] for place in places) for places in kept]
    return tuple(dict.fromkeys((*(few for few in made if all(act.back < 2 for act in few)), acts)))


def _leant_on(acts: Protocol, index: int) -> Iterator[int]:
    act = acts[index]
    before = [other for other in range(index) if acts[other].calls]
    if act.back:
        yield from [*before, *[index] * act.calls][-act.back :]
    if act.calls and act.given in HANDED_ON:
        yield from before[-1:]
    if act.accumulates:
        yield from [other for other in range(index) if acts[other].back][-1:]


FEW: Mapping[str, Protocol] = {
    "infer": (Act(1), Act(1, given=SAME), Act(2, moves_state=True)),
    "train": (Act(1, back=1), step(2), step(1)),
}
"""For a case that brings a scenario, which is the caller itself, and for searches that try many programs."""

DEFAULT: Mapping[str, Protocol] = {
    "infer": (
        Act(1),
        Act(1, given=SAME),
        Act(2, moves_state=True),
        Act(3, given=REWRITTEN),
        Act(4, moves_state=True),
        Act(1),
        Act(2, given=UNSEEN),
        Act(5, moves_state=True, gives_up=True),
        Act(3),
        Act(4, given=REWRITTEN),
        Act(2, moves_state=True),
        Act(5, given=PLACED),
    ),
    "train": (
        Act(1, back=1),
        step(2),
        step(3, given=REWRITTEN, accumulates=True, relays_gradients=True, moves_state=False),
        Act(4, moves_state=True),
        Act(5, gives_up=True),
        Act(back=2, ends=LARGEST, retains=True),
        Act(back=2),
        Act(back=1),
        Act(back=1, is_spent=True),
        step(1),
        step(2, given=REWRITTEN),
        step(4, ends=SUMMED),
        step(5, in_part=True),
        step(3, given=PLACED),
    ),
}

FURTHER: Mapping[str, Mapping[str, Protocol]] = {
    "other sizes": {
        "infer": (Act(1, sizes=TWICE), Act(2, sizes=THRICE), Act(3), Act(3, sizes=TWICE)),
        "train": (step(1, sizes=TWICE), step(2, sizes=THRICE), step(3), step(3, sizes=TWICE)),
    },
    "other mode": {
        "infer": (Act(1, in_other_mode=True), Act(2), Act(3, in_other_mode=True), Act(3)),
        "train": (Act(1, in_other_mode=True), step(2), Act(3, in_other_mode=True), step(3)),
    },
    "another thread": {
        "infer": (Act(2, in_thread=True), Act(3), Act(1, in_thread=True)),
        "train": (step(2, in_thread=True), step(3), step(1, in_thread=True)),
    },
    "other dtypes": {
        "infer": (Act(1, in_other_dtype=True), Act(2), Act(3, in_other_dtype=True), Act(3)),
        "train": (step(1, in_other_dtype=True), step(2), step(3, in_other_dtype=True), step(3)),
    },
    "results in reverse": {
        "infer": (Act(3), Act(2), Act(5), Act(4)),
        "train": (
            Act(2, moves_state=True),
            Act(3),
            Act(4),
            Act(back=1, ends=IN_COLUMNS),
            Act(back=2, ends=LARGEST),
            Act(back=3, accumulates=True),
        ),
    },
}


WAYS: Mapping[str, Mapping[str, Protocol]] = {
    "inference mode": {
        "infer": (Act(2, within=INFERENCE), Act(3)),
        "train": (Act(2, within=INFERENCE), step(3)),
    },
    "autocast": {
        "infer": (Act(2, within=AUTOCAST), Act(3)),
        "train": (step(2, within=AUTOCAST), step(3)),
    },
    "a batch of one": {
        "infer": (Act(2, sizes=ONE), Act(3)),
        "train": (step(2, sizes=ONE), step(3)),
    },
    "frozen parameters": {
        "infer": (Act(2, freezes=True), Act(3)),
        "train": (step(2, freezes=True), step(3)),
    },
    "gradients of arguments": {
        "infer": (Act(2, turns=True), Act(3)),
        "train": (step(2, turns=True), step(3)),
    },
    "another layout": {
        "infer": (Act(2, relays=True), Act(4, expands=True), Act(3)),
        "train": (step(2, relays=True), step(3)),  # rows that are equal may cancel, and leave a gradient of rounding
    },
    "a batch of none": {
        "infer": (Act(2, sizes=NONE), Act(4, strays=True), Act(3)),
        "train": (step(2, sizes=NONE), step(3)),
    },
    "a NaN": {
        "infer": (Act(2, blots=True), Act(3)),
        "train": (step(2, blots=True), step(3)),
    },
}
"""Unusual ways to make calls, each followed by an ordinary one."""
PAIRS = tuple(itertools.permutations(WAYS, 2))
"""Two of these ways, in either order."""


def chosen(name: str, mode: str, thorough: bool = False) -> tuple[str, Protocol]:
    """What the case of that name goes through after the default acts: in words, and all acts as data.

    One of `FURTHER` and one of `PAIRS`, by the name; or, with `thorough`, all of `FURTHER` and `WAYS`.
    """
    drawn = zlib.crc32(f"{name} {mode}".encode())
    names = list(FURTHER) if thorough else [list(FURTHER)[drawn % len(FURTHER)]]
    ways = list(WAYS) if thorough else list(PAIRS[drawn // len(FURTHER) % len(PAIRS)])
    further = (*(FURTHER[n][mode] for n in names), *(WAYS[n][mode] for n in ways))
    return ", ".join(names + ways), tuple(act for each in (DEFAULT[mode], *further) for act in each)
