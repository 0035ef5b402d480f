"""Runs that print what differs, all of them or one in so many: what `changing_integers` and `changing_floats` share."""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar


class Run(Protocol):
    """One form with numbers that change from call to call."""

    @property
    def name(self) -> str: ...

    def differences(self) -> Sequence[object]: ...


Chosen = TypeVar("Chosen", bound=Run)


def sliced(runs: Iterable[Chosen], every: int, which: int = 0) -> list[Chosen]:
    """One run in so many, the same each time: a hash of its name says."""
    return [run for run in runs if zlib.crc32(run.name.encode()) % every == which]


def main(runs: Iterable[Run]) -> int:
    """Runs them and prints each difference. Returns 1 where there is any."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--every", type=int, default=1, help="run one in so many")
    parser.add_argument("--which", type=int, default=0, help="which of them")
    parser.add_argument("--filter", default="", help="only runs whose name has this in it")
    asked = parser.parse_args()
    chosen = [run for run in sliced(runs, asked.every, asked.which) if asked.filter in run.name]
    wrong = 0
    for run in chosen:
        found = run.differences()
        wrong += bool(found)
        for difference in found:
            print(f"{run.name}: {difference}", flush=True)
    print(f"{len(chosen)} runs, {wrong} with differences")
    return int(wrong > 0)
