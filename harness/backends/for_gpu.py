"""Backend `assay-sm90`: our compiler on the CPU, and beside its C++ every kernel compiled by Triton for a GPU.

No GPU is needed. A run finds out whether each kernel compiles for sm_90, and what its machine code takes of a GPU
(`harness/backends/resources.py`). The cache keeps that by the content of the programs, so a second run is quick.

A kernel is compiled as it is mostly called. Where its calls may need it, it is also compiled for sizes beyond 32 bits,
and for addresses at any place. A kernel that Triton has no text for is recorded as such. A kernel that Triton fails on
is an error of its case.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import triton
from torch import fx

from assay.compiler.codegen.triton import math as triton_math
from assay.compiler.codegen.triton.programs import emit_programs
from assay.compiler.codegen.triton.tiles import Program
from assay.compiler.entry.dynamo import compile_graph
from assay.compiler.errors import BuildError, Unsupported
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import Kernel
from assay.compiler.ir.loops.text import show
from assay.compiler.options import Options
from assay.compiler.toolchain.cache import DIGEST_BYTES, fetch, key_of
from assay.compiler.toolchain.gpu import triton_build
from assay.compiler.toolchain.gpu.triton_launch import WIDE, compiled, module_of, signature_of, text_of
from assay.compiler.toolchain.launch import Loaded, load_cpp
from assay.harness.backends import resources
from assay.harness.backends.resources import COMPILED, FAILED, NO_TEXT, UNALIGNED, USUAL, WIDE_INDEX, Record, Resources

KIND = "resources"
"""The kind of a file in the cache."""
ANY = "kernel_of_any_name"
USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")
SPILLS = re.compile(r"(\d+) bytes spill stores")
_every = 1
"""Of the kernels one in so many is compiled in all its variants, the others as they are mostly called."""


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
    ends = []  # one after the other: Python 3.11 lets no two threads make syntax trees at once
    for kernel in kernels:
        usual, *others = variants_of(kernel)
        ends.append((kernel, usual, end_of(kernel, options)))
        if ends[-1][2].how == COMPILED and is_compiled_in_all(kernel):
            ends += [(kernel, variant, end_of(kernel, options, variant)) for variant in others]
    for kernel, variant, end in ends:
        case = resources.current_case()
        resources.write(Record(case, kernel.name, end.digest, end.how, end.reason, end.programs, variant.name))
    if failed := [(kernel, variant, end.reason) for kernel, variant, end in ends if end.how == FAILED]:
        kernel, variant, reason = failed[0]
        what = f"kernel {kernel.name} ({', '.join(kernel.origins)})"
        raise BuildError(f"assay: {what} for sm_90, {variant.name}: {reason}")
    return load_cpp(kernels, options)


def compile_variants_of(one_in: int) -> None:
    """From now on only one kernel in so many, by its content, is compiled in all its variants."""
    global _every
    _every = one_in


def is_compiled_in_all(kernel: Kernel) -> bool:
    return zlib.crc32(show(replace(kernel, name=ANY, origins=())).encode()) % _every == 0


@dataclass(frozen=True, slots=True)
class Variant:
    """What a kernel's code counts on, as `triton_launch` has it, and what that is called."""

    name: str
    is_wide: bool
    is_aligned: bool


def variants_of(kernel: Kernel) -> list[Variant]:
    """The kernel as it is mostly called first, then what other calls of it may need.

    Sizes that are constants are known to fit into 32 bits, or not to.
    """
    is_wide = is_surely_wide(kernel)
    found = [Variant(USUAL, is_wide, True)]
    if not is_wide and kernel.symbols:
        found.append(Variant(WIDE_INDEX, True, True))
    if kernel.buffers:
        found.append(Variant(UNALIGNED, is_wide, False))
    return found


@dataclass(frozen=True, slots=True)
class End:
    """What a kernel came to; the fields are those of a `Record`."""

    digest: str
    how: str
    reason: str
    programs: tuple[Resources, ...]


def end_of(kernel: Kernel, options: Options, variant: Variant | None = None) -> End:
    """A kernel compiled, whatever its name and origins; as it is mostly called, or in another variant."""
    kernel = replace(kernel, name=ANY, origins=())
    try:
        return _compiled(kernel, variant or variants_of(kernel)[0], options.cache)
    except Unsupported as error:
        return End(key_of([show(kernel)]), NO_TEXT, str(error), ())
    except Exception as error:  # Triton's passes and the assembler raise errors of many classes
        return End(key_of([show(kernel)]), FAILED, f"{type(error).__name__}: {error}", ())


@functools.lru_cache(maxsize=1 << 14)
def _compiled(kernel: Kernel, variant: Variant, cache: str) -> End:
    programs = _programs(kernel, variant)
    sources = [Path(str(module.__file__)).read_text() for module in (triton_math, triton_build)]
    digest = key_of([text_of(programs), *sources], *facts_of(kernel, programs, variant))
    path = fetch(cache, digest, lambda fresh: fresh.write_text(_measured(kernel, programs, variant, cache)), KIND)
    known = json.loads(path.read_bytes()[:-DIGEST_BYTES])
    return End(digest, COMPILED, "", tuple(Resources(**program) for program in known))


def is_surely_wide(kernel: Kernel) -> bool:
    """Whether its indices take 64 bits in every call."""
    return any(isinstance(buffer.numel, Int) and buffer.numel.value >= WIDE for buffer in kernel.buffers)


def _programs(kernel: Kernel, variant: Variant, is_by_row: bool = False) -> tuple[Program, ...]:
    return emit_programs(kernel, variant.is_wide, is_by_row, variant.is_aligned)


def facts_of(kernel: Kernel, programs: Sequence[Program], variant: Variant) -> list[str]:
    """What machine code depends on beside the text."""
    each = [repr((p.name, p.warps, p.stages, p.checks, signature_of(kernel, p, variant.is_wide))) for p in programs]
    return [triton.__version__, str(variant.is_aligned), *each]


def _measured(kernel: Kernel, programs: Sequence[Program], variant: Variant, cache: str) -> str:
    """What the programs take, as JSON; where Triton fails on them, those with one row a tile, as on a GPU."""
    try:
        found = measure(kernel, programs, variant, cache)
    except BuildError:
        found = measure(kernel, _programs(kernel, variant, is_by_row=True), variant, cache)
    return json.dumps([dataclasses.asdict(each) for each in found])


def measure(kernel: Kernel, programs: Sequence[Program], variant: Variant, cache: str) -> list[Resources]:
    """What the machine code of each program takes.

    Raises: BuildError where Triton fails.
    """
    module = module_of(programs, cache)
    codes = [compiled(kernel, program, module, variant.is_wide, variant.is_aligned) for program in programs]
    return [resources_of(code, program.warps) for code, program in zip(codes, programs, strict=True)]


def resources_of(code: Any, wanted_warps: int) -> Resources:
    """What machine code takes; the assembler is asked for spills only where there is a stack to hold them.

    Raises: RuntimeError where `cuobjdump` says nothing of registers.
    """
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
