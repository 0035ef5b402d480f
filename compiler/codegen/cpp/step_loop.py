"""StepLoop -> C++: a function that runs all steps, with the kernels of the schedule before it.

    u64 steps(i64 first, i64 count, i64 by, i64 scratch, i64 h, i64 h_bytes, i64 h_rows, ...) {
      for (i64 turn = 0, at = first; turn < count; turn++, at += by) {
        const i64 p0 = h + at % h_rows * h_bytes;
        kernel_0((f32*)p0, ...);
      }
    }

A result that is summed over the steps is made in scratch memory, and added by a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch

from assay.compiler.codegen.cpp.expressions import memory_type
from assay.compiler.codegen.cpp.kernel import emit_kernel
from assay.compiler.codegen.loops.operators import HALVES
from assay.compiler.errors import Unsupported
from assay.compiler.ir.loops.failures import failures_of
from assay.compiler.ir.loops.index import Int, Symbol
from assay.compiler.ir.loops.kernel import (
    Allocate,
    Buffer,
    Call,
    Cast,
    Expr,
    Kernel,
    Launch,
    Load,
    Loop,
    Reinterpret,
    Reuse,
    Step,
    Store,
)
from assay.compiler.ir.loops.step_loop import (
    Fixed,
    Place,
    Row,
    StepLoop,
    Total,
    Turn,
    bytes_of,
    check_steps,
    number_of,
    numbers_of,
)

LINE = 64
"""What lies in scratch memory begins at a multiple of so many bytes, as what torch allocates does."""
LEADING = ("first", "count", "by", "scratch")
"""The arguments before those of the places: the first step, how many there are, the one after each, scratch memory."""
MORE: Mapping[type[Place], tuple[str, ...]] = {
    Fixed: (),
    Row: ("bytes",),
    Turn: ("bytes", "rows"),
    Total: ("begun",),
}
"""What is told of each kind of place beside its address: from row to row, how many rows, whether a sum has begun."""


@dataclass(frozen=True, slots=True)
class LoopText:
    """The C++ of a loop under a name, how many integers it takes, how much scratch memory, and what it can fail with,
    by the bits of its result."""

    name: str
    text: str
    count: int
    scratch_bytes: int
    failures: tuple[str, ...]


def emit_step_loop(loop: StepLoop) -> LoopText:
    """The C++ of all steps. Raises: Unsupported for what is more than launches of kernels of known sizes."""
    check_steps(loop.schedule)
    return _Emitter(loop).text()


def emit_while(condition: LoopText, body: LoopText) -> LoopText:
    """The C++ of steps that run until a condition no longer holds: both loops, of which each runs a step at a time.

    It takes how many steps it runs at most, the addresses of two numbers and of the condition's result, and then what
    both loops take behind the first three. The numbers are that of the steps so far, and whether there are no more.
    """
    first, last = condition.count - 3, body.count - 3
    given = [f"a{number}" for number in range(first + last)]
    calls = [
        f"{part.name}(*at, 1, 1, {', '.join(names)})"
        for part, names in ((condition, given[:first]), (body, given[first:]))
    ]
    name = "steps_while"
    lines = [
        f"static u64 {name}(i64 most, i64 numbers, i64 flag, {', '.join(f'i64 {each}' for each in given)}) {{",
        "  i64* const at = (i64*)numbers;",
        "  for (i64 turn = 0; turn < most; turn++, at[0]++) {",
        f"    if (const u64 failed = {calls[0]}) return failed;",
        "    at[1] = !*(const unsigned char*)flag;",
        "    if (at[1]) break;",
        f"    if (const u64 failed = {calls[1]}) return failed << {len(condition.failures)};",
        "  }",
        "  return 0;",
        "}",
    ]
    text = "\n".join([condition.text, body.text, *lines])
    scratch_bytes = condition.scratch_bytes + body.scratch_bytes
    return LoopText(name, text, 3 + first + last, scratch_bytes, condition.failures + body.failures)


@dataclass(slots=True)
class _Emitter:
    """Writes one loop. `pointers` are the addresses of values, by their names."""

    loop: StepLoop
    pointers: dict[str, str] = field(default_factory=dict)
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)
    scratch_bytes: int = 0
    sums: list[Kernel] = field(default_factory=list)

    def text(self) -> LoopText:
        kernels, lines = [self._named(kernel) for kernel in self.loop.schedule.kernels], self._lines()
        failures = tuple(dict.fromkeys(failure for kernel in kernels for failure in failures_of(kernel)))
        body = [line for step in self.loop.schedule.steps for line in self._step(step, failures)]
        body += self._added()
        arguments = ", ".join(f"i64 {name}" for name in self.arguments())
        parts = [
            *(emit_kernel(kernel) for kernel in (*kernels, *self.sums)),
            f"static u64 {self.loop.name}({arguments}) {{",
            "  u64 failed = 0;",
            "  for (i64 turn = 0, at = first; turn < count; turn++, at += by) {",
            *(f"    {line}" for line in (*lines, *body)),
            "    if (failed) break;",
            "  }",
            "  return failed;",
            "}",
        ]
        return LoopText(self.loop.name, "\n".join(parts), len(self.arguments()), self.scratch_bytes, failures)

    def _named(self, kernel: Kernel) -> Kernel:
        """The kernel under a name that other loops of its unit do not have."""
        return replace(kernel, name=f"{self.loop.name}_{kernel.name}")

    def arguments(self) -> list[str]:
        """The names of all arguments, in order."""
        names = list(LEADING)
        for number, place in enumerate(self.loop.places.values()):
            names += [f"v{number}", *(f"v{number}_{more}" for more in MORE[type(place)])]
        return names

    def _lines(self) -> list[str]:
        """Where each place is at a step, and what lies there."""
        self.dtypes.update(self.loop.dtypes)
        results, lines = self.loop.outputs(), []
        for number, (name, place) in enumerate(self.loop.places.items()):
            owner = results[name].name if name in results else name
            self.pointers[owner] = f"p{number}"
            lines.append(f"const i64 p{number} = {self._address(f'v{number}', place, results.get(name))};")
        return lines

    def _address(self, name: str, place: Place, made: Allocate | None) -> str:
        if isinstance(place, Row):
            return f"{name} + at * {name}_bytes"
        if isinstance(place, Turn):
            return f"{name} + (at + {place.shift}) % {name}_rows * {name}_bytes"
        if isinstance(place, Total):
            assert made is not None
            return self._scratch(bytes_of(made))
        return name

    def _scratch(self, size_bytes: int) -> str:
        place = self.scratch_bytes
        self.scratch_bytes += -(-size_bytes // LINE) * LINE
        return f"scratch + {place}"

    def _step(self, step: Step, failures: tuple[str, ...]) -> Iterator[str]:
        if isinstance(step, Allocate):
            self.dtypes[step.name] = step.dtype
            self.pointers.setdefault(step.name, f"({self._scratch(bytes_of(step))})")
        elif isinstance(step, Reuse):
            self.pointers[step.name], self.dtypes[step.name] = self.pointers[step.of], self.dtypes[step.of]
        elif isinstance(step, Reinterpret):
            self.dtypes[step.name] = dtype = self.dtypes[step.base]
            self.pointers[step.name] = f"({self.pointers[step.base]} + {number_of(step.offset) * dtype.itemsize})"
        elif isinstance(step, Launch):
            yield from self._launch(step, failures)

    def _launch(self, step: Launch, failures: tuple[str, ...]) -> Iterator[str]:
        offsets = step.offsets or (0,) * len(step.arguments)
        pointers = [
            f"({memory_type(buffer.dtype)}*)({self.pointers[name]} + {offset * buffer.dtype.itemsize})"
            for name, buffer, offset in zip(step.arguments, step.kernel.buffers, offsets, strict=True)
        ]
        call = f"{self._named(step.kernel).name}({', '.join([*pointers, *map(str, numbers_of(step.sizes))])});"
        own = failures_of(step.kernel)
        if not own:
            yield call
            return
        bits = " | ".join(f"(found >> {bit} & 1) << {failures.index(name)}" for bit, name in enumerate(own))
        yield f"{{ const u64 found = {call} failed |= {bits}; }}"

    def _added(self) -> Iterator[str]:
        """What adds the results of a step to the sums: the first one is the sum."""
        results = self.loop.outputs()
        for number, (name, place) in enumerate(self.loop.places.items()):
            if not isinstance(place, Total):
                continue
            made = results[name]
            count = bytes_of(made) // made.dtype.itemsize
            self.sums.append(sum_kernel(f"{self.loop.name}_add_{number}", made.dtype, count))
            kind = f"({memory_type(made.dtype)}*)"
            add = f"{self.sums[-1].name}({kind}v{number}, {kind}(p{number}))"
            copy = f"__builtin_memcpy((void*)v{number}, (void*)(p{number}), {bytes_of(made)})"
            yield f"if (v{number}_begun | (turn > 0)) {add}; else {copy};"


def sum_kernel(name: str, dtype: torch.dtype, count: int) -> Kernel:
    """`total[i] = total[i] + item[i]`, rounded as eager rounds it. Raises: Unsupported for complex numbers."""
    if dtype.is_complex:
        raise Unsupported("a gradient that is summed over the steps is complex")
    at, computes = Symbol("i"), torch.float32 if dtype in HALVES else dtype

    def read(buffer: str) -> Expr:
        loaded = Load(buffer, at, dtype)
        return loaded if computes is dtype else Cast(loaded, computes)

    total: Expr = Call("add", (read("total"), read("item")), computes)
    total = total if computes is dtype else Cast(total, dtype)
    buffers = (Buffer("total", dtype, Int(count)), Buffer("item", dtype, Int(count)))
    return Kernel(name, (Loop("i", Int(count)),), (Store("total", at, total, "write"),), buffers, (), ("sum of steps",))
