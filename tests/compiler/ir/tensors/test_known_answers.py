"""What was answered of symbolic sizes is not worked out again, and nothing but that is another for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
    guard_or_false,
    guard_or_true,
)

from assay.compiler.ir.tensors.known_answers import answers_kept

MORE = 300
"""Than torch keeps."""
ASKED: dict[str, Callable[[torch.SymBool], bool]] = {
    "bool": bool, "guard_or_false": guard_or_false, "guard_or_true": guard_or_true,
}  # fmt: skip


def _given(shape: tuple[int, ...] = (5, 7)) -> tuple[FakeTensor, ShapeEnv]:
    env = ShapeEnv()
    context = StatelessSymbolicContext(
        dynamic_sizes=[DimDynamic.DYNAMIC] * len(shape), constraint_sizes=[None] * len(shape)
    )
    value = torch.empty(shape)
    fake = FakeTensorMode(shape_env=env).from_tensor(value, source=ConstantSource("x"), symbolic_context=context)
    return fake, env


def _conditions(fake: FakeTensor) -> list[Any]:
    rows, columns = fake.shape
    return [rows * factor > columns for factor in range(2, MORE + 2)]


def _guards(env: ShapeEnv) -> list[str]:
    return [str(guard.expr) for guard in env.guards]


@pytest.fixture
def worked_out(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What torch works out, in its order."""
    found: list[str] = []
    whole = ShapeEnv._evaluate_expr

    def noting(self: ShapeEnv, expr: Any, *rest: Any, **named: Any) -> Any:
        found.append(str(expr))
        return whole(self, expr, *rest, **named)

    monkeypatch.setattr(ShapeEnv, "_evaluate_expr", noting)
    return found


@pytest.mark.parametrize("kept", [True, False])
def test_capture_questions_of_sizes_are_worked_out_once(worked_out: list[str], kept: bool) -> None:
    fake, env = _given()
    worked_out.clear()
    for ask in ASKED.values():  # a recording each, as forward and then its gradients are
        with answers_kept(env) if kept else nullcontext():
            assert all(map(ask, _conditions(fake)))
    assert (len(worked_out) == MORE) is kept


def test_capture_kept_answers_are_those_of_the_hints_with_the_same_guards() -> None:
    found = []
    for kept in (True, False):
        fake, env = _given((5, 7))
        rows, columns = fake.shape
        conditions = [rows > columns, rows * 2 > columns, rows % 3 == 2, (rows * columns) // 4 == 8, rows != columns]
        with answers_kept(env) if kept else nullcontext():
            answers = [ask(each) for each in (*conditions, *conditions) for ask in ASKED.values()]
        found.append((answers, list(dict.fromkeys(_guards(env)))))  # torch makes one for each way of asking
        assert not kept or len(_guards(env)) == len(conditions)
    assert found[0] == found[1]


def test_capture_an_answer_without_its_guard_is_not_kept() -> None:
    fake, env = _given()
    rows, columns = fake.shape
    with answers_kept(env):
        with env.suppress_guards():
            assert bool(rows * 3 > columns)
        assert not _guards(env)
        assert bool(rows * 3 > columns)
    assert len(_guards(env)) == 1


def test_capture_a_question_that_only_the_data_answers_is_asked_each_time() -> None:
    _, env = _given()
    size = env.create_unbacked_symint()
    with answers_kept(env):
        assert not guard_or_false(size + 3 == 7) and guard_or_true(size + 3 == 7)
        torch._check(size + 3 == 7)
        assert guard_or_false(size + 3 == 7)


def test_capture_an_environment_is_as_it_was_afterwards() -> None:
    _, env = _given()
    before = dict(vars(env))
    with pytest.raises(ZeroDivisionError), answers_kept(env), answers_kept(env):
        raise ZeroDivisionError
    assert vars(env).keys() == before.keys()
    with answers_kept(None):
        pass
