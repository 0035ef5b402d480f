"""Three operators with effects, for the tests of tokens: `note` gives nothing, `heard` a tensor, `twice` two."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch._higher_order_ops.effects import EffectType


def effectful_operators(namespace: str, log: list[str], result: Callable[[Tensor], Tensor]) -> torch.library.Library:
    """The library that holds the operators, which write to `log`. `heard` gives the `result` of what it is given."""
    library = torch.library.Library(namespace, "DEF")
    library.define("note(str s) -> ()")
    library.define("heard(Tensor x, str s) -> Tensor")
    library.define("twice(Tensor x) -> (Tensor, Tensor)")

    def heard(x: Tensor, s: str) -> Tensor:
        log.append(s)
        return result(x)

    def twice(x: Tensor) -> tuple[Tensor, Tensor]:
        log.append("twice")
        return x + 1, x + 2

    for name, function, fake in (
        ("note", log.append, lambda s: None),
        ("heard", heard, lambda x, s: torch.empty_like(x)),
        ("twice", twice, lambda x: (torch.empty_like(x), torch.empty_like(x))),
    ):
        torch.library.impl(f"{namespace}::{name}", "CompositeExplicitAutograd", function, lib=library)
        torch.library.register_fake(f"{namespace}::{name}", fake, lib=library)
        torch.library._register_effectful_op(f"{namespace}::{name}", EffectType.ORDERED)
    return library
