"""`with_effects`, recorded as the call that it makes: a graph keeps the order of effects itself.

token, y = with_effects(token, note, x)     ->     y = note(x)
"""

from __future__ import annotations

from typing import Any

from torch._higher_order_ops.effects import with_effects

from assay.compiler.ir.graph.writes.watching import Watching


def record_call_with_token(mode: Watching, token: object, target: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Records a call. The token behind it is the one before: nothing is computed of a token."""
    with mode:
        made = target(*args, **kwargs)
    return (token, *made) if isinstance(made, tuple) else (token, made)


with_effects.py_impl(Watching)(record_call_with_token)
