"""Options of a compile; the only reader of environment variables.

ASSAY_DEBUG=0..4      1 one line a compile; 2 kernels with their bytes; 3 every state as text; 4 the generated source
ASSAY_DUMP=dir        every state in numbered files
ASSAY_CACHE=dir       where compiled kernels and calls are kept (default: ~/.cache/assay)
ASSAY_WARM=0          compile every call afresh, whatever the cache keeps of it
ASSAY_CXX=path        the C++ compiler (default: g++, then c++, then clang++ on PATH)
ASSAY_TARGET=name     cpp | aten: generated kernels, or every operator as a call to ATen
ASSAY_VERIFY=1        check every graph after each pass: a view that is not its operand's is a bug of the compiler
ASSAY_SANITIZE=a,b    sanitizers of the C++ compiler that kernels are built with, for example address,undefined
ASSAY_MACHINE=path    facts of this machine, measured or stated (default: ~/.cache/assay/machine.json); or `default`
ASSAY_KEEP_MEMORY=0   leave the C library's heap as it is: it gives what a call frees back to the system
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from assay.compiler.errors import OptionError

TARGETS = ("cpp", "aten")
NUMERICS = ("fast", "cast", "exact")
FALLBACKS = ("eager", "limits", "error")
PACKED = ("all", "no_static", "donated")
MODES: dict[str, dict[str, object]] = {
    "default": {},
    "reduce-overhead": {"cudagraphs": True},
    "max-autotune": {"cudagraphs": True, "tune": True},
    "max-autotune-no-cudagraphs": {"cudagraphs": False, "tune": True},
}
"""The options that each of torch.compile's modes stands for."""


def _cache_default() -> str:
    return os.environ.get("ASSAY_CACHE") or str(Path.home() / ".cache" / "assay")


def machine_file() -> Path | None:
    """Where facts of this machine are kept; None where none is measured. It is no part of the cache, which may be new
    for each process."""
    named = os.environ.get("ASSAY_MACHINE") or str(Path.home() / ".cache" / "assay" / "machine.json")
    return None if named == "default" else Path(named)


def keeps_memory() -> bool:
    """Whether the process may keep what calls free; no option of one compile, since all share the heap.

    A user who has set the C library's own thresholds keeps them.
    """
    own = "MALLOC_TRIM_THRESHOLD_" in os.environ or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    return os.environ.get("ASSAY_KEEP_MEMORY", "1") != "0" and not own


def sanitizers() -> str:
    """The sanitizers that kernels are built with, or nothing; no option of one compile, since all share the process,
    which has to load the sanitizer's own library first."""
    return os.environ.get("ASSAY_SANITIZE", "")


