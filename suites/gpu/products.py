"""Products of matrices with pointwise work, by the library and by ours: `python -m assay.suites.gpu.products`.

    share = 2 * batches * rows * columns * terms / time of the region / what tensor cores do in a second

A region is timed both ways as `compiler/toolchain/gpu/tune_products.py` does it, in turns and with cold caches: the
library's product with the kernels around it, and our kernel by each choice of tiles. Before that, each is held to the
library's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from assay.compiler.ir.graph.roles import Program, Signature, UserInput, UserOutput
from assay.compiler.ir.loops.kernel import Tiles
from assay.compiler.journal import Journal
from assay.compiler.options import Options
from assay.compiler.pipeline import build
from assay.compiler.schedule.products import Region
from assay.compiler.toolchain.gpu.tune import LEAST_GAIN
from assay.compiler.toolchain.gpu.tune_products import Ways, filled, times_on_device, ways_of
from assay.compiler.toolchain.load import load_kernels

PEAK = 7.9e14
"""Operations a second of an H100's tensor cores on bfloat16, as far as its power lets them."""
BOUND = 2**-7
"""A rounding to bfloat16 before the epilogue and one behind it, of the largest element."""
DTYPE = torch.bfloat16


@dataclass(frozen=True, slots=True)
class Shape:
    """A program with one product in it, and the shapes of its arguments; those of `wide` are float32."""

    function: Callable[..., tuple[Tensor, ...]]
    shapes: tuple[tuple[int, ...], ...]
    wide: tuple[int, ...] = ()

    def arguments(self, device: str) -> list[Tensor]:
        generator = torch.Generator(device).manual_seed(0)
        made = [torch.randn(shape, device=device, generator=generator) for shape in self.shapes]
        return [tensor if at in self.wide else tensor.to(DTYPE) for at, tensor in enumerate(made)]


def gelu(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor]:
    return (F.gelu(F.linear(x, w, b)),)


