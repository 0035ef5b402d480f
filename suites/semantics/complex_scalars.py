"""Complex numbers of Python's as factors, divisors and exponents, of real and of complex tensors, with gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.harness.case import Made
from assay.suites.semantics.program import leaf, program

scalar = "complex-scalar"


def _complex(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.complex64, requires_grad=True)


@program(scalar)
def factors_before_and_behind() -> Made:
    return lambda z, x: (z * 2j, (1 + 2j) * z, x * 2j, -1j * x), (_complex(2, 3), leaf(2, 3)), {}


@program(scalar)
def divisors_and_what_is_divided() -> Made:
    return lambda z, x: (z / 2j, 1j / z, x / (1 - 2j), 2j / x), (_complex(2, 3), leaf(2, 3)), {}


@program(scalar)
def factor_in_place() -> Made:
    return lambda z: (z * 1).mul_(1j), (_complex(2, 3),), {}


@program(scalar)
def phase_of_an_exponential() -> Made:
    return lambda z, x: ((x * 1j).exp(), (z * 1j).exp()), (_complex(2, 3), leaf(2, 3)), {}


@program(scalar)
def sums_and_powers() -> Made:
    return lambda z, x: (z + 2j, 1j - z, z ** (1 + 1j), torch.add(z, z, alpha=2j), x - 1j), (_complex(3), leaf(3)), {}


@program(scalar)
def absolute_values_and_angles_of_what_is_transposed() -> Made:
    return lambda z: (z.t().abs(), z.t().angle(), (z.mT * 1j).abs()), (_complex(2, 3),), {}


@program(scalar)
def undefined_gradient_of_complex() -> Made:
    """A count of numbers that are not zero: its formula leaves the gradient of complex ones undefined, not zero."""
    return lambda z: (torch.linalg.vector_norm(z * 1j, 0, -1), (z * 2).abs()), (_complex(2, 3),), {}


@program(scalar)
def only_an_undefined_gradient_of_complex() -> Made:
    """It stays None."""
    return lambda z: torch.linalg.vector_norm(z, 0, -1), (_complex(2, 3),), {}


@program(scalar)
def views_of_conjugates_and_conjugates_of_views() -> Made:
    def f(z: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        seen = z + 1
        return (
            seen.mH * y,
            seen.conj().t() * y,
            seen.t().conj()[0] + y,
            seen[1:].conj().mH.sum(),
            seen.conj().conj() * 2,
        )

    return f, (_complex(2, 3), _complex(3, 2)), {}
