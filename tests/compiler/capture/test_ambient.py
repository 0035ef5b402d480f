"""What a recording that fails leaves of the ambient state."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import BackendCompilerFailed

from assay.compiler.capture import ambient
from assay.compiler.capture.decompositions.product_gradients import Product

LEVELS: dict[str, Callable[[], object]] = {
    "forward mode": torch._C._enter_dual_level,
    "func.jvp": lambda: torch._C._functorch._jvp_increment_nesting(),
    "func.grad": lambda: torch._C._functorch._grad_increment_nesting(),
}


@pytest.mark.parametrize("enter", LEVELS.values(), ids=LEVELS.keys())
def test_capture_leaves_the_levels_that_an_error_leaves_entered(enter: Callable[[], object]) -> None:
    with pytest.raises(KeyError), ambient.levels_kept():
        enter()
        raise KeyError
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
    assert torch._C._enter_dual_level() == 0  # raises where one is entered
    torch._C._exit_dual_level(level=0)


def test_capture_keeps_a_level_that_was_entered_before_an_error() -> None:
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(KeyError), ambient.levels_kept():
            raise KeyError
        assert ambient._has_forward_level()
    assert not ambient._has_forward_level()


def test_capture_that_fails_in_forward_mode_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Tensor:
        raise KeyError

    def program(x: Tensor) -> Tensor:
        return torch.func.jvp(torch.prod, (x,), (x,))[1]

    monkeypatch.setattr(Product, "jvp", fail)
    x = torch.tensor([2.0, 3.0])
    with pytest.raises(BackendCompilerFailed, match="Unexpected"):
        torch.compile(program, backend="assay", options={"fallback": "error"})(x)
    torch.testing.assert_close(program(x), torch.tensor(12.0))
