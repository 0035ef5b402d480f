"""Products and convolutions on a GPU are as precise as the user has set at each call: TF32, and sums of halves.

Errors are relative, of the largest element, beside float64: TF32 keeps 10 bits of an operand, float32 23.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0),
        reason="needs an NVIDIA GPU that knows TF32",
    ),
]
FLOAT32, TF32 = 2e-6, 4e-5
"""A float32 product of this size is at most so far off, and one of TF32 at least."""
CALLS = 3
Setting = tuple[Any, str]
Function = Callable[..., Tensor]
PRODUCTS = torch.backends.cuda.matmul
CONVOLUTIONS = torch.backends.cudnn


@pytest.fixture(autouse=True)
def settings_are_put_back() -> Iterator[None]:
    torch._dynamo.reset()
    names = ("allow_tf32", "allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")
    before = {name: getattr(PRODUCTS, name) for name in names}
    products, convolutions = PRODUCTS.fp32_precision, torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    level = torch.get_float32_matmul_precision()
    yield
    PRODUCTS.fp32_precision = products
    torch.set_float32_matmul_precision(level)
    PRODUCTS.fp32_precision = products
    torch.backends.cudnn.conv.fp32_precision = convolutions  # type: ignore[attr-defined]
    for name, value in before.items():
        setattr(PRODUCTS, name, value)


def by_flag(allowed: bool) -> None:
    PRODUCTS.allow_tf32 = allowed


def by_level(allowed: bool) -> None:
    torch.set_float32_matmul_precision("high" if allowed else "highest")


def by_precision(allowed: bool) -> None:
    PRODUCTS.fp32_precision = "tf32" if allowed else "ieee"


def linear(x: Tensor, w: Tensor) -> Tensor:
    return torch.relu(x @ w) * 2


def biased(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(x, w.t(), w[0])


def batched(x: Tensor, w: Tensor) -> Tensor:
    return torch.bmm(x.view(4, -1, x.shape[1]), w.expand(4, *w.shape)).view(x.shape)


def attended(x: Tensor, w: Tensor) -> Tensor:
    q, k, v = (value.view(1, 8, -1, 64) for value in (x, w, x @ w))
    return F.scaled_dot_product_attention(q, k, v)


def given(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    return (
        torch.randn(512, 512, device="cuda", generator=generator, dtype=torch.float32).to(dtype),
        torch.randn(512, 512, device="cuda", generator=generator, dtype=torch.float32).to(dtype) / 16,
    )


def error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).abs().max() / exact.abs().max())


def check(run: Function, plain: Function, inputs: tuple[Tensor, ...], exact: Tensor, allowed: bool) -> None:
    """Ours is as far off as eager, and eager's distance tells whether it used TF32."""
    found, eagers = run(*inputs), plain(*inputs)
    ours, theirs = error(found, exact), error(eagers, exact)
    said = f"ours is off by {ours:.1e}, eager by {theirs:.1e}"
    if allowed:
        assert theirs > TF32, f"{said}: eager made no use of TF32"
        assert TF32 < ours < 4 * theirs, said
    else:
        assert theirs < FLOAT32 and ours < FLOAT32, said


@pytest.mark.parametrize("first", [False, True], ids=["without first", "with first"])
@pytest.mark.parametrize("setting", [by_flag, by_level, by_precision])
@pytest.mark.parametrize("function", [linear, biased, batched])
def test_products_use_tf32_where_it_is_allowed_at_the_call(
    function: Function, setting: Callable[[bool], None], first: bool
) -> None:
    run, inputs = torch.compile(function, backend="assay", options={"fallback": "error"}), given()
    exact = function(*(value.double() for value in inputs))
    for allowed in (first, not first, first, not first):
        setting(allowed)
        for _ in range(CALLS):
            check(run, function, inputs, exact, allowed)


@pytest.mark.parametrize("setting", [by_flag, by_level, by_precision])
def test_gradients_of_products_use_tf32_where_it_is_allowed_at_the_call(setting: Callable[[bool], None]) -> None:
    def gradient(function: Function) -> Function:
        def of(x: Tensor, w: Tensor) -> Tensor:
            x, w = (value.detach().requires_grad_() for value in (x, w))
            return torch.autograd.grad(function(x, w).sin().sum(), w)[0]

        return of

    run, inputs = torch.compile(biased, backend="assay"), given()
    exact = gradient(biased)(*(value.double() for value in inputs))
    for allowed in (False, True, False):
        setting(allowed)
        found, eagers = (error(gradient(each)(*inputs), exact) for each in (run, biased))
        if allowed:
            assert TF32 < eagers and TF32 < found < 4 * eagers
        else:  # sin's argument is as far off as the product before it
            assert found < max(4 * eagers, FLOAT32) and eagers < TF32


