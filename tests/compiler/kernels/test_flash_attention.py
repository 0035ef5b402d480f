"""Our own attention on the CPU against ATen's: values, logarithms, layouts, and what is not finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from assay.compiler.kernels import flash_attention as flash
from assay.compiler.kernels.flash_attention import DEPTHS, flash_attention
from assay.compiler.machine import number
from assay.compiler.toolchain import build

INF, NAN = math.inf, math.nan
FARTHER = 4.0
"""How much farther from float64 than ATen's a result may be: each is another order of the same sums."""
LEAST_BOUND = 2e-6

aten_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def heads(b: int, h: int, s: int, d: int, generator: torch.Generator, *, is_split: bool = True) -> Tensor:
    if is_split:  # the heads of a row lie together
        return torch.randn(b, s, h, d, generator=generator).transpose(1, 2)
    return torch.randn(b, h, s, d, generator=generator)


def both(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, mask: Tensor | None = None) -> tuple[Tensor, ...]:
    scale = 1.0 / math.sqrt(q.shape[3])
    eager = aten_flash(q, k, v, 0.0, is_causal, attn_mask=mask, scale=scale)
    return *flash_attention(q, k, v, is_causal, mask, scale), *eager


def check(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, mask: Tensor | None = None) -> None:
    out, logs, eager, eager_logs = both(q, k, v, is_causal, mask)
    wide = None if mask is None else mask.double()
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=wide, is_causal=is_causal)
    bound = max(FARTHER * float((eager - exact).abs().max()), LEAST_BOUND)
    assert float((out - exact).abs().max()) <= bound
    torch.testing.assert_close(logs, eager_logs, rtol=1e-5, atol=1e-5)
    assert out.stride() == eager.stride() and logs.stride() == eager_logs.stride()


LENGTHS = [(1, 1), (1, 70), (5, 3), (12, 64), (13, 65), (48, 48), (49, 49), (145, 145), (50, 385), (400, 800)]


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("rows", "keys"), LENGTHS)
def test_flash_is_as_near_to_float64_as_atens(
    rows: int, keys: int, is_causal: bool, generator: torch.Generator
) -> None:
    q, k, v = (heads(2, 3, length, 64, generator) for length in (rows, keys, keys))
    check(q, k, v, is_causal)


@pytest.mark.parametrize("depth", sorted(DEPTHS))
def test_flash_takes_heads_of_each_depth(depth: int, generator: torch.Generator) -> None:
    q, k, v = (heads(1, 2, 61, depth, generator, is_split=False) for _ in range(3))
    check(q, k, v)


@pytest.mark.parametrize("shape", [(2, 3, 61, 70), (1, 3, 61, 70), (2, 1, 1, 70), (2, 1, 61, 1), (61, 70)])
def test_flash_adds_a_mask_of_any_shape(shape: tuple[int, ...], generator: torch.Generator) -> None:
    q, k, v = heads(2, 3, 61, 32, generator), heads(2, 3, 70, 32, generator), heads(2, 3, 70, 32, generator)
    mask = torch.randn(shape, generator=generator)
    check(q, k, v, mask=mask)
    check(q, k, v, mask=mask.masked_fill(mask > 1, -INF))
    check(q, k, v, mask=mask.transpose(-1, -2).contiguous().transpose(-1, -2))


def masks_of(keys: int) -> dict[str, Tensor]:
    """Masks that hide whole panels of keys from whole blocks of rows, and some that only nearly do."""
    lowest, shape = torch.finfo(torch.float32).min, (keys, keys)
    causal = torch.full(shape, lowest).triu(1)
    window = torch.full(shape, -INF).triu(1) + torch.full(shape, -INF).tril(-100).nan_to_num(nan=0.0)
    padded = causal.clone()
    padded[:, :90] = lowest  # the first rows see nothing at all
    return {
        "causal": causal,
        "causal, infinite": torch.full(shape, -INF).triu(1),
        "window": window,
        "padded": padded,
        "padded, partly infinite": padded.clone()
        .index_fill_(1, torch.arange(min(120, keys), keys), -INF)
        .minimum(padded),
        "faint": torch.full(shape, -1e4).triu(1),
    }


