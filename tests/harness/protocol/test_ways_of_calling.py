"""Unusual ways to make a call: who is told apart by each alone, who is not accused, and which programs are spared."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from assay.harness.backends.registry import resolve
from assay.harness.calls.clone import Call
from assay.harness.case import Case, Made
from assay.harness.observe import leaks
from assay.harness.observe.observation import observe
from assay.harness.observe.scripts import Scripts
from assay.harness.outcome import Result
from assay.harness.protocol.acts import DEFAULT, FURTHER, IN_COLUMNS, SUMMED, WAYS, Act, Protocol, chosen, step
from assay.harness.protocol.fresh_numbers import (
    NO_INDEX,
    blotted,
    expanded,
    first_rows,
    nothing,
    relaid,
    strayed,
    turned,
)
from assay.harness.run import RunRequest, made_call, run_case
from assay.harness.selftest.wrong_backends import ways_of_calling

PLACE = "assay.harness.selftest.wrong_backends:"
MODES = ("infer", "train")
WRONG = {
    "stays_in_inference_mode": ("inference mode", MODES),
    "keeps_the_first_autocast": ("autocast", MODES),
    "spoils_results_under_autocast": ("autocast", MODES),
    "keeps_to_one_row": ("a batch of one", MODES),
    "ignores_thawed_parameters": ("frozen parameters", ("train",)),
    "drops_gradients_of_inputs": ("gradients of arguments", ("train",)),
    "ignores_strides": ("another layout", MODES),
    "spoils_expanded_inputs": ("another layout", ("infer",)),
    "hides_nan": ("a NaN", MODES),
    "fills_up_no_rows": ("a batch of none", MODES),
}
"""By the wrong backend, which way of calling tells it apart, and in which modes."""
KEPT = (ways_of_calling._called_in_inference, ways_of_calling._called_with_one_row)
"""What the wrong backends know of programs with the same operators."""


def network() -> Made:
    layers = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Tanh(), nn.Linear(7, 3), nn.Softmax(-1))
    return layers, (torch.randn(4, 5),), {}


def run(backend: str, mode: str, acts: Protocol, make: Callable[[], Made] = network) -> Result:
    case = Case("network", make, MODES, (), ("tiny",))
    return run_case(case, mode, backend, RunRequest(protocol=acts, timed=False))


def acts_of(way: str, mode: str) -> Protocol:
    return (Act(1, back=int(mode == "train")), *WAYS[way][mode])


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name, (_, modes) in WRONG.items() for mode in modes])
def test_ways_of_calling_tell_apart_who_ignores_one(name: str, mode: str) -> None:
    for kept in KEPT:
        kept.clear()
    others = tuple(act for way in WAYS if way != WRONG[name][0] for act in WAYS[way][mode])
    assert run(PLACE + name, mode, (*DEFAULT[mode], *others)).verdict == "same"
    result = run(PLACE + name, mode, acts_of(WRONG[name][0], mode))
    assert result.verdict in ("diverged", "crash"), result.detail


def test_backward_of_a_sum_tells_apart_who_reads_one_number_once() -> None:
    name = PLACE + "reads_one_number_once"
    others = tuple(act for act in DEFAULT["train"] if act.ends != SUMMED)
    assert run(name, "train", others).verdict == "same"
    result = run(name, "train", (Act(1, back=1), step(2, ends=SUMMED)))
    assert result.verdict == "diverged" and result.differences[0].field == "gradient", result.detail


class WithLoss(nn.Module):
    """A network that gives its loss beside its results, as models of the zoo do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        logits = self.layer(x)
        return {"loss": logits.square().mean(), "logits": logits}


def test_backward_of_a_sum_begins_at_other_results_than_the_loss() -> None:
    def make() -> Made:
        return WithLoss(), (torch.randn(4, 5),), {}

    acts = (Act(1, back=1), step(2, ends=SUMMED))
    assert run("aot_eager", "train", acts, make).verdict == "same"
    assert run(PLACE + "reads_one_number_once", "train", acts[:1], make).verdict == "same"
    assert run(PLACE + "reads_one_number_once", "train", acts, make).verdict == "diverged"


def looked_up() -> Made:
    layers = nn.Sequential(nn.Embedding(9, 5), nn.Linear(5, 3), nn.Tanh())
    return layers, (torch.randint(0, 9, (4, 6)),), {}


STRAYS = (Act(1), Act(2, strays=True), Act(3))


