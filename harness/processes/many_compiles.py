"""What a process that compiles thousands of small programs does without: it costs more there than the programs do."""

from __future__ import annotations

import torch
from torch._dynamo import guards


def measure_no_guards() -> None:
    """Dynamo measures how long the guards of each compile take, in a sixth of the compile's time: it flushes the
    processor's caches first. Its log alone reads that. Where times to compile are compared, it stays."""
    guards.profile_guard_manager = lambda *args: 0.0


def forget_absent_devices() -> None:
    """`torch.manual_seed` notes each seed, with a stack trace, for devices that may come to life; here none will."""
    for device in (torch.cuda, torch.xpu, torch.mtia):
        if not device.is_available():
            device.manual_seed_all = lambda seed: None  # type: ignore[attr-defined]
