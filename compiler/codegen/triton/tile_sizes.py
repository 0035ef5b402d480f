"""How large the tiles of a Triton program are: one configuration from the sizes, without measuring, and those beside it
that measuring may choose (`toolchain/gpu/tune.py`).

A tile holds enough for every thread to have several loads of 16 bytes under way, and no more than registers hold. Rows
that fit are read whole; short rows share a program; where rows are walked across, a tile is as wide as memory is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from assay.compiler.ir.loops.index import Index, Int
from assay.compiler.ir.loops.kernel import Tiles
from assay.compiler.machine import number

ELEMENTS = 1024
"""Elements of a tile of pointwise work: 8 a thread of 4 warps."""
ROWS_OF = 2048
"""Elements of a tile of short rows."""
POINTWISE, REDUCED = 512, 1024
"""Elements a warp has of a tile: of a reduction more, for the fewer warps the less they wait for each other, and most
where they are not kept."""
WARPS, MOST_WARPS = 4, 16
"""Warps of a pointwise tile, and of any tile at most: half of what the hardware has room for in a block."""
MOST_ROWS, LEAST_STEP = 1024, 128
"""Rows of a tile, at most, and elements of a step, at least, where they are changed."""
REGISTERS = 256
"""What a thread has of them: more values than fit lie in memory, and machine code with many of those is long in the
making. A program without reductions has as many elements a thread, 16 or fewer, as leave its values room."""
MANY = 32
"""Values of an element up to which the assembler finds room for those of 16, as it computes them one after another."""
SQUARE, LEAST_SQUARE = 64, 16
"""The side of a tile that is read along one axis and written along the other, and the least where values are many."""
LONGEST_ROW = 16384
"""A row that is kept in registers."""
STEP = 4096
"""Elements of a longer row that are read at a time."""
BESIDE = 1024
"""As many where each is read for several reductions."""
GATHERED = 512
"""Elements of a row that are read at a time where each is a miss."""
FEW = 32
"""Rows that are too few for an instance each."""
ACROSS = (32, 64)
"""Elements that are reduced at a time where rows are neighbours in memory, and rows of a tile then."""
SHORT, BUSY = 1024, 64
"""Rows that are neighbours in memory and no longer than this have tiles of fewer rows, so that there are so many
instances. To split what is read in so little time would take another launch."""
LEAST_WALKED = 32
"""Elements of a tile of which each walks a loop, where more would leave less than `BUSY` instances: those of a warp."""
LEAST_ACROSS, SHORT_ACROSS = 8, 8192
"""Rows of such a tile at least, which is what one access to memory brings, and its elements."""
DIVIDED = 0.55
"""A long row is two blocks, where these have at most such a share of the lanes that one has."""
GUESSED = 4096
"""A size that is a symbol."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a program computes: `rows` by `inner`, and reductions over `lengths`. `is_across`: what is read along one
    axis is written along the other; `is_x_near`: neighbours in memory are rows; `is_gathered`: data says where some
    values are. `held`: for each element so many values at once. `walked`: for each element so many steps of a loop."""

    rows: Index
    inner: Index
    lengths: tuple[Index, ...]
    is_scanned: bool
    is_across: bool
    is_x_near: bool
    is_gathered: bool
    held: int = 1
    walked: int = 1


@dataclass(frozen=True, slots=True)
class Blocks:
    """`x` rows a tile; `warps`; `whole`: the longest row that is one block; `step`: the block of a longer one."""

    x: int
    warps: int
    whole: int
    step: int

    def tile(self, total: Index, is_in_program: bool) -> tuple[int, str]:
        """The block of `total` elements along `y`, and how the tile runs over them."""
        known = total.value if isinstance(total, Int) else None
        if is_in_program:
            if known is not None and known <= self.whole:
                return power_above(known), "whole"
            return self.step, "steps"
        return min(self.step, power_above(known) if known is not None else self.step), "grid"


@dataclass(frozen=True, slots=True)
class Change:
    """How the tiles of a program differ from those that its sizes give: by which powers of two the rows of a tile, the
    warps, and the elements of a step are more."""

    x: int = 0
    warps: int = 0
    step: int = 0

    def of(self, blocks: Blocks) -> Blocks:
        return replace(
            blocks,
            x=_scaled(blocks.x, self.x, 1, MOST_ROWS),
            warps=_scaled(blocks.warps, self.warps, 1, MOST_WARPS),
            step=_scaled(blocks.step, self.step, min(blocks.step, LEAST_STEP), max(blocks.step, 2 * STEP)),
        )


USUAL = Change()
SPACE = (
    USUAL,
    *(Change(warps=1), Change(warps=-1)),
    *(Change(x=1), Change(x=1, warps=1), Change(x=-1), Change(x=-1, warps=-1)),
    *(Change(step=1), Change(step=1, warps=1), Change(step=-1), Change(step=-1, warps=-1)),
)
"""What measuring chooses from. Changes that come to the same text are one."""

PRODUCTS = (
    *(Tiles(128, 256, 64, 8, 3), Tiles(256, 128, 64, 8, 3)),
    *(Tiles(128, 128, 64, 8, 3), Tiles(128, 128, 64, 4, 3), Tiles(128, 128, 64, 8, 4)),
    *(Tiles(64, 256, 64, 4, 4), Tiles(64, 128, 64, 4, 4), Tiles(128, 64, 64, 4, 4)),
    *(Tiles(64, 64, 64, 4, 4), Tiles(64, 32, 128, 4, 4)),
    *(Tiles(32, 128, 64, 4, 4), Tiles(32, 64, 128, 4, 4), Tiles(32, 32, 128, 4, 4)),
    *(Tiles(16, 128, 64, 4, 5), Tiles(16, 64, 128, 4, 5), Tiles(16, 32, 256, 4, 4), Tiles(16, 16, 256, 4, 4)),
)
"""What measuring chooses from for a product of matrices. Tensor cores take 64 rows at once, with fewer 16 of older
kinds; tiles of few rows are for products of few."""
LEAST_SIDE = 16
"""What tensor cores multiply at least."""
FEW_ROWS = 64
"""Rows of a product up to which tiles of less than `FEW_ROWS` are worth a try."""


def tiles_of_product(rows: int, columns: int) -> tuple[Tiles, ...]:
    """Those of `PRODUCTS` that a product of so many rows and columns may want: none of twice its own or more."""
    most = [max(LEAST_SIDE, power_above(size)) for size in (rows, columns)]
    least = LEAST_SIDE if rows <= FEW_ROWS else FEW_ROWS
    return tuple(t for t in PRODUCTS if least <= t.rows <= most[0] and t.columns <= most[1]) or PRODUCTS[-1:]


def _scaled(number: int, power: int, least: int, most: int) -> int:
    return max(least, min(most, number << power if power >= 0 else number >> -power))


def choose(shape: Shape, change: Change = USUAL) -> Blocks:
    """The blocks of a program."""
    return change.of(_usual(shape))


def _usual(shape: Shape) -> Blocks:
    if shape.is_across:
        side = SQUARE
        while side > LEAST_SQUARE and side * side > 8 * _most_of_warp(shape):
            side //= 2
        return Blocks(side, 8, side, side)
    if not shape.lengths and not shape.is_scanned:
        return _pointwise(shape)
    longest = max([_guess(length) for length in shape.lengths] or [_guess(shape.inner)])
    if shape.is_x_near:
        return _across(shape, longest)
    if not all(isinstance(length, Int) for length in shape.lengths or (shape.inner,)):
        return _in_unknown_steps(shape)
    width = power_above(longest)
    if shape.is_gathered and _guess(shape.rows) <= FEW and width >= 2 * GATHERED:
        return Blocks(1, 4, 0, GATHERED)
    if width > LONGEST_ROW or (_guess(shape.rows) <= FEW and width >= 2 * STEP):
        return _in_steps(shape)
    rows = max(1, min(power_above(_guess(shape.rows)), ROWS_OF // width))
    is_kept = bool(shape.lengths) and shape.inner != Int(1)  # until it is stored again
    return Blocks(rows, _warps(rows * width, REDUCED if is_kept else 2 * REDUCED), LONGEST_ROW, STEP)


def _in_steps(shape: Shape) -> Blocks:
    if shape.is_scanned:
        return Blocks(1, 4, 0, STEP // 2)
    if len(shape.lengths) > 1:
        return Blocks(1, 4, 0, BESIDE) if _guess(shape.rows) > FEW else Blocks(1, 8, 0, STEP)
    return Blocks(1, 16, 0, STEP)


def _in_unknown_steps(shape: Shape) -> Blocks:
    """The blocks of rows that are walked in steps however short they are. A thread has so few elements that registers
    hold those of several tensors. Where there are many rows, instances are small."""
    return _in_steps(shape) if _guess(shape.rows) <= FEW else Blocks(1, 4, 0, BESIDE)


def _pointwise(shape: Shape) -> Blocks:
    each = _most_of_warp(shape)
    elements = min(ELEMENTS, WARPS * each)
    total = _guess(shape.rows) * _guess(shape.inner)
    while shape.walked > 1 and elements > LEAST_WALKED and total < BUSY * elements:
        elements //= 2
    width = min(elements, power_above(_guess(shape.inner)))
    rows = max(1, min(elements // width, power_above(_guess(shape.rows))))
    return Blocks(rows, _warps(rows * width, each), 0, width)


def _most_of_warp(shape: Shape) -> int:
    """How many elements a warp has of a tile without reductions, at most."""
    if shape.held <= MANY:
        return POINTWISE
    return 32 * max(1, power_above(REGISTERS // shape.held + 1) // 2)


def _across(shape: Shape, longest: int) -> Blocks:
    there = power_above(_guess(shape.rows))
    rows = min(ACROSS[1], there)
    while longest <= SHORT and rows > LEAST_ACROSS and there // rows < BUSY:
        rows //= 2
    is_narrow = longest <= SHORT and rows < ACROSS[1]
    length = min(SHORT_ACROSS // rows if is_narrow else ACROSS[0], power_above(longest))
    return Blocks(rows, _warps(rows * length), length, length)


def whole_rows(blocks: Blocks, longest: int, is_by_row: bool = False) -> Blocks:
    """The blocks where rows up to a length are each one block."""
    width = power_above(longest)
    rows = 1 if is_by_row else max(1, ELEMENTS // width)
    return Blocks(rows, _warps(rows * width), LONGEST_ROW, blocks.step)


def pieces_of(lanes: int, is_one: bool = False) -> list[int]:
    """The blocks of a whole row: a power of two, or two of them where that leaves far fewer lanes idle."""
    width = power_above(lanes)
    most, rest = width // 2, power_above(max(1, lanes - width // 2))
    return (
        [most, rest]
        if not is_one and lanes > number("divided_row_elements") and most + rest <= DIVIDED * width
        else [width]
    )


def split_of(rows: int, length: int, blocks: Blocks) -> tuple[int, int]:
    """Into how many parts of what length the reductions of some rows are split, so that the device has enough to do;
    1 where they are not."""
    instances = -(-rows // blocks.x)
    if instances >= number("busy_instances") or rows == 0:
        return 1, length
    each = blocks.step if blocks.step <= GATHERED else 2 * blocks.step
    least = number("split_gathered_elements" if blocks.step <= GATHERED else "split_elements")
    wanted = min(-(-number("split_instances") // instances), length // each)
    if wanted < 2 or rows * length <= least * instances:
        return 1, length
    steps = -(-length // (wanted * blocks.step))
    part = steps * blocks.step
    return -(-length // part), part


def _warps(elements: int, each: int = POINTWISE) -> int:
    """The warps of a tile of so many elements, `each` of which have one."""
    return max(1, min(MOST_WARPS, power_above(elements) // each))


def _guess(size: Index) -> int:
    return size.value if isinstance(size, Int) else GUESSED


def power_above(number: int) -> int:
    """The least power of two that is not below a number."""
    return 1 << max(0, number - 1).bit_length()
