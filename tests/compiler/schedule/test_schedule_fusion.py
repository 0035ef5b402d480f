"""Fusion: the same program, in few kernels, with no cycle, in linear time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from assay.compiler.ir.graph.roles import Program, Signature, UserInput, UserOutput
from assay.compiler.ir.loops import rewrite
from assay.compiler.ir.loops.kernel import Allocate, CallAten, Kernel, Launch, Reuse, Schedule
from assay.compiler.ir.loops.text import show
from assay.compiler.machine import NUMBERS, Number, number
from assay.compiler.schedule.dependence import may_overwrite
from assay.compiler.schedule.fuse import MOST_INLINED
from tests.lowering import assert_same, check, executable, planned, traced
from tests.stated_numbers import state

aten = torch.ops.aten


def launches(schedule: Schedule) -> list[Launch]:
    return [step for step in schedule.steps if isinstance(step, Launch)]


def writes(schedule: Schedule) -> int:
    """How many tensors the kernels store."""
    return sum(isinstance(step, Allocate | Reuse) for step in schedule.steps)


def layer_norm_by_hand(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    mean = x.mean(-1, keepdim=True)
    gap = x - mean
    rstd = ((gap * gap).mean(-1, keepdim=True) + 1e-5).rsqrt()
    return gap * rstd, mean, rstd


def softmax_by_hand(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    e = (x - x.amax(-1, keepdim=True)).exp()
    return (e / e.sum(-1, keepdim=True),)


def loss_of_two_softmaxes(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (-(x.log_softmax(-1) * y.softmax(-1)).sum(-1),)


WHOLE: dict[str, tuple[Callable[..., Any], tuple[torch.Size | tuple[int, ...], ...], int, int]] = {
    "pointwise chain": (lambda x: ((x * 2 + 1).relu().exp(),), ((4, 6),), 1, 1),
    "saved and used": (lambda x: (x.tanh(), x.tanh() * 2), ((4, 6),), 1, 2),
    "x and relu": (lambda x, y: (x + y, (x + y).relu()), ((4, 6), (4, 6)), 1, 2),
    "softmax": (softmax_by_hand, ((9, 6),), 1, 1),
    "softmax operator": (lambda x: ((x * 0.5).softmax(-1),), ((9, 6),), 1, 1),
    "masked softmax": (lambda x, m: (torch.where(m > 0, x, -1e9).softmax(-1),), ((2, 9, 6), (2, 1, 6)), 1, 1),
    "layer norm": (layer_norm_by_hand, ((9, 6),), 1, 3),
    "residual layer norm": (lambda x, y: (x + y, *layer_norm_by_hand(x + y)), ((2, 9, 6), (2, 9, 6)), 1, 4),
    "loss of two softmaxes": (loss_of_two_softmaxes, ((9, 6), (9, 6)), 1, 1),
    "reductions share inputs": (lambda x: (x.sum(1), x.amax(1), (x * x).sum(1)), ((9, 6),), 1, 3),
    "padded activation": (
        lambda x, w, b: (F.pad((x * w + b).clamp(0, 6), (1, 1, 1, 1)),),
        ((2, 3, 16, 16), (3, 1, 1), (3, 1, 1)),
        1,
        1,
    ),
    "scaled rows and rows summed": (lambda x, y: ((x * y).sum(0), x.sum(0)), ((9, 6), (9, 1)), 1, 2),
    "slices, each used once": (
        lambda x: tuple(x.exp()[:, k] * float(k) for k in range(4)),
        ((9, 4, 6),),
        1,
        4,
    ),
    "outer product used twice": (
        lambda x, y: (lambda product: (product.sum(0), product.amax(1)))(x[:, None] * y),
        ((9,), (9,)),
        1,
        2,
    ),
    "epilogue": (lambda x: (x.sum(-1).sqrt() * 2 + 1,), ((9, 6),), 1, 1),
    "flattened rows": (lambda x: (layer_norm_by_hand(x)[0].view(18, 6) * 2,), ((2, 9, 6),), 1, 1),
}


@pytest.mark.parametrize("name", WHOLE)
def test_fuse_into_one_kernel(name: str) -> None:
    function, shapes, kernels, stores = WHOLE[name]
    schedule = check(function, *(torch.randn(shape) for shape in shapes))
    assert len(launches(schedule)) == kernels, "\n".join(show(kernel) for kernel in schedule.kernels)
    assert writes(schedule) == stores


def test_fuse_computes_later_what_nothing_reads_before() -> None:
    """As backward does what it computes again: it could be before a product, and is read only after it."""

    def function(x: torch.Tensor, g: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = (x * 3).tanh()
        return ((g @ w) * (1 - y * y) + y,)

    x, g, w = (torch.randn(8, 8) for _ in range(3))
    schedule = check(function, x, g, w)
    (launch,) = launches(schedule)
    assert len(launch.kernel.buffers) == 3, "x, the product and the result"


def test_fuse_computes_early_what_is_smaller_than_it_reads() -> None:
    """Else what it reads would stay in memory."""

    def function(x: torch.Tensor, g: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.sum(2).tanh()
        return ((g @ w) * (1 - y * y) + y,)

    schedule = check(function, torch.randn(8, 8, 9), torch.randn(8, 8), torch.randn(8, 8))
    assert len(launches(schedule)) == 2


def test_fuse_keeps_where_it_is_what_a_call_reads() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = (x * 3).tanh()
        return ((y @ w) * (1 - y * y) + y,)

    assert len(launches(check(function, torch.randn(8, 8), torch.randn(8, 8)))) == 2


def test_fuse_makes_no_cycle_through_aten() -> None:
    """y is made of x before and after a call that reads what the first kernel makes."""

    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x.exp()
        b = a @ w
        return a + b, a * 2, (b + a).relu() @ a

    schedule = check(function, torch.randn(5, 5), torch.randn(5, 5))
    assert isinstance(next(step for step in schedule.steps if isinstance(step, Launch | CallAten)), Launch)


def test_fuse_does_not_evaluate_an_expensive_value_in_a_broadcast() -> None:
    """exp of a row is stored once; it is not computed again for each of the rows that it is added to."""
    x, b = torch.randn(5000, 64), torch.randn(64)
    schedule = planned(traced(lambda x, b: (x + b.exp().sin().cos(),), x, b))
    stored = [node for kernel in schedule.kernels[1:] for node in _calls(kernel)]
    assert len(schedule.kernels) == 2 and "exp" not in stored and "sin" not in stored


def _calls(kernel: Kernel) -> list[str]:
    return [node.op for node in nodes_of(kernel) if isinstance(node, rewrite.Call)]


def nodes_of(kernel: Kernel) -> list[rewrite.Expr]:
    return rewrite.nodes(*(store.expr for store in kernel.stores))


def normalized_by_channels(
    x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, w: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor]:
    """A batch norm of images in inference: a factor and a term for each channel."""
    factor = (variance + 1e-5).rsqrt() * w
    return ((x * factor[:, None, None] + (b - mean * factor)[:, None, None]).relu(),)


def gradients_of_norm_and_relu(
    grad: torch.Tensor, y: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Those of a batch norm and its ReLU, of halves that are computed with as float32."""
    masked = torch.where(y <= 0, 0.0, grad.float())
    gap = x.float() - mean
    total, along = masked.sum(0), (masked * gap).sum(0)
    return ((masked - total / len(x) - gap * along * rstd**2 / len(x)) * rstd).to(x.dtype), along * rstd, total


