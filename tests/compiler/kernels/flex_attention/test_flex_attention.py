"""Attention whose scores a program changes: one kernel with its functions, against torch's formula in float64."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._C import DispatchKey
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from assay.compiler.kernels.flex_attention.cpu import AttentionKernel
from assay.compiler.kernels.flex_attention.cpu_backward import BackwardKernel

FARTHER = 4.0
"""How much farther from float64 than torch's formula a result may be: each is another order of the same sums."""
LEAST = {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}
HOP = torch.ops.higher_order.flex_attention
FORMULA = HOP.py_kernels[DispatchKey.CompositeExplicitAutograd]

Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Program:
    """A call of attention: sizes, a score and a mask function, and the block sizes of its mask."""

    name: str
    sizes: tuple[int, int, int, int, int, int] = (2, 2, 3, 70, 70, 16)  # batches, heads of k and of q for each, s, t, d
    score: Function | None = None
    mask: Function | None = None
    block: tuple[int, int] = (32, 48)
    depth: int | None = None

    def heads(self, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        b, g, n, s, t, d = self.sizes
        torch.manual_seed(3)
        shapes = ((b, g * n, s, d), (b, g, t, d), (b, g, t, self.depth or d))
        return [torch.randn(shape).to(dtype) for shape in shapes]

    def block_mask(self) -> BlockMask | None:
        _, _, _, s, t, _ = self.sizes
        return self.mask and create_block_mask(self.mask, None, None, s, t, device="cpu", BLOCK_SIZE=self.block)

    def call(self) -> Callable[..., Any]:
        mask, several = self.block_mask(), self.sizes[2] > 1
        return lambda q, k, v: flex_attention(q, k, v, self.score, mask, enable_gqa=several, return_lse=True)

    def formula(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Torch's formula, and its logarithms to base e."""
        score = self.score or (lambda score, *_: score)
        mask = self.mask or (lambda b, h, q, k: q >= 0)
        out, logs, _ = FORMULA(q, k, v, score, (mask,), 1 / math.sqrt(q.shape[-1]), {})
        return out, logs * math.log(2)


def causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q >= k


SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.1, 0.05, 0.01])
DOCUMENTS = (torch.arange(70) // 30).int()
TABLE = torch.linspace(-1, 1, 6 * 140).view(140, 6).t()

PROGRAMS = [
    Program("nothing changed"),
    Program("one row, one key", (1, 1, 1, 1, 1, 16)),
    Program("causal", mask=causal),
    Program("causal, of whole blocks too", (1, 2, 1, 300, 300, 64), mask=causal, block=(128, 128)),
    Program("more keys than a tile takes", (1, 1, 2, 50, 600, 32), score=lambda s, b, h, q, k: s * 2),
    Program("a window", mask=lambda b, h, q, k: (q >= k) & (q - k < 20)),
    Program("rows that are hidden", mask=lambda b, h, q, k: (q >= k) & (q != 40) & (q < 60)),
    Program("odd depths", (2, 2, 1, 33, 65, 7), mask=causal, depth=21),
    Program("slopes", score=lambda s, b, h, q, k: s + SLOPES[h] * (k - q), mask=causal),
    Program("capped", score=lambda s, b, h, q, k: 20 * torch.tanh(s / 20)),
    Program("documents", mask=lambda b, h, q, k: (q >= k) & (DOCUMENTS[q] == DOCUMENTS[k])),
    Program("a table that lies across", score=lambda s, b, h, q, k: s + TABLE[h, q - k + 70]),
    Program("chosen scores", score=lambda s, b, h, q, k: torch.where((q + b) % 3 == h % 3, s, s - 1.5), mask=causal),
    Program("hidden by the score", score=lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf"))),
    Program("blocks of one row", (1, 1, 1, 9, 40, 16), mask=causal, block=(1, 16)),
]


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each kernel has run."""
    made = Counter[str]()

    def counted(kind: type) -> Callable[..., Any]:
        original = kind.__call__  # type: ignore[operator]

        def call(self: object, *args: object) -> Any:
            made[kind.__name__] += 1
            return original(self, *args)

        return call

    for kind in (AttentionKernel, BackwardKernel):
        monkeypatch.setattr(kind, "__call__", counted(kind))
    torch._dynamo.reset()
    yield made


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="assay", options={"fallback": "error"}, **options)


def check_near(found: Sequence[Tensor], eager: Sequence[Tensor], exact: Sequence[Tensor]) -> None:
    """Each value lies as eager's does and is as near to float64."""
    for one, other, wide in zip(found, eager, exact, strict=True):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        assert torch.equal(one.isinf(), other.isinf()) and torch.equal(one.isnan(), other.isnan())
        error, of_eager = (float((each - wide).abs().nan_to_num(0, 0, 0).max()) for each in (one, other))
        assert error <= max(
            FARTHER * of_eager, LEAST[one.dtype] * max(1.0, float(wide.nan_to_num(0, 0, 0).abs().max()))
        )


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.name)
def test_kernel_is_as_near_to_float64_as_torchs_formula(program: Program, calls: Counter[str]) -> None:
    heads = program.heads()
    found = compiled(program.call())(*heads)
    check_near(found, program.formula(*heads), program.formula(*(each.double() for each in heads)))
    assert calls["AttentionKernel"] == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_kernel_of_halves_rounds_once(dtype: torch.dtype, calls: Counter[str]) -> None:
    program = PROGRAMS[8]
    heads = program.heads(dtype)
    found = compiled(program.call())(*heads)
    check_near(found, program.formula(*heads), program.formula(*(each.double() for each in heads)))
    assert calls["AttentionKernel"] == 1


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (1, 2, 0, 3), (0, 1, 3, 2)])
def test_result_lies_as_the_query_does(order: tuple[int, ...], calls: Counter[str]) -> None:
    program = Program("causal", mask=causal)
    inverse = [order.index(dim) for dim in range(4)]
    heads = [each.permute(order).contiguous().permute(inverse) for each in program.heads()]
    found = compiled(program.call())(*heads)
    check_near(found, program.formula(*heads), program.formula(*(each.double() for each in heads)))
    assert calls["AttentionKernel"] == 1