def test_stray_index_tells_apart_who_is_wrong_after_an_error() -> None:
    name = PLACE + "spoils_calls_after_an_error"
    usual = tuple(act for act in DEFAULT["infer"] if not act.strays)
    assert run(name, "infer", usual, looked_up).verdict == "same"
    result = run(name, "infer", STRAYS, looked_up)
    assert result.verdict == "diverged" and result.differences[0].path.startswith("step 3"), result.differences


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "assay"])
def test_stray_index_accuses_nobody_who_is_right(backend: str) -> None:
    result = run(backend, "infer", STRAYS, looked_up)
    assert (result.verdict, result.detail) == ("same", ""), (result.detail, result.differences)


def test_stray_index_is_left_out_where_eager_takes_it_or_something_is_written() -> None:
    def counts() -> Made:
        return (lambda i: i.abs() + 1), (torch.arange(5),), {}

    def writes() -> Made:
        return (lambda x, i: x.mul_(2)[i]), (torch.rand(5), torch.arange(5)), {}

    for make, are_left in ((looked_up, True), (counts, False), (writes, False)):
        case = Case("network", make, MODES, (), ("tiny",))
        own = made_call(case, "tiny", 0, "cpu")
        scripts = Scripts(case, "infer", STRAYS, own, functools.partial(made_call, case, "tiny", device="cpu"))
        found = scripts.without(observe(scripts.script(), "infer", 0))
        assert any(act.strays for act in found.acts) is are_left, make


def test_strayed_arguments_have_one_number_that_is_no_index() -> None:
    x, index, mask = torch.rand(3), torch.arange(5), torch.ones(3, dtype=torch.bool)
    made = strayed(Call(nothing, (x, index, mask), {}))
    assert made.args[0].equal(x) and made.args[2].equal(mask)
    assert made.args[1].tolist() == [0, 1, NO_INDEX, 3, 4] and index[2] == 2


UNUSUAL_BACKWARDS: Mapping[str, tuple[Callable[[Act], bool], Protocol]] = {
    "drops_what_meets_another_layout": (
        lambda act: act.relays_gradients,
        (Act(1, back=1), step(2, accumulates=True, relays_gradients=True)),
    ),
    "adds_a_gradient_by_itself": (lambda act: act.in_part, (Act(1, back=1), step(2, in_part=True))),
    "misreads_tangents_in_columns": (
        lambda act: act.ends == IN_COLUMNS,
        (Act(1), *FURTHER["results in reverse"]["train"]),
    ),
}
"""By the wrong backend: which acts tell it apart, and acts that do."""


@pytest.mark.parametrize("name", UNUSUAL_BACKWARDS)
def test_unusual_backwards_tell_apart_who_ignores_one(name: str) -> None:
    tells, acts = UNUSUAL_BACKWARDS[name]
    assert run(PLACE + name, "train", tuple(act for act in DEFAULT["train"] if not tells(act))).verdict == "same"
    result = run(PLACE + name, "train", acts)
    assert result.verdict == "diverged" and result.differences[0].field == "gradient", result.differences


@pytest.mark.parametrize("mode", MODES)
def test_dynamo_may_compile_anew_in_each_act(mode: str) -> None:
    """Behind its limit Dynamo runs a function in eager, and acts would tell nothing of the backend."""
    calls = sum(act.calls for act in chosen("any", mode, thorough=True)[1])
    with resolve("eager").ambient():
        assert torch._dynamo.config.recompile_limit > calls + leaks.ALL_CALLS + leaks.CALLS


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "assay"])
def test_ways_of_calling_accuse_nobody_who_is_right(backend: str, mode: str) -> None:
    acts = tuple(act for way in WAYS for act in acts_of(way, mode))
    result = run(backend, mode, acts)
    assert result.verdict == "same", (result.detail, result.differences)
    assert run("eager", mode, acts[:1]).verdict == "same"


@pytest.mark.parametrize("mode", MODES)
def test_chosen_acts_have_two_ways_by_the_name_and_all_if_thorough(mode: str) -> None:
    names = chosen("zoo.bert", mode)[0].split(", ")
    assert len(names) == 3 and len({*names[1:]} & set(WAYS)) == 2
    assert set(WAYS) < set(chosen("zoo.bert", mode, thorough=True)[0].split(", "))


@pytest.mark.parametrize("mode", MODES)
def test_every_combination_of_acts_is_chosen_for_some_name(mode: str) -> None:
    """Each further sequence with each two ways, in either order; none much more often than others."""
    combinations = len(FURTHER) * len(WAYS) * (len(WAYS) - 1)
    found = Counter(chosen(f"suite.case_{number}", mode)[0] for number in range(40 * combinations))
    assert len(found) == combinations and max(found.values()) < 100


def test_first_row_is_that_of_what_has_the_batch() -> None:
    x, mask, weight = torch.rand(4, 5), torch.ones(4, dtype=torch.bool), torch.rand(5)
    made = first_rows(Call(nothing, (x,), {"mask": mask, "weight": weight}), 1)
    assert torch.equal(made.args[0], x[:1]) and made.kwargs["mask"].shape == (1,)
    assert made.kwargs["weight"] is weight
    assert first_rows(made, 1) is made, "a batch of one is one already"
    assert first_rows(made, 0).args[0].shape == (0, 5)


