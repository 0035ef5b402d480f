"""Calls of a graph that was compiled ahead, with inputs or in modes that no guard of Dynamo's has looked at.

f = compile_fx(graph, [x])
f(x)                        as it was compiled
f(x.conj()), no_grad: f(x)  compiled again, for such inputs in such a mode, and kept
f(zero), f(subclass)        in eager, counted: no kernel reads such tensors
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch._C._dynamo.guards import GlobalStateGuard

from assay.compiler.capture.ambient import Ambient
from assay.compiler.capture.inputs import CallLeaf, check_inputs, has_same_bits, has_same_history, why_not_read
from assay.compiler.ir.graph.roles import GraphCall
from assay.compiler.ir.tensors.wrappers import is_wrapper
from assay.compiler.runtime.specialize import Specialized


@dataclass(frozen=True, slots=True)
class Recompiled:
    """`compiled` for calls like the one with `leaves` that it was recorded for. Others that differ in what neither
    dtype, device, shape nor strides say are compiled again, by `again`, or run in eager.

    Raises: InputMismatch when it is called with inputs of another dtype, device, shape or strides.
    """

    leaves: tuple[CallLeaf, ...]
    compiled: GraphCall
    again: Callable[[], Specialized]
    fakes: tuple[object, ...]
    wrappers: dict[int, torch.Tensor]
    modes: ModesNow
    others: dict[Ambient, Specialized] = field(default_factory=dict)

    @staticmethod
    def of(leaves: tuple[CallLeaf, ...], compiled: GraphCall, again: Callable[[], Specialized]) -> Recompiled:
        fakes = tuple(leaf.fake for leaf in leaves)
        wrappers = {position: fake for position, fake in enumerate(fakes) if is_wrapper(fake)}
        return Recompiled(leaves, compiled, again, fakes, wrappers, ModesNow())

    def __call__(self, args: list[object]) -> Sequence[object]:
        check_inputs(self.fakes, args)
        reason = why_not_read(args, self.wrappers)
        if not reason and self.modes.are_same() and has_same_bits(self.fakes, args):
            if has_same_history(self.leaves, args):
                return self.compiled(args)
        other = self._others_now()
        return other.eager(args, reason) if reason else other(args)

    def _others_now(self) -> Specialized:
        ambient = Ambient.now()
        if ambient not in self.others:
            self.others[ambient] = self.again()
        return self.others[ambient]


class ModesNow:
    """The ambient modes when this was made."""

    def __init__(self) -> None:
        self._guard, self._ambient = GlobalStateGuard(), Ambient.now()

    def are_same(self) -> bool:
        """Cost: 0.4 us where they are."""
        is_inference = torch.is_inference_mode_enabled()
        if is_inference == self._ambient.inference and self._guard.check():
            return True
        return Ambient.now() == self._ambient  # the guard looks at more than a call depends on
