"""`emit`: a schedule as the Python function that a call runs, to be read by people; `load` makes it callable.

    def graph(args):
        x, w = args
        args.clear()
        # mm
        mm = aten_mm(x, w)
        del x, w
        # relu, add
        add = empty((4, 8), (8, 1), float32)
        kernel_0(mm.data_ptr(), add.data_ptr())
        return (add,)

Names that the namespace must hold: `kernel_*`, and the constants of the schedule. All others are bound in the source.
"""

from __future__ import annotations

import builtins
import hashlib
import linecache
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from types import CodeType
from typing import Any

import torch

from assay.compiler.errors import Unexpected
from assay.compiler.ir.loops.index import FloorDiv, Index, Int, Max, Min, Mod, Product, Sum, Symbol, operands, symbols
from assay.compiler.ir.loops.kernel import (
    Allocate,
    CallAten,
    Expect,
    Free,
    Launch,
    Part,
    Read,
    Ref,
    Reinterpret,
    Reuse,
    Schedule,
    Step,
)

HEADER = """import builtins
import math
import operator

import torch
from torch import inf, nan
from torch._C._dynamo.guards import _empty_strided_cpu as empty_cpu, _reinterpret_tensor as reinterpret
"""
ON_CUDA = """from torch._C import _cuda_getDevice as device_now
from torch._C._dynamo.guards import _empty_strided_cuda as empty_cuda
"""
EMPTY_LARGE = "from assay.compiler.toolchain.allocator import empty_large\n"
OWN = "torch.ops.assay."
REPLACED = {
    "torch.ops.aten.bernoulli.p": "assay.compiler.kernels.dropout",
    "torch.ops.aten.native_dropout.default": "assay.compiler.kernels.dropout",
    OWN + "attend.default": "assay.compiler.kernels.attend",
    OWN + "attend_backward.default": "assay.compiler.kernels.attend",
    OWN + "flash_attention.default": "assay.compiler.kernels.flash_attention",
    OWN + "multiply.default": "assay.compiler.kernels.products",
    OWN + "multiply_batch.default": "assay.compiler.kernels.products",
    OWN + "offload.default": "assay.compiler.runtime.transfers",
    OWN + "reload.default": "assay.compiler.runtime.transfers",
    OWN + "generator_state.default": "assay.compiler.runtime.generators",
    OWN + "exchange_generator_state.default": "assay.compiler.runtime.generators",
}
"""Operators that the runtime has a function for, of the same name and meaning, and the module that it is in."""
LARGE_BYTES = 1 << 25
"""From here on the C library takes every block from the system anew, and gives it back."""
WRAPPED = "({} + 2**63) % 2**64 - 2**63"
READS = {
    Read.itself: "{input}",
    Read.size: "{input}.size({dim})",
    Read.stride: "{input}.stride({dim})",
    Read.offset: "{input}.storage_offset()",
}
RESTRIDE = """

def restride(tensor, size, stride, dtype):
    \"\"\"The tensor in the layout and the dtype that the code after it was made for.\"\"\"
    if tensor.size() != size:
        raise RuntimeError(f"assay: a result of ATen has the size {tuple(tensor.size())}, and {size} was foretold")
    return torch.empty_strided(size, stride, dtype=dtype, device=tensor.device).copy_(tensor)
"""


def emit(schedule: Schedule) -> str:
    """The source of a module with `graph(args)`, which takes a list, empties it, and returns a tuple."""
    return _Emitter(schedule).source()


def code_of(source: str, function: str = "graph") -> CodeType:
    """The source, compiled by Python; its file name says what it is and tells it apart."""
    return compile(source, f"<assay {function} {hashlib.sha256(source.encode()).hexdigest()[:16]}>", "exec")


def load(
    source: str, namespace: Mapping[str, Any], function: str = "graph", code: CodeType | None = None
) -> Callable[[list[Any]], Any]:
    """The `function` that a source defines; `namespace` holds its kernels and constants by name.

    Tracebacks through it show its lines. `code` is the source's own, where it is known already.
    """
    code = code or code_of(source, function)
    name = code.co_filename
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    module = dict(namespace)
    exec(code, module)
    loaded: Callable[[list[Any]], Any] = module[function]
    return loaded


