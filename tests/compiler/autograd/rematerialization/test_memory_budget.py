"""The memory budget: a dial that never takes more when it is turned down, and changes no gradient."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.compiler.autograd.partition import Split, demands
from assay.compiler.autograd.rematerialization.memory_budget import REGION, budget_split, candidates, within
from assay.compiler.autograd.rematerialization.recompute_cost import bytes_of
from assay.compiler.autograd.rematerialization.rematerialize import cheapest_split
from assay.compiler.entry.dynamo import assay
from assay.compiler.errors import OptionError
from assay.compiler.ir.graph.roles import Program, Saved
from assay.compiler.options import Options
from assay.reference.evaluate import evaluate
from assay.reference.partition import peak_bytes
from tests.compiler.autograd.test_partition import joint_of

BUDGETS = (1.0, 0.8, 0.6, 0.5, 0.4, 0.2, 0.0)
Function = Callable[..., Any]


def drawn(seed: int) -> tuple[Function, list[Tensor]]:
    """A program of products, pointwise operators, reductions and values that are read much later."""
    draw = random.Random(seed)
    steps = [
        draw.choice(("product", "sin", "exp", "norm", "late", "gate", "views")) for _ in range(draw.randint(4, 14))
    ]

    def function(x: Tensor, w: Tensor) -> Tensor:
        values = [x]
        for step in steps:
            last = values[-1]
            match step:
                case "product":
                    made = last @ w
                case "norm":
                    made = F.layer_norm(last, (8,))
                case "late":
                    made = last + values[len(values) // 2]
                case "gate":
                    made = F.silu(last) * (last @ w.t())
                case "views":
                    made = last.t().reshape(8, 8).cos()
                case _:
                    made = getattr(torch, step)(last * 0.5)
            values.append(made)
        return values[-1].square().sum()

    return function, [torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)]


def layers(depth: int) -> tuple[Function, list[Tensor]]:
    def function(x: Tensor, *weights: Tensor) -> Tensor:
        for up, down in zip(weights[::2], weights[1::2], strict=True):
            x = x + F.gelu(F.layer_norm(x, (16,)) @ up) @ down
        return x.square().mean()

    weights = [torch.randn(*shape).mul_(0.1) for _ in range(depth) for shape in ((16, 64), (64, 16))]
    return function, [value.requires_grad_() for value in (torch.randn(256, 16), *weights)]


def in_two_halves(split: Split, inputs: list[Tensor], tangents: list[Tensor]) -> list[object]:
    forward = evaluate(split.forward.module, inputs)
    saved = [v for r, v in zip(split.forward.signature.outputs, forward, strict=True) if isinstance(r, Saved)]
    return [*forward[: len(forward) - len(saved)], *evaluate(split.backward.module, [*saved, *tangents])]


def tangents_of(joint: Program, inputs: int) -> list[Tensor]:
    return [torch.ones(node.meta["val"].shape) for node in joint.placeholders[inputs:]]


@pytest.mark.parametrize("seed", range(25))
def test_peak_never_rises_when_the_budget_falls_and_gradients_stay(seed: int) -> None:
    function, inputs = drawn(seed)
    joint = joint_of(function, inputs)
    plain = [value.detach() for value in inputs]
    tangents = tangents_of(joint, len(inputs))
    want = evaluate(joint.module, [*plain, *tangents])
    found = candidates(joint)
    chosen = [within(found, budget) for budget in BUDGETS]
    peaks = [one.peak_bytes for one in chosen]
    assert peaks == sorted(peaks, reverse=True), (seed, peaks)
    assert peaks[-1] == min(one.peak_bytes for one in found)
    for budget in (1.0, 0.5, 0.0):
        for got, expected in zip(in_two_halves(budget_split(joint, budget), plain, tangents), want, strict=True):
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


def test_what_a_budget_promises_is_what_running_the_graphs_takes() -> None:
    function, inputs = layers(12)
    joint = joint_of(function, inputs)
    taken = [peak_bytes(split.forward.module, split.backward.module) for split in
             (budget_split(joint, budget) for budget in BUDGETS)]  # fmt: skip
    assert taken == sorted(taken, reverse=True), taken
    assert taken[BUDGETS.index(0.5)] <= 0.65 * taken[0] and taken[-1] <= 0.35 * taken[0], taken


def test_budget_of_one_is_the_cheapest_cut() -> None:
    function, inputs = layers(3)
    joint = joint_of(function, inputs)
    kept = [{role.of for role in made.forward.signature.outputs if isinstance(role, Saved)}
            for made in (budget_split(joint, 1.0), cheapest_split(joint))]  # fmt: skip
    assert kept[0] == kept[1]


def test_a_lower_budget_computes_more_again() -> None:
    function, inputs = layers(8)
    found = candidates(joint_of(function, inputs))
    times = [within(found, budget).again_ps for budget in BUDGETS]
    assert times == sorted(times) and times[-1] > 2 * times[0], times


def kept_by(split: Split) -> dict[str, int]:
    """The bytes of each computed value that forward keeps."""
    pairs = zip(split.forward.signature.outputs, split.forward.returned, strict=True)
    nodes = [node for role, node in pairs if isinstance(role, Saved) and node.op == "call_function"]  # type: ignore[union-attr]
    return {node.name: bytes_of(node.meta["val"]) for node in nodes}  # type: ignore[union-attr]


@pytest.mark.parametrize("shares", [(0.0, None), (None, 0.0), (0.5, 0.0), (1.0, 0.0), (0.3, 0.6), (0.0, 0.0)], ids=str)
def test_a_region_keeps_its_own_budget(shares: tuple[float | None, float | None]) -> None:
    """The two halves of a model, each with a budget, or with none."""
    function, inputs = layers(4)
    joint = joint_of(function, inputs)
    plain = kept_by(cheapest_split(joint))
    forward = [node for node in joint.module.graph.nodes if node.op == "call_function" and node in demands(joint)[0]]
    halves = forward[: len(forward) // 2], forward[len(forward) // 2 :]
    for half, share in zip(halves, shares, strict=True):
        for node in half:
            node.meta["custom"] = {} if share is None else {REGION: share}
    split = budget_split(joint, 1.0)
    kept = kept_by(split)
    for half, share in zip(halves, shares, strict=True):
        names = {node.name for node in half}
        before, now = (sum(size for name, size in of.items() if name in names) for of in (plain, kept))
        if share in (None, 1.0):
            assert {name for name in plain if name in names} <= kept.keys()
        else:  # and what crosses from one half to the other
            assert now <= share * before + 2 * 256 * 16 * 4, (share, before, now)
    leaves = [value.detach() for value in inputs]
    tangents = tangents_of(joint, len(inputs))
    for got, want in zip(
        in_two_halves(split, leaves, tangents), evaluate(joint.module, [*leaves, *tangents]), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.skipif(not hasattr(torch.autograd.graph, "region_activation_memory_budget"), reason="torch before 2.13")
def test_torchs_regions_may_cover_a_part_of_the_graph() -> None:
    """Torch refuses a budget of a part, and two budgets in one graph."""
    region = torch.autograd.graph.region_activation_memory_budget

    def function(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(3):
            x = F.gelu(x @ w) @ w.t()
        with region(0.0):
            x = F.gelu(x @ w) @ w.t()
        with region(0.4):
            x = F.dropout(F.gelu(x @ w), 0.3) @ w.t()
        return x.square().mean()

    def eager(x: Tensor, w: Tensor) -> Tensor:
        for depth in range(5):
            x = F.gelu(x @ w)
            x = (F.dropout(x, 0.3) if depth == 4 else x) @ w.t()
        return x.square().mean()

    leaves = [torch.randn(64, 16, requires_grad=True), torch.randn(16, 32).div_(8).requires_grad_()]
    found = []
    for one in (eager, torch.compile(function, backend=assay, options={"fallback": "error"})):
        torch.manual_seed(3)
        found.append(torch.autograd.grad(one(*leaves), leaves))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("rows", [16, 2048], ids=["kept", "drawn again"])
@pytest.mark.parametrize("numerics", ["fast", "exact"])
@pytest.mark.parametrize("budget", BUDGETS[1:])
def test_gradients_of_three_dropouts_are_eagers_at_every_budget(budget: float, numerics: str, rows: int) -> None:
    model = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.4))])
    x = torch.randn(rows, 32)
    compiled = torch.compile(model, backend=assay, options={"memory_budget": budget, "numerics": numerics})
    found = []
    for function in (model, compiled):
        torch.manual_seed(3)
        function(x).square().sum().backward()
        found.append([p.grad for p in model.parameters()] + [torch.rand(2)])
        model.zero_grad()
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5 * rows / 16)


@pytest.mark.parametrize("value", [-0.1, 1.5, "0.5", True])
def test_a_budget_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(OptionError, match="memory_budget"):
        Options.of({"memory_budget": value}, None)
