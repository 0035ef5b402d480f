"""A planted bug is found at its rung, its graph and its node, made small, and shown by a file that fails by itself."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.locate import forms_worker
from assay.harness.locate.bisect import Bisection, command, state_difference
from assay.harness.locate.forms_worker import ASSERTS, PASSES, RAISES
from assay.harness.locate.ladder import Climb, Found, NothingFails
from assay.harness.locate.profile_worker import bars, first_that_leaves
from assay.harness.locate.repro import Failing, repro_of, text_of, verified
from assay.harness.locate.repro_settings import SETTING_TEXTS
from assay.harness.locate.repro_text import FRESH, Form, forms
from assay.harness.locate.rungs import Rung, ladder_of, register_ladder
from assay.harness.locate.runner import Runner, Tried
from assay.harness.locate.shrinking.graph_program import GraphProgram, literal, qualified
from assay.harness.locate.shrinking.shrink import Budget, Shrunk, shrunk
from assay.harness.locate.source.text_of_case import text_of as written
from assay.harness.observe.ambient import SETTINGS
from assay.harness.outcome import Difference, Result
from assay.harness.processes.worker import ask, cold_environment
from assay.harness.protocol.acts import FEW
from assay.harness.run import RunRequest, run_case
from assay.harness.selftest.wrong_backends import BANK
from tests.harness.locate.outcomes_of_texts import outcomes_of

HERE = Path(__file__).parent / "wrong_gelu.py"
WRONG = "tests.harness.locate.wrong_gelu:wrong"
KEYED, DIES, LATE = (f"tests.harness.locate.wrong_gelu:{name}" for name in ("keyed", "dies", "late"))


def case_of(name: str) -> Case:
    (found,) = discover((f"{HERE}::{name}",))
    return found


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner(case_of("model")) as made:
        yield made


@pytest.fixture(scope="module")
def found(runner: Runner) -> Found:
    return Climb(runner, "train", ladder_of(WRONG)).find()


@pytest.fixture(scope="module")
def least(found: Found) -> Shrunk:
    return shrunk(case_of("model"), found, WRONG, size="tiny", seed=0, budget=Budget(600, 60))


def test_ladder_names_the_first_rung_that_differs(found: Found) -> None:
    assert (found.first.rung.name, found.below and found.below.rung.name) == (WRONG, "traced")
    assert found.first.failures == found.first.runs == 3
    assert 0.99 < found.confidence < 1


def test_ladder_says_that_nothing_fails() -> None:
    with Runner(case_of("right")) as right, pytest.raises(NothingFails):
        Climb(right, "infer", ladder_of("eager"), repeats=1).find()


class Played:
    """Runs in the place of a runner: what each rung comes to is written down."""

    def __init__(self, verdicts: dict[str, str]) -> None:
        self.case, self.is_quick, self.verdicts, self.asked = case_of("right"), True, verdicts, Counter[str]()
        self.most_acts: int | None = None
        self.device = "cpu"
        self.step, self.needs, self.errors = "", 0, dict[str, str]()
        self.calls: list[tuple[str, int | None]] = []

    def run(self, backend: str, mode: str, times: int = 1, **rest: object) -> Tried:
        self.asked[backend] += times
        self.calls.append((backend, self.most_acts))
        verdict = self.verdicts[backend] if self.needs <= (self.most_acts or self.needs) else "same"
        differences = (Difference("values", f"{self.step}output[0]", "off"),) if verdict == "diverged" else ()
        detail = self.errors.get(backend, "")
        return Tried(tuple(Result("right", mode, backend, verdict, differences, detail=detail) for _ in range(times)))


def climbed(verdicts: dict[str, str]) -> tuple[Found, Counter[str]]:
    played = Played(verdicts)
    rungs = tuple(Rung(name, name) for name in verdicts)
    return Climb(played, "infer", rungs).find(), played.asked  # type: ignore[arg-type]


def test_ladder_halves_and_repeats_at_the_border() -> None:
    names = [f"rung_{number:02d}" for number in range(32)]
    found, asked = climbed({name: "diverged" if name >= "rung_19" else "same" for name in names})
    assert found.first.rung.name == "rung_19" and found.below is not None and found.below.rung.name == "rung_18"
    assert asked["rung_19"] == asked["rung_18"] == 3 and len(asked) <= 7


def test_ladder_takes_one_error_in_other_words_for_the_same() -> None:
    played = Played({"eager": "same", "written": "crash", "lowered": "crash", "generated": "crash"})
    played.errors = {
        "written": "step 1, backward: NotImplementedError: no such node",
        "lowered": "step 1, backward: RuntimeError at b.py:7: sizes do not match",
        "generated": "step 1, backward: RuntimeError at a.py:3: the gradient is of another shape",
    }
    rungs = tuple(Rung(name, name) for name in played.verdicts)
    found = Climb(played, "infer", rungs).find()  # type: ignore[arg-type]
    assert found.first.rung.name == "lowered" and found.kind.error == "RuntimeError: sizes do not match"


@pytest.mark.parametrize(
    ("step", "needs", "most"),
    [("step 1: ", 0, 1), ("step 2: ", 2, 2), ("step 2: ", 5, None), ("step 9: ", 9, None), ("", 2, None)],
    ids=["one is enough", "two are enough", "not enough", "many", "not told"],
)
def test_ladder_runs_no_acts_behind_the_one_that_failed(step: str, needs: int, most: int | None) -> None:
    played = Played({"eager": "same", "written": "diverged", "generated": "diverged"})
    played.step, played.needs = step, needs
    rungs = tuple(Rung(name, name) for name in played.verdicts)
    found = Climb(played, "infer", rungs).find()  # type: ignore[arg-type]
    assert found.first.rung.name == "written" and found.acts == most
    assert [acts for _, acts in played.calls[:1]] == [1] and {acts for _, acts in played.calls[-3:]} == {most}


def test_run_ends_after_the_acts_that_are_asked_for() -> None:
    def seen(most_acts: int | None) -> str:
        return run_case(case_of("right"), "infer", LATE, RunRequest(timed=False, most_acts=most_acts)).verdict

    assert (seen(None), seen(2), seen(3)) == ("diverged", "same", "diverged")


def test_ladder_looks_past_a_rung_whose_time_was_up() -> None:
    found, asked = climbed({"eager": "same", "written": "same", "fused": "timeout", "generated": "diverged"})
    assert found.first.rung.name == "generated" and found.below is not None and found.below.rung.name == "written"
    assert asked["fused"] == 1, "it is not waited for again"


def test_ladder_counts_a_failure_of_another_kind_as_none() -> None:
    found, _ = climbed({"eager": "same", "written": "crash", "generated": "diverged"})
    assert found.first.rung.name == "generated" and str(found.kind) == "diverged values"


def test_ladder_of_assay_goes_through_every_state() -> None:
    names = [rung.name for rung in ladder_of("assay,dynamic")]
    assert names[:3] == ["eager", "dynamo", "captured"] and names[-4:] == ["lowered", "fused", "generated", "warm"]
    assert all("dynamic" in rung.backend for rung in ladder_of("assay,dynamic")[1:])
    assert [rung.name for rung in ladder_of("inductor")][-2:] == ["aot_eager_decomp_partition", "inductor"]


@pytest.mark.parametrize(
    ("backend", "device", "recorded"),
    [("assay", "cpu", ""), ("assay,cudagraphs=True", "cpu", "assay,cudagraphs=True,warm=False"),
     ("assay", "cuda", "assay,warm=False"), ("assay,cudagraphs=False", "cuda", "")],
)  # fmt: skip
def test_ladder_of_assay_records_last_but_one(backend: str, device: str, recorded: str) -> None:
    """Where CUDA graphs are recorded; no rung below has any."""
    rungs = {rung.name: rung.backend for rung in ladder_of(backend, device)}
    assert rungs.get("recorded", "") == recorded and list(rungs)[-1] == "warm" and rungs["warm"] == backend
    assert ("cudagraphs=False" in rungs["generated"]) == (bool(recorded) or "False" in backend)
    assert not any("cudagraphs=True" in name for rung, name in rungs.items() if rung not in ("recorded", "warm"))


def test_bisect_names_the_device(found: Found) -> None:
    on_gpu = dataclasses.replace(found, device="cuda")
    assert command(on_gpu, str(HERE), "mine").endswith("--backend mine --device cuda")
    assert "--device" not in command(found, str(HERE), "mine")


def test_ladder_refuses_two_rungs_of_one_name() -> None:
    with pytest.raises(ValueError, match="one name"):
        register_ladder("anything", (Rung("a", "eager"), Rung("a", "eager")))


def test_runner_goes_on_after_a_crash(runner: Runner) -> None:
    died = runner.run("tests.harness.locate.wrong_gelu:missing", "infer")
    assert died.rows[0].verdict == "crash"
    assert runner.run("eager", "infer").rows[0].verdict == "same"


def test_runner_fills_caches_in_every_mode_of_the_case() -> None:
    backend = "tests.harness.locate.wrong_gelu:kept_without_mode"
    with Runner(case_of("right")) as right:
        (row,) = right.run(backend, "train", is_warm=True).rows
        assert row.verdict == "diverged" and "in the process that fills the caches" in row.detail
        assert right.run(backend, "infer", is_warm=True).rows[0].verdict == "same"


def test_bisect_finds_the_graph_and_the_node(runner: Runner, found: Found) -> None:
    done = Bisection(runner, found).find()
    assert [(place.what, place.count) for place in done.places] == [("graph", 2), ("half", 1), ("node", 3)]
    assert "gelu" in done.places[2].text
    good, bad = done.commands(str(HERE))
    assert good.endswith("nodes=2") and bad.endswith("nodes=3")


@pytest.mark.parametrize("half", ["forward", "backward"])
def test_bisect_says_which_half_is_wrong(half: str) -> None:
    """The other half is then that of the rung below."""
    backend = f"tests.harness.locate.wrong_gelu:wrong_{half}"
    with Runner(case_of("right")) as right:
        found = Climb(right, "train", ladder_of(backend), repeats=1).find()
        places = {place.what: place for place in Bisection(right, found).find().places}
    assert places["half"].said == f"half {1 if half == 'forward' else 2} of 2: {half}"
    assert places["half"].bad.endswith(f"below=eager,half={half}") and places["half"].good.endswith("half=neither")


def test_bisect_says_that_both_halves_are_wrong(runner: Runner, found: Found) -> None:
    """A gelu by its approximation has another gradient, too."""
    (half,) = [place for place in Bisection(runner, found).find().places if place.what == "half"]
    assert half.text == "forward and backward, each by itself"


def test_bisect_shows_what_a_step_changed() -> None:
    assert state_difference(["a", "b"], ["a", "c"]).splitlines()[-2:] == ["-b", "+c"]


def test_shrink_leaves_one_call(least: Shrunk) -> None:
    assert least.operators == ("gelu",) and least.is_text_alone and least.on_backend
    assert least.numbers <= 4


def test_repro_is_short_and_fails_in_every_process(least: Shrunk) -> None:
    made = repro_of(least, Failing("model", "train", WRONG, "wrong", "traced"), times=2)
    assert made.is_verified and made.lines < 40
    assert "harness" not in made.source.replace("tests.harness", "")
    assert "in 2 of 2 fresh processes" in made.source and made.source in made.issue
    assert verified(text_of(least, "model", "train", "eager"), times=1) == 0, "it asserts that both agree"


def test_repro_that_fails_by_itself_is_not_verified(least: Shrunk) -> None:
    """A tensor that was recorded is not in the file."""
    broken = dataclasses.replace(least, inputs="RECORDED['x0'].clone()")
    assert verified(text_of(broken, "model", "train", WRONG), times=1) == 1
    made = repro_of(broken, Failing("model", "train", WRONG, "wrong", "traced"), times=2)
    assert (made.failures, made.is_verified) == (0, False)


def case_shrunk(name: str, row: Result) -> Shrunk:
    """A case's own text, as if nothing of it could be left out."""
    text = written(case_of(name), "tiny")
    return Shrunk(text, "", text, (), 4, True, row, on_backend=True, is_case=True)