def index_text(index: Index) -> str:
    """An index as a Python expression."""
    if isinstance(index, Int):
        return str(index.value)
    if isinstance(index, Symbol):
        return index.name
    texts = [index_text(part) for part in operands(index)]
    if isinstance(index, Min | Max):
        return f"{'min' if isinstance(index, Min) else 'max'}({', '.join(texts)})"
    if isinstance(index, Product):
        return "*".join(
            t if isinstance(p, Int | Symbol) else f"({t})" for p, t in zip(index.factors, texts, strict=True)
        )
    if isinstance(index, Sum):
        return " + ".join(texts)
    sign = "//" if isinstance(index, FloorDiv) else "%"
    assert isinstance(index, FloorDiv | Mod)
    return f"(({texts[0]}) {sign} ({texts[1]}))"


BOUND_IN_C = "torch._C._VariableFunctions."
DIRECT = {
    getattr(torch.ops.aten, name).default: BOUND_IN_C + name
    for name in "mm bmm addmm baddbmm convolution _scaled_dot_product_flash_attention_for_cpu".split()
    if hasattr(torch._C._VariableFunctions, name)
}
"""Operators that the torch module has under their own names and with their own arguments. Such a call parses its
arguments in C++. It costs 1 us less than that of an operator object, and 4 us less for a convolution."""


def tuple_text(parts: Iterator[str] | list[str]) -> str:
    """A tuple display."""
    items = list(parts)
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def target_text(target: Any) -> str | None:
    """Where a function is found: `torch.ops.aten.mm.default`, `operator.mul`, `builtins.round`; None without a name."""
    if isinstance(target, torch._ops.OpOverload):
        namespace, name = target._schema.name.split("::")
        return f"torch.ops.{namespace}.{name}.{target._overloadname}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        known = getattr(torch.ops.higher_order, target.__name__, None) is target
        return f"torch.ops.higher_order.{target.__name__}" if known else None
    name = getattr(target, "__name__", "")
    for module in (operator, math, builtins, torch):
        if getattr(module, name, None) is target:
            return f"{module.__name__}.{name}"
    return None


