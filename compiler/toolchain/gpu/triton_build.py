"""Machine code of one Triton program: what a worker does (`triton_workers.py`), and this process where there is none.

It imports no torch, so that a worker is there in a tenth of a second.
"""

from __future__ import annotations

import importlib.util
import os
import re
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from assay.compiler.ir.tensors.layout.alignment import ALIGNED_BYTES
from assay.compiler.options import as_llvm_leaves_it

THREADS_OF_A_WARP = 32
MOST_WARPS = 16
"""Warps of a program whose values do not fit in registers: half of what the hardware has room for in a block."""
KEPT_OVER_A_CALL = 32
"""Bytes that a thread stores around calls, which cost nothing of note."""
PACKED = re.compile(r"\b(?:add|sub)\.[su]16x2\s+\S+, ([^\s,]+), ([^\s;]+);")
CONSTANT = re.compile(r"\bmov\.b32\s+(\S+), -?\d+;")
"""Two additions of 16 bits at once, with their operands; and what is a constant."""
HAS_SIZE, FRAME_SIZE = 0x04, 0x11
_U64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A program to compile: the function of a module's file, with the types of its arguments as Triton names them.

    It says whether addresses are multiples of 16, which numbers of warps to try one after the other, and the device's
    capability (as 90). It says whether a failed check stops the device, and how many steps of a loop have their loads
    under way, where 0 leaves that to Triton.
    """

    path: str
    function: str
    kinds: tuple[str, ...]
    is_aligned: bool
    warps: tuple[int, ...]
    capability: int
    checks: bool
    stages: int = 0
    multiples: tuple[int, ...] = ()
    """The places of numbers that are multiples of 16, as addresses are."""


@dataclass(frozen=True, slots=True)
class Built:
    """Machine code: its function's name, and the warps and the shared memory of a launch.

    It says whether a launch is of blocks that know nothing of each other and want no memory but their arguments.
    """

    data: bytes
    name: str
    warps: int
    shared: int
    is_plain: bool
    failed: str = ""
    """What Triton said of the first number of warps that it failed with, if it did."""

    @property
    def threads(self) -> int:
        return THREADS_OF_A_WARP * self.warps


MLIR_ERROR = re.compile(r"^\S+:\d+:\d+: error: (.*)$", re.M)
_errors = threading.Lock()
"""Held while the process's standard error is a file."""

ROUNDED = {"enable_fp_fusion": False, "enable_reflect_ftz": False}
"""As eager's kernels are compiled: each result is rounded, and what is less than the least normal number is no zero.
That holds in a kernel and in the functions of CUDA's library. By Triton's own choice the logarithm of 1e-40 is
-inf."""


class NotBuilt(Exception):
    """Triton failed on a program with any number of warps. The message is Triton's."""


def build(wanted: Wanted) -> Built:
    """Raises: NotBuilt."""
    found, failed = _compiled(wanted)
    metadata = found.metadata
    return Built(found.kernel, found.name, metadata.num_warps, metadata.shared, _is_plain(metadata), failed)


def triton_code(wanted: Wanted) -> Any:
    """The machine code with Triton's own description of it. Raises: NotBuilt."""
    return _compiled(wanted)[0]


def _compiled(wanted: Wanted) -> tuple[Any, str]:
    """The machine code, and what Triton said where it failed with another number of warps before. Raises: NotBuilt."""
    import triton  # an optional toolchain
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(module_at(wanted.path), wanted.function)
    signature = dict(zip(function.arg_names, wanted.kinds, strict=True))
    aligned = [["tt.divisibility", ALIGNED_BYTES]]
    pointers = [(at,) for at, kind in enumerate(wanted.kinds) if kind.startswith("*")]
    attributes = dict.fromkeys(pointers, aligned) if wanted.is_aligned else {}
    attributes |= {(at,): aligned for at in wanted.multiples}
    source = ASTSource(fn=function, signature=signature, constexprs={}, attrs=attributes)
    target = GPUTarget("cuda", wanted.capability, THREADS_OF_A_WARP)

    def compiled(warps: int) -> Any:
        options = {**ROUNDED, "num_warps": warps, "debug": wanted.checks, "sanitize_overflow": False}
        options |= {"num_stages": wanted.stages} if wanted.stages else {}
        with diagnosed():
            return triton.compile(source, target=target, options=options)

    warps, found, failed = _first_that_compiles(compiled, wanted.warps)
    found = _with_fewest_spills(compiled, warps, found)
    return (found if is_assembled_right(found.asm["ptx"]) else _that_adds_right(compiled, found)), failed


