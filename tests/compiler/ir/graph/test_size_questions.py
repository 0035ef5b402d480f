"""What a question about sizes may cost is counted in facts that torch looks at again; no time is measured."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from assay.compiler.ir.graph import size_questions
from assay.compiler.ir.graph.size_questions import MOST_FACTS, size_questions_bounded


def sizes(env: ShapeEnv, count: int) -> list[torch.SymInt]:
    mode = FakeTensorMode(shape_env=env)
    context = StatelessSymbolicContext([DimDynamic.DYNAMIC] * count)
    return list(
        mode.from_tensor(
            torch.empty([6 * (n + 2) for n in range(count)], device="meta"), symbolic_context=context
        ).shape
    )


def looked_at_again(monkeypatch: pytest.MonkeyPatch, facts: int, is_bounded: bool) -> int:
    """How many facts are simplified when two sizes are found to be divisible, behind so many facts of quotients."""
    env = ShapeEnv()
    a, b, c = sizes(env, 3)
    seen: list[object] = []
    simplify = env.simplify

    def noting(expression: object, *args: object) -> object:
        seen.append(expression)
        return simplify(expression, *args)

    scope = size_questions_bounded(env if is_bounded else None)
    with scope:
        for n in range(facts):
            assert a // 5 + n < 10**6 + b
        assert b % 2 == 0
        monkeypatch.setattr(env, "simplify", noting)
        assert c % 3 == 0 and a + b < 10**7
    return len(seen)


def test_few_facts_are_looked_at_again_as_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked_at_again(monkeypatch, 4, True) == looked_at_again(monkeypatch, 4, False)


def test_many_facts_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = looked_at_again(monkeypatch, MOST_FACTS, True)
    assert looked_at_again(monkeypatch, MOST_FACTS, False) > MOST_FACTS > bounded


def test_what_is_open_twice_is_closed_once() -> None:
    env = ShapeEnv()
    with size_questions_bounded(env):
        with size_questions_bounded(env):
            pass
        assert size_questions.UPDATE in vars(env)
    assert size_questions.UPDATE not in vars(env)
