"""Inputs whose storage or shape a program replaces in place are refused by the name of what it does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.compiler.entry.aot import aot_function, nop
from assay.compiler.errors import Unexpected, Unsupported

STORAGE, SHAPE = "replaces the storage of an input", "changes, in place, a shape that has symbols"


def same_shape(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x.set_(y)  # type: ignore[call-overload]
    return x * 2


def other_shape(x: Tensor, y: Tensor) -> Tensor:
    x.set_(y.view(-1))  # type: ignore[call-overload]
    return x * 2


def data(x: Tensor, y: Tensor) -> Tensor:
    x.data = y.data
    return x * 2


def resized(x: Tensor, y: Tensor) -> Tensor:
    x.resize_(2, 2)
    return x * 2


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("program", "said"), [(same_shape, STORAGE), (other_shape, STORAGE), (data, STORAGE), (resized, SHAPE)]
)
def test_what_replaces_an_input_is_refused_by_name(
    program: Callable[[Tensor, Tensor], Tensor], said: str, dynamic: bool
) -> None:
    def given() -> tuple[Tensor, Tensor]:
        return torch.ones(4, 4), torch.arange(16.0).view(4, 4)

    found, wanted = given(), given()
    torch.testing.assert_close(aot_function(program, nop, dynamic=dynamic)(*found), program(*wanted))
    torch.testing.assert_close(found, wanted)
    if program is resized and not dynamic:  # which is compiled
        return
    with pytest.raises(Unsupported, match=said) as refusal:
        aot_function(program, nop, dynamic=dynamic, fallback="error")(*given())
    assert not isinstance(refusal.value, Unexpected)
