"""Convolutions of single pixels by uneven steps: where ATen's gradients write beyond their memory, ours are others.

Eager's gradients are those of images whose channels lie apart, which do no harm.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from assay.compiler.capture.decompositions.uneven_steps import UNEVEN_STEPS
from assay.compiler.entry.dynamo import assay
from assay.compiler.ir.tensors import harmful_calls

OPERATOR = torch.ops.aten.convolution_backward.default


@pytest.mark.parametrize("target", ["cpp", "aten"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("stride", [(1, 2), (2, 1), (3, 2)])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_gradients_of_uneven_steps_are_eagers(
    target: str, groups: int, stride: tuple[int, int], is_dynamic: bool
) -> None:
    def f(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.conv2d(x, w, b, stride=stride, groups=groups)

    given = (torch.randn(2, 4, 5, 6), torch.randn(6, 4 // groups, 1, 1), torch.randn(6))
    eager, ours = ([each.clone().requires_grad_() for each in given] for _ in range(2))
    ours[0] = given[0].to(memory_format=torch.channels_last).requires_grad_()
    compiled = torch.compile(f, backend=assay, dynamic=is_dynamic, options={"fallback": "error", "target": target})
    for function, leaves in ((f, eager), (compiled, ours)):
        result = function(*leaves)
        result.backward(torch.ones_like(result))
    for one, other in zip(ours, eager, strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert ours[0].grad is not None and ours[0].grad.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("stride", [(1, 2), (2, 2)])
def test_a_call_is_taken_apart_only_where_it_does_harm(
    stride: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = torch.randn(2, 3, 5, 6), torch.randn(4, 3, 1, 1)
    dy = torch.ones_like(F.conv2d(x, w, stride=stride))
    given = (dy, x, w, [4], stride, [0, 0], [1, 1], False, [0, 0], 1, [True, True, True])
    for is_harmful in (True, False):
        monkeypatch.setattr(harmful_calls, "IS_HARMFUL", is_harmful)
        found = UNEVEN_STEPS[OPERATOR](*given)
        assert (found is NotImplemented) == (not is_harmful or stride == (2, 2))
        if found is not NotImplemented:
            torch.testing.assert_close(found, OPERATOR(*given))
