"""Kernels -> Python callables over addresses: emit, cache, compile, load.

A kernel whose text some compile of this process has loaded before, under whatever name, is that very function again;
the others are built into one shared object. It carries for each kernel a Python function of its own that reads its
integers straight from the argument vector (the stable ABI, declared by hand: no Python header is needed). A call costs
about a third of one through ctypes.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from assay.compiler.codegen.cpp.expressions import memory_type
from assay.compiler.codegen.cpp.kernel import emit_kernel, origin_lines
from assay.compiler.codegen.cpp.prelude import prelude_of
from assay.compiler.codegen.loops import affine
from assay.compiler.errors import BuildError
from assay.compiler.ir.loops.failures import FAILURES, failures_of
from assay.compiler.ir.loops.index import Index, Int, Product, Sum, Symbol
from assay.compiler.ir.loops.kernel import Buffer, Kernel
from assay.compiler.options import Options, keeps_memory
from assay.compiler.toolchain import build as _build
from assay.compiler.toolchain.allocator import keep_freed_memory
from assay.compiler.toolchain.cache import fetch, find, key_of

KERNELS_PER_UNIT = 3
"""A unit costs 0.02 s beside its kernels and linking them 0.02 s; a kernel takes 0.02 to 0.1 s. More units than
processors gain nothing, up to a size from which on the C++ compiler takes more than linear time."""
MOST_KERNELS_PER_UNIT = 32
"""Kernels of a unit, at most: more of them take the C++ compiler more than linear time."""

MOST_TEXTS = 1024
"""How many kernels keep their texts, so that what the same process compiles again is not written again."""

_PYTHON = """
// ---- what Python calls: integers from the argument vector, the lock given up around the kernel ----

struct PyObject;
struct PyMethodDef { const char* name; void* function; int flags; const char* doc; };
extern "C" {
long long PyLong_AsLongLong(PyObject*);
PyObject* PyErr_Occurred();
PyObject* PyErr_Format(PyObject*, const char*, ...);
extern PyObject* PyExc_TypeError;
extern PyObject* PyExc_IndexError;
extern PyObject* PyExc_RuntimeError;
PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject*, PyObject*);
void* PyEval_SaveThread();
void PyEval_RestoreThread(void*);
void Py_IncRef(PyObject*);
extern PyObject _Py_NoneStruct;
}

static bool take(PyObject* const* arguments, long count, long wanted, const char* name, i64* values) {
  if (count != wanted) {
    PyErr_Format(PyExc_TypeError, "%s takes %ld integers, %ld given", name, wanted, count);
    return false;
  }
  for (long i = 0; i < wanted; i++) {
    values[i] = PyLong_AsLongLong(arguments[i]);
    if (values[i] == -1 && PyErr_Occurred()) return false;
  }
  return true;
}
"""

_ENTRY = """
static PyObject* call_{name}(PyObject*, PyObject* const* arguments, long count) {{
  i64 v[{size}];
  if (!take(arguments, count, {count}, "{name}", v)) return 0;
{checks}  void* state = PyEval_SaveThread();
  {call}
  PyEval_RestoreThread(state);
{raises}  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}}
static PyMethodDef def_{name} = {{"{name}", (void*)call_{name}, 0x80, 0}};
extern "C" PyObject* get_{name}() {{ return PyCFunction_NewEx(&def_{name}, 0, 0); }}
"""


ANY = "assay_kernel_of_any_name"
"""What stands for the name of a kernel in the text by which it is known."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a kernel is: the key of the shared object that holds it, and its name there."""

    key: str
    name: str


