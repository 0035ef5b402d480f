"""Global settings that a program may leave changed for what runs after it: read, compared, put back."""

from __future__ import annotations

import contextlib
import gc
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack, _pop_mode


@dataclass(frozen=True, slots=True)
class Setting:
    """How one setting is read and put back; `put` is None where the run itself brackets it."""

    read: Callable[[], Any]
    put: Callable[[Any], object] | None = None


def _autocast(device: str) -> Setting:
    return Setting(lambda: torch.is_autocast_enabled(device), lambda is_on: torch.set_autocast_enabled(device, is_on))


DISPATCH_MODES = "dispatch modes"


def _action_on_a_warning() -> str:
    """What Python does of a UserWarning, whatever it says and wherever it comes from."""
    for action, message, category, module, line in warnings.filters:
        if message is None and module is None and not line and issubclass(UserWarning, category):
            return str(action)
    return "default"


def _leave_modes(count: int) -> None:
    while len(_get_current_dispatch_mode_stack()) > count:
        _pop_mode()


SETTINGS: Mapping[str, Setting] = {
    "grad": Setting(torch.is_grad_enabled),
    "inference": Setting(torch.is_inference_mode_enabled),
    "autocast": _autocast("cpu"),
    "autocast on cuda": _autocast("cuda"),
    "autocast dtype": Setting(
        lambda: torch.get_autocast_dtype("cpu"), lambda dtype: torch.set_autocast_dtype("cpu", dtype)
    ),
    "default dtype": Setting(torch.get_default_dtype, torch.set_default_dtype),
    "deterministic algorithms": Setting(
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
    ),
    "threads": Setting(torch.get_num_threads, torch.set_num_threads),
    "anomaly detection": Setting(
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda value: torch.autograd.set_detect_anomaly(*value),
    ),
    "precision of products": Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "cudnn benchmark": Setting(
        lambda: torch.backends.cudnn.benchmark, lambda is_on: setattr(torch.backends.cudnn, "benchmark", is_on)
    ),
    "cudnn deterministic": Setting(
        lambda: torch.backends.cudnn.deterministic, lambda is_on: setattr(torch.backends.cudnn, "deterministic", is_on)
    ),
    "warnings repeated": Setting(torch.is_warn_always_enabled, torch.set_warn_always),
    "default device": Setting(torch.get_default_device),
    DISPATCH_MODES: Setting(lambda: len(_get_current_dispatch_mode_stack()), _leave_modes),
    "backward in many threads": Setting(torch.autograd.is_multithreading_enabled, torch._C._set_multithreading_enabled),
    "collection of cycles": Setting(gc.isenabled, lambda is_on: gc.enable() if is_on else gc.disable()),
    "action on a warning": Setting(_action_on_a_warning),
    "tiny numbers are zeros": Setting(lambda: sys.float_info.min / 2 == 0, torch.set_flush_denormal),
}


def read(own_modes: int = 0) -> dict[str, Any]:
    """Every setting by its name; so many dispatch modes are the harness's own, and do not count."""
    found = {name: setting.read() for name, setting in SETTINGS.items()}
    return found | {DISPATCH_MODES: found[DISPATCH_MODES] - own_modes}


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """At its end the settings are those of its beginning, so that what one program leaves reaches no other."""
    before = read()
    try:
        yield
    finally:
        for name, setting in SETTINGS.items():
            if setting.put is not None and setting.read() != before[name]:
                setting.put(before[name])
