"""The cheapest cut against every cut: of small networks, and of the joint graphs of small programs."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor, fx, nn

from assay.compiler.autograd.partition import Split, default_split, split
from assay.compiler.autograd.rematerialization import rematerialize
from assay.compiler.autograd.rematerialization.max_flow import SINK, SOURCE, UNCUTTABLE, Network
from assay.compiler.ir.graph.roles import Program, Saved
from assay.compiler.ir.graph.trace import RECOMPUTED
from assay.reference.evaluate import evaluate
from assay.reference.partition import cheapest_of, cost_of
from tests.compiler.autograd.test_partition import joint_of

Edges = list[tuple[int, int, int]]


def network_of(edges: Edges, nodes: int) -> Network:
    made = Network()
    for _ in range(nodes - 2):
        made.add_node()
    for edge in edges:
        made.add_edge(*edge)
    return made


def capacity(edges: Edges, side: set[int]) -> int:
    return sum(amount for tail, head, amount in edges if tail in side and head not in side)


def test_max_flow_cuts_as_cheaply_as_every_cut_tried() -> None:
    draw = random.Random(0)
    for _ in range(300):
        nodes = draw.randint(3, 8)
        tails = [(draw.randrange(nodes), draw.randrange(nodes)) for _ in range(draw.randint(1, 20))]
        edges = [(tail, head, draw.choice((1, 2, 5, 20))) for tail, head in tails if tail != head]
        side = network_of(edges, nodes).source_side()
        assert SOURCE in side and SINK not in side
        sides = (
            {SOURCE, *(node for node, is_in in enumerate(bits, 2) if is_in)}
            for bits in product((0, 1), repeat=nodes - 2)
        )
        assert capacity(edges, side) == min(capacity(edges, tried) for tried in sides)


def test_max_flow_says_that_there_is_no_cut() -> None:
    with pytest.raises(ValueError, match="no cut"):
        network_of([(SOURCE, 2, UNCUTTABLE), (2, SINK, UNCUTTABLE)], 3).source_side()


# ---- joint graphs


def functions() -> dict[str, tuple[Callable[..., object], list[Tensor]]]:
    x, w = torch.randn(4, 6, requires_grad=True), torch.randn(6, 6, requires_grad=True)
    b = torch.randn(6, requires_grad=True)
    return {
        "chain": (lambda a: ((a * 2).sigmoid().exp() * 3).sin().cos(), [x]),
        "chain between products": (lambda a, w: (torch.sigmoid(a @ w) * 2).exp().tanh() @ w, [x, w]),
        "gate": (lambda a, w: (nn.functional.silu(a @ w) * (a @ w.t())) @ w, [x, w]),
        "norm": (lambda a, w, b: (a * (a * a).mean(1, keepdim=True).add(1e-6).rsqrt() * b) @ w, [x, w, b]),
        "views": (lambda a, w: ((a @ w).t().reshape(2, 12).exp() * 3).sin(), [x, w]),
        "of what the user holds": (lambda a, b: (h := (a @ b).exp(), (h.sin() + 1).exp().sum()), [x, w]),
        "bias of the user": (lambda a, w, b: (((a @ w) + b).exp() + 1).sin() @ w, [x, w, b]),
        "several results of one call": (lambda a, w: nn.functional.logsigmoid(a * 2) @ w, [x, w]),
        "dropout": (lambda a, w: nn.functional.dropout(nn.functional.gelu(a @ w), 0.5) @ w, [x, w]),
    }


@pytest.mark.parametrize("name", [name for name in functions() if name != "dropout"])
def test_cheapest_split_computes_what_the_joint_graph_does(name: str) -> None:
    function, inputs = functions()[name]
    assert_bitwise(joint_of(function, inputs), inputs)


def assert_bitwise(joint: Program, inputs: list[Tensor]) -> None:
    """Holds forward, then backward, to the joint graph."""
    plain = [value.detach() for value in inputs]
    tangents = [torch.randn(node.meta["val"].shape) for node in joint.placeholders[len(inputs) :]]
    want = evaluate(joint.module, [*plain, *tangents])
    made = rematerialize.cheapest_split(joint)
    forward = evaluate(made.forward.module, plain)
    saved = [v for r, v in zip(made.forward.signature.outputs, forward, strict=True) if isinstance(r, Saved)]
    backward = evaluate(made.backward.module, [*saved, *tangents])
    for got, expected in zip([*forward[: len(forward) - len(saved)], *backward], want, strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


def assert_cheapest(joint: Program, most: int) -> None:
    """Holds the cost of the cut to the least that the mirror finds by trying every choice of up to `most` values."""
    choice = rematerialize._Choice(joint, *rematerialize.demands(joint))
    chosen = frozenset(choice.run())
    movable = {node for node in choice.entries if choice._is_movable(node)}
    free = frozenset(node for node in movable if rematerialize.is_free(node))
    choices = sorted(movable - free, key=lambda node: node.name)
    assert chosen <= set(choice.entries) and len(choices) <= most, len(choices)

    def costs(node: fx.Node) -> tuple[int, int]:
        return choice._keep(node), choice._again(node) if node in movable else UNCUTTABLE

    wanted = list(choice.wanted)
    assert cost_of(costs, wanted, free | chosen) == cheapest_of(costs, wanted, choices, free)


@pytest.mark.parametrize("name", functions())
def test_cheapest_split_costs_no_more_than_any_other(name: str) -> None:
    function, inputs = functions()[name]
    assert_cheapest(joint_of(function, inputs), 9)


@pytest.mark.parametrize("seed", range(12))
def test_cheapest_split_of_a_random_graph_is_the_mirrors_and_bitwise_the_joint_graph(seed: int) -> None:
    function, inputs = drawn(seed)
    joint = joint_of(function, inputs)
    assert_cheapest(joint, 12)
    assert_bitwise(joint, inputs)


STEPS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: a @ b,
    lambda a, b: a * b,
    lambda a, b: a.sin() + b,
    lambda a, b: a.t().exp(),
    lambda a, b: a - a.mean(0),
    lambda a, b: a.sigmoid().sum(1, keepdim=True) * b,
    lambda a, b: a.reshape(2, 8).cos().reshape(4, 4),
)


def drawn(seed: int) -> tuple[Callable[..., object], list[Tensor]]:
    """A few operators of many kinds, each on values that a hash of the seed chooses."""
    draw = random.Random(seed)
    steps = [(draw.randrange(len(STEPS)), draw.random(), draw.random()) for _ in range(draw.randint(3, 7))]

    def function(x: Tensor, w: Tensor) -> Tensor:
        values = [x, w]
        for kind, first, second in steps:
            a, b = (values[int(place * len(values))] for place in (first, second))
            values.append(STEPS[kind](a, b))
        return sum((value * (index + 1) for index, value in enumerate(values)), torch.zeros(4, 4))

    return function, [torch.randn(4, 4, requires_grad=True) for _ in range(2)]


def saved_bytes(made: Split) -> int:
    pairs = zip(made.forward.signature.outputs, made.forward.returned, strict=True)
    values = [node.meta["val"] for role, node in pairs if isinstance(role, Saved) and node.op != "placeholder"]  # type: ignore[union-attr]
    return sum(value.nbytes for value in values)


@pytest.mark.parametrize("name", ["chain between products", "gate", "norm"])
def test_cheapest_split_saves_less_than_what_backward_reads(name: str) -> None:
    function, inputs = functions()[name]
    joint = joint_of(function, inputs)
    assert saved_bytes(rematerialize.cheapest_split(joint)) < saved_bytes(default_split(joint))


def test_recomputed_values_stand_right_before_their_readers_and_are_rounded_as_before() -> None:
    x, w = (torch.randn(4, 4).bfloat16().requires_grad_() for _ in range(2))
    joint = joint_of(lambda a, w: ((a @ w).exp() @ w).exp() @ w, [x, w])
    made = split(joint, lambda node: rematerialize.may_be_again(node) or rematerialize.is_free(node))
    nodes = [node for node in made.backward.module.graph.nodes if node.op == "call_function"]
    again = [node for node in nodes if RECOMPUTED in node.meta and node.target is torch.ops.aten.exp.default]
    assert not any(RECOMPUTED in node.meta for node in made.forward.module.graph.nodes)
    assert len(again) == 2 and nodes.index(again[0]) == 0
    products = [nodes.index(node) for node in nodes if node.target is torch.ops.aten.mm.default]
    assert sum(place < nodes.index(again[1]) for place in products) >= 2, "the first layer's, after the second's"


def test_what_is_returned_too_is_computed_again_for_no_more_than_its_elements() -> None:
    """A copy of a product that the user gets: for backward the product is kept, in its bytes, and not what follows."""

    def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        copy = (x @ w)[:, :-1].clone()
        return (copy.float() + 1).exp() * 2, copy

    joint = joint_of(function, [torch.randn(64, 64).bfloat16().requires_grad_() for _ in range(2)])
    made = rematerialize.cheapest_split(joint)
    assert saved_bytes(made) < 64 * 63 * 4, "the powers, in float32"


def test_rematerialized_takes_a_chain_of_any_length() -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(700):
            x = x * 0.5 + 1
        return x.sin().sum()

    joint = joint_of(chain, [torch.randn(4, requires_grad=True)])
    assert not rematerialize.rematerialized(joint), (
        "one value is wanted, and to keep it costs less than 1,400 operators"
    )