def test_repro_of_a_case_makes_its_calls_as_the_scenario_does() -> None:
    """No graph of it fails by itself: two calls are needed that differ in their dtype."""
    differs = Difference("dtype", "step 1: output[1]", "ours is torch.float32, eager's torch.float64")
    least = case_shrunk("called_twice", Result("called_twice", "infer", KEYED, "diverged", (differs,)))
    made = repro_of(least, Failing("called_twice", "infer", KEYED, "keyed", "dynamo"), times=2)
    assert made.is_verified and made.lines < 40 and "scenario(compiled, " in made.source
    assert "wrong dtype" in made.issue and KEYED in made.issue


@pytest.mark.parametrize(
    ("name", "backend", "field"),
    [
        ("its_gradients", "forgets", "structure"),
        ("number_of_a_gelu", "wrong", "values"),
        ("small_integers", "of_halves", "values"),
        ("gone_back", "of_halves", "gradient"),
    ],
)
def test_repro_sees(name: str, backend: str, field: str) -> None:
    """None in the place of a gradient; a Python number; what is wrong of other numbers than the case's own alone, in
    results and in gradients that a scenario makes."""
    mode = case_of(name).modes[0]
    row = Result(name, mode, backend, "diverged", (Difference(field, "step 2: output", "off"),))
    failing = Failing(name, mode, f"tests.harness.locate.wrong_gelu:{backend}", backend, "dynamo")
    made = repro_of(case_shrunk(name, row), failing, times=1)
    assert made.is_verified, made.source


