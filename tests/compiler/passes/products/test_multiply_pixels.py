"""Which convolutions become products of matrices, and that nothing of it can be seen."""

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from assay.compiler.ir.graph.roles import Program, Signature
from assay.compiler.passes.products.multiply_pixels import multiply_pixels

IMAGES, WEIGHT = (2, 6, 9, 7), (5, 6, 1, 1)


def program_of(function: object, *inputs: Tensor) -> Program:
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(value) for value in inputs]
        return Program(make_fx(lambda *given: [function(*given)])(*fakes), Signature((), ()))  # type: ignore[operator]


def plain(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.conv2d(x, w)


def with_bias(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.conv2d(x, w, b)


def by_twos(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.conv2d(x, w, b, stride=(2, 3))


def padded(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.conv2d(x, w, padding=1)


def in_groups(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.conv2d(x, w[:4, :3], groups=2)


def transposed(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.conv_transpose2d(x, w.transpose(0, 1))


def given(shape: tuple[int, ...] = IMAGES) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(shape).contiguous(memory_format=torch.channels_last)
    return x, torch.randn(WEIGHT), torch.randn(WEIGHT[0])


@pytest.mark.parametrize("shape", [IMAGES, (3, 6, 1, 1), (1, 6, 1, 8), (1, 6, 3, 3)], ids=str)
@pytest.mark.parametrize("function", [plain, with_bias, by_twos])
def test_multiply_pixels_keeps_values_and_strides(function: object, shape: tuple[int, ...]) -> None:
    inputs = given(shape)
    program = program_of(function, *inputs)
    (want,) = program.module(*[value.double() for value in inputs])
    strides = [node.meta["val"].stride() for node in program.returned]  # type: ignore[union-attr]
    assert multiply_pixels(program) == 1
    program.module.graph.lint()
    program.module.recompile()
    (got,) = program.module(*inputs)
    assert got.dtype is torch.float32 and [got.stride()] == strides
    torch.testing.assert_close(got, want.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_by_channels", [False, True])
@pytest.mark.parametrize("function", [plain, with_bias, by_twos])
def test_multiply_pixels_of_sizes_of_one(function: object, is_by_channels: bool) -> None:
    """What lies in both layouts at once, wherever a size is 1, keeps its values and its strides."""
    for batch, channels, height, width, made in itertools.product((1, 2), (1, 3), (1, 4), (1, 4), (1, 5)):
        x, w, b = torch.randn(batch, channels, height, width), torch.randn(made, channels, 1, 1), torch.randn(made)
        x = x.contiguous(memory_format=torch.channels_last) if is_by_channels else x
        program, want = program_of(function, x, w, b), function(x, w, b)  # type: ignore[operator]
        multiply_pixels(program)
        program.module.recompile()
        (got,) = program.module(x, w, b)
        assert got.stride() == want.stride(), (x.shape, made)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5, msg=f"{tuple(x.shape)} to {made} channels")


@pytest.mark.parametrize("function", [padded, in_groups, transposed])
def test_multiply_pixels_leaves_other_convolutions(function: object) -> None:
    assert multiply_pixels(program_of(function, *given())) == 0


def test_multiply_pixels_leaves_other_layouts_dtypes_and_empty_images() -> None:
    x, w, b = given()
    assert multiply_pixels(program_of(plain, x.contiguous(), w, b)) == 0
    assert multiply_pixels(program_of(plain, x.double(), w.double(), b)) == 0
    assert multiply_pixels(program_of(plain, x[:0], w, b)) == 0
    assert multiply_pixels(program_of(plain, x, w.expand(7, 5, 6, 1, 1).transpose(0, 1)[:, 0], b)) == 1
    assert multiply_pixels(program_of(plain, x, torch.randn(5, 12, 1, 1)[:, ::2], b)) == 0


class Bottlenecks(nn.Module):
    """Layers of which most convolve single pixels, with all channels, with steps and with few channels."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 64, 1), nn.BatchNorm2d(64), nn.ReLU()),
            *(nn.Conv2d(64, 16, 1, bias=False), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(16, 256, 1, stride=2), nn.SiLU(), nn.Conv2d(256, 8, 1)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("dynamic", [False, True])
def test_multiply_pixels_compiled_as_eager(dynamic: bool) -> None:
    torch.manual_seed(0)
    module = Bottlenecks()
    compiled = torch.compile(module, backend="assay", dynamic=dynamic)
    for side in (16, 20):
        x = torch.randn(2, 3, side, side, requires_grad=True)
        results = [call(x) for call in (compiled, module)]
        assert results[0].stride() == results[1].stride()
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
        gradients = [torch.autograd.grad(y.square().sum(), [x, *module.parameters()]) for y in results]
        for ours, eager in zip(*gradients, strict=True):
            assert ours.stride() == eager.stride()
            torch.testing.assert_close(ours, eager, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("side", [1, 2])
def test_multiply_pixels_of_one_pixel_in_a_batch_of_any_size(side: int) -> None:
    """The result lies in eager's strides, which the pass writes down with the size of the batch."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 4, 1))
    compiled = torch.compile(module, backend="assay", dynamic=True, options={"fallback": "error"})
    for batch in (2, 4, 3):
        x = torch.randn(batch, 8, 2 * side, 2 * side).contiguous(memory_format=torch.channels_last)
        results = [call(x) for call in (compiled, module)]
        assert results[0].stride() == results[1].stride()
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
        gradients = [torch.autograd.grad(y.square().sum(), [*module.parameters()]) for y in results]
        for ours, eager in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-3, atol=1e-3)
