"""Results lie as eager's where the kernels on fake tensors say otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from assay.compiler.capture.user_code.rewritten_calls import UserCalls
from assay.compiler.ir.tensors.layout import fake_strides
from assay.harness.backends.direct import without_dynamo

aten = torch.ops.aten
LAST, LAST_3D = torch.channels_last, torch.channels_last_3d
Function = Callable[[Tensor], Tensor]

CASES: dict[str, tuple[Function, Tensor]] = {
    "reflected volume": (
        lambda x: functional.pad(x, (1, 1, 1, 1, 1, 1), "reflect"),
        torch.randn(2, 3, 4, 5, 6).to(memory_format=LAST_3D),
    ),
    "replicated volume": (
        lambda x: functional.pad(x, (1, 0, 2, 1, 1, 1), "replicate"),
        torch.randn(2, 3, 4, 5, 6).to(memory_format=LAST_3D),
    ),
    "volume without a batch": (
        lambda x: functional.pad(x, (1, 1, 1, 1, 1, 1), "reflect"),
        torch.randn(3, 3, 5, 5).to(memory_format=LAST),
    ),
    "reflected image": (
        lambda x: functional.pad(x, (1, 2, 1, 0), "reflect"),
        torch.randn(2, 3, 5, 5).to(memory_format=LAST),
    ),
    "replicated image": (
        lambda x: functional.pad(x, (1, 2, 1, 0), "replicate"),
        torch.randn(2, 3, 5, 5).to(memory_format=LAST),
    ),
    "angle": (torch.angle, torch.randn(5, 4, dtype=torch.complex64).t()),
    "angle of real numbers": (torch.angle, torch.randn(5, 4).t()),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_result_and_gradient_lie_as_eagers(name: str, dynamic: bool) -> None:
    function, given = CASES[name]
    torch._dynamo.reset()
    run = torch.compile(function, backend="assay", dynamic=dynamic, options={"fallback": "error"})
    found = []
    for call in (function, run):
        x = given.clone().requires_grad_() * 1
        x.retain_grad()
        y = call(x)
        y.backward(torch.ones_like(y, memory_format=torch.contiguous_format))
        assert x.grad is not None
        found.append((y, x.grad))
    for ours, theirs in zip(found[1], found[0], strict=True):
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs)


BACKWARDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "elu": lambda g, x: aten.elu_backward(g, 1.0, 1.0, 1.0, False, x),
    "hardswish": lambda g, x: aten.hardswish_backward(g, x),
    "hardtanh": lambda g, x: aten.hardtanh_backward(g, x, -0.5, 0.5),
    "hardsigmoid": lambda g, x: aten.hardsigmoid_backward(g, x),
    "softplus": lambda g, x: aten.softplus_backward(g, x, 1.0, 20.0),
    "threshold": lambda g, x: aten.threshold_backward(g, x, 0.0),
    "log_softmax": lambda g, x: aten._log_softmax_backward_data(g, x, 1, torch.float32),
    "mse": lambda g, x: aten.mse_loss_backward(g, x, x, 0),
    "smooth": lambda g, x: aten.smooth_l1_loss_backward(g, x, x, 0, 1.0),
    "huber": lambda g, x: aten.huber_loss_backward(g, x, x, 0, 1.0),
    "entropy": lambda g, x: aten.binary_cross_entropy_backward(g, x, x, None, 0),
    "glu": lambda g, x: aten.glu_backward(g[:2], x, 0),
    "log_sigmoid": lambda g, x: aten.log_sigmoid_backward(g, x, aten.log_sigmoid_forward(x)[1]),
    "log_sigmoid forward": lambda g, x: aten.log_sigmoid_forward(x)[0],
}


def layouts() -> list[Tensor]:
    """One tensor of 4 x 3 x 2 x 5 in rows, by channels, in another order, and with gaps."""
    rows = torch.rand(4, 3, 2, 5, generator=torch.Generator().manual_seed(0)) * 0.8 + 0.1
    order = rows.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)
    return [rows, rows.to(memory_format=LAST), order, torch.cat([rows, rows], -1)[..., ::2]]


@pytest.mark.parametrize("name", BACKWARDS)
def test_formula_lies_as_eagers_however_its_arguments_lie(name: str) -> None:
    function = BACKWARDS[name]

    def all_of(*pairs: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(g, x) for g, x in zip(pairs[::2], pairs[1::2], strict=True))

    given = [one for pair in itertools.product(layouts(), repeat=2) for one in pair]
    torch._dynamo.reset()
    run = torch.compile(all_of, backend="assay", options={"fallback": "error"})
    for ours, theirs in zip(run(*given), all_of(*given), strict=True):
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs)


def test_input_resized_as_another_is_the_callers() -> None:
    """What changes the caller's tensor is replayed with numbers, not with a tensor of the recording."""

    def program(x: Tensor, y: Tensor) -> Tensor:
        return x.resize_as_(y)

    run = without_dynamo("assay,fallback=error").wrap(program)
    for call in (program, run):
        x = torch.arange(6.0).view(2, 3)
        assert call(x, torch.zeros(3, 2)).shape == x.shape == (3, 2)
        assert x.flatten().tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("dynamic", [False, True])