@pytest.mark.parametrize("setting", [by_flag, by_level, by_precision])
def test_attention_written_out_uses_tf32_where_it_is_allowed_at_the_call(setting: Callable[[bool], None]) -> None:
    run, inputs = torch.compile(attended, backend="assay"), given()
    exact = attended(*(value.double() for value in inputs))
    for allowed in (False, True, False):
        setting(allowed)
        found, eagers = (error(each(*inputs), exact) for each in (run, attended))
        assert found < max(4 * eagers, FLOAT32)


@pytest.mark.parametrize("cudagraphs", [False, True], ids=["plain", "recorded"])
def test_a_recording_uses_tf32_where_it_is_allowed_at_the_call(cudagraphs: bool) -> None:
    options: dict[str, Any] = {"fallback": "error", "cudagraphs": cudagraphs}
    run, inputs = torch.compile(linear, backend="assay", options=options), given()
    exact = linear(*(value.double() for value in inputs))
    for allowed in (False, True, False, True):
        by_flag(allowed)
        for _ in range(8):
            check(run, linear, inputs, exact, allowed)


def convolved(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, padding=1) * 2


@pytest.mark.parametrize("first", [False, True], ids=["without first", "with first"])
@pytest.mark.parametrize("by", ["allow_tf32", "fp32_precision"])
def test_convolutions_use_tf32_where_it_is_allowed_at_the_call(by: str, first: bool) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(8, 64, 32, 32, device="cuda", generator=generator)
    w = torch.randn(64, 64, 3, 3, device="cuda", generator=generator) / 24
    exact = convolved(x.double(), w.double())
    run = torch.compile(convolved, backend="assay", options={"fallback": "error"})
    for allowed in (first, not first, first, not first):
        if by == "allow_tf32":
            with CONVOLUTIONS.flags(enabled=True, allow_tf32=allowed):  # which tests of torch's own let nobody set
                for _ in range(CALLS):
                    check(run, convolved, (x, w), exact, allowed)
        else:
            CONVOLUTIONS.conv.fp32_precision = "tf32" if allowed else "ieee"  # type: ignore[attr-defined]
            for _ in range(CALLS):
                check(run, convolved, (x, w), exact, allowed)


SPLIT = (64, 1 << 15, 64)
"""Rows, depth and columns of a product whose depth a library splits, so that its sums of halves are seen."""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("first", [False, True], ids=["without first", "with first"])
def test_products_of_halves_sum_as_the_user_has_set_at_the_call(dtype: torch.dtype, first: bool) -> None:
    """The library's product by itself has eager's very bits under either setting."""

    def product(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x @ w, x * 2

    name = f"allow_{'bf16' if dtype is torch.bfloat16 else 'fp16'}_reduced_precision_reduction"
    generator = torch.Generator("cuda").manual_seed(0)
    rows, depth, columns = SPLIT
    x = torch.randn(rows, depth, device="cuda", generator=generator).to(dtype)
    w = torch.randn(depth, columns, device="cuda", generator=generator).to(dtype)
    run = torch.compile(product, backend="assay", options={"fallback": "error"})
    for allowed in (first, not first, first, not first):
        setattr(PRODUCTS, name, allowed)
        for _ in range(CALLS):
            assert torch.equal(run(x, w)[0], product(x, w)[0]), f"{name} = {allowed}"


def test_kernels_of_our_own_sum_float32_in_float32_where_tf32_is_allowed() -> None:
    """A product that is written as a sum is a kernel of ours, which rounds no operand."""

    def summed(x: Tensor, w: Tensor) -> Tensor:
        return (x[:, :, None] * w[None]).sum(1)

    x, w = (value[:128, :128].contiguous() for value in given())
    exact = summed(x.double(), w.double())
    run = torch.compile(summed, backend="assay", options={"fallback": "error"})
    for setting in (by_flag, by_level, by_precision):
        setting(True)
        assert error(run(x, w), exact) < FLOAT32
        setting(False)


def test_new_and_old_settings_mixed_compile() -> None:
    """Where torch refuses to say one precision of all libraries."""
    PRODUCTS.fp32_precision = "tf32"
    torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]
    x, w = given()
    run = torch.compile(linear, backend="assay", options={"fallback": "error"})
    check(run, linear, (x, w), linear(x.double(), w.double()), True)