def unsanitized() -> dict[str, str]:
    """The environment of a tool that is no part of what is sanitized, such as the C++ compiler."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD" or not sanitizers()}


def _debug_default() -> int:
    text = os.environ.get("ASSAY_DEBUG") or "0"
    if not text.isdecimal():
        raise OptionError(f"assay: ASSAY_DEBUG is {text!r}; it takes 0 to 4")
    return int(text)


@dataclass(frozen=True, slots=True)
class Options:
    """What one compile is asked to do. Construct it with `Options.of`, which checks names and values."""

    target: str = dataclasses.field(default_factory=lambda: os.environ.get("ASSAY_TARGET", "cpp"))
    """`cpp`: generated C++ where an operator has a lowering; `aten`: every operator as a call to ATen."""
    debug: int = dataclasses.field(default_factory=_debug_default)
    """How much is printed, 0 to 4: the steps of `ASSAY_DEBUG`."""
    dump: str = dataclasses.field(default_factory=lambda: os.environ.get("ASSAY_DUMP", ""))
    """The directory to write every intermediate state to; nothing is written by default."""
    cache: str = dataclasses.field(default_factory=_cache_default)
    """The directory in which compiled kernels and calls are kept."""
    warm: bool = dataclasses.field(default_factory=lambda: os.environ.get("ASSAY_WARM", "1") != "0")
    """Whether a call that some process has compiled before is made from what the cache keeps of it."""
    cxx: str = dataclasses.field(default_factory=lambda: os.environ.get("ASSAY_CXX", ""))
    """The C++ compiler, or empty to look for one."""
    numerics: str = "fast"
    """`fast`: as close to float64 as eager is; `cast`: eager's rounding points are kept; `exact`: eager's bits, where
    eager is deterministic: what would round otherwise is a call to ATen."""
    memory_budget: float = 1.0
    """The share of memory that a training step may take, of what the fastest step takes. 0 is the least that computing
    values again can reach."""
    offload: bool = False
    """Whether values that forward keeps on a GPU wait for backward in pinned memory of the host."""
    saved_tensors_hooks: str = "all"
    """Which saved tensors are packed by hooks that are graphs, and so become parts of the compiled ones. `all`: every
    tensor that forward keeps, as in eager. `no_static`: all but parameters and buffers. `donated`: all but what the
    caller sees."""
    functionalize_rng: bool = False
    """Whether random numbers on the CPU are functions of a seed that is an input of the graph. They follow from the
    generator, but are other numbers than eager's."""
    cudagraphs: bool | None = None
    """Whether a graph on a GPU is recorded and replayed as a CUDA graph. True: wherever that is exact. None: where
    calls also wait for the host. False: nowhere."""
    tune: bool = False
    """Whether each kernel on a GPU is compiled with several sizes of tiles, of which the fastest is kept. Each product
    of matrices is then also tried as one kernel with the pointwise work around it. The cache remembers the choice."""
    compiled_autograd: bool = False
    """Whether each backward of the process is compiled as a whole, through compiled and uncompiled parts, with eager's
    hooks in eager's order. That begins with the first graph that asks for it, and ends with `torch._dynamo.reset()`."""
    verify: bool = dataclasses.field(default_factory=lambda: os.environ.get("ASSAY_VERIFY", "0") != "0")
    """Whether each graph is checked after each pass that changes it, as the tests do: costs compile time."""
    stop_after: str = ""
    """The state after which the compile stops; what it would have built runs operator by operator. Empty: it does not
    stop. `assay ladder` says which states there are."""
    fusions: int = -1
    """How many decisions of a graph to compute values together are carried out, in their order; -1: all of them."""
    fallback: str = "eager"
    """What becomes of a graph that the compiler cannot take. `eager`: it runs in eager, counted and said. `limits`: it
    does so if it meets a declared limit; any other error is raised, unless eager raises too. `error`: it raises."""

    @staticmethod
    def of(options: Mapping[str, object] | None, mode: str | None) -> Options:
        """Options from what `torch.compile(options=..., mode=...)` was given.

        Raises: OptionError naming the unknown option or value and listing those that exist.
        """
        if mode is not None and mode not in MODES:
            raise OptionError(f"assay: mode {mode!r} does not exist; the modes are {', '.join(MODES)}")
        given = {**MODES.get(mode or "default", {}), **(options or {})}
        known = {field.name: field for field in dataclasses.fields(Options)}
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise OptionError(f"assay: option {name!r} does not exist{hint}. The options are {', '.join(known)}")
        made = Options(**given)  # type: ignore[arg-type]
        made.check()
        return made

    def check(self) -> None:
        """Raises: OptionError for a value that an option does not take."""
        if self.target not in TARGETS:
            raise OptionError(f"assay: option target is {self.target!r}; it takes one of {', '.join(TARGETS)}")
        if self.numerics not in NUMERICS:
            raise OptionError(f"assay: option numerics is {self.numerics!r}; it takes one of {', '.join(NUMERICS)}")
        if self.saved_tensors_hooks not in PACKED:
            found, known = self.saved_tensors_hooks, ", ".join(PACKED)
            raise OptionError(f"assay: option saved_tensors_hooks is {found!r}; it takes one of {known}")
        if self.fallback not in FALLBACKS:
            raise OptionError(f"assay: option fallback is {self.fallback!r}; it takes one of {', '.join(FALLBACKS)}")
        if isinstance(self.memory_budget, bool) or not isinstance(self.memory_budget, int | float):
            raise OptionError(f"assay: option memory_budget is {self.memory_budget!r}; it takes a number from 0 to 1")
        if not 0 <= self.memory_budget <= 1:
            raise OptionError(f"assay: option memory_budget is {self.memory_budget!r}; it takes a number from 0 to 1")
        for name in ("warm", "offload", "functionalize_rng", "tune", "compiled_autograd", "verify"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"assay: option {name} is {getattr(self, name)!r}; it takes True or False")
        if not isinstance(self.cudagraphs, bool | None):
            raise OptionError(f"assay: option cudagraphs is {self.cudagraphs!r}; it takes True, False or None")
        if not isinstance(self.stop_after, str):
            raise OptionError(f"assay: option stop_after is {self.stop_after!r}; it takes the name of a state")
        if isinstance(self.fusions, bool) or not isinstance(self.fusions, int) or self.fusions < -1:
            raise OptionError(f"assay: option fusions is {self.fusions!r}; it takes a whole number from -1 on")
        if not isinstance(self.debug, int) or not 0 <= self.debug <= 4:
            raise OptionError(f"assay: option debug is {self.debug!r}; it takes 0 to 4")


UNOPTIMIZED = "DISABLE_LLVM_OPT"
"""Triton's own name for it in the environment, where alone it looks."""


@contextmanager
def as_llvm_leaves_it() -> Iterator[None]:
    """What Triton compiles meanwhile in this process LLVM does not optimize."""
    before = os.environ.get(UNOPTIMIZED)
    os.environ[UNOPTIMIZED] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[UNOPTIMIZED]
        else:
            os.environ[UNOPTIMIZED] = before
