"""What the suite makes of torch's databases: samples in layouts and forms, chosen by name."""

from __future__ import annotations

import itertools

import pytest
import torch

from assay.harness.batches.sample import Batch, key_of
from assay.suites import ops
from assay.suites.ops import operators
from assay.suites.ops.layouts import LAYOUTS, laid_out

BATCHES = {key_of(batch): batch for batch in ops.batches()}


def names(key: str) -> list[str]:
    return [sample.name for sample in BATCHES[key].make(0)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_layouts_hold_the_same_numbers_in_other_memory(layout: str, requires_grad: bool) -> None:
    given = torch.randn(2, 3, 4, 5, requires_grad=requires_grad)
    (value,), kwargs = laid_out(((given,), {"weight": given}), LAYOUTS[layout])
    assert torch.equal(value, given) and value.stride() != given.stride()
    assert value.is_leaf and value.requires_grad == requires_grad and value is kwargs["weight"]


def test_layouts_that_change_nothing_are_no_layouts() -> None:
    for value in (torch.tensor(1.0), torch.empty(0, 3), torch.ones(1), 3):
        assert laid_out(value, LAYOUTS["strided"]) is None
    assert laid_out(torch.ones(3), LAYOUTS["transposed"]) is None
    assert laid_out(torch.ones(2, 3), LAYOUTS["channels_last"]) is None


def test_every_operator_is_there_in_every_dtype_that_it_supports() -> None:
    groups = {batch.group for batch in BATCHES.values()}
    for op in operators.op_db:
        for dtype in op.supported_dtypes("cpu"):
            assert f"{operators.name_of(op)}.{operators.dtype_name(dtype)}" in groups


def test_first_dtype_comes_in_every_layout_and_others_in_one_more() -> None:
    first, other = names("add.float32.forward infer static"), names("add.float64.forward infer static")
    assert {"3 contiguous", "3 transposed", "3 strided"} <= set(first)
    assert "3 contiguous" in other and len([name for name in other if name.startswith("3 ")]) == 2
    assert {name.split()[0] for name in first} == {name.split()[0] for name in other}


def test_dynamic_shapes_take_some_samples_once() -> None:
    dynamic = [name.split()[0] for name in names("add.float32.forward infer dynamic")]
    assert len(set(dynamic)) == len(dynamic) == operators.MOST and dynamic == sorted(dynamic, key=int)
    assert len(names("add.float64.forward infer dynamic")) == operators.SOME
    assert "add.float64.out infer dynamic" not in BATCHES and "add.float32.out infer dynamic" in BATCHES


def test_samples_are_the_same_each_time() -> None:
    batch = BATCHES["nn.functional.dropout.float32.backward train static"]
    for one, other in zip(batch.make(0), batch.make(0), strict=True):
        assert one.name == other.name and torch.equal(one.args[0], other.args[0])


def test_forms_are_those_that_the_operator_has() -> None:
    def forms(group: str) -> set[tuple[str, str]]:
        return {(batch.form, batch.mode) for batch in BATCHES.values() if batch.group == group}

    compiled = {("compile", "infer"), ("compile", "train")}
    everything = {("forward", "infer"), ("backward", "train"), ("in_place", "infer"), ("in_place", "train")}
    assert forms("add.float32") == everything | compiled | {("out", "infer")}
    assert forms("add.int64") == {("forward", "infer"), ("in_place", "infer"), ("out", "infer")}
    assert forms("argmax.float32") == {("forward", "infer"), ("out", "infer"), ("compile", "infer")}


def test_samples_of_a_form_run_in_eager() -> None:
    wanted = (
        "add.float32.",
        "sort.float32.",
        "softmax.bfloat16.",
        "nn.functional.conv2d.float32.",
        "optim.SGD",
        "nn.Linear.",
    )
    batches: list[Batch] = [batch for key, batch in BATCHES.items() if key.startswith(wanted) and "static" in key]
    assert len(batches) > 15
    for batch in batches:
        for sample in itertools.islice(batch.make(0), 3):
            with torch.set_grad_enabled(batch.mode == "train"):
                sample.function(*sample.args, **sample.kwargs)