@pytest.mark.parametrize(
    ("name", "mode", "fault", "field"),
    [
        ("only_gelu", "infer", "keeps_all_inputs", "held"),
        ("only_gelu", "infer", "holds_inputs_in_a_cycle", "held"),
        ("only_gelu", "infer", "prints_in_every_call", "printed"),
        ("only_gelu", "infer", "warns_in_every_call", "warnings"),
        ("only_gelu", "infer", "reserves_too_much_memory", "storage"),
        ("model", "train", "takes_hooks_off", "hooks"),
        ("model", "train", "delivers_in_two_parts", "hooks"),
    ],
)
def test_repro_sees_what_no_result_shows(name: str, mode: str, fault: str, field: str) -> None:
    """And a right backend that works ahead of time does not fail by it."""
    backend = f"assay.harness.selftest.wrong_backends:{fault}"
    least = case_shrunk(name, Result(name, mode, backend, "diverged", (Difference(field, "step 2: output", "off"),)))
    text = text_of(least, name, mode, backend, form=Form(3, FRESH))
    request = {"pairs": [[text, text.replace(fault, "records_ahead_of_time")]], "ways": [ASSERTS]}
    with cold_environment() as cold:
        assert ask(forms_worker.__name__, request, 120.0, cold).lines == ({"form": 0},), text


