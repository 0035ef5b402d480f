"""Which products of matrices are kernels of ours, and by which tiles: measured on the device, once, and kept in the
cache by region and device.

    region -> the library's way, our kernel by each choice of tiles -> host functions -> times in turns -> the fastest

Both ways are measured as a call runs them: the library's with the kernels around it, at the tiles that are best for
these. The library's it is unless another saves enough, and where there is no room to measure.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from assay.compiler.codegen.host import emit, load
from assay.compiler.codegen.triton.products import product_in
from assay.compiler.codegen.triton.tile_sizes import PRODUCTS, tiles_of_product
from assay.compiler.ir.loops.index import Index, Int
from assay.compiler.ir.loops.kernel import Allocate, CallAten, Kernel, Tiles
from assay.compiler.ir.loops.lowered import Tensor
from assay.compiler.ir.loops.text import show
from assay.compiler.journal import Journal, count_product
from assay.compiler.options import Options
from assay.compiler.schedule.products import Region
from assay.compiler.toolchain import cache
from assay.compiler.toolchain.gpu.compiled_kernels import machine_of
from assay.compiler.toolchain.gpu.triton_launch import load_fitting
from assay.compiler.toolchain.gpu.tune import (
    DTYPES,
    FLUSHED_BYTES,
    LEAST_GAIN,
    MOST_OF_FREE,
    ROUNDS,
    random_numbers,
    seconds_of,
)

KIND = "product"
LIBRARY = -1
"""What is kept where the library's way was the fastest."""

Call = Callable[[list[torch.Tensor]], object]
LoadKernels = Callable[[Sequence[Kernel], Options], Mapping[str, Callable[..., None]]]
Times = Callable[[Region, Sequence[Call]], Sequence[float] | None]
"""The seconds of each of several functions of what a region reads; None where there is no room."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for a region: tiles, or None for the library; `seconds` are those of the library and of the best
    tiles, where they were measured just now."""

    tiles: Tiles | None
    seconds: tuple[float, float] | None = None


def choose(
    regions: Sequence[Region],
    options: Options,
    journal: Journal,
    load_kernels: LoadKernels,
    times: Times | None = None,
) -> list[Tiles | None]:
    """The tiles of each region, None for the library, as the cache knows or `times` tells; which it is is said."""
    found: dict[str, Choice] = {}
    keys = [key_of(region) if is_measurable(region) else "" for region in regions]
    for key in dict.fromkeys(keys):
        if key and (known := _kept(key, options.cache)) is not None:
            found[key] = known
    waiting = {key: region for key, region in zip(keys, regions, strict=True) if key and key not in found}
    for key, region, ways in ways_of(waiting, options, load_kernels):
        found[key] = _measured(region, ways, times or times_on_device)
        if found[key].seconds is not None:
            _keep(key, options.cache, found[key])
    chosen = [found.get(key, Choice(None)) for key in keys]
    for region, choice in zip(regions, chosen, strict=True):
        count_product(choice.tiles is not None)
        journal.product(said_of(region, choice))
    return [choice.tiles for choice in chosen]


def is_measurable(region: Region) -> bool:
    """Whether a run of a region on a GPU over any numbers does what a call does."""
    tensors = region.layouts.values()
    is_known = all(t.dtype in DTYPES and span_of(t.shape, t.stride) is not None for t in tensors)
    return region.kernel.device.type == "cuda" and is_known and product_in(region.kernel) is not None


def said_of(region: Region, choice: Choice) -> str:
    """A line for the reader: the region, what it is computed by, and the milliseconds of both ways."""
    batches, *sizes = region.sizes
    shape = f"{f'{batches} x ' if batches > 1 else ''}{' x '.join(map(str, sizes))}"
    tiles = choice.tiles
    how = "the library" if tiles is None else f"tiles {tiles.rows} x {tiles.columns} x {tiles.depth}"
    taken = ""
    if choice.seconds is not None:
        library, ours = (1e3 * seconds for seconds in choice.seconds)
        taken = f"; the library {library:.4f} ms, tiles {ours:.4f} ms"
    return f"product {', '.join(region.kernel.origins)} ({shape}): {how}{taken}"


# ---- both ways ---------------------------------------------------------------------------------------------------


Ways = list[tuple[Tiles | None, Call]]
"""The functions of a region, each with its tiles; the first one is the library's."""


