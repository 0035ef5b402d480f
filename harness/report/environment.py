"""What a report was made on: versions, compiler, processor, threads, date."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path

import torch

PACKAGES = ("assay", "torch", "triton", "transformers", "numpy")


def environment(device: str = "cpu") -> dict[str, str | int | None]:
    """The facts that a number depends on; None for what is not installed here."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        **{name: package_version(name) for name in PACKAGES},
        "torch": torch.__version__,
        "commit": commit(),
        "compiler": compiler_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "device": device,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "cuda": torch.version.cuda,
    }


def package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def project() -> Path:
    """The folder whose commits runs are of: `ASSAY_PROJECT`, as a backend's own checkout, or that of this file."""
    return Path(os.environ.get("ASSAY_PROJECT") or Path(__file__).parent)


def commit() -> str | None:
    """The commit of the project's checkout, with `-dirty` where files of it are changed; None outside one."""
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "-C", str(project()), "describe", "--always", "--dirty", "--exclude", "*"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return said.stdout.strip() or None


def compiler_version() -> str | None:
    """The first line of what the C++ compiler says of itself; found as `assay.compiler.options` says."""
    for name in (os.environ.get("ASSAY_CXX"), "g++", "c++", "clang++"):
        path = shutil.which(name) if name else None
        if path is not None:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
            return said.stdout.partition("\n")[0] or path
    return None


def cpu_model() -> str:
    """The processor's name: Linux has it in /proc/cpuinfo, elsewhere `platform` may know."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores that this process may run on, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
