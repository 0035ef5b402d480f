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
