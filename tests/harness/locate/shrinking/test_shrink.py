"""A failing case is made smaller though programs that are tried on the way end the process that tries them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.locate.ladder import Found, Step
from assay.harness.locate.repro import Failing, repro_of
from assay.harness.locate.rungs import Rung
from assay.harness.locate.shrinking import shrink
from assay.harness.locate.shrinking.graph_program import DRAWN, MARKED, RECORDED, Given, GraphProgram, copied, plainer
from assay.harness.locate.shrinking.shrink import Budget, NotShrunk, Shrunk, shrunk
from assay.harness.locate.shrinking.shrink_worker import Shrinking
from assay.harness.outcome import Difference, Result
from assay.harness.protocol.acts import ONE, SAME, Act, chosen, shorter
from assay.harness.search.generated import Kind

FILE = Path(__file__).parents[1] / "wrong_gelu.py"
NAME = "tests.harness.locate.wrong_gelu"
VALUES = Kind("diverged", frozenset({"values"}))
DTYPE = Kind("diverged", frozenset({"dtype"}))
ENOUGH = Budget(600.0, 60)
"""More programs than any of these searches needs, and more time than they take on a busy machine."""
ERROR = Kind("diverged", frozenset({"error"}))
KILLED = Kind("crash", frozenset(), "killed by SIGKILL")


def case_of(name: str) -> Case:
    (found,) = discover((f"{FILE}::{name}",))
    return found


def least(name: str, backend: str, kind: Kind, budget: Budget = ENOUGH, act: int | None = None) -> Shrunk:
    """What is left of a case whose first rung is the backend. `act` is the one that fails first."""
    rung = Rung("whole", backend if ":" in backend else f"{NAME}:{backend}")
    differs = (Difference("values", f"step {act}: output[0]", "off"),) if act else ()
    step = Step(rung, 1, 1, Result(name, "infer", rung.backend, kind.verdict, differs))
    found = Found(name, "infer", rung.backend, kind, step, None, (step,))
    return shrunk(case_of(name), found, rung.backend, size="tiny", seed=0, budget=budget)


def test_shrink_goes_on_after_a_program_that_ends_the_process() -> None:
    made = least("model", "dies_of_few", VALUES)
    assert len(made.operators) == 2 and "gelu" in made.operators and made.on_backend


def test_shrink_keeps_what_ends_the_process_where_the_case_does() -> None:
    made = least("model", "dies", KILLED)
    assert made.operators == ("gelu",) and made.on_backend and made.row.verdict == "crash"


def test_shrink_leaves_out_a_program_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrink.Shrinking, "candidate_s", 20.0)
    made = least("model", "hangs_of_few", VALUES, Budget(600.0, 8))
    assert len(made.operators) >= 2 and "gelu" in made.operators and made.on_backend


@pytest.mark.parametrize(("left_s", "calls"), [(1000, 1), (0, 25)])
def test_shrink_tries_pieces_of_a_large_graph_first_while_there_is_time(
    left_s: float, calls: int, tmp_path: Path
) -> None:
    first = next(searching(tmp_path, "traced", left_s)._programs())
    assert len(first.program.operators("infer")) == calls


def test_shrink_tries_the_first_call_that_differs_in_a_large_graph_before_all_others(tmp_path: Path) -> None:
    programs = searching(tmp_path, "wrong", left_s=0)._programs()
    alone, with_others, whole = (next(programs).program for _ in range(3))
    assert alone.operators("infer") == ("gelu",) and with_others.operators("infer") == ("sin", "add", "gelu")
    assert len(whole.operators("infer")) == 25
    assert searching(tmp_path, "wrong", left_s=0).tried, "another process begins with it no more"


def searching(folder: Path, backend: str, left_s: float) -> Shrinking:
    """The search of one process in a large graph."""
    request = {
        "origin": f"{FILE}::many_calls", "case": "wrong_gelu.many_calls", "mode": "infer", "size": "tiny", "seed": 0,
        "kind": ["diverged", ["values"], ""], "folder": str(folder), "left_s": left_s, "most": None, "acts": None,
        "step": None, "rung": f"{NAME}:{backend}", "is_warm": False, "is_apart": False, "is_last": False,
    }  # fmt: skip
    return Shrinking(request, lambda told: None)


def test_shrink_says_that_its_time_was_up_before_anything_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrink, "CANDIDATE_S", 0.0)
    with pytest.raises(NotShrunk, match="its time was up: silent for"):
        least("model", "dies_of_few", VALUES, Budget(0.01))


def test_shrink_takes_the_case_where_no_graph_fails_by_itself() -> None:
    made = least("called_twice", "keyed", DTYPE)
    assert made.is_case and made.on_backend and len(made.operators) <= 1
    assert "def scenario(" in made.body and "def made(" in made.body and "assay" not in made.body


def test_shrink_is_not_misled_by_what_programs_before_have_left_behind() -> None:
    """Each graph fails behind another program, and none in a process of its own."""
    made = least("in_two_graphs", "wrong_of_a_second", VALUES)
    assert made.on_backend and made.is_case and "graph_break" in made.body


def test_shrink_takes_the_case_where_no_text_makes_the_input_of_its_graph() -> None:
    made = least("steps", "wrong_of_steps", VALUES)
    assert made.is_case and made.is_text_alone and "torch.arange(64.0)" in made.body and made.on_backend


def test_shrink_keeps_the_call_that_raises_in_eager() -> None:
    made = least("label_out_of_range", "unchecked", ERROR)
    assert made.operators == ("cross_entropy",) and made.is_text_alone and made.on_backend and not made.is_case


def test_shrink_records_the_graphs_of_every_number_that_a_case_is_called_with() -> None:
    made = least("of_a_number", "wrong", VALUES)
    assert made.operators == ("gelu",) and made.on_backend and not made.is_case


def number_of(case: Case, **unusual: object) -> int:
    """The number of the act of a case that is unusual in this way, from 1 on."""
    acts = chosen(case.name, "infer")[1]
    (found,) = [place for place, act in enumerate(acts) if all(getattr(act, n) == v for n, v in unusual.items())]
    return found + 1


BANKED = "assay.harness.selftest.wrong_backends"


@pytest.mark.parametrize(
    ("name", "fault", "unusual", "count"),
    [("in_two_graphs", "hides_nan", {"blots": True}, 2), ("model", "keeps_to_one_row", {"sizes": ONE}, 5)],
)
def test_shrink_calls_a_graph_as_the_case_was_when_it_failed(
    name: str, fault: str, unusual: dict[str, object], count: int
) -> None:
    """None of the few calls that a graph goes through by default shows it. The file makes these calls, too."""
    case, backend = case_of(name), f"{BANKED}:{fault}"
    act = number_of(case, **unusual) + (fault == "keeps_to_one_row")
    made = least(name, backend, VALUES, act=act)
    assert len(made.operators) == 1 and not made.is_case and made.on_backend and len(made.acts) <= count
    shown = repro_of(made, Failing(name, "infer", backend, "whole", ""), times=1)
    assert shown.is_verified, shown.source


def test_shrink_tries_few_acts_before_all_that_led_to_the_one_that_failed() -> None:
    usual, stray, last, back = Act(1), Act(4, strays=True), Act(5), Act(back=2)
    assert shorter((usual, Act(2), stray, Act(3), last)) == (
        (usual, last), (usual, stray, last), (usual, Act(2), stray, Act(3), last),
    )  # fmt: skip
    same = (usual, Act(2), Act(3, given=SAME))
    assert shorter(same) == (same,) and shorter((usual,)) == ((usual,),)
    assert shorter((usual, Act(2), Act(3), back)) == ((usual, Act(2), Act(3), back),)


def test_graph_program_is_read_by_another_process() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.ops.aten.add.Tensor, (graph.call_method("neg", (x,)), 1), {"alpha": 2})
    graph.output((graph.call_function(torch.nn.functional.gelu, (y,)),))
    program = GraphProgram.of(torch.fx.GraphModule({}, graph), [torch.ones(2)])
    read = pickle.loads(pickle.dumps(program))
    assert read.body() == program.body() and torch.equal(read.values()["gelu"], program.values()["gelu"])


def test_graph_program_has_pieces_of_few_calls_if_it_is_large() -> None:
    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    y = x
    for _ in range(5):
        y = graph.call_function(torch.nn.functional.gelu, (graph.call_function(torch.mm, (y, w)),))
        graph.call_method("add_", (w, 1))
    graph.output((graph.call_method("sum", (y,)),))
    module = torch.fx.GraphModule({}, graph)
    program = GraphProgram.of(module, [torch.randn(2, 2), torch.randn(2, 2).requires_grad_()])
    pieces = list(program.pieces())
    assert [piece.operators("train") for piece in pieces[:4]] == [("mm",), ("gelu",), ("add_",), ("sum",)]
    assert {len(piece.lines) for piece in pieces[4:]} == {4} and len(pieces) == len({p.body() for p in pieces})
    assert [given.tensor.requires_grad for given in pieces[1].givens] == [True]
    assert all(piece.is_program("train") for piece in pieces if piece.operators("train") != ("add_",))
    assert not list(GraphProgram(program.givens, program.lines[:3], (program.lines[1].name,)).pieces())


def test_graph_program_draws_an_input_and_keeps_what_is_no_number_in_it() -> None:
    x = torch.randn(3, 40)
    x[0, 7], x[2, 1], x[1] = float("nan"), float("inf"), float("-inf")
    (marked,) = [each for each in plainer(Given("x", x)) if each.values == MARKED]
    made = eval(marked.text(), {"torch": torch})
    assert made.shape == x.shape and torch.equal(made.isfinite(), x.isfinite())
    assert made[0, 7].isnan() and made[2, 1] == float("inf") and bool((made[1] == float("-inf")).all())
    assert not [each for each in plainer(Given("y", torch.ones(2))) if each.values == MARKED]


LAYOUTS = {
    "rows": torch.randn(4, 6),
    "transposed": torch.randn(6, 4).t(),
    "with gaps": torch.randn(4, 12)[:, ::2],
    "expanded": torch.randn(4, 1).expand(4, 6),
    "expanded with gaps": torch.randn(8, 1, 3)[::2].transpose(0, 2).expand(3, 5, 4),
    "one number": torch.randn(()).expand(4),
    "bytes with gaps": torch.arange(12, dtype=torch.uint8).reshape(4, 3)[:, 1:],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_graph_program_keeps_the_layout_of_what_was_recorded(layout: str) -> None:
    x = LAYOUTS[layout]
    y = copied(x)
    assert y.stride() == x.stride() and torch.equal(y, x) and y.data_ptr() != x.data_ptr()
    graph = torch.fx.Graph()
    graph.output((graph.call_function(torch.sin, (graph.placeholder("x"),)),))
    for values in (RECORDED, DRAWN):
        program = GraphProgram.of(torch.fx.GraphModule({}, graph), [y])
        made = program if values == RECORDED else program.drawn()
        (given,) = made.case("drawn", "infer").make("tiny")[1]
        assert (given.shape, given.stride(), given.dtype) == (x.shape, x.stride(), x.dtype)
        assert values == DRAWN or torch.equal(given, x)


def test_graph_program_has_windows_in_rows() -> None:
    x = torch.arange(10.0).unfold(0, 4, 1)
    assert torch.equal(copied(x), x) and copied(x).is_contiguous()


def test_shrink_keeps_the_gaps_without_which_nothing_fails() -> None:
    made = least("of_columns_with_gaps", "wrong_with_gaps", VALUES)
    assert made.operators == ("gelu",) and made.is_text_alone and "empty_strided" in made.inputs
