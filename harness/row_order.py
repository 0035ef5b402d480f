"""In which order the rows of a run go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol, TypeVar

from assay.harness.case import Case

LISTED, SPREAD = "listed", "spread"
BY_COST = (
    "distilbert", "vit", "bert", "llama", "resnet", "clip", "roberta", "qwen2", "gemma2", "gpt2", "mixtral", "whisper",
    "mamba", "rwkv", "convnext", "t5", "swin", "segformer", "mobilenet_v2", "minilm",
)  # fmt: skip
"""The models of the zoo, those first that take the least time."""


class OneRow(Protocol):
    """What is read of a row that is to run."""

    @property
    def case(self) -> Case: ...
    @property
    def mode(self) -> str: ...
    @property
    def backend(self) -> str: ...


Row = TypeVar("Row", bound=OneRow)


def cost(case: Case) -> int:
    """The place of a model among those of the zoo by the time that they take; any other case comes behind them."""
    name = case.name.rpartition(".")[2]
    return BY_COST.index(name) if name in BY_COST else len(BY_COST)


def ordered(rows: Sequence[Row], order: str, jobs: int) -> list[Row]:
    """The rows in an order. As listed, training goes first where several run at a time: it takes longer, and no long
    row is then left for one process at the end."""
    if order == SPREAD:
        return spread(rows)
    return sorted(rows, key=lambda row: row.mode != "train") if jobs > 1 else list(rows)


def spread(rows: Sequence[Row]) -> list[Row]:
    """Rows of many kinds first, for a run that will be cut.

    Cheap models come before others. A row of each module and backend comes before another one of them, and a row of
    each case before its other modes and shapes.
    """
    before: Counter[tuple[str, ...]] = Counter()
    numbered = [(_next(before, row.case.name, _family(row)), row) for row in rows]
    numbered.sort(key=lambda each: each[0])
    ranked = [(cost(row.case), _next(before, row.case.origin, _family(row), ""), row) for _, row in numbered]
    return [row for *_, row in sorted(ranked, key=lambda each: each[:2])]


def _family(row: OneRow) -> str:
    return row.backend.partition(",")[0]


def _next(before: Counter[tuple[str, ...]], *key: str) -> int:
    """How many of the key came before this one."""
    before[key] += 1
    return before[key]
