"""Convolutions with their channels innermost: what a caller can see of it is nothing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from assay.compiler.entry import dynamo as fx
from assay.compiler.ir.graph.replacement import verify_views
from assay.compiler.ir.graph.roles import Program, Signature
from assay.compiler.passes import CHOICES
from assay.compiler.passes.products.convolve_channels_last import convolve_channels_last

Call = Callable[..., object]


class Network(nn.Module):
    """Three convolutions that gain; `between` is what happens to their images before they are returned."""

    def __init__(self, between: Callable[[Tensor], object], width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3 if n == 0 else width, width, 3, padding=1) for n in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(3))
        self.between = between

    def forward(self, x: Tensor) -> object:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = torch.relu(norm(layer(x)))
        return self.between(x)


def features(x: Tensor) -> object:
    return x, x.mean((2, 3)), x.mean(1), x.amax((2, 3), keepdim=True)


def flattened(x: Tensor) -> object:
    return x.flatten(1) * 2, x.view(x.shape[0], -1, 4).sum(1)


def pooled(x: Tensor) -> object:
    y, at = F.max_pool2d(x, 2, return_indices=True)
    return y, at, F.avg_pool2d(x, 3, 2), F.adaptive_avg_pool2d(x, 1), F.interpolate(y, scale_factor=2)


def noisy(x: Tensor) -> object:
    return F.dropout(x, 0.5), x + torch.rand_like(x)


def strided(x: Tensor) -> object:
    return x.as_strided((4, 3), (3, 1), 5) + 1, x[:, 1], x[:, :, ::2], x.transpose(1, 3) * 2


def concatenated(x: Tensor) -> object:
    return torch.cat([x, x * 2], 1), F.pad(x, (1, 2)), torch.stack([x, x])


BETWEEN = [features, flattened, pooled, noisy, strided, concatenated]


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many convolutions the pass changed, by program."""
    torch._dynamo.reset()
    counts: list[int] = []

    def run(program: Program) -> int:
        counts.append(convolve_channels_last(program))
        return counts[-1]

    steps = tuple(type(step)(run, step.kind) if step.run is convolve_channels_last else step for step in CHOICES)
    monkeypatch.setattr(fx, "CHOICES", steps)
    return counts


def observed(module: nn.Module, call: Call, x: Tensor) -> list[object]:
    """Results, strides, gradients and their strides of one step."""
    torch.manual_seed(3)
    results = torch.utils._pytree.tree_leaves(call(x))
    values = [value for value in results if value.requires_grad]
    gradients = []
    if values:
        total = sum((value * torch.linspace(-1, 1, value.numel()).view(value.shape)).mean() for value in values)
        gradients = list(torch.autograd.grad(total, [x, *module.parameters()], allow_unused=True))
    tensors = [value for value in [*results, *gradients, *module.buffers()] if value is not None]
    return [(value.detach().clone(), value.stride(), value.storage_offset()) for value in tensors]


