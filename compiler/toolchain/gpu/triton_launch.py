"""Triton programs -> Python callables over addresses: write, compile, load, launch.

    Kernel -> (Program, ...) -> a module of functions -> machine code -> one callable a kernel

A module is a file in the cache, under the digest of its text, as Triton reads its functions' source. Machine code is
in Triton's own cache. A kernel is compiled as it is mostly called, for addresses that are multiples of 16 and indices
of 32 bits. It is compiled again when it is first called otherwise, so that no input is copied for its alignment.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from assay.compiler.codegen.host import index_text
from assay.compiler.codegen.triton.expressions import memory_type
from assay.compiler.codegen.triton.programs import HEADER, emit_programs
from assay.compiler.codegen.triton.tile_sizes import SPACE, USUAL, Change
from assay.compiler.codegen.triton.tiles import Program
from assay.compiler.errors import BuildError
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import Kernel
from assay.compiler.ir.loops.text import show
from assay.compiler.ir.tensors.layout.alignment import ALIGNED_BYTES
from assay.compiler.journal import count_failed_build, count_tuned
from assay.compiler.machine import number
from assay.compiler.options import Options
from assay.compiler.toolchain.gpu.compiled_kernels import (
    Code,
    Launched,
    Launcher,
    defined,
    kept_code,
    launch_names,
    machine_of,
)
from assay.compiler.toolchain.gpu.cuda_launch import MOST_VALUES, launch_cuda, load_cuda
from assay.compiler.toolchain.gpu.triton_build import Built, NotBuilt, Wanted, module_at, triton_code
from assay.compiler.toolchain.gpu.triton_workers import Answer, workers
from assay.compiler.toolchain.gpu.tune import Times, fastest, is_measurable, keep_choice, kept_choice, times_on_device
from assay.compiler.toolchain.launch import Loaded

MATH = "assay.compiler.codegen.triton.math"
WIDE = 1 << 31
"""Elements from which on an index has 64 bits."""
ROOM = 256
"""Memory between launches is at multiples of so many bytes."""
OTHER_WARPS = (4, 1, 8, 2, 16)
"""What a program is compiled for where Triton fails on the number of warps that was chosen for it; one warp moves
nothing between warps, which is what fails."""
CAPABILITY = (9, 0)
"""What machine code of a kernel on the CPU is for: to look at it, and to test that there is some."""


def load_triton(kernels: Sequence[Kernel], options: Options) -> Loaded:
    """For each kernel, by its name, a callable of one integer a buffer (its address), then one a symbol. They are
    compiled side by side, in processes of their own.

    Raises: Unsupported for what Triton has no text for; BuildError where Triton fails.
    """
    made = {kernel.name: Variants(kernel, options.cache) for kernel in kernels}
    if options.tune:
        tune_all(list(made.values()))
    _compile_all([(variants, variants.usual) for variants in made.values()])
    found = Loaded()
    for name, variants in made.items():
        first = variants.first()
        found.add(name, variants.place(first), variants.start(first))
    return found


def load_fitting(kernels: Sequence[Kernel], options: Options) -> list[Launcher | None]:
    """For each kernel a callable of its buffers' addresses, at multiples of 16; None where Triton fails on it, or it
    takes more shared memory than there is. They are compiled side by side."""
    made = [Variants(kernel, options.cache) for kernel in kernels]
    plans = [variants.planned(variants.usual) for variants in made]
    answers = iter(workers().build_all([each for plan in plans for each in plan.wanted]))
    found: list[Launcher | None] = []
    for variants, plan in zip(made, plans, strict=True):
        own = list(itertools.islice(answers, len(plan.wanted)))
        is_fitting = all(isinstance(each, Built) and each.shared <= number("shared_memory_bytes") for each in own)
        if is_fitting:
            variants.take(variants.usual, plan, own)
        found.append(variants.first().launch if is_fitting else None)
    return found


def tune_all(kernels: Sequence[Variants], times: Times = times_on_device) -> None:
    """Has each kernel that can be measured use the tiles that are fastest, as the cache knows or `times` tells."""
    unknown = []
    for variants in kernels:
        if is_measurable(variants.kernel):
            machine = machine_of(variants.device)
            known = kept_choice(variants.kernel, machine, variants.cache)
            variants.usual = replace(variants.usual, change=known or USUAL)
            unknown += [variants] if known is None else []
    plans = [(variants, variants.candidates()) for variants in unknown]
    _compile_all([(variants, each) for variants, candidates in plans for each in candidates])
    for variants, candidates in plans:
        there = [each for each in candidates if each in variants.variants]
        found = times(variants.kernel, [variants.variants[each].launch for each in there])
        change = USUAL if found is None else fastest([each.change for each in there], found)
        if found is not None:
            keep_choice(variants.kernel, machine_of(variants.device), variants.cache, change)
            count_tuned()
        variants.settle(change)


def _compile_all(kernels: Sequence[tuple[Variants, _Variant]]) -> None:
    """Compiles variants of kernels. A variant with other tiles than the usual is left out where they do not fit.

    Raises: BuildError where Triton fails on a kernel as it is mostly called.
    """
    waiting = [(variants, of, variants.planned(of)) for variants, of in kernels if of not in variants.variants]
    answers = iter(workers().build_all([each for _, _, plan in waiting for each in plan.wanted]))
    for variants, of, plan in waiting:
        own = list(itertools.islice(answers, len(plan.wanted)))
        if of.change == USUAL or all(
            isinstance(each, Built) and each.shared <= number("shared_memory_bytes") for each in own
        ):
            variants.take(of, plan, own)


@dataclass(frozen=True, slots=True)
class _Variant:
    """What a kernel's code counts on, the width of indices and whether all addresses are multiples of 16; its tiles."""

    is_wide: bool
    is_aligned: bool
    change: Change = USUAL


