"""Samples and batches: many small calls by name, of which some share one compile.

A suite of batches is a module with a function `batches()`. A `Batch` is cheap until its samples are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.harness.backends.registry import Backend
from assay.harness.case import SHAPES, Case
from assay.harness.outcome import Result

FRONTS = ("graph", "torch.compile")
"""Who hands a batch to the backend: nobody, the calls being one graph as they stand; or Dynamo."""


Judge = Callable[[Case, Backend, int], Result]
"""The row of one program on a backend, under a seed."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One call. `name` tells it from the others of its batch."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples of one kind; `make(seed)` gives them afresh. `group` names what of a run is kept in one shard.

    `is_together`: several may share a compile. Errors, of which the first ends its program, may not. `judge`, where it
    is given, judges its programs in the place of a run beside eager's. `tags` are of the cases that they are.
    `is_serial`: they run in one thread, as eager's threads race for what they write.
    """

    name: str
    group: str
    mode: str
    make: Callable[[int], Sequence[Sample]]
    front: str = "graph"
    shapes: tuple[str, ...] = SHAPES
    is_together: bool = True
    judge: Judge | None = None
    tags: tuple[str, ...] = ()
    is_serial: bool = False

    @property
    def form(self) -> str:
        """The last part of the name: forward, backward, out, ..."""
        return self.name.rpartition(".")[2]


def key_of(batch: Batch) -> str:
    """What names a batch among all others: `softmax.float32.backward train static`."""
    return f"{batch.name} {batch.mode} {'+'.join(batch.shapes)}"