def ways_of(
    regions: Mapping[str, Region], options: Options, load_kernels: LoadKernels
) -> Iterator[tuple[str, Region, Ways]]:
    """The regions with their functions, of which ours are all compiled side by side."""
    ours = [
        (key, tiles, replace(region.kernel, name="product", tiles=tiles))
        for key, region in regions.items()
        for tiles in tiles_of_product(*region.sizes[1:3])
    ]
    launchers = load_fitting([kernel for _, _, kernel in ours], options)
    for key, region in regions.items():
        library = region.by_library()
        ways: Ways = [(None, load(emit(library), load_kernels(library.kernels, options)))]
        for (of, tiles, _), launcher in zip(ours, launchers, strict=True):
            if of == key and launcher is not None:
                ways.append((tiles, load(emit(region.by_tiles(tiles)), {"product": launcher})))
        yield key, region, ways


def _measured(region: Region, ways: Ways, times: Times) -> Choice:
    if len(ways) < 2:
        return Choice(None)
    taken = times(region, [call for _, call in ways])
    if taken is None:
        return Choice(None)
    best = min(range(1, len(ways)), key=taken.__getitem__)
    is_ours = taken[best] < (1 - LEAST_GAIN) * taken[0]
    return Choice(ways[best][0] if is_ours else None, (taken[0], taken[best]))


def times_on_device(region: Region, calls: Sequence[Call]) -> Sequence[float] | None:
    """The median seconds of each function, taken in turns, every time with cold caches."""
    device = region.kernel.device
    with torch.cuda.device(device), torch.no_grad(), torch.autocast(device.type, enabled=False):
        free, _ = torch.cuda.mem_get_info(device)
        if bytes_of(region) > MOST_OF_FREE * free:
            return None
        tensors = filled(region.layouts.values(), device)
        flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device=device)
        found: list[list[float]] = [[] for _ in calls]
        for call in calls:
            call(list(tensors))
        for _ in range(ROUNDS):
            for call, taken in zip(calls, found, strict=True):
                taken.append(seconds_of(lambda call=call: call(list(tensors)), flushed))  # type: ignore[misc]
    return [statistics.median(taken) for taken in found]


def bytes_of(region: Region) -> int:
    """What a region reads and writes at most, either way."""
    made = [step for step in (*region.library, *region.allocations) if isinstance(step, Allocate)]
    given = [(step.size, step.stride, step.dtype) for step in made]
    given += [(tensor.shape, tensor.stride, tensor.dtype) for tensor in region.layouts.values()]
    batches, rows, columns, _ = region.sizes
    product = batches * rows * columns * torch.float16.itemsize
    return product + sum((span_of(size, stride) or 0) * dtype.itemsize for size, stride, dtype in given)


def filled(layouts: Iterable[Tensor], device: torch.device) -> list[torch.Tensor]:
    """Tensors that lie so, with random numbers in them."""
    made = []
    for tensor in layouts:
        span = span_of(tensor.shape, tensor.stride) or 0
        sizes, strides = ([n.value for n in of if isinstance(n, Int)] for of in (tensor.shape, tensor.stride))
        made.append(random_numbers(max(1, span), tensor.dtype, device).as_strided(sizes, strides))
    return made


def span_of(size: Sequence[Index], stride: Sequence[Index]) -> int | None:
    """The elements from a tensor's first to its last in memory, where its sizes are known."""
    last = 0
    for extent, step in zip(size, stride, strict=True):
        if not isinstance(extent, Int) or not isinstance(step, Int):
            return None
        last += max(0, extent.value - 1) * step.value
    return last + 1


# ---- what was measured before --------------------------------------------------------------------------------------


def key_of(region: Region) -> str:
    """A region on a device: what ours computes, whose text says what is read of what, what is called of the library,
    and which library that is."""
    device = region.kernel.device
    index = device.index if device.index is not None else torch.cuda.current_device()
    own = show(replace(region.kernel, name="", origins=()))
    called = [str(step.target) for step in region.library if isinstance(step, CallAten)]
    versions = f"{torch.__version__} {torch.version.cuda}"
    return hashlib.sha256("\0".join((own, *called, versions, machine_of(index), repr(PRODUCTS))).encode()).hexdigest()[
        :40
    ]


def _kept(key: str, directory: str) -> Choice | None:
    data = cache.read(directory, key, KIND)
    return None if data is None else Choice(None if int(data) == LIBRARY else PRODUCTS[int(data)])


def _keep(key: str, directory: str, choice: Choice) -> None:
    text = str(LIBRARY if choice.tiles is None else PRODUCTS.index(choice.tiles)).encode()
    cache.fetch(directory, key, lambda path: path.write_bytes(text), KIND)
