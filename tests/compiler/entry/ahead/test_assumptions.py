"""What a simplified module was compiled for, asserted at its calls where torch's `debug_assert` is set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch._functorch import config
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.compiler.entry.aot import aot_module_simplified, nop
from assay.compiler.errors import BrokenAssumption, InputMismatch


class Sums(nn.Linear):
    """Writes its first input, so that it matters whether the second is the same tensor."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor]:
        x.add_(1)
        return (super().forward(x) + y.sum(),)


def inputs() -> tuple[Tensor, Tensor]:
    return torch.ones(2, 3), torch.ones(2, 3)


@pytest.fixture(params=[False, True])
def asserts(request: pytest.FixtureRequest) -> Iterator[bool]:
    with config.patch(debug_assert=request.param):
        yield request.param


@pytest.mark.parametrize("fake", [False, True])
def test_inputs_that_were_one_tensor(asserts: bool, fake: bool) -> None:
    module, (x, _) = Sums(3, 3), inputs()
    example = FakeTensorMode().from_tensor(x) if fake else x.clone()
    compiled = aot_module_simplified(module, (example, example), nop)
    want = module(one := torch.ones(2, 3), one)
    torch.testing.assert_close(compiled(x, x), want)
    if asserts:
        with pytest.raises(AssertionError, match="input 1 was input 0 when the graph was compiled"):
            compiled(*inputs())
    else:
        torch.testing.assert_close(compiled(*inputs()), module(*inputs()))


@pytest.mark.usefixtures("asserts")
def test_inputs_that_were_two_tensors_may_be_one() -> None:
    module, (x, _) = Sums(3, 3), inputs()
    compiled = aot_module_simplified(module, inputs(), nop)
    torch.testing.assert_close(compiled(x, x), module(one := torch.ones(2, 3), one))


def test_an_input_that_required_no_grad(asserts: bool) -> None:
    module, (x, y) = Sums(3, 3), inputs()
    compiled = aot_module_simplified(module, inputs(), nop)
    y.requires_grad_()
    if asserts:
        with pytest.raises(BrokenAssumption, match="input 1 required no grad") as caught:
            compiled(x, y)
        assert isinstance(caught.value, InputMismatch)
    else:
        compiled(x, y)[0].sum().backward()
        assert y.grad is not None
    with_grad = aot_module_simplified(module, (x, y), nop)
    torch.testing.assert_close(with_grad(*inputs()), module(*inputs()))


@pytest.mark.usefixtures("asserts")
def test_an_input_that_required_grad_may_not() -> None:
    module, (x, y) = Sums(3, 3), inputs()
    compiled = aot_module_simplified(module, (x.clone(), y.clone().requires_grad_()), nop)
    torch.testing.assert_close(compiled(x, y), module(*inputs()))