@pytest.mark.parametrize("name", ["wrong", "wrong_of_symbols"])
def test_repro_asks_for_symbolic_sizes_only_where_it_fails_by_them(name: str) -> None:
    row = Result("only_gelu", "infer", "eager", "diverged", (Difference("values", "step 1: output", "off"),))
    backend = f"tests.harness.locate.wrong_gelu:{name},dynamic"
    made = repro_of(case_shrunk("only_gelu", row), Failing("only_gelu", "infer", backend, name, "traced"), times=1)
    assert made.is_verified and ("dynamic=True" in made.source) == (name == "wrong_of_symbols"), made.source


@pytest.mark.parametrize(("mode", "is_on"), [("train", True), ("infer", False)])
def test_repro_puts_back_what_the_eager_run_leaves_changed(mode: str, is_on: bool) -> None:
    row = Result("right", mode, "eager", "diverged", (Difference("ambient", "step 1: grad", "off"),))
    text = text_of(case_shrunk("right", row), "right", mode, "eager")
    assert (
        f"    for call in range(1):\n        torch.manual_seed(call)\n        torch.set_grad_enabled({is_on})" in text
    )


LEAVE = [each for each in BANK.values() if each.kind == "ambient state"]


def test_repro_knows_every_setting_that_is_observed() -> None:
    assert set(SETTING_TEXTS) == set(SETTINGS)


def text_that_shows(fault: str) -> str:
    backend = f"assay.harness.selftest.wrong_backends:{fault}"
    row = run_case(case_of("only_gelu"), "infer", backend, RunRequest(timed=False, protocol=FEW["infer"]))
    assert row.differences and row.differences[0].field == "ambient"
    return text_of(case_shrunk("only_gelu", row), "only_gelu", "infer", backend)


def test_repro_sees_each_setting_that_a_call_leaves_changed() -> None:
    """Another setting that a file may look at shows nothing of it, and a right backend leaves each as it is."""
    texts = {each.name: text_that_shows(each.name) for each in LEAVE}
    in_a_right_one = [text.replace(fault, "records_ahead_of_time") for fault, text in texts.items()]
    wrong = outcomes_of(*texts.values())
    assert dict(zip(texts, wrong, strict=True)) == dict.fromkeys(texts, ASSERTS)
    assert outcomes_of(*in_a_right_one) == [PASSES] * len(texts)


def test_repro_asserts_another_field_where_the_first_one_shows_in_no_form() -> None:
    differences = tuple(Difference(field, "step 1: output", "off") for field in ("random", "dtype", "values"))
    least = case_shrunk("only_gelu", Result("only_gelu", "infer", WRONG, "diverged", differences))
    made = repro_of(least, Failing("only_gelu", "infer", WRONG, "wrong", "traced"), times=1)
    assert made.is_verified and "infer, tests.harness.locate.wrong_gelu:wrong: values at" in made.source


def test_repro_is_to_assert_what_differs_near_a_kink_of_eager() -> None:
    kink = Difference("values", "step 1: output", "reference-unstable: 4 of 32 elements lie across a kink")
    unstable = case_shrunk("only_gelu", Result("only_gelu", "infer", WRONG, "reference-unstable", (kink,)))
    assert repro_of(unstable, Failing("only_gelu", "infer", WRONG, "wrong", "traced"), times=1).is_verified


