"""A transformer compiled layer by layer, ours beside Inductor's: `python -m assay.suites.gpu.layers train`.

All layers run one compiled graph, each with its own parameters, so that compiling takes what one layer takes. What is
compared before any time is taken: the result, or the gradient of the first parameter, to eager's.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.harness.backends.registry import resolve
from assay.harness.measure import Step, alternate, median_ms

LAYERS, WIDTH, HEADS, BATCH, LENGTH = 12, 384, 6, 4, 128
SAMPLE_S = 0.05
WARM_UP = 12
TOLERANCE = 0.05
"""Of the largest number, in bfloat16 through all layers."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.given, self.made = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        given = self.given(self.before(x)).view(rows, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = given
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.made(seen.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))  # type: ignore[no-any-return]


def step_of(net: nn.Sequential, x: Tensor, mode: str) -> Callable[[], Tensor]:
    """A step of inference or training; its result is what eager's is held to."""

    def infer() -> Tensor:
        with torch.no_grad():
            return net(x)  # type: ignore[no-any-return]

    def train() -> Tensor:
        net.zero_grad()
        net(x).float().square().mean().backward()
        return next(p.grad for p in net.parameters() if p.grad is not None)

    return infer if mode == "infer" else train


def compiled(net: nn.Sequential, backend: str) -> nn.Sequential:
    """A copy of a model, whose layers are compiled one by one."""
    torch._dynamo.reset()
    wrap: Callable[..., Any] = resolve(backend).wrap
    return nn.Sequential(*map(wrap, copy.deepcopy(net)))


def measured(mode: str, given: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(0)
    net = nn.Sequential(*(Block() for _ in range(LAYERS))).to(given.device, torch.bfloat16)
    x = torch.randn(BATCH, LENGTH, WIDTH, device=given.device, dtype=torch.bfloat16)
    expected = step_of(net, x, mode)().float()
    row: dict[str, Any] = {"mode": mode}
    steps: list[Step] = []
    for backend in (given.backend, given.against):
        step = step_of(compiled(net, backend), x, mode)
        began = time.perf_counter()
        found = step().float()
        row[f"first_call_s_{backend}"] = time.perf_counter() - began
        off = float((found - expected).abs().max() / expected.abs().max())
        if not off <= TOLERANCE:  # which NaN is not either
            raise AssertionError(f"{mode}, {backend}: {off} of the largest number from eager's")
        for _ in range(WARM_UP):
            step()
        steps.append(step)
    rounds = alternate(*steps, rounds=given.rounds, device=given.device, sample_s=SAMPLE_S)
    row |= {"ms": rounds.ours_ms, "against_ms": rounds.theirs_ms}
    row |= {"speed_ratio": rounds.ratio, "speed_spread": rounds.spread}
    eager = step_of(net, x, mode)
    return row | {"eager_ms": median_ms(eager, rounds=given.rounds, device=given.device, sample_s=SAMPLE_S)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assay.suites.gpu.layers")
    parser.add_argument("modes", nargs="*", help="infer, train, or both by default")
    parser.add_argument("--backend", default="assay", help="as assay,cudagraphs=True")
    parser.add_argument("--against", default="inductor")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    if unknown := set(given.modes) - {"infer", "train"}:
        parser.error(f"no modes: {', '.join(sorted(unknown))}")
    rows = []
    for mode in given.modes or ("infer", "train"):
        rows.append(measured(mode, given))
        print(rows[-1], flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps({"torch": torch.__version__, "settings": str(given), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
