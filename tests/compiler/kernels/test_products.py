"""Our own products of matrices on the CPU: values, layouts, sizes that end within a tile, and where they are used."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.compiler.kernels import products
from assay.compiler.kernels.products import multiply, multiply_batch
from assay.compiler.kernels.tiles import Tiled
from assay.compiler.ops.calls.products import has_wide_vectors
from assay.compiler.passes.products.multiply_matrices import multiply_matrices
from assay.compiler.toolchain import build
from tests.compiler.passes.products.test_use_onednn import program_of

SIZES = [
    (1, 1, 1),
    (5, 3, 2),
    (12, 16, 16),
    (13, 17, 65),
    (48, 384, 64),
    (49, 385, 100),
    (145, 1153, 130),
    (300, 7, 513),
]
"""Rows, depth, columns: of whole tiles, panels and blocks of the depth, and one beyond."""
FARTHER = 4.0
"""How much farther from float64 than ATen's a result may be: each is another order of the same sums."""


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(11)


def matrix(rows: int, columns: int, generator: torch.Generator, *, is_transposed: bool = False) -> Tensor:
    if is_transposed:
        return torch.randn(columns, rows, generator=generator).t()
    return torch.randn(rows, columns, generator=generator)


def check(x: Tensor, w: Tensor, bias: Tensor | None) -> None:
    got, eager, exact = (
        f(x.to(t), w.to(t), None if bias is None else bias.to(t))
        for f, t in ((multiply, torch.float32), (plain, torch.float32), (plain, torch.float64))
    )
    assert got.is_contiguous() and got.shape == eager.shape
    bound = FARTHER * float((eager - exact).abs().max()) + 2e-6 * float(exact.abs().max())
    assert float((got - exact).abs().max()) <= bound