def gelu_kept(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """As forward does for backward."""
    product = F.linear(x, w, b)
    return product, F.gelu(product)


def residual(x: Tensor, w: Tensor, base: Tensor) -> tuple[Tensor]:
    return (x @ w + base,)


def silu(x: Tensor, w: Tensor) -> tuple[Tensor]:
    return (F.silu(F.linear(x, w)),)


def scaled(q: Tensor, k: Tensor) -> tuple[Tensor]:
    return (torch.bmm(q, k.transpose(1, 2)) * 0.125,)


def gelu_slope(g: Tensor, w: Tensor, kept: Tensor) -> tuple[Tensor]:
    """A gradient through two layers."""
    return (torch.ops.aten.gelu_backward(g @ w, kept),)


def rounded_weight(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor]:
    """A layer under autocast."""
    return (F.gelu(F.linear(x, w.to(DTYPE), b)),)


SHAPES: dict[str, Shape] = {
    "gelu": Shape(gelu, ((8192, 768), (3072, 768), (3072,))),
    "gelu kept": Shape(gelu_kept, ((8192, 768), (3072, 768), (3072,))),
    "gelu slope": Shape(gelu_slope, ((8192, 768), (768, 3072), (8192, 3072))),
    "residual": Shape(residual, ((4096, 4096), (4096, 4096), (4096, 4096))),
    "narrow residual": Shape(residual, ((8192, 3072), (3072, 768), (8192, 768))),
    "silu": Shape(silu, ((16384, 1024), (1024, 1024))),
    "batches": Shape(scaled, ((96, 512, 64), (96, 512, 64))),
    "decode": Shape(silu, ((16, 4096), (4096, 4096))),
    "small": Shape(gelu, ((512, 256), (1024, 256), (1024,))),
    "rounded weight": Shape(rounded_weight, ((2048, 768), (3072, 768), (3072,)), wide=(1,)),
}


def region_of(shape: Shape, arguments: Sequence[Tensor], options: Options) -> Region:
    """The region that the compiler finds."""
    found = list[Region]()

    def choose(regions: Sequence[Region]) -> list[Tiles | None]:
        found.extend(regions)
        return [None] * len(regions)

    module = make_fx(shape.function, tracing_mode="fake")(*arguments)
    returned = next(node for node in module.graph.nodes if node.op == "output").args[0]
    inputs = tuple(UserInput(position) for position in range(len(arguments)))
    outputs = tuple(UserOutput(position) for position in range(len(returned)))
    build(Program(module, Signature(inputs, outputs)), options, Journal.open(options), choose=choose)
    (region,) = found
    return region


def difference(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference of results, over the largest element of each."""
    pairs = [(a.double(), b.double()) for a, b in zip(found, expected, strict=True)]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def measured(name: str, options: Options, device: str) -> dict[str, Any]:
    """The row of a shape.

    Raises: AssertionError where some tiles compute something else than the library.
    """
    shape = SHAPES[name]
    region = region_of(shape, shape.arguments(device), options)
    ((_, _, ways),) = ways_of({"": region}, options, load_kernels)
    given = filled(region.layouts.values(), region.kernel.device)
    expected: Any = ways[0][1](list(given))
    worst = 0.0
    for tiles, call in ways[1:]:
        found: Any = call(list(given))
        worst = max(worst, difference(found, expected))
        if not worst <= BOUND:
            raise AssertionError(f"{name}: {tiles} is {worst} from the library's")
    del given, expected
    return {"name": name, **row_of(region, ways), "difference": worst}


def row_of(region: Region, ways: Ways) -> dict[str, Any]:
    """The times of a region, and what they come to."""
    times = times_on_device(region, [call for _, call in ways])
    if times is None or len(ways) < 2:
        raise AssertionError(f"{region.name}: there is no room to measure, or no tiles compile")
    batches, rows, columns, terms = region.sizes
    operations = 2 * batches * rows * columns * terms
    best = min(range(1, len(ways)), key=times.__getitem__)
    row: dict[str, Any] = {"sizes": region.sizes, "origins": region.kernel.origins}
    for side, seconds in (("library", times[0]), ("tiles", times[best])):
        row |= {f"{side}_us": 1e6 * seconds, f"{side}_tflops": operations / seconds / 1e12}
        row |= {f"{side}_share": operations / seconds / PEAK}
    row |= {"speed_ratio": times[0] / times[best], "is_chosen": times[best] < (1 - LEAST_GAIN) * times[0]}
    return row | {"best": str(ways[best][0]), "us": {str(t): 1e6 * s for (t, _), s in zip(ways, times, strict=True)}}


def line_of(row: dict[str, Any]) -> str:
    ways = (
        f"{side} {row[f'{side}_us']:8.1f} us, {row[f'{side}_tflops']:5.0f} TFLOP/s ({row[f'{side}_share']:.2f})"
        for side in ("library", "tiles")
    )
    chosen = "tiles" if row["is_chosen"] else "library"
    sizes = " x ".join(map(str, row["sizes"]))
    return f"{row['name']:16s} {sizes:24s} {'; '.join(ways)}; {row['speed_ratio']:.2f}: {chosen}, {row['best']}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assay.suites.gpu.products")
    parser.add_argument("names", nargs="*", default=list(SHAPES), help=", ".join(SHAPES))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    rows = []
    with tempfile.TemporaryDirectory() as cache:  # nothing is known from before
        options = Options.of({"cache": cache, "tune": True}, None)
        for name in given.names:
            rows.append(measured(name, options, "cuda"))
            print(line_of(rows[-1]), flush=True)
    if given.json is not None:
        device = torch.cuda.get_device_name()
        text = json.dumps({"torch": torch.__version__, "device": device, "peak": PEAK, "rows": rows}, indent=1)
        given.json.write_text(text)


if __name__ == "__main__":
    main()
