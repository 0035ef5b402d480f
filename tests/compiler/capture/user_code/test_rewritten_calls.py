"""Calls of which torch's recordings make something else than eager: what they raise, and what they return a view of."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn import functional as F

from assay.compiler.capture.user_code.rewritten_calls import UserCalls
from assay.compiler.journal import reset, totals


def pooled(x: Tensor) -> Tensor:
    return F.max_pool3d(input=x, kernel_size=2)


def extremes(x: Tensor) -> Tensor:
    low, _ = torch.aminmax(x, dim=1, out=(torch.empty(2, dtype=torch.float64), torch.empty(2, dtype=torch.float64)))
    return low


REFUSED = [
    (pooled, torch.randn(2, 3, 6, 5).to(memory_format=torch.channels_last), "Unsupported memory format"),
    (extremes, torch.randn(2, 3), "Expected out tensor to have dtype float"),
]


@pytest.mark.parametrize(("program", "given", "message"), REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_user_calls_raise_what_eager_raises(program: Callable[[Tensor], Tensor], given: Tensor, message: str) -> None:
    torch._dynamo.reset()
    for function in (program, torch.compile(program, backend="assay")):
        with warnings.catch_warnings(), pytest.raises(RuntimeError, match=message):
            warnings.simplefilter("ignore")
            function(given)


def test_user_calls_that_eager_takes_are_compiled() -> None:
    torch._dynamo.reset()
    given = torch.randn(2, 3, 6, 5)
    compiled = torch.compile(pooled, backend="assay", options={"fallback": "error"})
    assert torch.equal(compiled(given), pooled(given))


BATCHES = [
    ((2, 3, 4), (2, 4, 5)),
    ((2, 2, 3, 4), (2, 4, 5)),
    ((3, 4), (2, 4, 5)),
    ((4,), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((1, 4), (2, 4, 5)),
]


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("shapes", BATCHES, ids=str)
def test_user_calls_of_matmul_are_views_where_eagers_are(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], needs_grad: bool
) -> None:
    """A view cannot be detached in place, and its base would be held for nobody."""
    torch._dynamo.reset()
    a, b = (torch.randn(shape) for shape in shapes)
    for program in (lambda x, y: x @ y, lambda x, y: torch.matmul(x, y.mT.contiguous().mT)):
        expected = program(a.requires_grad_(needs_grad), b)
        found = torch.compile(program, backend="assay", options={"fallback": "error"})(a, b)
        assert (found._base is None, found.stride()) == (expected._base is None, expected.stride())
        torch.testing.assert_close(found, expected)


ENDING_IN_MATMUL: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), (3, 4, 8)),
    "attention_by_heads": (lambda x: F.scaled_dot_product_attention(x, x, x), (2, 3, 4, 8)),
    "attention_with_a_mask": (lambda x: F.scaled_dot_product_attention(x, x, x, x[..., :4]), (2, 3, 4, 8)),
    "third_power": (lambda x: torch.linalg.matrix_power(x, 3), (2, 3, 3)),
    "second_power": (lambda x: x.matrix_power(2), (2, 2, 3, 3)),
    "negative_power": (lambda x: torch.matrix_power(x + 3 * torch.eye(3), -2), (2, 3, 3)),
    "left_vectors": (lambda x: torch.svd_lowrank(x, 2)[0], (2, 3, 3)),
    "right_vectors": (lambda x: torch.svd_lowrank(x, 2)[2], (2, 3, 3)),
    "pooled_lines": (lambda x: F.max_pool1d(x, 2), (1, 2, 4)),
    "pooled_lines_and_places": (lambda x: F.max_pool1d(x, 2, return_indices=True)[0], (1, 2, 4)),
    "pooled_plane": (lambda x: torch.max_pool1d(x, 2), (2, 4)),
}


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("name", ENDING_IN_MATMUL)
def test_user_calls_that_end_in_a_kernel_of_batches_are_views_where_eagers_are(name: str, needs_grad: bool) -> None:
    torch._dynamo.reset()
    program, shape = ENDING_IN_MATMUL[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_(needs_grad)
    torch.manual_seed(0)
    expected = program(x)
    torch.manual_seed(0)
    found = torch.compile(program, backend="assay")(x)
    assert (found._base is None, found.stride()) == (expected._base is None, expected.stride())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_user_calls_of_rms_norm_on_a_gpu_are_given_numbers() -> None:
    """Torch's kernel for a GPU takes none but numbers; the graph is then guarded by them."""
    shapes = ShapeEnv()
    fakes = FakeTensorMode(shape_env=shapes)
    sizes = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * 3)
    made = fakes.from_tensor(torch.empty(2, 4, 3), symbolic_context=sizes)
    with fakes, UserCalls():
        x = torch.empty(made.shape, device="cuda")
        F.rms_norm(x, x.shape[1:])
    assert len(shapes.guards) == 2


