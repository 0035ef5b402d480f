"""`inlined`: the backward of a call of our own as a formula, which is traced with everything around it.

    y = compiled(x);  y.sin().sum().backward()      one graph: of the sine, and of what was compiled

It runs the backward's own graph operator by operator, before writes in place, as it does for tangents that no kernel
takes. A call whose backward depends on more than its saved tensors stays a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from assay import compiler
from assay.compiler.errors import Unsupported


def is_ours(context: Any) -> bool:
    """Whether a function is a call that this compiler has compiled, or a part of one, as of its written views."""
    kind = context._forward_cls
    return hasattr(kind, "recorded") or kind.__module__.startswith(f"{compiler.__name__}.")


def inlined(context: Any, tangents: Sequence[object]) -> Callable[..., Sequence[Any]] | None:
    """The formula of a function's backward, or None where that stays a call.

    It is a call where the function is the user's or another compiler's, and where it holds written inputs to their
    versions. It is one where gradients of its gradients come back to it.
    """
    recorded = getattr(context._forward_cls, "recorded", None)
    if recorded is None or getattr(context, "written", None):
        return None
    code = recorded.__code__
    is_anchored = "ticket" in code.co_varnames[: code.co_argcount]
    return None if is_anchored and tangents[-1] is not None else _Inlined(recorded)


@dataclass(frozen=True, slots=True)
class _Inlined:
    recorded: Callable[..., Sequence[Any]]

    def __call__(
        self, tangents: Sequence[torch.Tensor | None], saved: Sequence[torch.Tensor], sizes: Sequence[Any]
    ) -> Sequence[Any]:
        return self.recorded(_Context(tuple(saved), tuple(sizes)), *tangents)


@dataclass(frozen=True, slots=True)
class _Context:
    """What the graph reads of the context of a call."""

    saved_tensors: tuple[torch.Tensor, ...]
    sizes: tuple[Any, ...] = ()
    next_functions: tuple[()] = ()

    @property
    def shapes(self) -> Sequence[torch.Size]:
        raise Unsupported("a compiled backward takes zeros for gradients that are missing")

    def maybe_clear_saved_tensors(self) -> None:
        """The engine frees them when the whole backward has run."""
