"""`answers_kept`: what a recording asks of symbolic sizes is worked out once.

    s0 * (s1 // 4) == 0      asked for each tensor of that size; its guard is made when it is first asked

Torch keeps 256 answers, and one for each way of asking. A program has more, and then each is worked out again by
sympy. An answer is kept as long as its ShapeEnv is: the guard that came with it holds for all that is recorded there.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sympy
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

_answers: weakref.WeakKeyDictionary[ShapeEnv, dict[sympy.Basic, Any]] = weakref.WeakKeyDictionary()
ASK = "evaluate_sym_node"


@contextmanager
def answers_kept(env: ShapeEnv | None) -> Iterator[None]:
    """While it is open, a condition on sizes that was answered before has that answer again, and no further guard.

    That is so where all of its symbols have hints: then the answer is theirs, however it is asked for. While guards are
    suppressed an answer comes without its guard, so it is not kept.

    Cost: of a known answer a look into a dictionary, about 2 us.
    """
    if env is None or ASK in vars(env):
        yield
        return
    known, work_out = _answers.setdefault(env, {}), env.evaluate_sym_node

    def answer(node: SymNode, *how: Any, **named: Any) -> Any:
        expr = node.expr
        if not isinstance(expr, sympy.Basic) or not expr.args or node.fx_node:
            return work_out(node, *how, **named)
        if (found := known.get(expr)) is None:
            found = work_out(node, *how, **named)
            if node.has_hint() and not env._suppress_guards_tls():
                known[expr] = found
        return found

    setattr(env, ASK, answer)
    try:
        yield
    finally:
        delattr(env, ASK)