def test_numbers_that_are_not_finite_show_as_in_eager(calls: Counter[str]) -> None:
    program = Program("hidden rows", (2, 2, 1, 70, 70, 16), mask=lambda b, h, q, k: (q >= k) & (q < 60))
    q, k, v = program.heads()
    q[0, 0, 5, 3], k[0, 1, 9, 2], v[1, 0, 66, 4], v[1, 1, 3, 3] = math.nan, math.inf, math.inf, math.nan
    found = compiled(program.call())(q, k, v)
    for one, other in zip(found, program.formula(q, k, v), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert calls["AttentionKernel"] == 1


def test_kernel_reads_the_blocks_that_the_mask_lists(calls: Counter[str]) -> None:
    counts, indices = torch.tensor([[[1, 2]]]).int(), torch.tensor([[[[1, 0], [0, 2]]]]).int()
    mask = BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=(32, 16), seq_lengths=(64, 48))
    q, k, v = (torch.randn(1, 1, length, 16) for length in (64, 48, 48))
    found = compiled(lambda q, k, v: flex_attention(q, k, v, block_mask=mask))(q, k, v)
    shown = torch.zeros(64, 48, dtype=torch.bool)
    shown[:32, 16:32] = shown[32:, :16] = shown[32:, 32:] = True
    torch.testing.assert_close(found, torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=shown))
    assert calls["AttentionKernel"] == 1


def test_whole_blocks_are_not_masked(calls: Counter[str]) -> None:
    none, one = torch.zeros(1, 1, 1).int(), torch.ones(1, 1, 1).int()
    first = torch.zeros(1, 1, 1, 1).int()
    mask = BlockMask.from_kv_blocks(none, first, one, first, (64, 64), causal, (64, 64))
    q, k, v = (torch.randn(1, 1, 64, 16) for _ in range(3))
    found = compiled(lambda q, k, v: flex_attention(q, k, v, block_mask=mask))(q, k, v)
    torch.testing.assert_close(found, torch.nn.functional.scaled_dot_product_attention(q, k, v))


def test_lookup_out_of_range_raises_as_in_eager() -> None:
    table = torch.zeros(8)
    heads = [torch.randn(1, 1, 9, 16) for _ in range(3)]
    run = compiled(lambda q, k, v, table: flex_attention(q, k, v, lambda s, b, h, q, k: s + table[q]))
    with pytest.raises(IndexError, match="out of bounds"):
        run(*heads, table)
    run(*(each[:, :, :8] for each in heads), table)


def test_other_sizes_compile_nothing(calls: Counter[str]) -> None:
    run = compiled(lambda q, k, v, t: flex_attention(q, k, v, lambda s, b, h, q, k: s + t[q - k]), dynamic=True)
    for length in (40, 41, 77):
        heads, table = [torch.randn(1, 2, length, 16) for _ in range(3)], torch.randn(length)
        program = Program("table", score=lambda s, b, h, q, k: s + table[q - k])  # noqa: B023, it is called here
        with torch._dynamo.config.patch(error_on_recompile=length > 41):
            torch.testing.assert_close(run(*heads, table), program.formula(*heads)[0], rtol=1e-5, atol=1e-5)
    assert calls["AttentionKernel"] == 3


