"""Backend `assay-sm90`: our compiler on the CPU, and beside its C++ every kernel compiled by Triton for a GPU.

No GPU is there: what is found out is that each kernel compiles for sm_90, and what its machine code takes of one
(`harness/resources.py`), which is kept in the cache by the content of the programs, so that a second run is quick. A
kernel that Triton has no text for is recorded as such; one that Triton fails on is an error of its case.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import triton
from torch import fx

from compiler.codegen import triton_math
from compiler.codegen.triton import emit_programs
from compiler.codegen.triton_tiles import Program
from compiler.errors import BuildError, Unsupported
from compiler.fx import compile_graph
from compiler.ir.index import Int
from compiler.ir.loops import Kernel
from compiler.ir.text import show
from compiler.options import Options
from compiler.runtime import triton_build
from compiler.runtime.cache import DIGEST_BYTES, fetch, key_of
from compiler.runtime.launch import Loaded, load_cpp
from compiler.runtime.triton_launch import WIDE, compiled, module_of, signature_of, text_of
from harness import resources
from harness.resources import COMPILED, FAILED, NO_TEXT, Record, Resources

KIND = "resources"
"""The kind of a file in the cache."""
ANY = "kernel_of_any_name"
USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")
SPILLS = re.compile(r"(\d+) bytes spill stores")


def assay_sm90(
    gm: fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """As the backend `assay`, with every kernel compiled for sm_90 as well.

    Raises: RuntimeError where Triton interprets, or comes without a tool; BuildError for a kernel that it fails on.
    """
    if triton.knobs.runtime.interpret:
        raise RuntimeError("assay-sm90 compiles Triton programs: unset TRITON_INTERPRET")
    tool("cuobjdump"), tool("ptxas")
    return compile_graph(gm, example_inputs, Options.of(options, mode), compile_all)


@functools.cache
def tool(name: str) -> str:
    """The path of a tool that comes with Triton.

    Raises: RuntimeError where it does not.
    """
    try:
        return str(getattr(triton.knobs.nvidia, name).path)
    except (AttributeError, RuntimeError) as error:
        raise RuntimeError(
            f"assay-sm90 reads what machine code takes by {name}, which Triton {triton.__version__} comes without: "
            f"{error}. Install another Triton, or set TRITON_{name.upper()}_PATH"
        ) from error


def compile_all(kernels: Sequence[Kernel], options: Options) -> Loaded:
    """The kernels in C++, once each is compiled for sm_90 and recorded.

    Raises: BuildError for the first that Triton fails on.
    """
    ends = [end_of(kernel, options) for kernel in kernels]  # Python 3.11 lets no two threads make syntax trees at once
    for kernel, end in zip(kernels, ends, strict=True):
        resources.write(Record(resources.current_case(), kernel.name, end.digest, end.how, end.reason, end.programs))
    if failed := [(kernel, end.reason) for kernel, end in zip(kernels, ends, strict=True) if end.how == FAILED]:
        kernel, reason = failed[0]
        raise BuildError(f"assay: kernel {kernel.name} ({', '.join(kernel.origins)}) for sm_90: {reason}")
    return load_cpp(kernels, options)


@dataclass(frozen=True, slots=True)
class End:
    """What a kernel came to; the fields are those of a `Record`."""

    digest: str
    how: str
    reason: str
    programs: tuple[Resources, ...]


def end_of(kernel: Kernel, options: Options) -> End:
    """A kernel compiled, whatever its name and origins, for addresses at multiples of 16."""
    kernel = replace(kernel, name=ANY, origins=())
    try:
        return _compiled(kernel, options.cache)
    except Unsupported as error:
        return End(key_of([show(kernel)]), NO_TEXT, str(error), ())
    except Exception as error:  # Triton's passes and the assembler raise errors of many classes
        return End(key_of([show(kernel)]), FAILED, f"{type(error).__name__}: {error}", ())


@functools.lru_cache(maxsize=1 << 14)
def _compiled(kernel: Kernel, cache: str) -> End:
    programs = emit_programs(kernel, is_surely_wide(kernel))
    sources = [Path(str(module.__file__)).read_text() for module in (triton_math, triton_build)]
    digest = key_of([text_of(programs), *sources], *facts_of(kernel, programs))
    path = fetch(cache, digest, lambda fresh: fresh.write_text(_measured(kernel, programs, cache)), KIND)
    known = json.loads(path.read_bytes()[:-DIGEST_BYTES])
    return End(digest, COMPILED, "", tuple(Resources(**program) for program in known))


def is_surely_wide(kernel: Kernel) -> bool:
    """Whether its indices take 64 bits in every call."""
    return any(isinstance(buffer.numel, Int) and buffer.numel.value >= WIDE for buffer in kernel.buffers)


def facts_of(kernel: Kernel, programs: Sequence[Program]) -> list[str]:
    """What machine code depends on beside the text."""
    wide = is_surely_wide(kernel)
    each = [repr((p.name, p.warps, p.stages, p.checks, signature_of(kernel, p, wide))) for p in programs]
    return [triton.__version__, *each]


def _measured(kernel: Kernel, programs: Sequence[Program], cache: str) -> str:
    """What the programs take, as JSON; where Triton fails on them, those with one row a tile, as on a GPU."""
    try:
        found = measure(kernel, programs, cache)
    except BuildError:
        found = measure(kernel, emit_programs(kernel, is_surely_wide(kernel), is_by_row=True), cache)
    return json.dumps([dataclasses.asdict(each) for each in found])


def measure(kernel: Kernel, programs: Sequence[Program], cache: str) -> list[Resources]:
    """What the machine code of each program takes.

    Raises: BuildError where Triton fails.
    """
    module = module_of(programs, cache)
    codes = [compiled(kernel, program, module, is_surely_wide(kernel), True) for program in programs]
    return [resources_of(code, program.warps) for code, program in zip(codes, programs, strict=True)]


def resources_of(code: Any, wanted_warps: int) -> Resources:
    """What machine code takes; the assembler is asked for spills only where there is a stack to hold them."""
    said = _said([tool("cuobjdump"), "--dump-resource-usage"], code.kernel)
    found = USAGE.search(said)
    if found is None:
        raise RuntimeError(f"assay-sm90: cuobjdump says nothing of registers: {said}")
    registers, stack_bytes = map(int, found.groups())
    spill_bytes = _spill_bytes(code) if stack_bytes else 0
    shared_bytes, warps = code.metadata.shared, code.metadata.num_warps
    return Resources(registers, shared_bytes, stack_bytes, spill_bytes, warps, wanted_warps)


def _spill_bytes(code: Any) -> int:
    """The bytes that the assembler stores for lack of registers; the rest of a stack holds arrays."""
    arch = f"--gpu-name=sm_{code.metadata.target.arch}a"
    said = _said([tool("ptxas"), "-v", "--fmad=false", arch, "-o", os.devnull], code.asm["ptx"].encode())
    return sum(map(int, SPILLS.findall(said)))


def _said(command: Sequence[str], data: bytes) -> str:
    """What a tool says of a file that holds the data."""
    with tempfile.NamedTemporaryFile(prefix="assay-sm90-") as file:
        file.write(data)
        file.flush()
        done = subprocess.run([*command, file.name], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr
