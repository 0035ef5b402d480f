"""A backend that promises eager's bits is held to them, where eager agrees with itself in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.harness.backends.direct import without_dynamo
from assay.harness.backends.registry import Backend, promises_bits, resolve
from assay.harness.calls.memory import bits
from assay.harness.case import Case
from assay.harness.judge.compare import _plus_zero
from assay.harness.protocol.acts import steps
from assay.harness.run import RunRequest, run_case


def judged(
    function: Callable[..., Any], ours: Callable[..., Any], *args: Tensor, by_bits: bool = True
) -> tuple[str, list[str]]:
    """The verdict on `ours` in the place of a function, and the fields that differ."""
    case = Case("mine", lambda: (function, args, {}), ("infer",), (), ("tiny",))
    backend = Backend("mine", lambda _: ours, has_eagers_bits=by_bits)
    found = run_case(case, "infer", backend, RunRequest(timed=False, protocol=steps("infer", 1)))
    return found.verdict, [difference.detail for difference in found.differences]


def one_further(x: Tensor) -> Tensor:
    """The numbers after the second one, which is moved by its last bit."""
    x = x.clone()
    x[1] = torch.nextafter(x[1], x[1] + 1)
    return x


def test_a_last_bit_is_a_difference() -> None:
    x = torch.randn(5)
    verdict, (detail,) = judged(torch.sin, lambda x: one_further(x.sin()), x)
    assert verdict == "diverged"
    assert detail.startswith("1 of 5 elements; the first at [1]: ours ") and "bit for bit" in detail
    assert judged(torch.sin, lambda x: one_further(x.sin()), x, by_bits=False) == ("same", [])


def test_of_complex_numbers_each_part_counts() -> None:
    def turned(x: Tensor) -> Tensor:
        return torch.complex(x.real, one_further(x.imag))

    x = torch.randn(4, dtype=torch.complex64)
    assert judged(lambda x: x * 2, lambda x: turned(x * 2), x)[0] == "diverged"
    assert judged(lambda x: x * 2, lambda x: x * 2, x)[0] == "same"


def test_a_nan_is_a_nan() -> None:
    other, x = torch.tensor([0x7FC00001, 0x7FC00000], dtype=torch.int32).view(torch.float32).split(1)
    assert not torch.equal(bits(other), bits(x.clone()))
    assert judged(lambda x: x.clone(), lambda x: other.clone(), x)[0] == "same"


def test_signs_of_zero_count() -> None:
    assert judged(lambda x: x * 0, lambda x: x * -0.0, torch.ones(3))[0] == "diverged"


CALLS = list[int]()


def unsteady(x: Tensor) -> Tensor:
    """Rounds otherwise at each second call."""
    CALLS.append(1)
    return one_further(x * 3) if len(CALLS) % 2 else x * 3


def test_where_eager_is_not_itself_rounding_is_excused() -> None:
    CALLS.clear()
    assert judged(unsteady, lambda x: one_further(one_further(x * 3)), torch.arange(1.0, 5.0)) == ("same", [])
    CALLS.clear()
    assert judged(unsteady, lambda x: x * 3.1, torch.arange(1.0, 5.0))[0] == "diverged"


@pytest.mark.parametrize(
    ("name", "promised"),
    [
        ("assay,numerics=exact", True),
        ("assay", False),
        ("assay,numerics=cast", False),
        ("assay-aot,numerics=exact", True),
    ],
)
def test_who_promises_bits(name: str, promised: bool) -> None:
    assert promises_bits(name) == resolve(name).has_eagers_bits == promised
    assert name.startswith("assay-aot") or without_dynamo(name).has_eagers_bits == promised


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float16, torch.float32, torch.complex64])
def test_signs_of_zero_are_taken_off_in_every_dtype(dtype: torch.dtype) -> None:
    plain = _plus_zero(torch.tensor([-0.0, 0.0, 1.5]).to(dtype))
    assert plain.dtype is dtype and bits(plain).equal(bits(torch.tensor([0.0, 0.0, 1.5]).to(dtype)))