@pytest.mark.parametrize(
    ("score", "dtype"),
    [
        (None, torch.float64),
        (lambda s, b, h, q, k: s + SLOPES.median(), torch.float32),
        (lambda s, b, h, q, k: s.double() * 0.3, torch.float32),
    ],
)
def test_other_attention_is_recorded_as_its_formula(
    score: Function | None, dtype: torch.dtype, calls: Counter[str]
) -> None:
    program = Program("other", score=score, mask=causal)
    heads = program.heads(dtype)
    for one, other in zip(compiled(program.call())(*heads), program.formula(*heads), strict=True):
        torch.testing.assert_close(one, other)
    assert not calls


@pytest.mark.parametrize("options", [{"numerics": "exact"}, {"target": "aten"}])
def test_kernel_is_used_only_where_it_may_round_otherwise(options: dict[str, str], calls: Counter[str]) -> None:
    program = Program("causal", mask=causal)
    heads = program.heads()
    found = torch.compile(program.call(), backend="assay", options=options)(*heads)
    torch.testing.assert_close(found, program.formula(*heads))
    assert not calls


# ---- gradients


def derived(function: Callable[..., Any], values: Sequence[Tensor]) -> list[Tensor]:
    """The results, and the gradients of all values under random tangents of these."""
    given = [each.detach().requires_grad_() for each in values]
    results = function(*given)
    generator = torch.Generator().manual_seed(7)
    tangents = [torch.randn(each.shape, generator=generator).to(each.dtype) for each in results]
    tangents = [torch.where(each.isfinite(), tangent, 0) for each, tangent in zip(results, tangents, strict=True)]
    torch.autograd.backward(results, tangents)
    return [*(each.detach() for each in results), *(each.grad for each in given if each.grad is not None)]


def by_operator(program: Program, score: Function | None = None) -> Callable[..., tuple[Tensor, Tensor]]:
    """The call below torch's own, which takes no inputs on a CPU that require gradients."""
    mask = (program.block_mask() or create_block_mask(causal, 1, 1, 1, 1, device="cpu")).as_tuple()

    def run(q: Tensor, k: Tensor, v: Tensor, *given: Tensor) -> tuple[Tensor, Tensor]:
        changed = (lambda *place: score(*place, *given)) if score else program.score or (lambda s, *_: s)
        out, logs, _ = HOP(q, k, v, changed, mask, 1 / math.sqrt(q.shape[-1]), {})
        return out, logs

    return run


DERIVED = ("causal, of whole blocks too", "rows that are hidden", "odd depths", "chosen scores")


@pytest.mark.parametrize("program", [each for each in PROGRAMS if each.name in DERIVED], ids=lambda each: each.name)
def test_gradients_are_as_near_to_float64_as_torchs_formula(program: Program, calls: Counter[str]) -> None:
    heads, run = program.heads(), by_operator(program)

    def formula(*heads: Tensor) -> tuple[Tensor, Tensor]:
        out, logs = program.formula(*heads)
        return out, logs / math.log(2)

    wide = derived(formula, [each.double() for each in heads])
    check_near(derived(compiled(run), heads), derived(formula, heads), wide)
    assert calls == {"AttentionKernel": 1, "BackwardKernel": 1}


def learned(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor, slopes: Tensor, table: Tensor, by: Tensor) -> Tensor:
    return torch.tanh(s * by) + slopes[h] * table[h, q - k + 70] + slopes[0]


def test_gradients_of_what_functions_read_are_right(calls: Counter[str]) -> None:
    program = Program("learned", mask=causal)
    given = [torch.randn(6), torch.randn(6, 140), torch.tensor(0.7)]

    def formula(q: Tensor, k: Tensor, v: Tensor, *given: Tensor) -> tuple[Tensor, Tensor]:
        out, logs = Program("learned", score=lambda *place: learned(*place, *given), mask=causal).formula(q, k, v)
        return out, logs / math.log(2)

    values = [*program.heads(), *given]
    found = derived(compiled(by_operator(program, learned)), values)
    check_near(found, derived(formula, values), derived(formula, [each.double() for each in values]))
    assert calls == {"AttentionKernel": 1, "BackwardKernel": 1}
