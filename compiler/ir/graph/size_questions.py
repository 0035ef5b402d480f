"""`size_questions_bounded`: what a question about symbolic sizes may cost while a program is recorded.

Whenever a size is found to divide another, torch looks at all facts that it knows about sizes again, in case one has
become simpler. With the facts of shifted windows, of which each is long, that is most of the time of a compile. Behind
so many facts they stay as they are here. A question that a simpler fact would have answered becomes a guard.

Cost of what is left out: (sizes found to divide others) x (facts) x (length of a fact).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.fx.experimental.symbolic_shapes import ShapeEnv

MOST_FACTS = 64
UPDATE, FLAG = "_update_version_counter", "_resimplify_floor_div_axioms"


@contextmanager
def size_questions_bounded(env: ShapeEnv | None) -> Iterator[None]:
    """While it is open, facts about sizes are not simplified again where there are many.

    Where sizes are known from data alone they are: there a question that nothing answers is an error, and no guard.
    """
    if env is None or UPDATE in vars(env) or not hasattr(env, FLAG):
        yield
        return
    update = env._update_version_counter

    def update_alone() -> None:
        update()
        if len(env.axioms) > MOST_FACTS and not env.num_deferred_runtime_asserts:
            setattr(env, FLAG, False)

    setattr(env, UPDATE, update_alone)
    try:
        yield
    finally:
        delattr(env, UPDATE)