def _first_that_compiles(compiled: Callable[[int], Any], numbers: Sequence[int]) -> tuple[int, Any, str]:
    """A number of warps, the code, and what Triton said of the first number that it failed with.

    Raises: NotBuilt where Triton fails with each.
    """
    failed = ""
    for warps in numbers:
        try:
            return warps, compiled(warps), failed
        except RuntimeError as error:  # a pass of Triton's own fails on some layouts, which the warps decide
            failed = failed or f"with {warps} warps: {error}"
    raise NotBuilt(failed)


@contextmanager
def diagnosed() -> Iterator[None]:
    """Where Triton fails meanwhile, its error says in one line what its compiler wrote to standard error: MLIR prints
    the whole program there. What is written without a failure goes where it was meant to."""
    with _errors, tempfile.TemporaryFile() as written:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(written.fileno(), 2)
        failure = None
        try:
            yield
        except RuntimeError as error:
            failure = error
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            written.seek(0)
            said = written.read()
            if failure is None:
                os.write(2, said)
        if failure is not None:
            raise RuntimeError(first_error(said.decode(errors="replace")) or str(failure)) from failure


def first_error(said: str) -> str:
    """The first error in what MLIR has printed, without the place in the file."""
    found = MLIR_ERROR.search(said)
    return found[1].strip() if found else ""


def _with_fewest_spills(compiled: Callable[[int], Any], warps: int, found: Any) -> Any:
    """The code, or that for more warps where registers do not suffice: each thread then has less to hold."""
    least = stack_bytes(found.kernel)
    while least > KEPT_OVER_A_CALL and warps < MOST_WARPS:
        warps *= 2
        try:
            other = compiled(warps)
        except RuntimeError:  # as above
            continue
        if (size := stack_bytes(other.kernel)) < least:
            found, least = other, size
    return found


def is_assembled_right(text: str) -> bool:
    """Whether NVIDIA's assembler makes what the text says. LLVM asks in which range two numbers of 16 bits are by
    adding a constant to both at once. The conditions may then be others (12.8, for sm_90). One of both is moved
    behind a call, and the wrong half of the constant is added to it
    (`suites/upstream_bugs/short_integers_beside_a_division.py`). Beside divisions by constants they were wrong
    without a call."""
    added = {operand for pair in PACKED.findall(text) for operand in pair}
    return not added or (all(each.startswith("%") for each in added) and added.isdisjoint(CONSTANT.findall(text)))


def _that_adds_right(compiled: Callable[[int], Any], found: Any) -> Any:
    """Code that is assembled right.

    It is for more warps, as a thread of few elements adds none at once. Or it is as LLVM leaves it before it looks for
    what may be done at once.

    Raises: NotBuilt where there is none.
    """
    first = warps = found.metadata.num_warps
    while warps < MOST_WARPS:
        warps *= 2
        try:
            found = compiled(warps)
        except RuntimeError:  # as above
            continue
        if is_assembled_right(found.asm["ptx"]):
            return found
    with as_llvm_leaves_it():
        found = compiled(first)
    if not is_assembled_right(found.asm["ptx"]):
        raise NotBuilt("constants are added to two short integers at once, which NVIDIA's assembler may make wrong")
    return found


def stack_bytes(code: bytes) -> int:
    """What a thread of machine code keeps in memory, for lack of registers or around calls.

    The sections of an ELF file are told of in a table; that of NVIDIA's called .nv.info holds attributes, of which one
    has the size of a function's frame.
    """
    offset, (size, count, names) = _U64.unpack_from(code, 0x28)[0], struct.unpack_from("<3H", code, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", code, offset + number * size) for number in range(count)]
    text = headers[names][4]
    for name, _, _, _, begin, length in headers:
        if code[text + name :].startswith(b".nv.info\0"):
            return max(_frames(code[begin : begin + length]), default=0)
    return 0


def _frames(info: bytes) -> Iterator[int]:
    """The frame of each function, of attributes of which those with a size (4) hold so many bytes behind it."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if (form, attribute) == (HAS_SIZE, FRAME_SIZE):
            yield struct.unpack_from("<2I", info, at + 4)[1]
        at += 4 + (size if form == HAS_SIZE else 0)


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
