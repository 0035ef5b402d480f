"""What is known to differ from eager, made from the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from assay.harness.judge import ledger
from assay.harness.judge.ledger import DEVICES, Known
from assay.suites.tables.markdown import bullets, capitalized, literal, table

FEW = 2
"""So many cases are named; of more the first is, and how many there are."""


def entries() -> list[Known]:
    """Every entry of the ledger, for all devices."""
    return list(dict.fromkeys(known for device in DEVICES for known in ledger.read(device=device)))


def given_back() -> str:
    """The kinds of programs that run in eager, each once, in alphabetical order."""
    return bullets(
        sorted({capitalized(known.reason) for known in entries() if known.field == "fell-back"}, key=str.lower)
    )


def differences() -> str:
    """Every other entry, with the entries of one reason in one row."""
    return _reasons(lambda known: known.field not in ("fell-back", "time"))


def slow_operators() -> str:
    """The operators that take longer than eager's."""
    return _reasons(lambda known: known.field == "time")


def _reasons(is_shown: Callable[[Known], bool]) -> str:
    return table(("what is known", "seen in", "field", "holds for", "until"), _rows(filter(is_shown, entries())))


def _rows(shown: Iterator[Known]) -> Iterator[tuple[str, ...]]:
    by_reason: dict[str, list[Known]] = {}
    for known in shown:
        by_reason.setdefault(known.reason, []).append(known)
    for reason, group in by_reason.items():
        fields = ", ".join(dict.fromkeys(known.field for known in group))
        yield capitalized(reason), _cases(group), fields, _where(group), str(min(known.expires for known in group))


def _cases(group: Sequence[Known]) -> str:
    names = list(dict.fromkeys(known.case for known in group))
    shown = ", ".join(map(literal, names if len(names) <= FEW else names[:1]))
    return shown if len(names) <= FEW else f"{shown} and {len(names) - 1} more"


def _where(group: Sequence[Known]) -> str:
    """The backends, versions of torch and devices that a reason holds for."""
    backends = dict.fromkeys("any backend" if known.backend == "*" else literal(known.backend) for known in group)
    rest = dict.fromkeys(
        text for known in group for text in (known.torch and f"torch {known.torch}", known.device) if text
    )
    return ", ".join([*backends, *rest])
