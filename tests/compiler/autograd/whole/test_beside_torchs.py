"""Backwards compiled by us and by torch's own compiler, in one process: the engine tells one of them what nodes are."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import torch, assay

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3
    @staticmethod
    def backward(ctx, gradient):
        return 3 * ctx.saved_tensors[0] ** 2 * gradient

def backward():
    x = torch.tensor([0.5, 2.0], requires_grad=True)
    y = torch.fft.rfft(Cube.apply(x).sin().repeat(2)).abs()
    y.sum().backward()
    return x.grad

def ours():
    with assay.compiled_autograd():
        return backward()

def torchs():
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        return backward()

eager = backward()
for each in ORDER:
    torch.testing.assert_close(each(), eager)
from assay.compiler.journal import totals
print(totals()["backwards"])
"""


@pytest.mark.parametrize("order", ["ours, torchs, ours", "torchs, ours, torchs"])
def test_each_compiler_goes_on_where_the_other_was_told(order: str) -> None:
    code = PROGRAM.replace("ORDER", f"({order})")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 1