class Loaded(dict[str, Callable[..., None]]):
    """Kernels by their names, and where each of them is: a `Place` on the CPU, a `Launched` on a GPU, None where it
    cannot be found again."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, Any] = {}

    def add(self, name: str, place: object, function: Callable[..., None]) -> None:
        self.places[name], self[name] = place, function

    def beside(self, other: Loaded) -> Loaded:
        """These kernels and others."""
        both = Loaded()
        for part in (self, other):
            both.update(part)
            both.places.update(part.places)
        return both


Known = tuple[str, _build.Compiler, tuple[str, ...], str]
"""What tells a function from others: the cache, the compiler, its flags, the text under any name."""
_known: dict[Known, tuple[Path, Place, Callable[..., None]]] = {}
"""The functions of this process, which stay loaded, with the files that they come from."""


def load_cpp(kernels: Sequence[Kernel], options: Options) -> Loaded:
    """Kernels on the CPU, by their names.

    Raises: BuildError where there is no compiler, or it failed; Unsupported for what C++ has no text for.
    """
    if not kernels:
        return Loaded()
    compiler = _build.find_compiler(options.cxx)
    if compiler is None:
        wanted = options.cxx or "g++, c++ or clang++"
        raise BuildError(f"assay: there is no C++ compiler ({wanted}); set ASSAY_CXX, or option target to 'aten'")
    texts = {kernel.name: text_of(replace(kernel, name=ANY, origins=())) for kernel in kernels}
    known = {name: (options.cache, compiler, _build.FLAGS, text) for name, text in texts.items()}
    fresh = {key: name for name, key in known.items() if not _is_loaded(key)}
    if fresh:
        left = [named(kernel, texts[kernel.name]) for kernel in kernels if kernel.name in fresh.values()]
        path = _built(left, compiler, options)
        functions = _load(path, list(fresh.values()))
        _known.update({key: (path, Place(path.stem, name), functions[name]) for key, name in fresh.items()})
    found = Loaded()
    for name, key in known.items():
        found.add(name, *_known[key][1:])
    return found


def _is_loaded(key: Known) -> bool:
    """Whether the function is there and its file still in the cache, for other processes."""
    return key in _known and _known[key][0].exists()


def _built(texts: Sequence[str], compiler: _build.Compiler, options: Options) -> Path:
    """The shared object of kernels, from the cache or built."""
    sources = units(texts)
    key = key_of(sources, compiler.version, *_build.FLAGS)
    return fetch(options.cache, key, functools.partial(_build.build, sources, compiler))


def load_again(places: Mapping[str, Place], options: Options) -> Loaded | None:
    """Kernels that were built before, by their names; None where the cache holds one of them no more."""
    found = Loaded()
    for key in dict.fromkeys(place.key for place in places.values()):
        path = find(options.cache, key)
        if path is None:
            return None
        there = {name: place for name, place in places.items() if place.key == key}
        functions = _load(path, [place.name for place in there.values()])
        for name, place in there.items():
            found.add(name, place, functions[place.name])
    return found


@dataclass(frozen=True, slots=True)
class Function:
    """A Python function of `count` integers: `call` is C++ that uses them as `v`, and `answer` C++ that returns what it
    returns, which else is None."""

    name: str
    count: int
    call: str
    answer: str = ""


def load_text(
    text: str, functions: Sequence[Function], options: Options, own: Sequence[str] = ()
) -> list[Callable[..., object]]:
    """Functions over C++ text of our own, which begins after the parts of `math.h` that it names; after them those that
    the text itself makes Python functions.

    Raises: BuildError as `load_cpp` does.
    """
    compiler = _build.find_compiler(options.cxx)
    if compiler is None:
        raise BuildError("assay: there is no C++ compiler")
    entries = [
        _ENTRY.format(name=f.name, size=f.count, count=f.count, checks="", call=f.call, raises=f.answer)
        for f in functions
    ]
    source = _unit("\n".join([_PYTHON, text, *entries]))
    key = key_of([source], compiler.version, *_build.FLAGS)
    path = fetch(options.cache, key, functools.partial(_build.build, [source], compiler))
    names = [*(f.name for f in functions), *own]
    loaded = _load(path, names)
    return [loaded[name] for name in names]


@functools.lru_cache(maxsize=MOST_TEXTS)
def text_of(kernel: Kernel) -> str:
    """A kernel and its Python function in C++."""
    return emit_kernel(kernel) + entry(kernel)


def inner_text(kernel: Kernel) -> str:
    """A kernel as a C++ function for other C++ of its unit, which has shared its work among threads."""
    return emit_kernel(kernel, is_inner=True)


def memory_type_of(dtype: torch.dtype) -> str:
    """The C type of an element in memory."""
    return memory_type(dtype)


def named(kernel: Kernel, text: str) -> str:
    """The text of a kernel under its own name, after what it was made from."""
    return "\n".join([*origin_lines(kernel), text.replace(ANY, kernel.name)])


def units(texts: Sequence[str]) -> list[str]:
    """The translation units of the kernels, of about equal size; as many as may compile side by side, or more where
    those would be long."""
    count = max(1, min(os.cpu_count() or 1, len(texts) // KERNELS_PER_UNIT), -(-len(texts) // MOST_KERNELS_PER_UNIT))
    parts: list[list[str]] = [[] for _ in range(count)]
    for text in sorted(texts, key=len, reverse=True):
        min(parts, key=lambda part: sum(map(len, part))).append(text)
    return [_unit("\n".join([_PYTHON, *part])) for part in parts]


def _unit(text: str) -> str:
    return f"{prelude_of(text)}\n{text}"


def entry(kernel: Kernel) -> str:
    """The Python function of a kernel, as C++ text."""
    pointers, symbols = len(kernel.buffers), len(kernel.symbols)
    values = [f"({_pointer(kernel, n)})v[{n}]" for n in range(pointers)]
    values += [f"v[{pointers + n}]" for n in range(symbols)]
    count = pointers + symbols
    failures = failures_of(kernel)
    call = f"{'const u64 failed = ' if failures else ''}{kernel.name}({', '.join(values)});"
    raises = "".join(raise_text(bit, failure) for bit, failure in enumerate(failures))
    checks = _checks(kernel)
    return _ENTRY.format(name=kernel.name, size=max(count, 1), count=count, checks=checks, call=call, raises=raises)


NO_MEMORY = "assay: a kernel was given a tensor that has no memory: its storage was freed, or never was there"
PLAIN = (Int, Symbol, Sum, Product)
"""What numbers of elements are made of that C++ computes without a helper."""


def _checks(kernel: Kernel) -> str:
    """C++ that refuses buffers without memory that have elements: the last guard of what comes between two calls, such
    as a storage that was resized."""
    tests = [test for number, buffer in enumerate(kernel.buffers) if (test := _lacks_memory(kernel, number, buffer))]
    if not tests:
        return ""
    return f'  if ({" || ".join(tests)}) return PyErr_Format(PyExc_RuntimeError, "{NO_MEMORY}");\n'


def _lacks_memory(kernel: Kernel, number: int, buffer: Buffer) -> str:
    """The test in C++; "" for a buffer of no elements, and for one whose number of them is no product of sizes.

    Where a loop does not run there may be no element, though strides that are those of no elements tell of some."""
    if isinstance(buffer.numel, Int):
        return f"!v[{number}]" if buffer.numel.value > 0 else ""
    places = {name: Symbol(f"v[{len(kernel.buffers) + n}]") for n, name in enumerate(kernel.symbols)}

    def is_plain(count: Index) -> bool:
        return affine.names(count) <= places.keys() and all(isinstance(part, PLAIN) for part in affine.walk(count))

    if not is_plain(buffer.numel):
        return ""
    extents = (loop.extent for loop in kernel.loops if not isinstance(loop.extent, Int) and is_plain(loop.extent))
    tests = [affine.text(affine.substitute(each, places), {}) for each in dict.fromkeys([buffer.numel, *extents])]
    return f"(!v[{number}] && {' && '.join(f'({test})' for test in tests)})"


def raise_text(bit: int, failure: str) -> str:
    """C++ that raises a failure where its bit is set in `failed`."""
    error, message = FAILURES[failure]
    return f'  if (failed >> {bit} & 1) return PyErr_Format(PyExc_{error.__name__}, "{message}");\n'


def _pointer(kernel: Kernel, number: int) -> str:
    return f"{memory_type(kernel.buffers[number].dtype)}*"


def _load(path: Path, names: Sequence[str]) -> dict[str, Callable[..., None]]:
    if keeps_memory():
        keep_freed_memory()
    library = ctypes.PyDLL(str(path))
    found: dict[str, Callable[..., None]] = {}
    for name in names:
        get = getattr(library, f"get_{name}")
        get.restype = ctypes.py_object
        found[name] = get()
    return found