@dataclass(frozen=True, slots=True)
class _Plan:
    """A variant of a kernel, written: its programs, and what is to be compiled of them."""

    programs: tuple[Program, ...]
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class _Made:
    """A variant of a kernel: its launches as text, what they run, and the function that this makes."""

    text: str
    codes: tuple[DeviceCode, ...]
    launch: Launcher


class Variants:
    """A kernel on its device, in the variants that were asked for."""

    def __init__(self, kernel: Kernel, cache: str) -> None:
        self.kernel, self.cache = kernel, cache
        self.device = kernel.device.index if kernel.device.index is not None else torch.cuda.current_device()
        known = [buffer.numel for buffer in kernel.buffers]
        is_surely_wide = any(isinstance(numel, Int) and numel.value >= WIDE for numel in known)
        self.usual = _Variant(is_surely_wide, True)
        self.variants: dict[_Variant, _Made] = {}

    def first(self) -> _Made:
        """The kernel as it is mostly called."""
        return self._variant(self.usual)

    def candidates(self) -> list[_Variant]:
        """The usual variant with each choice of tiles, the usual one first; of choices that come to one text one."""
        texts = dict[tuple[Program, ...], _Variant]()
        for change in SPACE:
            of = replace(self.usual, change=change)
            texts.setdefault(self.planned(of).programs, of)
        return list(texts.values())

    def settle(self, change: Change) -> None:
        """Keeps one choice of tiles alone."""
        self.usual = replace(self.usual, change=change)
        self.variants = {of: made for of, made in self.variants.items() if of == self.usual}

    def planned(self, of: _Variant, is_by_row: bool = False) -> _Plan:
        """Raises: Unsupported for what Triton has no text for."""
        programs = emit_programs(self.kernel, of.is_wide, is_by_row, of.is_aligned, of.change)
        path = path_of(text_of(programs), self.cache)
        wanted = (wanted_of(self.kernel, program, path, of.is_wide, of.is_aligned) for program in programs)
        return _Plan(programs, tuple(wanted))

    def take(self, of: _Variant, plan: _Plan, answers: Sequence[Answer]) -> None:
        """Takes what was compiled. Where Triton fails, the kernel is written by rows: the same pass fails on no scalar.

        Raises: BuildError where Triton fails on that as well.
        """
        for program, answer in zip(plan.programs, answers, strict=True):
            if failed := str(answer) if isinstance(answer, NotBuilt) else answer.failed:
                count_failed_build(program.name, failed)
        if any(isinstance(answer, NotBuilt) for answer in answers):
            plan = self.planned(of, is_by_row=True)
            answers = workers().build_all(plan.wanted)
        codes = []
        for program, wanted, answer in zip(plan.programs, plan.wanted, answers, strict=True):
            if isinstance(answer, NotBuilt):
                raise _failed(program, answer)
            codes.append(code_on_device(wanted, answer, self.device))
        text = self._launches(plan.programs, codes)
        launch = defined(text, "launch", launch_names(self.device, [code.named for code in codes]))
        self.variants[of] = _Made(text, tuple(codes), launch)

    def _variant(self, wanted: _Variant) -> _Made:
        """The kernel's launches, one after the other, compiled now if they were not before."""
        if wanted not in self.variants:
            plan = self.planned(wanted)
            self.take(wanted, plan, workers().build_all(plan.wanted))
        return self.variants[wanted]

    def launch(self, *values: int) -> None:
        """Launches the variant that these arguments need."""
        count = len(self.kernel.buffers)
        is_aligned = not any(address % ALIGNED_BYTES for address in values[:count])
        sizes = dict(zip(self.kernel.symbols, values[count:], strict=True))
        is_wide = any(eval(index_text(b.numel), dict(sizes)) >= WIDE for b in self.kernel.buffers)
        is_wide |= any(size >= WIDE for size in sizes.values())
        self._variant(_Variant(is_wide, is_aligned)).launch(*values)

    def start(self, first: _Made) -> Launcher:
        """The kernel for any arguments: as it was compiled first, or the variant that they need."""
        return defined(self.start_text(), "start", {"run": first.launch, "otherwise": self.launch})

    def start_text(self) -> str:
        kernel = self.kernel
        names = [f"a{n}" for n in range(len(kernel.buffers))]
        tests = [f"({' | '.join(names)}) & {ALIGNED_BYTES - 1}"] if names else []
        sizes = [buffer.numel for buffer in kernel.buffers if not isinstance(buffer.numel, Int)]
        known = dict.fromkeys([*map(index_text, sizes), *kernel.symbols])
        tests += [f"{size} >= {WIDE}" for size in known]
        arguments = ", ".join([*names, *kernel.symbols])
        lines = [f"def start({arguments}):"]
        if tests:
            lines += [f"    if {' or '.join(tests)}: return otherwise({arguments})"]
        return "\n".join([*lines, f"    run({arguments})"])

    def place(self, first: _Made) -> Launched | None:
        """Where other processes find the kernel; None if the driver alone cannot launch it."""
        if not all(code.threads for code in first.codes):
            return None
        codes = tuple(
            Code(kept_code(code.data, self.cache), code.name, code.threads, code.shared) for code in first.codes
        )
        text = show(self.kernel)
        return Launched(machine_of(self.device), self.device, text, codes, first.text, self.start_text())

    def _launches(self, programs: Sequence[Program], codes: Sequence[DeviceCode]) -> str:
        """The function that launches the programs on the current stream of the kernel's device, as text."""
        kernel = self.kernel
        buffers = [f"a{n}" for n in range(len(kernel.buffers))]
        arguments = ", ".join([*buffers, *kernel.symbols])
        lines = [f"def launch({arguments}):", f"    if device_now() != {self.device}:"]
        lines += [f"        with on_device({self.device}): return launch({arguments})"]
        lines += [f"    stream = stream_of({self.device})"]
        room = {b.name: b.numel.value * b.dtype.itemsize for p in programs for b in p.workspace}  # type: ignore[union-attr]
        if room:
            starts = itertools.accumulate((-(-size // ROOM) * ROOM for size in room.values()), initial=0)
            lines += [f"    room = empty({sum(room.values()) + ROOM * len(room)}, dtype=u8, device=device)"]
            lines += ["    start = room.data_ptr()"]
            lines += [f"    {name} = start + {at}" for name, at in zip(room, starts, strict=False)]
        for position, (program, code) in enumerate(zip(programs, codes, strict=True)):
            own = ", ".join([*buffers, *(buffer.name for buffer in program.workspace), *kernel.symbols])
            grid = str(program.grid.value) if isinstance(program.grid, Int) else "grid"
            launch = code.call(position, grid, self.device, own)
            if isinstance(program.grid, Int):
                lines += [f"    {launch}"] * (program.grid.value > 0)
            else:
                lines += [f"    grid = {index_text(program.grid)}", f"    if grid > 0: {launch}"]
        return "\n".join(lines)


def text_of(programs: Sequence[Program]) -> str:
    """The module that defines the programs."""
    return HEADER.format(math=MATH) + "\n\n" + "\n\n".join(program.text for program in programs)


def module_of(programs: Sequence[Program], cache: str) -> ModuleType:
    """The programs as functions for Triton; the same module for the same text."""
    return module_at(path_of(text_of(programs), cache))


@functools.lru_cache(maxsize=1 << 12)
def path_of(text: str, cache: str) -> str:
    """The file in the cache that has this text."""
    key = hashlib.sha256(text.encode()).hexdigest()[:40]
    folder = Path(cache) / "triton"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path, fresh = folder / f"k{key}.py", folder / f"k{key}.{os.getpid()}.new"
    if not path.is_file() or path.read_text() != text:
        fresh.write_text(text)
        os.replace(fresh, path)
    return str(path)


def signature_of(kernel: Kernel, program: Program, is_wide: bool) -> list[str]:
    """The types of a program's arguments, as Triton names them, in order."""
    pointers = [f"*{memory_type(buffer.dtype)}" for buffer in (*kernel.buffers, *program.workspace)]
    return [*pointers, *("i64" if is_wide else "i32" for _ in kernel.symbols)]


def wanted_of(kernel: Kernel, program: Program, path: str, is_wide: bool, is_aligned: bool) -> Wanted:
    """What is to be compiled of the file that a program is in."""
    warps = tuple(dict.fromkeys((program.warps, *OTHER_WARPS)))
    kinds = tuple(signature_of(kernel, program, is_wide))
    capability = capability_of(kernel.device)
    return Wanted(path, program.name, kinds, is_aligned, warps, capability, program.checks, program.stages)


def compiled(kernel: Kernel, program: Program, module: ModuleType, is_wide: bool, is_aligned: bool) -> Any:
    """The machine code of a program, with Triton's own description of it. Raises: BuildError where Triton fails."""
    assert module.__file__ is not None
    try:
        return triton_code(wanted_of(kernel, program, module.__file__, is_wide, is_aligned))
    except NotBuilt as error:
        raise _failed(program, error) from error


def _failed(program: Program, error: NotBuilt) -> BuildError:
    return BuildError(f"assay: Triton failed on the program {program.name} with any number of warps: {error}")


def capability_of(device: torch.device) -> int:
    is_here = device.type == "cuda" and torch.cuda.is_available()
    major, minor = torch.cuda.get_device_capability(device) if is_here else CAPABILITY
    return 10 * major + minor


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """Machine code on a device: what launches it, the function there, and what goes when nobody holds it.

    `threads` and `shared` are for the driver, and `data` and `name` are the code and its function for other processes;
    without them Triton's own launcher runs it, which wants its description.
    """

    run: Launcher
    function: int
    more: Any = None
    threads: int = 0
    shared: int = 0
    data: bytes = b""
    name: str = ""

    @property
    def named(self) -> tuple[Launcher, int, Any]:
        return self.run, self.function, self.more

    def call(self, number: int, grid: str, device: int, values: str) -> str:
        """The text of a launch, by the names that it is given under a number."""
        if self.threads:
            return f"run_{number}(function_{number}, {grid}, {self.threads}, {self.shared}, {device}, stream, {values})"
        given = f"function_{number}, more_{number}[0], None, None, None"
        return f"run_{number}({grid}, 1, 1, stream, {given}, {values})"


def code_on_device(wanted: Wanted, built: Built, device: int) -> DeviceCode:
    """What launches machine code on a device: the driver, where there is nothing to it but a function's arguments."""
    launch = launch_cuda() if built.is_plain and len(wanted.kinds) <= MOST_VALUES else None
    if launch is not None:
        function = load_cuda(built.data, built.name, built.shared, device)
        return DeviceCode(launch, function, None, built.threads, built.shared, built.data, built.name)
    from triton.runtime.driver import driver

    run = triton_code(wanted)
    with torch.cuda.device(device):
        module, function, *_ = driver.active.utils.load_binary(run.name, run.kernel, built.shared, device)
        launcher = driver.active.launcher_cls(run.src, run.metadata)
    return DeviceCode(launcher, function, (run.packed_metadata, module))
