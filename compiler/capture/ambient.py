"""Ambient state that changes what a call means, and that recording must neither lose nor leak."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad


def in_forward_mode() -> bool:
    """Whether tensors may have tangents of forward-mode differentiation."""
    return forward_ad._current_level >= 0


@dataclass(frozen=True, slots=True)
class Ambient:
    """The ambient state at a call; a compiled function is valid for one of them."""

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, torch.dtype], ...]
    deterministic: bool
    dtype: torch.dtype

    @staticmethod
    def now() -> Ambient:
        devices = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
        return Ambient(
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            tuple((device, torch.get_autocast_dtype(device)) for device in devices),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_default_dtype(),
        )

    @contextmanager
    def restored(self) -> Iterator[None]:
        """While it is open, gradients and autocast are as they were, and afterwards as they are now."""
        with preserved():
            torch.set_grad_enabled(self.grad)
            dtypes = dict(self.autocast)
            now = {device: torch.get_autocast_dtype(device) for device in dtypes}
            for device in ("cpu", "cuda"):
                torch.set_autocast_enabled(device, device in dtypes)
            try:
                for device, dtype in dtypes.items():
                    torch.set_autocast_dtype(device, dtype)
                yield
            finally:
                for device, dtype in now.items():
                    torch.set_autocast_dtype(device, dtype)


@contextmanager
def preserved() -> Iterator[None]:
    """Puts grad mode and autocast back as they were, whatever the recorded program did to them."""
    grad, depth = torch.is_grad_enabled(), autocast_depth()
    autocast = {device: torch.is_autocast_enabled(device) for device in ("cpu", "cuda")}
    try:
        yield
    finally:
        torch.set_grad_enabled(grad)
        for device, enabled in autocast.items():
            torch.set_autocast_enabled(device, enabled)
        leave_autocast(depth)


def autocast_depth() -> int:
    """How many times autocast counts as entered."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth


def leave_autocast(depth: int) -> None:
    """Leaves autocast until it counts as entered so many times. Torch forgets what it has cast with the outermost one,
    and would go on with old casts of weights otherwise."""
    while autocast_depth() > depth:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()


@contextmanager
def autocast_unwound() -> Iterator[None]:
    """After an error autocast is as it was. A graph enters and leaves it by two calls, and an error between them would
    leave it entered, as it does in Dynamo's backend `eager`."""
    depth = autocast_depth()
    before = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")]
    try:
        yield
    except BaseException:
        for device, enabled, dtype in before:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        leave_autocast(depth)
        raise


@contextmanager
def transforms_left() -> Iterator[None]:
    """While it is open, no transform of `torch.func` sees what is recorded."""
    with temporarily_clear_interpreter_stack():
        yield


LEAVE = {
    TransformType.Vmap: torch._C._functorch._vmap_decrement_nesting,
    TransformType.Grad: torch._C._functorch._grad_decrement_nesting,
    TransformType.Jvp: torch._C._functorch._jvp_decrement_nesting,
    TransformType.Functionalize: torch._C._functorch._func_decrement_nesting,
}
"""What leaves a level of `torch.func`, by its kind."""


@contextmanager
def levels_kept() -> Iterator[None]:
    """Where an error leaves it, the levels of `torch.func` and of forward mode that were entered meanwhile are left
    too."""
    depth, was_forward = torch._C._functorch.get_dynamic_layer_stack_depth(), _has_forward_level()
    try:
        yield
    except BaseException:
        _leave_levels(depth)
        if not was_forward and _has_forward_level():
            torch._C._exit_dual_level(level=0)
        raise


def _leave_levels(depth: int) -> None:
    """Leaves the innermost levels, each by its own call. Before 2.13 torch's call for all of them fails in one of
    vmap's."""
    while torch._C._functorch.get_dynamic_layer_stack_depth() > depth:
        LEAVE[torch._C._functorch.peek_interpreter_stack().key()]()


def _has_forward_level() -> bool:
    """Whether a level of forward mode is entered. Torch has one at most, which a graph enters where Python does not
    see it; to enter another is how to ask."""
    try:
        level = torch._C._enter_dual_level()
    except RuntimeError:
        return True
    torch._C._exit_dual_level(level=level)
    return False