def _sorted_rows(x: Tensor, out: Tensor) -> Tensor:
    return torch.msort(x, out=out)


def _split_rows(x: Tensor, out: Tensor) -> Tensor:
    torch.split_with_sizes_copy(x, (1, 2), out=(out[:1], out[1:]))
    return out


def _multiplied(x: Tensor, out: Tensor) -> Tensor:
    scale = torch.ones(())
    return torch._scaled_mm(x.to(torch.float8_e4m3fn), torch.full((16, 16), 2.0, dtype=torch.float8_e4m3fn).t(),
                            scale, scale, out=out)  # fmt: skip


INTO: list[tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...], torch.dtype]] = [
    (_sorted_rows, (4, 3), torch.float32),
    (_split_rows, (3, 2), torch.float32),
    (_multiplied, (16, 16), torch.bfloat16),
]


@pytest.mark.parametrize(("program", "shape", "dtype"), INTO, ids=lambda value: getattr(value, "__name__", ""))
def test_user_calls_write_their_results_as_eager_does(
    program: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """Products of 8 bits are beyond what 8 bits hold; the sorted places and the parts have sizes of their own."""
    torch._dynamo.reset()
    given = torch.arange(shape[0] * shape[1], 0, -1.0).view(shape)
    compiled = torch.compile(program, backend="assay", options={"fallback": "error"})
    eager, ours = (f(given, torch.ones(shape, dtype=dtype)) for f in (program, compiled))
    assert ours.dtype is dtype and torch.equal(ours, eager) and ours._version == eager._version


@pytest.mark.parametrize("power", [lambda x, n: x**n, lambda x, n: torch.pow(x * 2, n), lambda x, n: x.clone().pow_(n)])
def test_power_of_an_integer_that_changes_is_compiled(power: Callable[[Tensor, int], Tensor]) -> None:
    compiled = torch.compile(power, backend="assay", options={"fallback": "error"})
    for n in (2, 3, 0, -1, 5, 1, 1 << 40, -(1 << 31)):
        slopes = []
        for function in (power, compiled):
            x = (torch.arange(8.0) - 3).requires_grad_()
            result = function(x, n)
            result.backward(torch.ones_like(result))
            slopes.append((result.detach(), x.grad))
        torch.testing.assert_close(*slopes, equal_nan=True)


def added_to(x: torch.Tensor, n: int) -> torch.Tensor:
    result = x**n
    result.sub_(1)
    return result


def twice_differentiated(x: torch.Tensor, n: int) -> torch.Tensor:
    (slope,) = torch.autograd.grad(torch.pow(x, n).sum(), x, create_graph=True)
    return (slope * x).sin()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("function", [added_to, twice_differentiated])
def test_powers_that_vary_keep_their_base_alone(function: Callable[[Tensor, int], Tensor], dtype: torch.dtype) -> None:
    """The power may be written, as in eager, whatever its exponent is."""
    if dtype.is_complex and function is twice_differentiated:
        pytest.skip("a sum of complex numbers has no gradient without a tangent")
    reset()
    call = torch.compile(function, backend="assay")
    for n in (2, 3, -2, 0, 1, -1):
        x = torch.tensor([0.0, 1.5, -2.0, 3.0]).to(dtype).requires_grad_()
        found, expected = call(x, n), function(x, n)
        torch.testing.assert_close(found, expected, equal_nan=True)
        slopes = [torch.autograd.grad(torch.view_as_real(y).sum() if y.is_complex() else y.sum(), x)[0]
                  for y in (found, expected)]  # fmt: skip
        torch.testing.assert_close(*slopes, equal_nan=True)
    assert not totals()["eager"]


@pytest.mark.parametrize("size", [[2, 3, 4, 5], [2, 3, 2, 4, 5]])
@pytest.mark.parametrize("align_corners", [False, True])
def test_grids_under_autocast_have_its_dtype(size: list[int], align_corners: bool) -> None:
    def f(theta: Tensor) -> Tensor:
        return F.affine_grid(theta, size, align_corners=align_corners)

    theta = torch.randn(2, len(size) - 2, len(size) - 1, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = torch.compile(f, backend="assay")(theta), f(theta)
    torch.testing.assert_close(found, expected)
    slopes = [torch.autograd.grad(grid.float().square().sum(), theta)[0] for grid in (found, expected)]
    torch.testing.assert_close(*slopes, rtol=2**-6, atol=2**-6)
