"""Products of matrices by tiles on a GPU: numbers as eager's, the choice as measured, and remembered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._higher_order_ops.out_dtype import out_dtype

from assay.compiler import journal
from assay.compiler.codegen.triton.tile_sizes import PRODUCTS
from assay.compiler.ir.loops.kernel import Tiles
from assay.compiler.journal import Journal
from assay.compiler.options import Options
from assay.compiler.pipeline import build
from assay.compiler.schedule.products import Region
from assay.suites.gpu import products
from tests.compiler.toolchain.gpu.test_product_tiles import assert_near
from tests.lowering import traced
from tests.product_programs import CASES, EVERY, Case

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
DEVICE = "cuda:0"
USUAL = Tiles(64, 64, 64, 4, 4)
LARGE_BYTES = 40 << 30


def computed(case: Case, arguments: Sequence[Tensor], tiles: Tiles, numerics: str = "fast") -> tuple[Tensor, ...]:
    """What a program computes whose products are all by tiles."""
    options, found = Options.of({"numerics": numerics}, None), list[Region]()

    def choose(regions: Sequence[Region]) -> list[Tiles]:
        found.extend(regions)
        return [tiles] * len(regions)

    graph = build(traced(case.function, *arguments), options, Journal.open(options), choose=choose).load()
    assert len(found) == case.products
    results: Any = graph(list(arguments))
    return tuple(results)


def check(case: Case, arguments: Sequence[Tensor], tiles: Tiles, numerics: str = "fast") -> None:
    found = computed(case, arguments, tiles, numerics)
    assert_near(found, case.function(*arguments), case.function(*(argument.double() for argument in arguments)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_products_by_tiles_are_as_eager(name: str, dtype: torch.dtype) -> None:
    case = CASES[name]
    for numerics in ("fast", "cast"):
        check(case, case.arguments(dtype, DEVICE), USUAL, numerics)


@pytest.mark.parametrize("tiles", PRODUCTS)
@pytest.mark.parametrize("name", EVERY)
def test_products_by_any_tiles_are_as_eager(name: str, tiles: Tiles) -> None:
    shapes = {"linear": ((4, 200, 328), (520, 328), (520,), (4, 200, 520))}.get(name, CASES[name].shapes)
    case = Case(CASES[name].function, shapes)
    check(case, case.arguments(torch.bfloat16, DEVICE), tiles)


def test_operands_may_begin_anywhere() -> None:
    case = CASES["linear"]
    moved = []
    for argument in case.arguments(torch.bfloat16, DEVICE):
        memory = torch.empty(argument.numel() + 1, dtype=argument.dtype, device=DEVICE)
        moved.append(memory[1:].view(argument.shape).copy_(argument))
    expected = computed(case, case.arguments(torch.bfloat16, DEVICE), USUAL)
    for found, other in zip(computed(case, moved, USUAL), expected, strict=True):
        torch.testing.assert_close(found, other, rtol=2**-7, atol=2**-7)


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_properties(0).total_memory < LARGE_BYTES, reason="needs 40 GB"
)
def test_indices_of_large_results_have_64_bits() -> None:
    case = Case(lambda x, w: (torch.relu(x @ w),), ((1 << 16, 64), (64, (1 << 15) + 64)))
    arguments = case.arguments(torch.bfloat16, DEVICE)
    (found,) = computed(case, arguments, Tiles(128, 128, 64, 8, 3))
    for rows in (slice(0, 300), slice((1 << 16) - 300, 1 << 16)):
        torch.testing.assert_close(found[rows], torch.relu(arguments[0][rows] @ arguments[1]), rtol=2**-7, atol=0.05)


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.dropout(self.second(F.gelu(self.first(x))), 0.1, self.training)


@pytest.mark.parametrize("is_autocast", [False, True])
def test_layers_are_trained_as_in_eager_by_what_was_measured(is_autocast: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = Layers().to(DEVICE, torch.float32 if is_autocast else torch.bfloat16)
    x = torch.randn(4, 512, 256, device=DEVICE, dtype=torch.float32 if is_autocast else torch.bfloat16)

    def step(call: Any) -> list[Tensor]:
        layers.zero_grad(set_to_none=True)
        torch.manual_seed(1)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=is_autocast):
            result = call(x)
        result.float().square().mean().backward()
        return [result.detach(), *(p.grad.clone() for p in layers.parameters() if p.grad is not None)]

    expected, counts = step(layers), []
    for _ in range(2):
        torch._dynamo.reset()
        journal.reset()
        options: dict[str, Any] = {"tune": True, "cache": str(tmp_path), "warm": False}
        fast = torch.compile(layers, backend="assay", options=options)
        for ours, theirs in zip(step(fast), expected, strict=True):
            assert ours.dtype == theirs.dtype
            scale = float(theirs.float().abs().max())
            torch.testing.assert_close(ours.float(), theirs.float(), rtol=0, atol=2**-5 * scale)
        counts.append(journal.totals()["products"])
    assert counts[0] == counts[1] != {}, "what was measured is what the cache knows"


def test_regions_are_timed_both_ways(tmp_path: Path) -> None:
    options = Options.of({"cache": str(tmp_path), "tune": True}, None)
    row = products.measured("small", options, DEVICE)
    assert row["library_us"] > 0 and row["tiles_us"] > 0 and row["sizes"] == (1, 512, 1024, 256)
    assert "TFLOP/s" in products.line_of(row)


BYTES = ((17, 8, 8), (32, 16, 24), (3, 8, 8), (17, 4, 8), (17, 8, 5), (0, 8, 8), (17, 0, 8), (17, 8, 0))
"""Rows, columns that are summed over, and columns: those that a GPU multiplies, and those that it refuses."""


@pytest.mark.parametrize("sizes", BYTES, ids=str)
def test_products_of_bytes_are_eagers_or_refused(sizes: tuple[int, int, int]) -> None:
    def product(x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = out_dtype(torch.ops.aten.mm.default, torch.int32, x, y)
        return found + 1

    def tried(call: Callable[[Tensor, Tensor], Tensor]) -> Tensor | str:
        try:
            return call(x, y)
        except RuntimeError as error:
            return str(error)

    rows, inner, columns = sizes
    x, y = (torch.randint(-9, 9, s, dtype=torch.int8, device=DEVICE) for s in ((rows, inner), (inner, columns)))
    eager, ours = tried(product), tried(torch.compile(product, backend="assay"))
    if isinstance(eager, str):
        assert isinstance(ours, str) and eager in ours
    else:
        assert isinstance(ours, Tensor) and torch.equal(eager, ours)