class _Emitter:
    """Writes one function; remembers which outside names it has bound."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.bound: dict[str, str] = {}
        self.device = _one_cuda_device(schedule)
        self.objects = {id(value): name for name, value in schedule.constants.items()}
        self.memory: dict[str, str] = {}
        self.taken = {*schedule.inputs, *schedule.constants, *(name for step in schedule.steps for name in _made(step))}

    def source(self) -> str:
        body = [line for step in self.schedule.steps for line in self.step(step)]
        result = tuple_text([self.argument(output) for output in self.schedule.outputs])
        lines = [*self.prologue(), *body, f"return {result}"]
        bindings = "".join(self.binding(text, name) for text, name in self.bound.items())
        header = HEADER + EMPTY_LARGE * any(isinstance(s, Allocate) and _is_large(s) for s in self.schedule.steps)
        header += ON_CUDA if self.device is not None else ""
        restride = RESTRIDE if any(isinstance(step, Expect) for step in self.schedule.steps) else ""
        function = "".join(f"    {line}\n" for line in lines)
        return f"{header}\n{bindings}{restride}\n\ndef graph(args):\n{function}"

    def prologue(self) -> Iterator[str]:
        inputs = self.schedule.inputs
        if self.device is not None:
            yield f"if device_now() != {self.device}:"
            yield f"    with torch.cuda.device({self.device}): return graph(args)"
        if inputs:
            yield f"{', '.join(inputs)}{',' if len(inputs) == 1 else ''} = args"
        yield "args.clear()"
        used = _used_sizes(self.schedule)
        for symbol, source in self.schedule.symbols.items():
            if symbol in used:
                read = READS[source.read].format(input=source.input, dim=source.dim)
                yield f"{symbol} = {source.part.value.format(n=read)}"

    # ---- steps

    def step(self, step: Step) -> list[str]:
        if isinstance(step, Allocate):
            return [self.allocate(step)]
        if isinstance(step, Reuse):
            self.memory[step.name] = self.memory.get(step.of, step.of)
            return [f"{step.name} = {step.of}"]
        if isinstance(step, Launch):
            return self.launch(step)
        if isinstance(step, CallAten):
            return [f"{step.name} = {self.call(step)}"]
        if isinstance(step, Reinterpret):
            size, stride = self.sizes(step.size), self.sizes(step.stride)
            return [f"{step.name} = reinterpret({step.base}, {size}, {stride}, {index_text(step.offset)})"]
        if isinstance(step, Expect):
            name, dtype = step.name, self.bind(str(step.dtype))
            size, stride = self.sizes(step.size), self.sizes(step.stride)
            is_lazy = f" or {name}.is_conj()" if step.dtype.is_complex else ""
            return [
                f"if {name}.stride() != {stride} or {name}.size() != {size} or {name}.dtype is not {dtype}{is_lazy}:",
                f"    {name} = restride({name}, {size}, {stride}, {dtype})",
            ]
        return [f"del {', '.join(step.names)}"] if step.names else []

    def sizes(self, sizes: tuple[Index, ...]) -> str:
        return tuple_text([index_text(size) for size in sizes])

    def allocate(self, step: Allocate) -> str:
        size, stride, dtype = self.sizes(step.size), self.sizes(step.stride), self.bind(str(step.dtype))
        if step.device.type == "cpu":
            empty = "empty_large" if _is_large(step) else "empty_cpu"
            return f"{step.name} = {empty}({size}, {stride}, {dtype})"
        if self.device is not None:
            return f"{step.name} = empty_cuda({size}, {stride}, {dtype})"
        device = self.bind(f"torch.device({str(step.device)!r})")
        return f"{step.name} = torch.empty_strided({size}, {stride}, dtype={dtype}, device={device})"

    def launch(self, step: Launch) -> list[str]:
        pairs = list(zip_longest(step.arguments, step.kernel.buffers, step.offsets))
        places = [
            (self.memory.get(name, name), (offset or 0) * buffer.dtype.itemsize) for name, buffer, offset in pairs
        ]
        asked: dict[tuple[str, int], str] = {}  # the address of what is read and written in place is asked for once
        pointers = []
        for (name, _, _), place in zip(pairs, places, strict=True):
            text = _address(name, place[1])
            if place not in asked and places.count(place) > 1:
                asked[place] = self.free(f"address_{len(asked)}")
                text = f"({asked[place]} := {text})"
            elif place in asked:
                text = asked[place]
            pointers.append(text)
        arguments = ", ".join([*pointers, *(self.size(size) for size in step.sizes)])
        return [f"# {', '.join(dict.fromkeys(step.origins))}", f"{step.kernel.name}({arguments})"]

    def size(self, size: Index) -> str:
        """A size as a kernel takes it: in 64 bits, in which what is `below` zero may wrap, as a kernel's sums do."""
        text, sources = index_text(size), self.schedule.symbols
        is_wide = any(name in sources and sources[name].part is Part.below for name in symbols(size))
        return WRAPPED.format(text) if is_wide else text

    def call(self, step: CallAten) -> str:
        if step.target is operator.getitem:
            return f"{self.argument(step.args[0])}[{self.argument(step.args[1])}]"
        given = [self.argument(argument) for argument in step.args]
        given += [f"{name}={self.argument(argument)}" for name, argument in step.kwargs.items()]
        return f"{self.target(step)}({', '.join(given)})"

    def target(self, step: CallAten) -> str:
        if id(step.target) in self.objects:
            return self.objects[id(step.target)]
        text = DIRECT.get(step.target) or target_text(step.target)
        if text is None:
            raise Unexpected(f"assay: node {step.name} calls {step.target!r}, which no generated code can name")
        return self.bind(text)

    def binding(self, text: str, name: str) -> str:
        """The line that binds a name. A program without kernels needs no compiler: it is ATen's, but for our own."""
        module = REPLACED.get(text)
        is_atens = not text.startswith(OWN) and not any(isinstance(step, Launch) for step in self.schedule.steps)
        if module is None or is_atens:
            return f"{name} = {text}\n"
        return f"from {module} import {text.split('.')[-2]} as {name}\n"

    # ---- arguments

    def bind(self, text: str) -> str:
        """A short name for something outside the function, bound once."""
        if text not in self.bound:
            short = (
                text.replace(BOUND_IN_C, "aten_").removeprefix("torch.").removeprefix("ops.").removesuffix(".default")
            )
            name = "".join(c if c.isalnum() else "_" for c in short).strip("_") + "_" * short.endswith("_")
            self.bound[text] = self.free(name)
            self.taken.add(self.bound[text])
        return self.bound[text]

    def free(self, name: str) -> str:
        """The name, or one like it that nothing has."""
        while name in self.taken:
            name += "_"
        return name

    def argument(self, value: Any) -> str:
        """An argument as a Python expression. Raises: Unexpected for an object that has no literal."""
        if isinstance(value, Ref):
            return value.name
        if isinstance(value, Index):
            return index_text(value)
        if isinstance(value, torch.SymInt):
            return self.symbolic(value)
        if isinstance(value, list | tuple):
            items = [self.argument(item) for item in value]
            return f"[{', '.join(items)}]" if isinstance(value, list) else tuple_text(items)
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {self.argument(item)}" for key, item in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({', '.join(self.argument(p) for p in (value.start, value.stop, value.step))})"
        return self.literal(value)

    def symbolic(self, value: torch.SymInt) -> str:
        """A size that a guard has made a number of since it was recorded. Raises: Unexpected for any other."""
        if (known := value.node.maybe_as_int()) is not None:
            return str(known)
        raise Unexpected(f"assay: the size {value} reached the host function without a name")

    def literal(self, value: Any) -> str:
        if id(value) in self.objects:
            return self.objects[id(value)]
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return self.bind(str(value))
        if isinstance(value, torch.device):
            return self.bind(f"torch.device({str(value)!r})")
        if isinstance(value, complex):  # its own text adds the parts, which loses infinities and signs of zeros
            return f"complex({value.real!r}, {value.imag!r})"
        if value is None or isinstance(value, bool | int | float | str):
            return repr(value)
        if isinstance(value, torch._ops.OpOverload) and (text := target_text(value)) is not None:
            return self.bind(text)
        if isinstance(value, torch._ops.HigherOrderOperator):
            return self.bind(f"torch.ops.{value.namespace}.{value.name()}")
        raise Unexpected(f"assay: the constant {value!r} has no literal in generated code")