def test_repro_of_a_process_that_dies_fails_by_a_signal() -> None:
    least = case_shrunk("only_gelu", Result("only_gelu", "infer", DIES, "crash", detail="killed by SIGKILL. It said"))
    failing = Failing("only_gelu", "infer", DIES, "dies", "dynamo")
    assert repro_of(least, failing, times=1).is_verified
    differs = Difference("values", "step 1: output", "off")
    other = dataclasses.replace(least, row=Result("only_gelu", "infer", DIES, "diverged", (differs,)))
    assert not repro_of(other, failing, times=1).failures, "that it dies is not how it is said to fail"


CHECKS = """
import torch


def observed(compile):
    {inside}
    return [torch.zeros(1)]


eager, compiled = observed(None), observed(None)
{check}
"""


@pytest.mark.parametrize(
    ("inside", "check", "way"),
    [
        ("pass", "assert str(compiled) != str(eager)", ASSERTS),
        ("pass", "torch.testing.assert_close(compiled, [torch.ones(1)])", ASSERTS),
        ("assert not torch.ones(1)", "", RAISES),
        ("torch.testing.assert_close(1, 2)", "", RAISES),
        ("raise VerifyError('stuck')", "", RAISES),
    ],
)
def test_repro_tells_its_own_assertion_from_one_of_the_backend(inside: str, check: str, way: str) -> None:
    text = "from assay.compiler.errors import VerifyError\n" + CHECKS.format(inside=inside, check=check)
    assert outcomes_of(text) == [way]
    assert verified(text, times=1, ways=frozenset({way})) == 1


@pytest.mark.parametrize(
    ("told", "first"),
    [("step 1: output", Form()), ("step 2: output", Form(3, FRESH)), ("step 13: output", Form(in_other_mode=True))],
)
def test_repro_looks_first_for_the_form_of_the_step_that_differed(told: str, first: Form) -> None:
    row = Result("right", "infer", "eager", "diverged", (Difference("values", told, "off"),))
    known = list(forms(case_shrunk("right", row), "infer"))
    assert known[0] == first and Form() in known and any(form.is_exact for form in known)


def profiled(name: str) -> tuple[dict[str, Any], ...]:
    request = {"origin": f"{HERE}::{name}", "case": f"wrong_gelu.{name}", "mode": "infer", "size": "tiny", "seed": 0}
    answer = ask("assay.harness.locate.profile_worker", {**request, "backend": WRONG}, 120.0, {})
    assert answer.failure is None, answer.failure
    return answer.lines


@pytest.mark.parametrize("name", ["model", "of_a_number"])
def test_profile_marks_the_node_that_leaves_eager(name: str) -> None:
    """Of a case that is given other numbers from call to call, too."""
    lines = profiled(name)
    place = first_that_leaves(lines, 8.0, 2.0**-22)
    assert place is not None and "gelu" in lines[place]["node"]
    assert first_that_leaves(lines[:place], 8.0, 2.0**-22) is None


def test_profile_draws_what_the_backend_adds() -> None:
    errors = [(0.0, 0.0), (1e-8, 1e-8), (1e-8, 1e-2), (1e-2, 1e-8), (1e-8, None), (1e-8, 30.0)]
    drawn = bars([{"eager": eager, "ours": ours} for eager, ours in errors])
    assert drawn == ["", "░░░░", "░░░░" + 12 * "█", "░░░░", "░░░░" + 16 * "█", "░░░░" + 16 * "█"]


def test_profile_shows_what_a_program_computes_before_it_raises() -> None:
    names = [line["node"].partition("    # ")[0] for line in profiled("label_out_of_range")]
    assert names == ["mul = mul", "h = tanh", "add = add"]


def test_graph_program_keeps_what_writes_to_a_result() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    part = graph.call_method("narrow", (x, 0, 0, 2))
    graph.call_method("add_", (x, 1))
    unread = graph.call_function(torch.neg, (x,))
    graph.output((graph.call_function(torch.mul, (part, float("inf"))),))
    program = GraphProgram.of(torch.fx.GraphModule({}, graph), [torch.arange(3.0)])
    assert [line.name for line in program.lines] == ["narrow", "add_", "mul"] and unread.name not in program.body()
    assert "float('inf')" in program.body()
    assert torch.equal(program.values()["narrow"], torch.tensor([1.0, 2.0]))


def test_graph_program_writes_values_as_python() -> None:
    assert (
        literal((1, float("-inf"), torch.float32, slice(None, 2)))
        == "(1, float('-inf'), torch.float32, slice(None, 2, None))"
    )
    assert qualified(torch.ops.aten.add.Tensor) == "torch.ops.aten.add.Tensor"
