"""Machine code of one Triton program: what a worker does (`triton_workers.py`), and this process where there is none.

It imports no torch, so that a worker is there in a tenth of a second.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ALIGNED_BYTES = 16
"""What Triton may read at once."""
THREADS_OF_A_WARP = 32


@dataclass(frozen=True, slots=True)
class Wanted:
    """A program to compile: the function of a module's file, the types of its arguments as Triton names them, whether
    addresses are multiples of 16, the numbers of warps to try one after the other, the device's capability (as 90),
    and whether it stops the device where a check fails."""

    path: str
    function: str
    kinds: tuple[str, ...]
    is_aligned: bool
    warps: tuple[int, ...]
    capability: int
    checks: bool


@dataclass(frozen=True, slots=True)
class Built:
    """Machine code: its function's name, the warps and the shared memory of a launch, and whether a launch is of blocks
    that know nothing of each other and want no memory but their arguments."""

    data: bytes
    name: str
    warps: int
    shared: int
    is_plain: bool

    @property
    def threads(self) -> int:
        return THREADS_OF_A_WARP * self.warps


class NotBuilt(Exception):
    """Triton failed on a program with any number of warps. The message is Triton's."""


def build(wanted: Wanted) -> Built:
    """Raises: NotBuilt."""
    found = triton_code(wanted)
    metadata = found.metadata
    return Built(found.kernel, found.name, metadata.num_warps, metadata.shared, _is_plain(metadata))


def triton_code(wanted: Wanted) -> Any:
    """The machine code with Triton's own description of it. Raises: NotBuilt."""
    import triton  # an optional toolchain
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(module_at(wanted.path), wanted.function)
    signature = dict(zip(function.arg_names, wanted.kinds, strict=True))
    aligned = [["tt.divisibility", ALIGNED_BYTES]]
    pointers = [(at,) for at, kind in enumerate(wanted.kinds) if kind.startswith("*")]
    attributes = dict.fromkeys(pointers, aligned) if wanted.is_aligned else {}
    source = ASTSource(fn=function, signature=signature, constexprs={}, attrs=attributes)
    target = GPUTarget("cuda", wanted.capability, THREADS_OF_A_WARP)
    failed = ""
    for warps in wanted.warps:
        options = {"num_warps": warps, "enable_fp_fusion": False, "debug": wanted.checks, "sanitize_overflow": False}
        try:
            return triton.compile(source, target=target, options=options)
        except RuntimeError as error:  # a pass of Triton's own fails on some layouts, which the warps decide
            failed = str(error)
    raise NotBuilt(failed)


def module_at(path: str) -> ModuleType:
    """The module of a file whose name tells its content. Triton wants it among Python's modules."""
    name = f"assay_triton_{Path(path).stem}"
    with _lock:
        if name not in _modules:
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None and spec.loader is not None
            sys.modules[name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            _modules[name] = module
        return _modules[name]


_lock = threading.Lock()
_modules: dict[str, ModuleType] = {}
"""Those that are whole."""


def _is_plain(metadata: Any) -> bool:
    more = ("launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size")
    return getattr(metadata, "num_ctas", 1) == 1 and not any(getattr(metadata, name, 0) for name in more)