def _is_large(step: Allocate) -> bool:
    """Whether a result on the CPU surely is as large as blocks of memory that are always fresh."""
    sizes = [size.value for size in step.size if isinstance(size, Int)]
    is_known = len(sizes) == len(step.size) and step.device.type == "cpu"
    return is_known and math.prod(sizes) * step.dtype.itemsize >= LARGE_BYTES


def _one_cuda_device(schedule: Schedule) -> int | None:
    """The GPU that all memory is taken from: torch takes it sooner from the current one than from one by its name."""
    devices = {step.device for step in schedule.steps if isinstance(step, Allocate) and step.device.type != "cpu"}
    return devices.pop().index if len(devices) == 1 and next(iter(devices)).type == "cuda" else None


def _address(name: str, offset_bytes: int) -> str:
    return f"{name}.data_ptr()" + (f" + {offset_bytes}" if offset_bytes else "")


def _made(step: Step) -> tuple[str, ...]:
    if isinstance(step, Launch):
        return (step.kernel.name,)
    return () if isinstance(step, Free) else (step.name,)


def _used_sizes(schedule: Schedule) -> set[str]:
    """The sizes that some step or output mentions."""
    found: set[str] = set()
    for step in schedule.steps:
        found.update(*(symbols(index) for index in _indices_of(step)))
    found.update(*(symbols(index) for index in _indices_in(schedule.outputs)))
    return found


def _indices_of(step: Step) -> Iterator[Index]:
    if isinstance(step, Allocate | Expect | Reinterpret):
        yield from (*step.size, *step.stride)
    if isinstance(step, Reinterpret):
        yield step.offset
    if isinstance(step, Launch):
        yield from step.sizes
    if isinstance(step, CallAten):
        yield from _indices_in((step.args, step.kwargs))


def _indices_in(value: object) -> Iterator[Index]:
    if isinstance(value, Index):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _indices_in(item)
    elif isinstance(value, dict):
        yield from _indices_in(tuple(value.values()))
    elif isinstance(value, slice):
        yield from _indices_in((value.start, value.stop, value.step))
