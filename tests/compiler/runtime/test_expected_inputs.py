"""What a tensor is known by before a kernel takes its address."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.compiler.runtime import expected_inputs
from assay.compiler.runtime.expected_inputs import is_addressable, is_plain, refuse_freed


def test_fake_tensors_are_not_plain_when_a_recording_asks_first() -> None:
    expected_inputs._plain_keys.cache_clear()
    with FakeTensorMode():
        fake = torch.empty(3)
        assert not is_plain(fake)
        assert not is_addressable(fake)
        refuse_freed([fake])
    assert is_plain(torch.empty(3))
    assert is_addressable(torch.empty(3))
