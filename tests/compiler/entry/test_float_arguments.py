"""Python floats, which Dynamo hands to a backend as tensors where shapes are dynamic."""

import pytest
import torch

from assay.compiler import journal


@pytest.mark.parametrize("dynamic", [False, True])
def test_capture_float_arguments_are_read_inside_the_graph(dynamic: bool) -> None:
    torch._dynamo.reset()
    before = journal.totals()["eager_graphs"]

    def f(x: torch.Tensor, scale: float) -> torch.Tensor:
        return x * scale + torch.sin(x) / scale

    compiled = torch.compile(f, backend="assay", dynamic=dynamic)
    for scale in (0.5, 1.25, -3.0):
        x = torch.randn(5, requires_grad=True)
        results = [call(x, scale) for call in (compiled, f)]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x) for y in results))
    assert journal.totals()["eager_graphs"] == before


@pytest.mark.parametrize("shape", [(), (3,)], ids=["0-d", "vector"])
def test_a_number_that_changes_is_the_base_of_a_power_with_a_gradient(shape: tuple[int, ...]) -> None:
    """Torch has no logarithm of a symbolic number, which the formula of the gradient asks for."""
    torch._dynamo.reset()
    before = journal.totals()["eager_graphs"]

    def f(x: torch.Tensor, base: float) -> torch.Tensor:
        return base**x + torch.pow(base * 2, x)

    compiled = torch.compile(f, backend="assay")
    for base in (2.0, 3.5, 0.0, 1.0, 0.25):
        x = torch.rand(shape, requires_grad=True)
        results = [call(x, base) for call in (compiled, f)]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x) for y in results))
    assert journal.totals()["eager_graphs"] == before