def test_turned_arguments_require_what_they_did_not() -> None:
    x, y, labels = torch.rand(3), torch.rand(3, requires_grad=True), torch.arange(3)
    turned(Call(nothing, (x, y, labels), {}))
    assert (x.requires_grad, y.requires_grad, labels.requires_grad) == (True, False, False)


def test_turned_arguments_stay_where_they_share_memory() -> None:
    x = torch.rand(3)
    turned(Call(nothing, (x, x[1:]), {}))
    assert not x.requires_grad


def test_relaid_arguments_lie_in_columns_with_the_same_numbers() -> None:
    x, rows = torch.rand(2, 3, 4, requires_grad=True), torch.rand(5)
    made = relaid(Call(nothing, (x, rows), {}))
    assert made.args[0].stride() == (12, 1, 3) and made.args[0].requires_grad and torch.equal(made.args[0], x)
    assert made.args[1].stride() == (1,)


def test_expanded_arguments_have_their_first_row_for_all_in_memory_for_all() -> None:
    x, row = torch.rand(3, 4, requires_grad=True), torch.rand(1, 4)
    made = expanded(Call(nothing, (x, row), {}))
    assert made.args[0].stride() == (0, 1) and torch.equal(made.args[0], x[:1].expand(3, 4))
    assert made.args[0].is_leaf and made.args[0].requires_grad and made.args[0]._base is None
    assert made.args[0].untyped_storage().nbytes() == x.nbytes
    assert made.args[1].stride() == (4, 1)


def test_blotted_arguments_have_one_nan_each() -> None:
    x, labels = torch.rand(2, 3, requires_grad=True), torch.arange(3)
    made = blotted(Call(nothing, (x, labels), {}))
    assert made.args[0].isnan().sum() == 1 and made.args[0].requires_grad and made.args[0].is_leaf
    assert not x.isnan().any() and torch.equal(made.args[1], labels)


def left_of(make: Callable[[], Made], *ways: str) -> list[Act]:
    """Which unusual acts of these ways are left for a program in training, once eager was asked."""
    case = Case("program", make, MODES, (), ("tiny",))

    def made(which: int) -> Call:
        return made_call(case, "tiny", which, "cpu")

    unusual = [WAYS[way]["train"][0] for way in ways]
    scripts = Scripts(case, "train", (step(1), *(act for way in ways for act in WAYS[way]["train"])), made(0), made)
    while True:
        mended = scripts.without(observe(scripts.script(), "train", 0))
        if mended is scripts:
            return [act for act in scripts.acts if act in unusual]
        scripts = mended


def writing() -> Made:
    def program(x: Tensor, weight: Tensor) -> Tensor:
        return x.mul_(2) * weight

    return program, (torch.randn(4, 3), torch.randn(3, requires_grad=True)), {}


class Keeping(nn.Module):
    """Keeps its last result, and multiplies the next one by it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(3, 3)
        self.last: Tensor = torch.ones(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        result = self.scale(x) * self.last
        self.last = result.detach()
        return result


def keeping() -> Made:
    return Keeping(), (torch.randn(4, 3),), {}


def of_many_rows() -> Made:
    return nn.BatchNorm1d(3), (torch.randn(4, 3),), {}


@pytest.mark.parametrize(
    ("make", "spared"),
    [(writing, "gradients of arguments"), (keeping, "inference mode"), (of_many_rows, "a batch of one")],
)
def test_ways_of_calling_spare_programs_that_eager_does_not_run_so(make: Callable[[], Made], spared: str) -> None:
    others = [way for way in ("frozen parameters", "gradients of arguments") if way != spared]
    left = left_of(make, others[0], spared, *others[1:])
    assert left == [WAYS[way]["train"][0] for way in others]


def writing_by_address() -> Made:
    def program(x: Tensor) -> Tensor:
        x.numpy()[0] += 1
        return x * 2

    return program, (torch.randn(4, 3),), {}


def test_expanded_arguments_are_for_programs_that_write_none() -> None:
    """Its own kernel takes no heed of strides, and a copy of an expanded tensor has memory for one row alone."""
    case = Case("program", writing_by_address, MODES, (), ("tiny",))
    own = made_call(case, "tiny", 0, "cpu")
    scripts = Scripts(case, "infer", (Act(1), Act(2, expands=True)), own, lambda _: own, watches_leaks=False)
    assert not any(act.expands for act in scripts.without(observe(scripts.script(), "infer", 0)).acts)
