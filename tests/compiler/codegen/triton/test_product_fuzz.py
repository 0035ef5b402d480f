"""Drawn programs of products and what is around them: whichever are by tiles, they compute what they do by none."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from assay.compiler.ir.loops.kernel import Tiles
from assay.compiler.options import Options
from assay.compiler.schedule.products import Region
from assay.compiler.toolchain.load import load_kernels
from tests import kernel_ir as ir
from tests.lowering import planned, traced
from tests.product_programs import TILES, run

SIZE, INPUTS = 8, 3
STEPS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "mm": lambda x, y, z: x @ y / 4,
    "mm, plain": lambda x, y, z: x @ y * 0.25,
    "addmm": lambda x, y, z: torch.addmm(z, x, y) / 4,
    "bmm": lambda x, y, z: torch.bmm(x.reshape(2, 4, 8), y.expand(2, 8, 8)).reshape(8, 8) / 4,
    "relu": lambda x, y, z: torch.relu(x),
    "add": lambda x, y, z: x + y,
    "mul": lambda x, y, z: x * torch.tanh(y),
    "transpose": lambda x, y, z: x.t(),
    "where": lambda x, y, z: torch.where(x > 0, y, z),
    "heads": lambda x, y, z: x.reshape(2, 4, 2, 4).permute(2, 0, 1, 3).reshape(8, 8),
    "softmax": lambda x, y, z: torch.softmax(x, -1),
    "sum": lambda x, y, z: x + y.sum(0, keepdim=True) / 8,
    "copy": lambda x, y, z: x.clone().t(),
}


def drawn(seed: int) -> Callable[..., tuple[Tensor, ...]]:
    """A program of some steps, each on what is there before it, that returns some of what it made."""
    draw = random.Random(seed)
    steps = []
    for number in range(INPUTS, INPUTS + draw.randint(4, 14)):
        name = draw.choice([*STEPS, "mm", "mm", "mm, plain"])
        steps.append((STEPS[name], [draw.randrange(number) for _ in range(3)]))
    returned = [draw.randrange(INPUTS, INPUTS + len(steps)) for _ in range(draw.randint(1, 4))]

    def function(*arguments: Tensor) -> tuple[Tensor, ...]:
        values = list(arguments)
        for step, of in steps:
            values.append(step(*(values[at] for at in of)))
        return tuple(values[at] for at in returned)

    return function


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    return ir.options(tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("seed", range(40))
def test_drawn_programs_compute_the_same_by_tiles(seed: int, options: Options) -> None:
    function, generator = drawn(seed), torch.Generator().manual_seed(seed)
    arguments = [torch.randn(SIZE, SIZE, generator=generator).bfloat16() for _ in range(INPUTS)]
    chance = random.Random(seed)

    def choose(regions: Sequence[Region]) -> list[Tiles | None]:
        return [TILES if chance.random() < 0.8 else None for _ in regions]

    program = traced(function, *arguments)
    schedules = [planned(program, keep_rounding=True, choose=way) for way in (choose, None)]
    ours, plain = (run(s, arguments, dict(load_kernels(s.kernels, options))) for s in schedules)
    for found, expected, eager in zip(ours, plain, function(*arguments), strict=True):
        assert (found.dtype, found.shape, found.stride()) == (eager.dtype, eager.shape, eager.stride())
        largest = float(expected.float().abs().max()) + 1e-3
        is_far = (found.float() - expected.float()).abs() > 0.1 * largest  # a sign that rounding turned may choose
        assert float(is_far.float().mean()) <= 0.02, f"seed {seed}"
