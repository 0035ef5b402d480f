"""The ledger: failures that are known, each with a reason, an owner and a day on which it stops being excused.

[[known]]
case = "zoo.bert"            # exactly, or "*" behind a prefix: "zoo.*"; a list of such for one reason of several
mode = "train"               # infer | train | *
backend = "inductor"         # a name; `*` stands for anything: "assay*,dynamic"
field = "stride"             # the field of a difference; the verdict itself (crash, timeout, ...) where it has none
reason = "one sentence, with the upstream issue where there is one"
owner = "who mends it"
expires = 2027-01-31         # from this day on the entry excuses nothing, and says so
torch = "<2.13"              # may be left out: the versions of torch that it holds for, as "<2.13" or ">=2.12,<2.13"
device = "cuda"              # may be left out: the device that it holds for, "cpu" or "cuda"
"""

from __future__ import annotations

import datetime
import operator
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from assay.harness.outcome import Result

COMPARED = {"<": operator.lt, "<=": operator.le, "==": operator.eq, ">=": operator.ge, ">": operator.gt}
BOUND = re.compile(r"(<=|>=|==|<|>)(\d+)\.(\d+)")
"""A bound on the version of torch, of which the first two numbers count."""
DEVICES = ("cpu", "cuda")
PATH = Path(__file__).parents[2] / "suites" / "ledger.toml"


class LedgerError(ValueError):
    """A ledger that cannot be read; the message names the file, the entry and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Known:
    """One known failure."""

    case: str
    mode: str
    backend: str
    field: str
    reason: str
    owner: str
    expires: datetime.date
    torch: str = ""
    device: str = ""

    def covers(self, result: Result, field: str) -> bool:
        """Whether this entry is about that field of that result, expired or not."""
        return (
            fnmatchcase(result.case, self.case)
            and self.mode in ("*", result.mode)
            and fnmatchcase(result.backend, self.backend)
            and self.field == field
            and is_among(torch.__version__, self.torch)
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a result passes, and what the ledger has to say about it."""

    passes: bool
    notes: tuple[str, ...] = ()


def read(path: Path = PATH, device: str = "cpu") -> tuple[Known, ...]:
    """The entries of a ledger for runs on that device; none if there is no such file.

    Raises: LedgerError for a file that is not TOML, and for an entry with a missing, unknown or mistyped key.
    """
    if not path.is_file():
        return ()
    try:
        content = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise LedgerError(f"{path}: {error}") from error
    if unknown := sorted(content.keys() - {"known"}):
        raise LedgerError(f"{path}: {', '.join(unknown)} means nothing here; entries are written [[known]]")
    entries = content.get("known", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise LedgerError(f"{path}: known must be a list of tables, each written [[known]]")
    known = [one for number, entry in enumerate(entries, 1) for one in _entries(path, number, entry)]
    return tuple(entry for entry in known if entry.device in ("", device))


def judge(result: Result, ledger: Sequence[Known], today: datetime.date) -> Judgement:
    """A result passes when it is `same`, or when entries that have not expired cover every field that is not."""
    if result.verdict == "same":
        return Judgement(True)
    passes, notes = True, []
    for field in _failing_fields(result):
        about = [entry for entry in ledger if entry.covers(result, field)]
        valid = [entry for entry in about if today < entry.expires]
        passes = passes and bool(valid)
        notes += [f"{field}: known: {entry.reason} ({entry.owner}, until {entry.expires})" for entry in valid[:1]]
        if about and not valid:
            notes.append(
                f"{field}: the ledger's entry expired on {about[0].expires} ({about[0].owner}): {about[0].reason}"
            )
    return Judgement(passes, tuple(notes))


def is_among(version: str, bounds: str) -> bool:
    """Whether a version is within all of the bounds, as "<2.13" or ">=2.12,<2.13"; any is within none.

    Raises: ValueError for what is no bound.
    """
    own = tuple(map(int, version.split(".")[:2]))
    are_within = []
    for bound in filter(None, bounds.split(",")):
        found = BOUND.fullmatch(bound)
        if found is None:
            raise ValueError(f"{bound!r} is no bound on a version, as <2.13 is one")
        are_within.append(COMPARED[found[1]](own, (int(found[2]), int(found[3]))))
    return all(are_within)


def _failing_fields(result: Result) -> tuple[str, ...]:
    """The fields that differ, each once; the verdict itself where there are none."""
    return tuple(dict.fromkeys(difference.field for difference in result.differences)) or (result.verdict,)


def _entries(path: Path, number: int, entry: dict[str, Any]) -> list[Known]:
    """An entry for each of its cases."""
    cases = entry.get("case")
    if not isinstance(cases, list):
        return [_entry(path, number, entry)]
    if not cases:
        raise LedgerError(f"{path}: entry {number}: case is an empty list")
    return [_entry(path, number, entry | {"case": case}) for case in cases]


def _entry(path: Path, number: int, entry: dict[str, Any]) -> Known:
    kinds: dict[str, type] = {name: str for name in ("case", "mode", "backend", "field", "reason", "owner")}
    kinds["expires"] = datetime.date
    where = f"{path}: entry {number}"
    if missing := [name for name in kinds if name not in entry]:
        raise LedgerError(f"{where} has no {', '.join(missing)}")
    kinds |= {"torch": str, "device": str}
    if unknown := [name for name in entry if name not in kinds]:
        raise LedgerError(f"{where} has {', '.join(unknown)}, which no entry takes; it takes {', '.join(kinds)}")
    for name, kind in kinds.items():
        if not isinstance(entry.get(name, ""), kind):
            raise LedgerError(f"{where}: {name} is {entry[name]!r}, and must be a {kind.__name__}")
    if set(entry["field"]) & set("*?["):
        raise LedgerError(f"{where}: field is {entry['field']!r}, and is one field by its name, no pattern")
    if entry.get("device", "cpu") not in DEVICES:
        raise LedgerError(f"{where}: device is {entry['device']!r}, and must be one of {', '.join(DEVICES)}")
    try:
        is_among(torch.__version__, entry.get("torch", ""))
    except ValueError as error:
        raise LedgerError(f"{where}: torch: {error}") from error
    return Known(**entry)