@pytest.mark.parametrize("train", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("between", BETWEEN)
def test_convolve_channels_last_keeps_values_strides_and_gradients(
    between: Call, train: bool, changed: list[int]
) -> None:
    torch.manual_seed(0)
    module = Network(between).train(train)  # type: ignore[arg-type]
    x = torch.randn(2, 3, 24, 24, requires_grad=train)
    state = {name: value.clone() for name, value in module.state_dict().items()}
    with torch.set_grad_enabled(train):
        want = observed(module, module, x)
        module.load_state_dict(state)
        got = observed(module, torch.compile(module, backend=lambda gm, given: fx.assay(gm, given)), x)
    assert sum(changed) >= 3
    assert [facts[1:] for facts in got] == [facts[1:] for facts in want]  # type: ignore[index]
    for ours, eager in zip(got, want, strict=True):
        torch.testing.assert_close(ours[0], eager[0], rtol=1e-3, atol=1e-3)  # type: ignore[index]


@pytest.mark.parametrize("width", [16, 128])
def test_convolve_channels_last_leaves_large_weights(width: int, changed: list[int]) -> None:
    module = Network(features, width)
    x = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        torch.compile(module.eval(), backend=lambda gm, given: fx.assay(gm, given))(x)
    assert changed == [0]


def test_convolve_channels_last_leaves_a_single_convolution(changed: list[int]) -> None:
    module = nn.Conv2d(3, 8, 3)
    with torch.no_grad():
        torch.compile(module, backend=lambda gm, given: fx.assay(gm, given))(torch.randn(2, 3, 32, 32))
    assert changed == [0]


def test_convolve_channels_last_of_two_sizes(changed: list[int]) -> None:
    module = Network(features).eval()
    compiled = torch.compile(module, backend=lambda gm, given: fx.assay(gm, given), dynamic=True)
    with torch.no_grad():
        for side in (24, 32):
            x = torch.randn(2, 3, side, side)
            for ours, eager in zip(compiled(x), module(x), strict=True):
                assert ours.stride() == eager.stride()
                torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)
    assert sum(changed) >= 3


def of_gpu(x: Tensor, first: Tensor, apart: Tensor, second: Tensor) -> list[Tensor]:
    """Convolutions of all channels, of each by itself, and of single pixels, in halves."""
    x = F.conv2d(x, first, padding=1).relu()
    x = F.conv2d(x, apart, padding=1, groups=16) * 2
    return [F.conv2d(x, second).relu()]


def on_gpu(dtype: torch.dtype) -> Program:
    """The program for a GPU that need not be there."""
    sizes = (2, 3, 16, 16), (16, 3, 3, 3), (16, 1, 3, 3), (24, 16, 1, 1)
    with FakeTensorMode(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch._C, "_conv_determine_backend_memory_format", lambda *_: torch.contiguous_format)
        graph = make_fx(of_gpu)(*(torch.empty(size, dtype=dtype, device="cuda") for size in sizes))
    return Program(graph, Signature((), ()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_convolve_channels_last_of_a_gpu_turns_weights_too(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch without CUDA does not know what cuDNN makes of an image with its channels innermost, which is another."""
    monkeypatch.setattr(torch._C, "_conv_determine_backend_memory_format", lambda *_: torch.channels_last)
    program = on_gpu(dtype)
    assert convolve_channels_last(program) == 3
    program.module.graph.lint()
    convolutions = program.module.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default)
    for node in convolutions:
        assert all(
            value.meta["val"].is_contiguous(memory_format=torch.channels_last) for value in (node, *node.args[:2])
        )
    (result,) = program.returned
    assert result is not None and result.meta["val"].is_contiguous(), "as it lies in eager"
    clones = program.module.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)
    assert len(clones) == 3, "the image, the weight that lies otherwise, and the result"


def test_convolve_channels_last_of_a_gpu_leaves_what_is_no_half() -> None:
    assert convolve_channels_last(on_gpu(torch.float32)) == 0


def test_convolve_channels_last_keeps_views_where_only_the_weight_is_turned() -> None:
    """The image lies with its channels innermost already, and so does the result, of which a view is taken."""

    def f(x: Tensor, weight: Tensor) -> list[Tensor]:
        for _ in range(3):
            x = F.conv2d(x, weight, padding=1)
        return [x.permute(0, 2, 3, 1) * 2]

    with FakeTensorMode(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch._C, "_conv_determine_backend_memory_format", lambda *_: torch.channels_last)
        image = torch.empty(2, 8, 6, 6, dtype=torch.bfloat16, device="cuda").to(memory_format=torch.channels_last)
        program = Program(
            make_fx(f)(image, torch.empty(8, 8, 3, 3, dtype=torch.bfloat16, device="cuda")), Signature((), ())
        )
        assert convolve_channels_last(program) == 3
    verify_views(program.module.graph)