def test_write_by_a_mask_that_broadcasts_keeps_columns(dynamic: bool) -> None:
    """`masked_fill` makes rows of columns and a mask that broadcasts; in place they stay columns."""

    def program(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        y.masked_fill_(mask, 0.0)
        return y, y.view_as(y), y + 1, y.flatten()

    x, mask = torch.randn(5, 4).t(), torch.tensor([[True], [False], [True], [False]])
    torch._dynamo.reset()
    run = torch.compile(program, backend="assay", dynamic=dynamic, options={"fallback": "error"})
    for ours, theirs in zip(run(x, mask), program(x, mask), strict=True):
        assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()


def permuted(generator: torch.Generator, shape: list[int], largest: int = 0) -> Tensor:
    """A tensor whose dimensions lie in a drawn order; of places below `largest`, if that is given."""
    order = torch.randperm(len(shape), generator=generator).tolist()
    sizes = [shape[dim] for dim in order]
    drawn = torch.randint(largest, sizes, generator=generator) if largest else torch.randn(sizes, generator=generator)
    return drawn.permute([order.index(dim) for dim in range(len(shape))])


@pytest.mark.parametrize("dynamic", [False, True])
def test_lookups_lie_as_eagers(dynamic: bool) -> None:
    """By indices that lie in every order, are broadcast, and stand for dimensions side by side or apart."""
    run = without_dynamo("assay,fallback=error,dynamic" if dynamic else "assay,fallback=error")
    generator = torch.Generator().manual_seed(3)
    found = []
    for chosen in ("ab", "a.b", ".a", "a", ".ab", "a.", "ab.", ".a.b"):
        x = permuted(generator, [2, 3, 4, 2][: max(2, len(chosen))])
        wide = [3, 4, 2]
        places = [permuted(generator, wide[k % 2 :], 2) if name != "." else None for k, name in enumerate(chosen)]
        given = [index for index in places if index is not None]

        def look_up(x: Tensor, *given: Tensor, places: list[Tensor | None] = places) -> Tensor:
            rest = iter(given)
            return aten.index.Tensor(x, [None if index is None else next(rest) for index in places])

        ours, theirs = run.wrap(look_up)(x, *given), look_up(x, *given)
        assert torch.equal(ours, theirs)
        assert ours.stride() == theirs.stride(), (chosen, x.stride(), [index.stride() for index in given])
        found.append(theirs.is_contiguous())
    assert not all(found)


ON_A_GPU: dict[str, tuple[Callable[[Tensor], object], object]] = {
    "padded volume": (lambda x: fake_strides._padded(x, (1, 1, 1, 1, 1, 1)).stride(), (343, 49, 7, 1)),
    "unpooled image": (lambda x: fake_strides._unpooled(x, x, (6, 6)).stride(), (180, 36, 6, 1)),
    "dropped gradient": (lambda x: fake_strides._undropped(x.mT, x).stride(), (125, 25, 5, 1)),
    "dropped gradient by channels": (lambda x: fake_strides._undropped(x, x).stride(), (125, 1, 25, 5)),
    "log_sigmoid": (lambda x: [(t.shape, t.stride()) for t in fake_strides._log_sigmoid(x)], [
        ((3, 5, 5, 5), (125, 1, 25, 5)), ((0,), (1,)),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", ON_A_GPU)
def test_results_on_a_gpu_lie_as_eagers_there(name: str) -> None:
    """As they lay on an H100 with torch 2.11, whatever a CPU's do."""
    function, expected = ON_A_GPU[name]
    with FakeTensorMode():
        x = torch.empty(3, 5, 5, 5, device="cuda").to(memory_format=LAST)
        assert function(x) == expected


def test_what_is_resized_by_area_on_a_gpu_lies_as_what_is_pooled() -> None:
    """Images by channels, as an H100's eager has it with torch 2.11, volumes in rows."""
    with FakeTensorMode(), UserCalls():
        for shape, last in (((2, 3, 4, 5), LAST), ((2, 3, 4, 5, 6), LAST_3D)):
            x = torch.empty(shape, device="cuda").to(memory_format=last)
            for y in (functional.interpolate(x, 3, None, "area"), functional.interpolate(x, size=3, mode="area")):
                assert y.is_contiguous(memory_format=last) is (x.dim() == 4) and y.is_contiguous() is (x.dim() == 5)


@pytest.mark.parametrize(("shape", "mode"), [((2, 3, 4, 5), "bilinear"), ((2, 3, 4, 5, 6), "trilinear")])
@pytest.mark.parametrize("is_by_channels", [False, True])
def test_few_channels_on_a_gpu_are_resized_as_they_lie(shape: tuple[int, ...], mode: str, is_by_channels: bool) -> None:
    """In pieces too, as where sizes are symbols, which torch's kernels for recordings give in rows."""
    last = LAST if len(shape) == 4 else LAST_3D
    with FakeTensorMode():
        x = torch.empty(shape, device="cuda").to(memory_format=last if is_by_channels else torch.contiguous_format)
        with UserCalls():
            y = functional.interpolate(x, scale_factor=2, mode=mode)
    assert y.is_contiguous(memory_format=last) is is_by_channels and y.is_contiguous() is not is_by_channels


def test_operators_that_read_what_another_call_left_are_not_tried() -> None:
    attention, norm = aten._scaled_dot_product_efficient_attention_backward, aten.cudnn_batch_norm_backward
    assert fake_strides.takes_state(attention.default)
    assert fake_strides.takes_state(norm.default)
    assert not fake_strides.takes_state(aten.convolution_backward.default)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_gradient_of_a_bias_of_one_row_under_dropout_on_a_gpu() -> None:
    """The fake of the seed is on the GPU; the kernel of the backward reads it on the CPU."""
    query, bias = torch.randn(1, 4, 1, 64, device="cuda"), torch.randn(1, 4, 1, 8, device="cuda", requires_grad=True)
    key = torch.randn(1, 4, 8, 64, device="cuda", requires_grad=True)

    def attend(query: Tensor, key: Tensor, bias: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, key, attn_mask=bias, dropout_p=0.1)

    found = []
    for call in (attend, torch.compile(attend, backend="assay", options={"fallback": "error"})):
        torch.manual_seed(0)
        found.append(torch.autograd.grad(call(query, key, bias).sum(), (key, bias)))
    torch.testing.assert_close(found[0], found[1])
