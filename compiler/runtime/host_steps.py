"""`HostSteps`: the steps of a loop whose graph calls ATen: Python runs the graph for each step, and nothing else.

for at in steps: h[at + 1], y[at] = graph(h[at], x[at], w)
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.compiler.ir.graph.roles import GraphCall
from assay.compiler.ir.loops.step_loop import Fixed, Place, Total, Turn


@dataclass(frozen=True, slots=True)
class HostSteps:
    """A graph, and where what it takes and gives lies at each step, by name and in its order."""

    graph: GraphCall
    takes: Mapping[str, Place]
    gives: Mapping[str, Place]

    def run(self, steps: range, memory: Mapping[str, Tensor], begun: Container[str] = ()) -> None:
        """Runs steps over the memory of each place, by its name. The sums that have `begun` go on.

        Raises: what a step raises, after the steps before it.
        """
        taken = [_Rows.of(memory[name], place) for name, place in self.takes.items()]
        given = [_Rows.of(memory[name], place) for name, place in self.gives.items()]
        goes_on = [name in begun for name in self.gives]
        with torch._C._DisableAutocast():
            for at in steps:
                results = self.graph([rows.at(at) for rows in taken])
                for number, (rows, result) in enumerate(zip(given, results, strict=True)):
                    assert isinstance(result, Tensor)
                    if isinstance(rows.place, Total) and goes_on[number]:
                        rows.at(at).add_(result)
                    else:
                        rows.at(at).copy_(result)
                    goes_on[number] = True


@dataclass(frozen=True, slots=True)
class _Rows:
    """The tensors of one place, a step each."""

    place: Place
    tensors: Sequence[Tensor]
    shift: int = 0

    @staticmethod
    def of(tensor: Tensor, place: Place) -> _Rows:
        if isinstance(place, Fixed | Total):
            return _Rows(place, (tensor,))
        return _Rows(place, tensor.unbind(0), place.shift if isinstance(place, Turn) else 0)

    def at(self, step: int) -> Tensor:
        """The tensor of a step; those of a place that is fixed, or takes turns, come again and again."""
        return self.tensors[(step + self.shift) % len(self.tensors)]
