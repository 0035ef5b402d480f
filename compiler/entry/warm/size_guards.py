"""What a compile assumes of symbolic sizes, kept with it: whoever takes the kept call must find that it holds, and be
recompiled when it no longer does.

    compile:  s0 > 16 is asked and answered       ->  guard "L['t0'] > 16" of the sizes (t0, ...) of the inputs
    restore:  the guard is evaluated on this call's sizes; if it holds it becomes a guard of this call too
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from assay.compiler.capture.inputs import CallLeaf
from assay.compiler.errors import Unkeyed


@dataclass(frozen=True, slots=True)
class SizeGuards:
    """The symbolic sizes of a call's inputs, as they are before it is compiled."""

    env: ShapeEnv | None
    sizes: tuple[torch.SymInt, ...]
    expressions: tuple[str, ...]
    guards: int
    asserts: int

    @staticmethod
    def of(leaves: Sequence[CallLeaf], env: ShapeEnv | None) -> SizeGuards:
        sizes = {str(size.node.expr): size for leaf in leaves for size in _sizes(leaf.fake)}
        guards, asserts = (len(env.guards), env.num_deferred_runtime_asserts) if env is not None else (0, 0)
        return SizeGuards(env, tuple(sizes.values()), tuple(sizes), guards, asserts)

    def before(self) -> Iterator[str]:
        """What was known of the sizes before the compile: their ranges, and the guards that there were.

        Both answer what a compile asks, so calls that are told apart by nothing else are other calls.
        """
        if self.env is None:
            return
        known = {symbol for size in self.sizes for symbol in size.node.expr.free_symbols}
        for symbol in sorted(known, key=str):
            yield f"{symbol} in {self.env.bound_sympy(symbol)}"
        yield from (f"guard {guard.expr}" for guard in self.env.guards[: self.guards])

    def added(self) -> str:
        """The guards on the inputs' sizes, as one expression, or nothing. Those that were there before count too: what
        is compiled relies on them, and another call with the same graph may come without.

        Raises: Unkeyed where the compile fixed a size, or assumed what no guard on the inputs' sizes says.
        """
        if self.env is None:
            return ""
        fresh = self.env.guards[self.guards :]
        known = {symbol for size in self.sizes for symbol in size.node.expr.free_symbols}
        is_fixed = tuple(str(size.node.expr) for size in self.sizes) != self.expressions
        if is_fixed or self.env.num_deferred_runtime_asserts != self.asserts:
            raise Unkeyed("its sizes became constants, or are asserted at run time")
        if not all(guard.expr.free_symbols <= known for guard in fresh):
            raise Unkeyed("its guards are about other sizes than those of its inputs")
        relied = [guard for guard in self.env.guards if guard.expr.free_symbols <= known]
        return self.env.produce_guards_expression(list(self.sizes), guards=relied) or "" if relied else ""

    def hold(self, guards: str) -> bool:
        """Whether the guards hold for this call; if they do, they are guards of it from now on."""
        if not guards:
            return True
        if self.env is None:
            return False
        hints = [size.node.hint for size in self.sizes]
        if not self.env.evaluate_guards_expression(guards, hints):
            return False
        return bool(self.env.evaluate_guards_expression(guards, self.sizes))


def _sizes(value: object) -> Iterator[torch.SymInt]:
    """The symbolic sizes of an input."""
    yield from (size for size in _numbers(value) if isinstance(size, torch.SymInt))


def _numbers(value: object) -> tuple[object, ...]:
    if not isinstance(value, torch.Tensor):
        return (value,)
    if value.layout is not torch.strided:
        return tuple(value.shape)
    return (*value.shape, *value.stride(), value.storage_offset())
