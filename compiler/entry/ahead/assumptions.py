"""What a compile took for granted of its inputs, asserted at each call where torch's `debug_assert` is set.

f = aot_module_simplified(module, (x, x), compiler)
f(y, z)      an error with torch._functorch.config.debug_assert, else compiled again for two tensors
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._functorch import config

from assay.compiler.errors import BrokenAssumption
from assay.compiler.ir.graph.roles import GraphCall


def asserting(run: GraphCall, values: Sequence[object], state: int) -> GraphCall:
    """`run` for calls like that with these values, of which the first so many are the module's own.

    As it is where `debug_assert` is off; else it raises BrokenAssumption where an input is no longer the very tensor
    that another is, or requires a gradient that it did not.
    """
    if not config.debug_assert:
        return run
    tensors = {place: value for place, value in enumerate(values) if isinstance(value, torch.Tensor)}
    first: dict[int, int] = {}
    again = [(place, first.setdefault(id(value), place)) for place, value in tensors.items()]
    same = [(place, other) for place, other in again if place != other]
    frozen = [place for place, value in tensors.items() if not value.requires_grad]

    def checked(args: list[object]) -> Sequence[object]:
        for place, other in same:
            if args[place] is not args[other]:
                raise BrokenAssumption(
                    f"input {place - state} was input {other - state} when the graph was compiled, and is another now"
                )
        for place in frozen:
            value = args[place]
            if isinstance(value, torch.Tensor) and value.requires_grad:
                raise BrokenAssumption(f"input {place - state} required no grad when the graph was compiled, and does")
        return run(args)

    return checked
