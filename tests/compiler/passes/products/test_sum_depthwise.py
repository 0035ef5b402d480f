"""Which weight gradients of convolutions become sums of products, and that these are the same numbers and strides."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from assay.compiler.ir.graph.roles import Program, Signature
from assay.compiler.passes.products.sum_depthwise import sum_depthwise

CHANNELS = 6


def convolved(kernel: int, stride: Any = 1, padding: Any = 0, multiplier: int = 1, **kwargs: Any) -> nn.Conv2d:
    torch.manual_seed(0)
    return nn.Conv2d(CHANNELS, CHANNELS * multiplier, kernel, stride, padding, groups=CHANNELS, **kwargs)


def given(layer: nn.Conv2d, memory_format: torch.memory_format = torch.channels_last) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.randn(3, CHANNELS, 11, 9).contiguous(memory_format=memory_format)
    return torch.randn_like(layer(x)).contiguous(memory_format=memory_format), x, layer.weight.detach()


def program_of(layer: nn.Conv2d, inputs: tuple[Tensor, Tensor, Tensor], wanted: list[bool]) -> Program:
    settings = (list(layer.stride), list(layer.padding), list(layer.dilation), False, [0, 0], layer.groups)

    def backward(g: Tensor, x: Tensor, w: Tensor) -> list[Tensor]:
        bias = [w.shape[0]]
        made = torch.ops.aten.convolution_backward(g, x, w, bias, *settings, wanted)
        return [part for part, is_wanted in zip(made, wanted, strict=True) if is_wanted]

    with FakeTensorMode() as mode:
        return Program(make_fx(backward)(*(mode.from_tensor(value) for value in inputs)), Signature((), ()))


@pytest.mark.parametrize("wanted", [[True, True, True], [False, True, True], [False, True, False]], ids=str)
@pytest.mark.parametrize(
    "layer",
    [convolved(3), convolved(7, padding=3), convolved(3, stride=2, padding=1), convolved(2, stride=(2, 3)),
     convolved(1), convolved(5, padding=(0, 4))],
    ids=["3", "7 padded", "by twos", "uneven", "pixels", "padded unevenly"],
)  # fmt: skip
def test_sums_are_the_weight_gradient(layer: nn.Conv2d, wanted: list[bool]) -> None:
    inputs = given(layer)
    program = program_of(layer, inputs, wanted)
    want = program.module(*[value.double() for value in inputs])
    strides = [node.meta["val"].stride() for node in program.returned]  # type: ignore[union-attr]
    assert sum_depthwise(program) == 1
    program.module.graph.lint()
    program.module.recompile()
    got = program.module(*inputs)
    for ours, exact in zip(got, want, strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-5)
    assert [node.meta["val"].stride() for node in program.returned] == strides  # type: ignore[union-attr]
    left = program.module.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution_backward.default)
    assert [node.args[-1] for node in left] == [[True, False, False]] * wanted[0]


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (5, 2), (8, 1), (4, 4)], ids=str)
@pytest.mark.parametrize("layer", [convolved(3, padding=1), convolved(5, 2, padding=2)], ids=["3", "5 by twos"])
def test_a_nan_of_the_gradient_meets_the_padding_that_it_meets_in_eager(
    layer: nn.Conv2d, size: tuple[int, int]
) -> None:
    """None; with AVX2 alone, it is multiplied by the zeros beside images that are lower than the kernel."""
    _, x, weight = given(layer)
    x = x[:, :, : size[0], : size[1]].contiguous(memory_format=torch.channels_last)
    gradient = torch.ones_like(layer(x))
    gradient[:, :, 0, 0] = torch.nan
    inputs = gradient, x, weight
    program = program_of(layer, inputs, [False, True, False])
    (want,) = program.module(*inputs)
    assert sum_depthwise(program) == 1
    program.module.recompile()
    (got,) = program.module(*inputs)
    assert torch.equal(got.isnan(), want.isnan())
    assert got.isnan().any()


@pytest.mark.parametrize(
    ("layer", "memory_format"),
    [(convolved(3), torch.contiguous_format), (convolved(3, multiplier=2), torch.channels_last),
     (convolved(3, dilation=2), torch.channels_last)],
    ids=["contiguous", "several a channel", "dilated"],
)  # fmt: skip
def test_what_is_left_to_the_library(layer: nn.Conv2d, memory_format: torch.memory_format) -> None:
    program = program_of(layer, given(layer, memory_format), [True, True, True])
    assert sum_depthwise(program) == 0


def test_a_compiled_network_trains_as_eager() -> None:
    torch._dynamo.reset()
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.GELU(), nn.Conv2d(8, 8, 3))
                            for _ in range(3)))  # fmt: skip
    x = torch.randn(2, 8, 16, 16)
    compiled = torch.compile(model, backend="assay", options={"fallback": "error"})
    found = []
    for one in (model, compiled):
        model.zero_grad()
        one(x).square().mean().backward()
        found.append([(p.grad.clone(), p.grad.stride()) for p in model.parameters()])
    for (ours, lies), (eagers, lie) in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, eagers, rtol=1e-4, atol=1e-7)
        assert lies == lie