def test_fuse_computes_again_what_takes_more_bytes_to_store() -> None:
    """The gradient behind the ReLU, as float32, is read by three, and is made of two halves."""
    halves = [torch.randn(300, 64).to(torch.bfloat16) for _ in range(3)]
    schedule = check(gradients_of_norm_and_relu, *halves, torch.randn(64), torch.rand(64), rtol=2e-2, atol=2e-2)
    made = [step for step in schedule.steps if isinstance(step, Allocate)]
    assert [step.dtype for step in made if len(step.size) == 2] == [torch.bfloat16]


def test_fuse_stores_what_takes_as_many_bytes_to_compute_again() -> None:
    """A sum of four tensors that two sums read, along other axes."""

    def function(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = args[0] + args[1] + args[2] + args[3]
        return total.sum(0), total.sum(1)

    schedule = planned(traced(function, *(torch.randn(300, 200) for _ in range(4))))
    assert any(isinstance(step, Allocate) and len(step.size) == 2 for step in schedule.steps)


@pytest.mark.parametrize(("device", "kernels"), [("cpu", 2), ("cuda", 1)])
def test_fuse_launches_nothing_for_small_values_of_inputs_on_a_gpu(
    device: str, kernels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MOST_INLINED, "cpu", MOST_INLINED[device])
    elements = {"cpu": 0, "cuda": number("input_elements_cuda")}[device]
    monkeypatch.setitem(NUMBERS, "input_elements_cpu", Number(elements, "of the test"))
    state(monkeypatch, spread_work_cpu=number(f"spread_work_{device}"))
    inputs = (torch.randn(4, 8, 16, 16), torch.randn(8), torch.rand(8), torch.randn(8), torch.randn(8))
    program = traced(normalized_by_channels, *inputs)
    schedule = planned(program)
    assert len(launches(schedule)) == kernels
    (found,) = executable(schedule)(list(inputs))
    assert_same(found, normalized_by_channels(*inputs)[0], "the result")


def test_fuse_stores_what_is_made_from_a_sum_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is part of the kernel that sums; its readers would compute it again for nothing."""
    monkeypatch.setitem(NUMBERS, "input_elements_cpu", NUMBERS["input_elements_cuda"])

    def scaled(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x * (x.sum((0, 2)) + 1).rsqrt().exp()[:, None],)

    kernels = [show(step.kernel) for step in launches(planned(traced(scaled, torch.randn(64, 32, 64))))]
    assert len(kernels) == 2 and "exp" not in kernels[1]


def test_equal_layers_share_kernels() -> None:
    def function(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        for weight in weights:
            x = F.layer_norm(x + F.gelu(x @ weight), (8,))
        return (x,)

    schedule = check(function, torch.randn(6, 8), *(torch.randn(8, 8) for _ in range(6)), rtol=1e-4, atol=1e-5)
    assert len(schedule.kernels) <= 2 and len(launches(schedule)) == 6


def test_fusion_makes_no_cycle_through_the_order_of_calls_with_effects() -> None:
    """The product reads a draw that comes after one that reads what the product's kernel would also compute."""

    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        chance = torch.sigmoid(x @ w)
        first = torch.bernoulli(chance)
        return chance * torch.rand_like(x), first

    schedule = planned(traced(function, torch.randn(4, 4), torch.randn(4, 4)))
    assert len(launches(schedule)) == 2
    draws = [step.target for step in schedule.steps if isinstance(step, CallAten) and "mm" not in str(step.target)]
    assert draws == [aten.bernoulli.default, aten.rand_like.default]


def test_contiguous_pointwise_is_one_loop() -> None:
    schedule = check(lambda x: (x + 1,), torch.randn(3, 4, 5))
    assert [len(kernel.loops) for kernel in schedule.kernels] == [1]


def test_channels_last_walks_memory_in_order() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    schedule = check(lambda x: (x * 2,), x)
    assert [len(kernel.loops) for kernel in schedule.kernels] == [1]


def test_reshape_between_pointwise_stays_affine() -> None:
    schedule = check(lambda x: ((x + 1).view(6, 20).exp().view(2, 3, 4, 5) * 2,), torch.randn(2, 3, 4, 5))
    assert (
        len(launches(schedule)) == 1 and "//" not in show(schedule.kernels[0]) and "%" not in show(schedule.kernels[0])
    )


class _Counter:
    """Counts how often expressions are rewritten."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.visited = 0
        original = rewrite.map_children

        def counting(*args: Any) -> Any:
            self.visited += 1
            return original(*args)

        monkeypatch.setattr(rewrite, "map_children", counting)


def chain(length: int) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    value = torch._subclasses.FakeTensorMode().from_tensor(torch.empty(4, 8))
    node = graph.placeholder("x")
    node.meta["val"] = value
    for position in range(length):
        node = graph.call_function((aten.sin if position % 3 else aten.relu).default, (node,))
        node.meta["val"] = value
    graph.output([node])
    return torch.fx.GraphModule({}, graph)


def test_fuse_is_linear_in_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for length in (1000, 10000):
        counter = _Counter(monkeypatch)
        schedule = planned(Program(chain(length), Signature((UserInput(0),), (UserOutput(0),))))
        assert schedule.counts.generated == length
        assert len(schedule.kernels) < 12, "the pieces of a chain are mostly equal"
        counts.append(counter.visited / length)
    assert counts[1] < 1.5 * counts[0] < 60


def test_fuse_does_not_grow_exponentially() -> None:
    """Each value is used twice by the next one: shared, not copied."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        for _ in range(40):
            x = x.sin() * x.cos() + x
        return (x,)

    schedule = check(function, torch.randn(3), rtol=1e-4, atol=1e-4)
    size = max(len(rewrite.nodes(*(s.expr for s in kernel.stores))) for kernel in schedule.kernels)
    assert size < 500


def test_reuse_overwrites_only_what_is_dead_and_private() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        for _ in range(12):
            x = (x.sin().cos().exp() + x.tanh()).sigmoid() * x.erf()
            x = x.log1p().sqrt().tan().sinh().relu().asinh().atan()
        return (x,)

    schedule = check(function, torch.rand(3, 4), torch.randn(1), rtol=1e-4, atol=1e-4)
    reused = [step for step in schedule.steps if isinstance(step, Reuse)]
    for step in reused:
        assert step.of not in schedule.inputs


def test_may_overwrite_refuses_another_index() -> None:
    flipped = planned(traced(lambda x: (x.flip(0) * 2,), torch.randn(6))).kernels[0]
    straight = planned(traced(lambda x: (x * 2,), torch.randn(6))).kernels[0]
    summed = planned(traced(lambda x: (x / x.sum(),), torch.randn(6))).kernels[0]
    found = [may_overwrite(kernel, "in0", "out0") for kernel in (straight, flipped, summed)]
    assert found == [True, False, False]


MODES = [
    pytest.param(mode, keep, id=f"{mode}{'-rounded' if keep else ''}")
    for mode in ("fake", "symbolic")
    for keep in (False, True)
]


@pytest.mark.parametrize(("mode", "keep_rounding"), MODES)
def test_a_transformer_block_with_gradients(mode: str, keep_rounding: bool) -> None:
    torch.manual_seed(0)
    shapes = {"q": (8, 8), "k": (8, 8), "v": (8, 8), "o": (8, 8), "a": (8, 16), "b": (16, 8)}

    def function(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        leaves = [weight.detach().requires_grad_() for weight in weights]
        w = dict(zip(shapes, leaves, strict=True))
        batch, length, width = x.shape
        h = F.layer_norm(x, (width,))
        q, k, v = ((h @ w[name]).view(batch, length, 2, width // 2).transpose(1, 2) for name in "qkv")
        scores = (q @ k.transpose(-1, -2)) * 0.5
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
        y = x + mixed @ w["o"]
        y = y + F.gelu(F.layer_norm(y, (width,)) @ w["a"]) @ w["b"]
        gradients = torch.autograd.grad((y * y).mean(), leaves)
        return (y.detach(), *gradients)

    args = (torch.randn(2, 3, 8), *(torch.randn(shape) * 0.3 for shape in shapes.values()))
    schedule = planned(traced(function, *args, mode=mode), keep_rounding=keep_rounding)
    for ours, theirs in zip(executable(schedule)(list(args)), function(*args), strict=True):
        assert_same(ours, theirs, "block", rtol=1e-4, atol=1e-5)
    assert schedule.counts.generated >= 0.9 * schedule.counts.compute, schedule.counts


@pytest.mark.parametrize("stride", [(6, 2, 1), (1, 2, 6), (1, 6, 2)], ids=str)
def test_the_largest_of_some_sums_is_one_of_them(stride: tuple[int, ...]) -> None:
    """The gradient of a largest sum goes to the sums that equal it: one added up in another order is none of them."""
    run = torch.compile(lambda x: torch.linalg.matrix_norm(x, 1), backend="assay")
    for seed in range(20):
        given = torch.randn(2, 3, 2, generator=torch.Generator().manual_seed(seed)) * 9
        ours, theirs = (torch.empty_strided((2, 3, 2), stride).copy_(given).requires_grad_() for _ in range(2))
        run(ours).sum().backward()
        torch.linalg.matrix_norm(theirs, 1).sum().backward()
        assert torch.equal(ours.grad, theirs.grad)


def turned_by_positions(grad: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The gradient of queries or keys whose halves were turned by their positions."""
    moved = grad * sin
    return grad * cos + torch.cat((moved[..., 16:], -moved[..., :16]), -1)


def test_fuse_turns_by_positions_in_one_kernel() -> None:
    """No half is stored that the other is put beside."""

    def function(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (turned_by_positions(*args).transpose(0, 1).contiguous(),)

    schedule = check(function, torch.randn(6, 40, 32), torch.randn(40, 32), torch.randn(40, 32), rtol=1e-5, atol=1e-5)
    assert len(launches(schedule)) == writes(schedule) == 1


def test_fuse_adds_negative_zeros_up_as_eager() -> None:
    zeros = torch.full((3, 2, 50), -0.0)
    schedule = planned(traced(lambda x: (x.sum(1) * 2,), zeros))
    (found,) = executable(schedule)([zeros])
    assert torch.equal(found.signbit(), (zeros.sum(1) * 2).signbit())
