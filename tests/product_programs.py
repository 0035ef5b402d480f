"""Programs of products of matrices with pointwise work around them, and their kernels by tiles: `python -m
tests.product_programs <cache directory> <file for the results>`, with TRITON_INTERPRET=1, writes what each computes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.compiler.codegen.host import emit, load
from assay.compiler.codegen.triton.tile_sizes import PRODUCTS
from assay.compiler.ir.loops.kernel import AsValue, Schedule, Tiles
from assay.compiler.options import Options
from assay.compiler.schedule.products import Region
from tests import kernel_ir as ir
from tests.kernel_ir import i, j, k
from tests.lowering import planned, traced

TILES = Tiles(32, 32, 16, 4, 3)
"""Small ones, of which small products have several."""
Results = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A program of a tuple of results and the shapes of its arguments; `products` are those in it that are ours, and
    `kernels` those that are left beside them."""

    function: Callable[..., Results]
    shapes: tuple[tuple[int, ...], ...]
    products: int = 1
    kernels: int = 0

    def arguments(self, dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
        generator = torch.Generator(device).manual_seed(3)
        return [torch.randn(shape, generator=generator, device=device).to(dtype) for shape in self.shapes]


def linear(x: Tensor, w: Tensor, b: Tensor, residual: Tensor) -> Results:
    return (F.gelu(F.linear(x, w, b)) + residual,)


def swapped(x: Tensor, w: Tensor) -> Results:
    return (torch.relu(x.t() @ w),)


def twice_swapped(x: Tensor, w: Tensor) -> Results:
    return (torch.tanh(x.t() @ w.t()),)


def product_kept(x: Tensor, w: Tensor, after: Tensor) -> Results:
    product = x @ w
    return product, torch.relu(product) @ after, product.view(3, 11, 40)


def several(x: Tensor, w: Tensor) -> Results:
    product = x @ w
    return torch.relu(product), product * 2, product > 0, product.float()


def batches(q: Tensor, k: Tensor) -> Results:
    return (torch.bmm(q, k.transpose(1, 2)) * 0.125 + 1,)


def batches_added(base: Tensor, x: Tensor, w: Tensor) -> Results:
    return (torch.relu(torch.baddbmm(base, x, w, beta=0.5, alpha=2)),)


def added(base: Tensor, x: Tensor, w: Tensor) -> Results:
    return (torch.relu(torch.addmm(base, x, w, beta=-1.5, alpha=0.25)),)


def replaced(base: Tensor, x: Tensor, w: Tensor) -> Results:
    return (torch.relu(torch.addmm(base, x, w, beta=0)),)


def heads(x: Tensor, w: Tensor) -> Results:
    return (torch.relu(x @ w).view(2, 18, 5, 8).permute(0, 2, 1, 3).contiguous(),)


def gates(x: Tensor, w: Tensor, v: Tensor) -> Results:
    """One kernel reads two products: it is part of the later one's."""
    return (F.silu(x @ w) * (x @ v),)


def activated(x: Tensor, w: Tensor) -> Results:
    return (F.gelu(x) @ w,)


def logarithms(x: Tensor, w: Tensor) -> Results:
    """What is computed of no term is infinite, and must not count."""
    return (torch.log(x.abs()) @ torch.log(w.abs()),)


def rounded(x: Tensor, w: Tensor) -> Results:
    """What autocast makes of float32."""
    return (torch.relu(x.float().mul(3).to(x.dtype) @ w.float().exp().to(x.dtype).t()),)


def added_to_itself(x: Tensor, w: Tensor) -> Results:
    """An operand that is computed for the product and added to it."""
    return (torch.tanh(torch.addmm(y := torch.relu(x), y, w)),)


def view_returned(x: Tensor, w: Tensor) -> Results:
    """As forward returns a weight's transpose for backward."""
    turned = w.t()
    return torch.relu(x @ turned), turned


def both_ends(x: Tensor, w: Tensor, b: Tensor) -> Results:
    return (torch.sigmoid(torch.addmm(b, F.silu(x), w)),)


CASES: dict[str, Case] = {
    "linear": Case(linear, ((2, 20, 50), (70, 50), (70,), (2, 20, 70))),
    "linear by whole tiles": Case(linear, ((2, 32, 64), (96, 64), (96,), (2, 32, 96))),
    "left transposed": Case(swapped, ((45, 37), (45, 65))),
    "both transposed": Case(twice_swapped, ((45, 37), (65, 45))),
    "product kept": Case(product_kept, ((33, 50), (50, 40), (40, 20))),
    "several results": Case(several, ((40, 33), (33, 50))),
    "batches": Case(batches, ((3, 40, 24), (3, 50, 24))),
    "batches added": Case(batches_added, ((3, 1, 50), (3, 40, 24), (3, 24, 50))),
    "a matrix added": Case(added, ((40, 50), (40, 33), (33, 50))),
    "a column added": Case(added, ((40, 1), (40, 33), (33, 50))),
    "nothing added": Case(replaced, ((50,), (40, 33), (33, 50))),
    "heads": Case(heads, ((36, 24), (24, 40))),
    "gates": Case(gates, ((40, 24), (24, 50), (24, 50))),
    "an operand activated": Case(activated, ((40, 50), (50, 36))),
    "operands that are infinite": Case(logarithms, ((40, 50), (50, 36))),
    "operands rounded": Case(rounded, ((40, 50), (36, 50))),
    "an operand added": Case(added_to_itself, ((40, 40), (40, 40)), kernels=1),
    "a view returned": Case(view_returned, ((40, 50), (36, 50))),
    "both ends": Case(both_ends, ((40, 50), (50, 36), (36,))),
    "one row": Case(activated, ((1, 50), (50, 36))),
    "one column": Case(swapped, ((45, 37), (45, 1))),
    "no terms": Case(linear, ((2, 20, 0), (70, 0), (70,), (2, 20, 70))),
    "no rows": Case(linear, ((0, 20, 50), (70, 50), (70,), (0, 20, 70)), products=0, kernels=1),
}
EVERY = ("linear", "batches", "both ends")
"""The cases that every choice of tiles computes."""


def drawn() -> ir.Run:
    """A product of which random numbers choose what is kept, as dropout does, by 4 threads of which each takes 4."""
    x, w = (tensor.bfloat16() for tensor in (torch.randn(40, 24), torch.randn(24, 50)))
    terms = ir.call("mul", ir.widen(ir.load("x", i * 24 + k, x.dtype)), ir.widen(ir.load("w", k * 50 + j, w.dtype)))
    numbers = [ir.load(name, 0, torch.int64) for name in ("seed", "start")]
    at = AsValue(i * 50 + j, torch.int64)
    word = ir.call("philox", *numbers, at, ir.const(4, torch.int64), ir.const(4, torch.int64), dtype=torch.int64)
    chosen = ir.call("lt", word, ir.const(0, torch.int64), dtype=torch.bool)
    kept = ir.call("where", chosen, ir.reduce("sum", terms, k=24), ir.const(0.0))
    given = {"x": x, "w": w, "seed": torch.tensor([77]), "start": torch.tensor([4])}
    made = ir.make_run(ir.loops(i=40, j=50), [ir.store("y", i * 50 + j, kept)], given, {"y": torch.zeros(40, 50)})
    return replace(made, kernel=replace(made.kernel, tiles=TILES))


def by_tiles(case: Case, arguments: Sequence[Tensor], tiles: Tiles = TILES, keep_rounding: bool = False) -> Schedule:
    """The schedule of a program whose products are all by tiles."""

    def choose(regions: Sequence[Region]) -> list[Tiles]:
        return [tiles] * len(regions)

    return planned(traced(case.function, *arguments), keep_rounding=keep_rounding, choose=choose)


def run(schedule: Schedule, arguments: Sequence[Tensor], kernels: dict[str, Callable[..., None]]) -> Results:
    found: Any = load(emit(schedule), {**schedule.constants, **kernels})(list(arguments))
    return tuple(found)


def runs() -> dict[str, tuple[Case, torch.dtype, Tiles, bool]]:
    """What is run, by name: the case, its dtype, its tiles, and whether the product is rounded as eager rounds it."""
    found = {}
    for name, case in CASES.items():
        for dtype in (torch.bfloat16, torch.float16):
            found[f"{name}, {dtype}"] = case, dtype, TILES, dtype is torch.float16
    for name in EVERY:
        for tiles in PRODUCTS:
            found[f"{name}, {tiles}"] = CASES[name], torch.bfloat16, tiles, True
    return found


def main(cache: str, output: str) -> None:
    from assay.harness.backends.interpreted import (
        interpret,  # it needs the interpreter, which the tests of compiled kernels have not
    )

    def kernels_of(schedule: Schedule, options: Options) -> dict[str, Callable[..., None]]:
        return {kernel.name: interpret(kernel, options) for kernel in schedule.kernels}

    results, options = {}, ir.options(cache)
    for name, (case, dtype, tiles, keep_rounding) in runs().items():
        arguments = case.arguments(dtype)
        schedule = by_tiles(case, arguments, tiles, keep_rounding)
        results[name] = run(schedule, arguments, kernels_of(schedule, options))
    drawing = drawn()
    results["drawn"] = tuple(ir.launch(interpret(drawing.kernel, options), drawing).values())
    torch.save(results, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
