"""What a kernel checks of the memory that it is given."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.compiler.entry.dynamo import assay


def test_a_result_of_no_elements_needs_no_memory_whatever_its_strides() -> None:
    """The strides are those of a count of 0, which the graph was recorded with and knows only as a symbol."""
    compiled = torch.compile(_repeated, backend=assay, options={"fallback": "error", "warm": False})
    for count in (-7, 0, 3):
        try:
            expected = _repeated(torch.arange(3.0), count)
        except RuntimeError:
            expected = None
        try:
            ours = compiled(torch.arange(3.0), count)
        except RuntimeError:
            ours = None
        assert (ours is None) == (expected is None), count
        assert ours is None or expected is None or torch.equal(ours, expected), count


def _repeated(x: Tensor, count: int) -> Tensor:
    x.chunk(max(count, 1), 0)
    return x.repeat_interleave(count, 0)
