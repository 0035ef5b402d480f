"""Cases in bfloat16: inference in it, training under autocast to it."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from assay.harness.backends.precision import at_precision
from assay.harness.bench.steps import make_step
from assay.harness.case import Made, case
from assay.harness.run import RunRequest, run_case


@case()
def linear() -> Made:
    return nn.Linear(8, 8), (torch.randn(4, 8),), {}


@case()
def product() -> Made:
    return torch.mm, (torch.randn(4, 8, requires_grad=True), torch.randn(8, 4)), {}


def result(given: object, mode: str) -> Tensor:
    function, args, kwargs = given.make("tiny")  # type: ignore[attr-defined]
    return function(*args, **kwargs)  # type: ignore[no-any-return]


def test_float32_is_the_case_itself() -> None:
    assert at_precision(linear, "infer", "float32") is linear


def test_inference_is_in_bfloat16() -> None:
    for each in (linear, product):
        assert result(at_precision(each, "infer", "bfloat16"), "infer").dtype is torch.bfloat16


def test_training_is_under_autocast() -> None:
    for each in (linear, product):
        found = result(at_precision(each, "train", "bfloat16"), "train")
        assert found.dtype is torch.bfloat16 and found.requires_grad
    step = make_step(at_precision(linear, "train", "bfloat16"), "train", lambda f: f, size="tiny", seed=0, device="cpu")
    assert {gradient.dtype for gradient in step() if gradient is not None} == {torch.float32}  # type: ignore[attr-defined]


def test_the_harness_compares_such_a_case() -> None:
    for mode in ("infer", "train"):
        half = dataclasses.replace(at_precision(linear, mode, "bfloat16"), name="half")
        assert run_case(half, mode, "assay", RunRequest(timed=False)).verdict == "same"
