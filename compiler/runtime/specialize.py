"""A program compiled again for inputs that it was not compiled for, and that no guard of Dynamo's tells apart.

It is compiled once for each way in which they overlap in memory or require grad, and for each set of numbers, up to a
limit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from torch._subclasses.fake_tensor import FakeTensor

from assay.compiler.errors import Unsupported
from assay.compiler.fallback import GivenBack, give_back
from assay.compiler.ir.graph.roles import GraphCall
from assay.compiler.ir.tensors.layout.overlap import layout_key

LIMIT = 8
"""How many specialisations one compiled function keeps. Calls beyond them run in eager."""


class Specialized:
    """Takes the calls whose written inputs overlap, whose frozen ones are so no more, or whose integers are too large
    for 64 bits. `compile` makes a specialisation for the given leaves.

    Called with the leaves of a call as one list; each specialisation serves the calls whose leaves have its layouts.
    `versions`: whether views of one tensor count as overlapping, because backward looks at versions. `fallback` is the
    option of that name; `nodes` is how many nodes run in eager where the call does.
    """

    def __init__(
        self,
        compile: Callable[[Sequence[object]], GraphCall],
        eager: GraphCall,
        versions: bool,
        fallback: str = "eager",
        nodes: int = 1,
    ) -> None:
        self._compile, self._eager, self.versions, self._fallback = compile, eager, versions, fallback
        self._given_back = GivenBack(nodes)
        self._made: dict[Hashable, GraphCall] = {}

    def __call__(self, args: list[object]) -> Sequence[object]:
        key = layout_key(args)
        found = self._made.get(key)
        if found is None:
            found = self._specialize(args)
            if len(self._made) < LIMIT:
                self._made[key] = found
        return found(args)

    def _specialize(self, args: list[object]) -> GraphCall:
        if len(self._made) >= LIMIT:
            return self._in_eager(
                f"its inputs overlap, require grad, or are numbers beyond a limit, in more than {LIMIT} ways"
            )
        if any(isinstance(value, FakeTensor) for value in args):
            return self._in_eager("an input is a fake tensor, which has no memory")
        try:
            return self._compile(args)
        except Unsupported as reason:
            return give_back(self._run_eager, reason, self._fallback, self._given_back.count)

    def eager(self, args: list[object], reason: str) -> Sequence[object]:
        """The call in eager, counted."""
        return self._in_eager(reason)(args)

    def again(self, args: list[object], reason: str) -> Sequence[object]:
        """The call made again, by eager, where a graph raised. It is counted if eager does not raise."""
        results = self._run_eager(args)
        self._given_back.count(reason)
        return results

    def _in_eager(self, reason: str) -> GraphCall:
        def run(args: list[object]) -> Sequence[object]:
            self._given_back.count(reason)
            return self._run_eager(args)

        return run

    def _run_eager(self, args: list[object]) -> Sequence[object]:
        return tuple(self._eager(args))