def plain(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    return x @ w if bias is None else torch.addmm(bias, x, w)


@pytest.mark.parametrize(
    ("depth", "blocks"),
    [(192, [192]), (300, [150, 150]), (201, [101, 100]), (385, [192, 192, 1]), (1200, [192] * 6 + [48])],
)
def test_multiply_adds_up_chains_of_blocks(depth: int, blocks: list[int], generator: torch.Generator) -> None:
    x, w = matrix(13, depth, generator), matrix(depth, 33, generator)
    total = torch.zeros(13, 33)
    for a, b in zip(x.split(blocks, 1), w.split(blocks), strict=True):
        chain = torch.zeros(13, 33)
        for d in range(a.shape[1]):
            chain = (chain.double() + a[:, d, None].double() * b[d].double()).float()  # rounded once
        total = total + chain
    assert torch.equal(multiply(x, w, None), total)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("size", SIZES)
def test_multiply_is_as_near_to_float64_as_atens(
    size: tuple[int, int, int], transposed: tuple[bool, bool], has_bias: bool, generator: torch.Generator
) -> None:
    rows, depth, columns = size
    x = matrix(rows, depth, generator, is_transposed=transposed[0])
    w = matrix(depth, columns, generator, is_transposed=transposed[1])
    check(x, w, torch.randn(columns, generator=generator) if has_bias else None)


@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("size", SIZES)
def test_multiply_batch_is_as_multiply(
    size: tuple[int, int, int], transposed: tuple[bool, bool], generator: torch.Generator
) -> None:
    rows, depth, columns = size
    x, w = torch.randn(5, rows, depth, generator=generator), torch.randn(5, depth, columns, generator=generator)
    x, w = (v.mT.contiguous().mT if t else v for v, t in zip((x, w), transposed, strict=True))
    got = multiply_batch(x, w)
    assert got.is_contiguous() and torch.equal(
        got, torch.stack([multiply(a, b, None) for a, b in zip(x, w, strict=True)])
    )
    assert torch.equal(multiply_batch(x[:1].expand(5, -1, -1), w)[3], multiply(x[0], w[3], None))
    assert torch.equal(multiply_batch(x.permute(1, 0, 2).contiguous().permute(1, 0, 2), w), got)


def test_multiply_takes_every_element_to_its_place() -> None:
    """Whole numbers, whose sums are exact: of each number of a matrix something else comes out."""
    x, w = torch.arange(61 * 70.0).view(61, 70) % 97, torch.arange(70 * 83.0).view(70, 83) % 89
    assert torch.equal(multiply(x, w, torch.arange(83.0)), x @ w + torch.arange(83.0))


def test_multiply_reads_parts_of_matrices(generator: torch.Generator) -> None:
    whole = torch.randn(200, 300, generator=generator)
    check(whole[3:80, 5:150], whole[20:165, 100:], None)
    check(whole[3:148, 5:150].t(), whole[20:165, 100:].contiguous(), whole[7, :200])


def test_multiply_writes_nothing_beside_its_result(generator: torch.Generator) -> None:
    """The last vector of a row ends within the next row, and of the last row beyond the matrix."""
    for columns in (1, 15, 37, 63, 65, 100):
        x, w = torch.randn(50, 20, generator=generator), torch.randn(20, columns, generator=generator)
        memory = torch.full((50 * columns + 64,), 7.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(products, "_empty", placed(memory, 50 * columns))
            result = multiply(x, w, None)
        assert (memory[50 * columns :] == 7.0).all()
        torch.testing.assert_close(result, x @ w)


def placed(memory: Tensor, numel: int) -> Callable[..., Tensor]:
    def empty(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return memory[:numel].view(size) if len(size) == 2 else torch.empty(size, dtype=dtype)

    return empty


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_multiply_keeps_what_is_not_finite(value: float, generator: torch.Generator) -> None:
    x, w = torch.randn(40, 70, generator=generator), torch.randn(70, 50, generator=generator)
    x[3, 69], w[0, 49] = value, value
    torch.testing.assert_close(multiply(x, w, None), x @ w, equal_nan=True)


@pytest.mark.parametrize("size", [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
def test_multiply_of_nothing(size: tuple[int, int, int]) -> None:
    rows, depth, columns = size
    x, w, bias = torch.ones(rows, depth), torch.ones(depth, columns), torch.arange(float(columns))
    assert torch.equal(multiply(x, w, bias), torch.addmm(bias, x, w))


def test_multiply_is_the_same_for_any_number_of_threads(generator: torch.Generator) -> None:
    x, w = torch.randn(150, 400, generator=generator), torch.randn(400, 320, generator=generator)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            results.append(multiply(x, w, None))
            assert torch.equal(multiply(x.t().contiguous().t(), w, None), results[-1])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("flags", [("-mno-avx512f",), ("-mno-avx", "-mno-fma")], ids=" ".join)
def test_multiply_on_machines_with_shorter_vectors(
    flags: tuple[str, ...], generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, *flags))
    old = products._KERNELS
    monkeypatch.setattr(products, "_KERNELS", Tiled(old._file, old._functions, old._head))
    for rows, depth, columns in SIZES:
        check(
            matrix(rows, depth, generator), matrix(depth, columns, generator), torch.randn(columns, generator=generator)
        )


# ---- in programs


def linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.addmm(b, x, w.t())


def product(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.mm(x, w.t())


def weight_gradient(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.mm(x.t(), x)


def batched(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(x.view(-1, 16, 160), w.expand(x.shape[0] // 16, -1, -1).mT)


def halved(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.addmm(b, x, w.t(), beta=0.5)


def operands(rows: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    return torch.randn(rows, 160, dtype=dtype), torch.randn(160, 160, dtype=dtype), torch.randn(160, dtype=dtype)


@pytest.mark.skipif(not has_wide_vectors(), reason="the kernel is laid out for wider vectors")
@pytest.mark.parametrize("function", [linear, product, weight_gradient, batched])
def test_multiply_matrices_takes_products(function: object) -> None:
    given = operands(160)
    program = program_of(function, *given)
    (before,) = program.module(*[value.double() for value in given])
    names = [node.name for node in program.returned]  # type: ignore[union-attr]
    assert multiply_matrices(program) == 1
    program.module.graph.lint()
    program.module.recompile()
    (after,) = program.module(*given)
    assert [node.name for node in program.returned] == names  # type: ignore[union-attr]
    torch.testing.assert_close(after, before.float(), rtol=1e-5, atol=1e-4)


def test_multiply_matrices_leaves_other_dtypes_scaled_small_and_thin_products() -> None:
    assert multiply_matrices(program_of(linear, *operands(160, torch.float64))) == 0
    assert multiply_matrices(program_of(batched, *operands(16))) == 0
    assert multiply_matrices(program_of(halved, *operands(160))) == 0
    assert multiply_matrices(program_of(linear, *operands(8))) == 0
    x, w = torch.randn(1, 2048), torch.randn(2048, 2048)
    assert multiply_matrices(program_of(linear, x, w, torch.randn(2048))) == 0
    x, w = torch.randn(160, 160), torch.randn(160, 160)
    assert multiply_matrices(program_of(linear, x, w, torch.randn(1))) == 0


def test_multiply_matrices_leaves_products_that_may_be_shortened() -> None:
    before = torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]
    try:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]
        assert multiply_matrices(program_of(linear, *operands(160))) == 0
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before  # type: ignore[attr-defined]


def test_multiply_is_the_librarys_where_operands_may_be_shortened_since(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(products, "_mm", lambda x, w: asked.append("mm") or torch.mm(x, w))
    monkeypatch.setattr(products, "_bmm", lambda x, w: asked.append("bmm") or torch.bmm(x, w))
    x, w = torch.randn(64, 64), torch.randn(64, 64)
    before = torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]
    try:
        for precision, expected in (("ieee", 0), ("bf16", 2), ("ieee", 2)):
            torch.backends.mkldnn.matmul.fp32_precision = precision  # type: ignore[attr-defined]
            products.multiply(x, w, None), products.multiply_batch(x[None], w[None])
            assert len(asked) == expected
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before  # type: ignore[attr-defined]


@pytest.mark.parametrize("dynamic", [False, True])
def test_multiply_trains_as_eager(dynamic: bool) -> None:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 96))
    compiled = torch.compile(layers, backend="assay", dynamic=dynamic)
    for rows in (150, 170):
        x = torch.randn(rows, 128, requires_grad=True)
        results = [function(x) for function in (layers, compiled)]
        torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)
        wanted = (x, *layers.parameters())
        expected, got = (torch.autograd.grad(result.square().sum(), wanted) for result in results)
        for mine, theirs in zip(got, expected, strict=True):
            assert mine.stride() == theirs.stride()
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-3)
