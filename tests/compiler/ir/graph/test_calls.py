"""New calls in a graph: what is known of their results is what a run gives, in whatever region they are made."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from assay.compiler.ir.graph.calls import called
from assay.compiler.ir.graph.replacement import derived

aten = torch.ops.aten


def test_calls_made_under_autocast_are_not_cast() -> None:
    """Kernels run below autocast: on a CPU it gives products in bfloat16, on a GPU sums of halves in float32."""

    def product(x: Tensor) -> Tensor:
        return x @ x

    with FakeTensorMode() as mode:
        module = make_fx(product)(mode.from_tensor(torch.ones(2, 2)))
    (x,) = module.graph.find_nodes(op="placeholder")
    (output,) = module.graph.find_nodes(op="output")
    (recorded,) = module.graph.find_nodes(op="call_function", target=aten.mm.default)
    with torch.autocast("cpu", torch.bfloat16):
        with module.graph.inserting_before(output):
            made = called(aten.mm.default, x, x)
        assert made.meta["val"].dtype is torch.float32
        again = derived(recorded)
    assert isinstance(again, Tensor) and again.dtype is torch.float32