@pytest.mark.parametrize("name", masks_of(8))
def test_flash_leaves_out_what_a_mask_hides(name: str, generator: torch.Generator) -> None:
    q, k, v = (heads(2, 2, 300, 32, generator) for _ in range(3))
    mask = masks_of(300)[name]
    out, logs, eager, eager_logs = both(q, k, v, mask=mask)
    torch.testing.assert_close(out, eager, rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(logs, eager_logs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("where", ["k", "v"])
@pytest.mark.parametrize("value", [NAN, INF])
def test_flash_sees_through_a_mask_what_is_not_finite(where: str, value: float, generator: torch.Generator) -> None:
    q, k, v = (heads(1, 2, 200, 32, generator) for _ in range(3))
    {"k": k, "v": v}[where][0, 1, 190, 3] = value
    out, logs, eager, eager_logs = both(q, k, v, mask=masks_of(200)["causal"])
    torch.testing.assert_close(out, eager, equal_nan=True)
    torch.testing.assert_close(logs, eager_logs, equal_nan=True)


def test_flash_reads_keys_and_values_where_they_lie(generator: torch.Generator) -> None:
    """One projection, split in three; and the heads of a few repeated for many."""
    q, k, v = torch.randn(2, 40, 3 * 4 * 32, generator=generator).view(2, 40, 3, 4, 32).permute(2, 0, 3, 1, 4)
    check(q, k, v)
    check(q, k[:, :1].expand(-1, 4, -1, -1), v[:, :1].expand(-1, 4, -1, -1))


def _poisoned() -> Iterator[tuple[str, Callable[..., None]]]:
    for value in (NAN, INF, -INF):
        yield f"q {value}", lambda q, k, v, x=value: q[0, 0, 3].fill_(x)
        yield f"one of q {value}", lambda q, k, v, x=value: q[0, 0, 3, 2].fill_(x)
        yield f"one of k {value}", lambda q, k, v, x=value: k[0, 1, 30, 2].fill_(x)
        yield f"one of v {value}", lambda q, k, v, x=value: v[1, 0, 5, 2].fill_(x)
        yield f"the last v {value}", lambda q, k, v, x=value: v[1, 0, -1, 2].fill_(x)


POISONED = dict(_poisoned())


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("rows", [40, 70])
@pytest.mark.parametrize("name", POISONED)
def test_flash_gives_what_aten_gives_of_what_is_not_finite(
    name: str, rows: int, is_causal: bool, generator: torch.Generator
) -> None:
    q, k, v = (heads(2, 2, length, 32, generator) for length in (rows, 70, 70))
    POISONED[name](q, k, v)
    out, logs, eager, eager_logs = both(q, k, v, is_causal)
    torch.testing.assert_close(out, eager, equal_nan=True)
    torch.testing.assert_close(logs, eager_logs, equal_nan=True)


@pytest.mark.parametrize("keys", [30, 600, 1100])
def test_flash_gives_zeros_for_rows_that_are_hidden_wholly(keys: int, generator: torch.Generator) -> None:
    q, k, v = (heads(1, 2, length, 32, generator) for length in (20, keys, keys))
    mask = torch.zeros(1, 1, 20, keys)
    mask[..., 4, :] = -INF
    out, logs, eager, eager_logs = both(q, k, v, mask=mask)
    torch.testing.assert_close(out, eager)
    torch.testing.assert_close(logs, eager_logs)
    assert not out[:, :, 4].any()


def test_flash_is_the_same_for_any_number_of_threads(generator: torch.Generator) -> None:
    q, k, v = (heads(3, 5, 130, 64, generator) for _ in range(3))
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 7):
            torch.set_num_threads(threads)
            results.append(flash_attention(q, k, v, True, None, 0.125)[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.mark.parametrize("flags", [("-mno-avx512f",), ("-mno-avx", "-mno-fma")], ids=" ".join)
def test_flash_on_machines_with_shorter_vectors(
    flags: tuple[str, ...], generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, *flags))
    monkeypatch.setattr(flash, "_kernel", flash._kernel.__wrapped__)
    q, k, v = (heads(2, 2, length, 48, generator) for length in (61, 450, 450))
    check(q, k, v)
    check(q[:, :, :30], k, v, is_causal=True)


def test_flash_leaves_to_aten_more_keys_than_stay_near(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flash, "_kernel", None)
    q, k = (heads(1, 1, length, 16, generator) for length in (3, number("attended_keys") + 1))
    check(q, k, k)


# ---- in programs


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seen: list[int] = []

    def counted(*args: object) -> object:
        seen.append(1)
        return flash_attention(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(flash, "flash_attention", counted)
    return seen


def attention(*projected: Tensor) -> Tensor:
    q, k, v = (x.unflatten(-1, (4, 64)).transpose(1, 2) for x in projected)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def projected(length: int, generator: torch.Generator) -> list[Tensor]:
    return [torch.randn(2, length, 256, generator=generator) for _ in range(3)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("is_training", [False, True])
def test_flash_computes_attention_of_programs(
    calls: list[int], dynamic: bool, is_training: bool, generator: torch.Generator
) -> None:
    compiled = torch.compile(attention, backend="assay", dynamic=dynamic)
    for length in (64, 80):
        given = [x.requires_grad_(is_training) for x in projected(length, generator)]
        ours, eager = compiled(*given), attention(*given)
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-6)
        if is_training:
            tangent = torch.randn(eager.shape, generator=generator)
            for mine, theirs in zip(
                torch.autograd.grad(ours, given, tangent), torch.autograd.grad(eager, given, tangent), strict=True
            ):
                torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("shape", "dtype", "dropout"),
    [((2, 4, 64, 64), torch.bfloat16, 0.0), ((2, 4, 64, 64), torch.float32, 0.1), ((2, 4, 64, 20), torch.float32, 0.0),
     ((1, 1, 4, 16), torch.float32, 0.0)],
)  # fmt: skip
def test_flash_leaves_other_dtypes_dropout_other_depths_and_little_work(
    calls: list[int], shape: tuple[int, ...], dtype: torch.dtype, dropout: float
) -> None:
    q, k, v = (torch.randn(shape).to(dtype) for _ in range(3))
    torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=dropout), backend="assay")(q, k, v)
    assert not calls


def test_flash_rounds_no_exact_program(calls: list[int], generator: torch.Generator) -> None:
    given = projected(64, generator)
    compiled = torch.compile(attention, backend="assay", options={"numerics": "exact"})
    assert torch.equal(compiled(*given), attention(*given)) and not calls
