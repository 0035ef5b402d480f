"""How a repro reads and puts back the global setting that a call leaves changed, with torch alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SettingText:
    """The expression that reads a setting; the line that sets what a process begins with; what both import.

    Without a line nothing is put back: that is for what eager leaves as it is.
    """

    looks: str
    put: str = ""
    imports: str = ""


GRADIENTS_ON = "torch.set_grad_enabled({})"
"""Filled in by what the mode of the case says."""
SETTING_TEXTS: Mapping[str, SettingText] = {
    "grad": SettingText("torch.is_grad_enabled()", GRADIENTS_ON),
    "inference": SettingText("torch.is_inference_mode_enabled()"),
    "autocast": SettingText("torch.is_autocast_enabled('cpu')", "torch.set_autocast_enabled('cpu', False)"),
    "autocast on cuda": SettingText("torch.is_autocast_enabled('cuda')", "torch.set_autocast_enabled('cuda', False)"),
    "autocast dtype": SettingText(
        "torch.get_autocast_dtype('cpu')", "torch.set_autocast_dtype('cpu', torch.bfloat16)"
    ),
    "default dtype": SettingText("torch.get_default_dtype()", "torch.set_default_dtype(torch.float32)"),
    "deterministic algorithms": SettingText(
        "(torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())",
        "torch.use_deterministic_algorithms(False)",
    ),
    "threads": SettingText("torch.get_num_threads()"),
    "anomaly detection": SettingText(
        "(torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())", "torch.autograd.set_detect_anomaly(False)"
    ),
    "precision of products": SettingText(
        "torch.get_float32_matmul_precision()", "torch.set_float32_matmul_precision('highest')"
    ),
    "cudnn benchmark": SettingText("torch.backends.cudnn.benchmark"),
    "cudnn deterministic": SettingText("torch.backends.cudnn.deterministic"),
    "warnings repeated": SettingText("torch.is_warn_always_enabled()", "torch.set_warn_always(False)"),
    "default device": SettingText("torch.get_default_device()"),
    "dispatch modes": SettingText("len(torch.utils._python_dispatch._get_current_dispatch_mode_stack())"),
    "backward in many threads": SettingText(
        "torch.autograd.is_multithreading_enabled()", "torch._C._set_multithreading_enabled(True)"
    ),
    "collection of cycles": SettingText("gc.isenabled()", "gc.enable()", "gc"),
    "action on a warning": SettingText("[action for action, *_ in warnings.filters[:1]]", imports="warnings"),
    "tiny numbers are zeros": SettingText(
        "sys.float_info.min / 2 == 0", "torch.set_flush_denormal(False)", "sys"
    ),
}  # fmt: skip
"""By the name that harness/observe/ambient.py gives a setting."""
