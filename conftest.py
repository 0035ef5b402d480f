"""Tests see every compile: nothing is made from what an earlier run kept. Those of warm starts ask for it.

A test that leaves the process another than it found it fails: what comes after it would depend on the order. So does
one for which Dynamo has compiled a function as often as it may: that runs in eager from then on, and never differs.

Where `CUDA_VISIBLE_DEVICES` names several GPUs, each process of tests begins at another one, and sees all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from torch._dynamo import list_backends, register_backend

from compiler.entry.dynamo import assay

os.environ.setdefault("ASSAY_WARM", "0")
os.environ.setdefault("ASSAY_VERIFY", "1")
torch._dynamo.config.fail_on_recompile_limit_hit = True


def begun_at(devices: list[str], worker: str) -> list[str]:
    """The devices from another one on for each worker, as gw3."""
    start = int(worker.removeprefix("gw") or 0) % len(devices)
    return devices[start:] + devices[:start]


_VISIBLE = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
if len(_VISIBLE) > 1:
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(begun_at(_VISIBLE, os.environ.get("PYTEST_XDIST_WORKER", "")))

if "assay" not in list_backends():  # run from a checkout, with nothing installed
    register_backend(assay, "assay")


def environment_variables() -> dict[str, str]:
    """The project's own: pytest and other backends set theirs as they go."""
    return {name: value for name, value in os.environ.items() if name.startswith("ASSAY")}


AMBIENT = (
    environment_variables,
    torch.get_num_threads,
    torch.is_grad_enabled,
    torch.is_inference_mode_enabled,
    torch.get_default_dtype,
    torch.are_deterministic_algorithms_enabled,
    torch.get_float32_matmul_precision,
    torch.is_anomaly_enabled,
)


@pytest.fixture(autouse=True)
def ambient_state_is_left_alone() -> Iterator[None]:
    torch._dynamo.reset()
    before = {read.__name__: read() for read in AMBIENT}
    yield
    assert {read.__name__: read() for read in AMBIENT} == before, "the test changed the process for those after it"
