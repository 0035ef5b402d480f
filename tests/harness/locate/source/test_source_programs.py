"""A case is written out of its modules as a text that makes the same call, and that text is made smaller."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.harness.case import Case, Made, case
from assay.harness.discover import discover
from assay.harness.locate.source.simpler_text import simpler_texts, weight
from assay.harness.locate.source.source_program import ROOTS, SourceProgram
from assay.harness.locate.source.text_of_case import text_of
from assay.harness.locate.source.written_values import Unwritable

FACTOR = 3.0
TABLE: dict[str, Callable[[Tensor], Any]] = {"first": lambda x: x[0], "last": lambda x: x[-1]}


def scaled(x: Tensor, by: float = FACTOR) -> Tensor:
    """A docstring, and annotations."""
    return functional.relu(x) * by


class Layer(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.inner = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        return scaled(self.inner(x))


def called(f: Callable[..., Any], x: Tensor, *, times: int) -> list[Any]:
    return [f(x) for _ in range(times)]


def of(view: Callable[[Tensor], Any]) -> Case:
    """Cases of one function, whose closures differ."""

    def made() -> Made:
        def f(x: Tensor) -> Any:
            return view(scaled(x))

        return f, (torch.ones(2, 3),), {}

    return case(name="closed")(made)


@case(scenario=functools.partial(called, times=2))
def layered(size: str = "tiny") -> Made:
    return Layer({"tiny": 2, "full": 99}[size]), (torch.ones(1, 2),), {}


def run(text: str) -> Any:
    """What the text's call gives, through its scenario."""
    namespace: dict[str, Any] = {"__name__": "written"}
    exec(compile(text, "<written>", "exec", dont_inherit=True), namespace)
    torch.manual_seed(0)
    function, args, kwargs = namespace["made"]()
    scenario = namespace.get("scenario")
    return function(*args, **kwargs) if scenario is None else scenario(function, *args, **kwargs)


@pytest.mark.parametrize("view", [*TABLE.values(), torch.neg, torch.Tensor.exp, functional.gelu])
def test_text_of_case_has_what_a_closure_holds(view: Callable[[Tensor], Any]) -> None:
    made = of(view)
    function, args, _ = made.make("tiny")
    text = text_of(made, "tiny")
    assert torch.equal(run(text), function(*args)) and "assay" not in text and '"""' not in text


def test_text_of_case_has_classes_constants_sizes_and_scenarios() -> None:
    text = text_of(layered, "tiny")
    found = run(text)
    torch.manual_seed(0)
    function, args, _ = layered.make("tiny")
    assert len(found) == 2 and torch.equal(found[0], function(*args))
    assert "class Layer" in text and "FACTOR = 3.0" in text and "assay" not in text


def test_text_of_case_is_refused_where_a_value_has_no_text() -> None:
    table = torch.ones(2)
    made = case(name="held")(lambda: ((lambda x: x + table), (torch.ones(2),), {}))
    with pytest.raises(Unwritable, match="table is a Tensor"):
        text_of(made, "tiny")


@pytest.mark.parametrize("suite", ["semantics.outputs_alias", "semantics.effects", "semantics.inputs_overlap"])
def test_text_of_case_runs_of_each_case(suite: str) -> None:
    for each in discover((suite,)):
        text = text_of(each, "tiny")
        assert "assay." not in text, each.name
        assert SourceProgram(text, each.name, each.tags, may_raise=False)._run()["made"]()


PROGRAM = """\
import math
import torch
def unread():
    return 1
def f(x):
    y = x.sin()
    if True:
        y = y * 8
    return (y + x, x)
def made():
    return (f, (torch.ones(8),), {'a': 1, 'b': 2})
"""


def test_simpler_texts_change_one_thing_each_and_are_python() -> None:
    found = list(simpler_texts(PROGRAM, ROOTS))
    assert all(compile(text, "<simpler>", "exec") for text in found)
    assert not any("unread" in text or "math" in text for text in found if "torch.ones(8)" in text), (
        "what nothing reads"
    )
    wanted = ("return (x,)", "y = x\n", "torch.ones(2)", "{'a': 1}", "return (y, x)", "    y = y * 8\n    return")
    assert [text for text in wanted if not any(text in each for each in found)] == []


def test_source_program_comes_to_an_end_in_steps_that_each_make_it_smaller() -> None:
    program, steps = SourceProgram(PROGRAM, "small", ()), 0
    while (smaller := next(program.simpler(), None)) is not None:
        assert weight(smaller.text) < weight(program.text)
        program, steps = smaller, steps + 1
    assert steps > 1 and len(program.text.splitlines()) < 4


def test_source_program_counts_what_it_calls_and_knows_what_eager_cannot_run() -> None:
    program = SourceProgram.of(layered, "tiny", may_raise=False)
    assert program.operators("train") == ("linear", "relu", "mul") and program.numbers() == 2
    assert program.is_program("train")
    broken = SourceProgram(program.text.replace("return scaled(", "return missing("), program.name, program.tags)
    assert not broken.is_program("train")
    assert SourceProgram(broken.text, program.name, program.tags, may_raise=True).is_program("train")
