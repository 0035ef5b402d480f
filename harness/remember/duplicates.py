"""Which causes of a night are one: two that fail with the same program, or in another field at the same place.

Of two such causes on one backend the one that was seen first is kept, and the other one is marked as its duplicate:

    the same program             their shrunk programs have one normal form
    the same rung and operators  the same rung differs first, on the same operators, in another field
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assay.harness.remember.store import Cluster

SAME_PROGRAM, SAME_PLACE = "the same program", "the same rung and operators, in another field"


@dataclass(frozen=True, slots=True)
class Seen:
    """A cause as far as that counts: on which backends it has rows, and how many."""

    cluster: Cluster
    backends: frozenset[str]
    rows: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Of which cause another one is a duplicate, and why."""

    of: Cluster
    why: str

    def sentence(self) -> str:
        """`duplicate of 0a1b2c3d: the same program`"""
        return f"duplicate of {self.of.signature[:8]}: {self.why}"


def duplicates_of(causes: Iterable[Seen]) -> Mapping[str, Duplicate]:
    """The duplicates by their signatures. Nothing is a duplicate of one that is itself a duplicate."""
    kept: list[Seen] = []
    found: dict[str, Duplicate] = {}
    for cause in sorted(causes, key=lambda each: (each.cluster.first_seen, -each.rows, each.cluster.signature)):
        pair = next(((other, why) for other in kept if (why := why_one(other, cause))), None)
        if pair is None:
            kept.append(cause)
        else:
            found[cause.cluster.signature] = Duplicate(pair[0].cluster, pair[1])
    return found


def why_one(one: Seen, other: Seen) -> str:
    """Why two causes are one; "" if nothing says that they are."""
    if not one.backends & other.backends:
        return ""
    first, second = one.cluster, other.cluster
    if first.body.get("form") and first.body["form"] == second.body.get("form"):
        return SAME_PROGRAM
    place, another = _place(first), _place(second)
    return SAME_PLACE if place and place == another and first.body["kind"] != second.body["kind"] else ""


def _place(cluster: Cluster) -> tuple[str, tuple[str, ...]] | None:
    """The rung and the operators; None where one of them is not known."""
    operators = cluster.body.get("operators")
    return (cluster.rung, tuple(sorted(operators))) if cluster.rung and operators else None