@pytest.mark.parametrize("by_channels", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_batches_far_from_zero_are_normalized(dtype: torch.dtype, by_channels: bool) -> None:
    """A mean of 1000 and a deviation of 1: in float32 the mean of squares would be the square of the mean."""
    x = (torch.randn(32, 64, 32, 32, device="cuda") + 1000).to(dtype)
    x = x.to(memory_format=torch.channels_last) if by_channels else x
    found = torch.compile(lambda x: F.batch_norm(x, None, None, training=True), backend="assay")(x)
    exact = F.batch_norm(x.double(), None, None, training=True)
    torch.testing.assert_close(found.double(), exact, rtol=2e-3, atol=2e-3)


SMALL = [1e-40, -1e-40, 1e-45, 0.0, -0.0]
"""Below the least normal number of float32."""


def below_normal(x: Tensor, y: Tensor) -> list[Tensor]:
    unary = (
        x.log(), x.log2(), x.log10(), x.log1p(), x.rsqrt(), x.sqrt(), x.expm1(), x.sin(), x.tan(), x.asin(), x.atan(),
        x.sinh(), x.tanh(), x.asinh(), x.atanh(), x.erf(), x.ceil(), x.floor(), x.reciprocal(), x * 0.5,
        x.abs().pow(0.3), F.gelu(x), F.silu(x), F.softplus(x),
    )  # fmt: skip
    return [*unary, torch.remainder(x, y), torch.fmod(x, y), x / y, torch.atan2(x, y), torch.where(x != 0, y, 2.0)]


def test_numbers_below_the_least_normal_one() -> None:
    """Triton's own choice takes them for 0: the logarithm of 1e-40 is -inf then."""
    x, y = torch.tensor(SMALL, device="cuda").repeat(3), torch.tensor([1e-40, -3.0, 2e-40], device="cuda").repeat(5)
    found = torch.compile(below_normal, backend="assay", options={"fallback": "error"})(x, y)
    for at, (ours, eager) in enumerate(zip(found, below_normal(x, y), strict=True)):
        message = functools.partial("{}: {}".format, at)
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=2e-45, equal_nan=True, msg=message)


@pytest.mark.parametrize("shape", [(3, 5), (3, 700), (2, 70_000)])
@pytest.mark.parametrize("dim", [0, -1])
def test_signs_of_totals_of_negative_zeros(shape: tuple[int, ...], dim: int) -> None:
    """A total begins at 0; where a tensor is one row, it begins in eager with its first element, and -0 stays."""
    x = torch.full(shape, -0.0, device="cuda")
    found = torch.compile(lambda x: x.cumsum(dim), backend="assay", options={"fallback": "error"})(x)
    assert torch.equal(found.signbit(), x.cumsum(dim).signbit())


def test_mean_of_complex_numbers_without_end() -> None:
    """On a GPU either part is multiplied by a real number, on the CPU both are divided by a complex one."""
    x = torch.tensor([-0.0, -torch.inf, 1e-40, -2.0], dtype=torch.complex64, device="cuda")
    found = torch.compile(lambda x: x.mean(), backend="assay", options={"fallback": "error"})(x)
    assert torch.equal(torch.view_as_real(found).nan_to_num(7), torch.view_as_real(x.mean()).nan_to_num(7))


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("side", range(4, 10))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_windows_of_small_images_are_eagers(dtype: torch.dtype, side: int, channels: int) -> None:
    """Indices below 2**16 divided by 6: NVIDIA's assembler makes wrong conditions of 16-bit products (12.8, sm_90)."""
    x = torch.randn(2, channels, side, side, device="cuda", dtype=dtype)

    def windows(x: Tensor) -> Tensor:
        return F.unfold(x, 2, padding=1)

    assert torch.equal(torch.compile(windows, backend="assay", dynamic=False)(x), windows(x))
