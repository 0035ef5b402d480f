"""Memory: results are written over what is no longer needed, and every value is freed at its last use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from assay.compiler.ir.loops.failures import failures_of
from assay.compiler.ir.loops.kernel import Allocate, CallAten, Free, Launch, Reuse, Step
from assay.compiler.ir.loops.live_memory import given_by, reads_of
from assay.compiler.schedule.dependence import may_overwrite

Layout: TypeAlias = tuple[object, ...]
"""Size, stride, dtype and device."""


def last_uses(steps: Sequence[Step]) -> dict[str, int]:
    """The step that uses each value last, or that makes it if none does."""
    last: dict[str, int] = {}
    for number, step in enumerate(steps):
        given = given_by(step)
        if given is not None:
            last[given] = number
        last.update(dict.fromkeys(reads_of(step), number))
    return last


def reuse(steps: tuple[Step, ...], outputs: frozenset[str], shareable: frozenset[str]) -> tuple[Step, ...]:
    """Lets a kernel write over an operand that dies with it, where `dependence` proves that nothing can tell.

    `shareable` are the values that only kernels touch.
    """
    last = last_uses(steps)
    allocations = {step.name: step for step in steps if isinstance(step, Allocate)}
    chosen: dict[str, str] = {}
    kept = shareable - outputs
    for number, step in enumerate(steps):
        if isinstance(step, Launch):
            chosen.update(_overwrites(step, number, last, kept, allocations))
    return tuple(_replaced(step, chosen) for step in steps)


def overwrite_inputs(
    steps: tuple[Step, ...], after_call: Mapping[str, str], layouts: Mapping[str, Layout]
) -> tuple[Step, ...]:
    """Lets a kernel write what an input holds after the call (`after_call`: by the name of that value) over the input,
    so that nothing is copied back. Where a later step may raise, the input stays as it is until the call returns.
    """
    last = last_uses(steps)
    settled = max((number for number, step in enumerate(steps) if _may_raise(step)), default=-1)
    allocations = {step.name: step for step in steps if isinstance(step, Allocate)}
    chosen: dict[str, str] = {}
    for number, step in enumerate(steps):
        if isinstance(step, Launch) and number > settled:
            dying = {name for name in layouts if last.get(name) == number}
            chosen.update(_written_over(step, dying, after_call, layouts, allocations))
    return tuple(_replaced(step, chosen) for step in steps)


def _may_raise(step: Step) -> bool:
    return isinstance(step, CallAten) or (isinstance(step, Launch) and bool(failures_of(step.kernel)))


def _written_over(
    launch: Launch,
    dying: set[str],
    after_call: Mapping[str, str],
    layouts: Mapping[str, Layout],
    allocations: Mapping[str, Allocate],
) -> Iterator[tuple[str, str]]:
    """For a launch, which results are written over the inputs whose values after the call they are."""
    buffers = dict(zip(launch.arguments, (buffer.name for buffer in launch.kernel.buffers), strict=True))
    moved = {name for name, offset in zip(launch.arguments, launch.offsets, strict=False) if offset}
    for name, of in after_call.items():
        if name not in buffers or of not in dying - moved or name not in allocations:
            continue
        if _layout(allocations[name]) == layouts[of] and may_overwrite(launch.kernel, buffers[of], buffers[name]):
            yield name, of


def _overwrites(
    launch: Launch, number: int, last: dict[str, int], shareable: frozenset[str], allocations: dict[str, Allocate]
) -> dict[str, str]:
    """For a launch, which results take the memory of which operands."""
    names = dict(zip((buffer.name for buffer in launch.kernel.buffers), launch.arguments, strict=True))
    written = {store.buffer for store in launch.kernel.stores}
    moved = {name for name, offset in zip(launch.arguments, launch.offsets, strict=False) if offset}
    # of buffers that begin behind their tensor's first element, equal indices are not equal elements
    kept = [(b, name) for b, name in names.items() if name in shareable and name not in moved]
    dying = [b for b, name in kept if b not in written and last[name] == number]
    targets = sorted(written) if dying else []
    chosen: dict[str, str] = {}
    for buffer in dying:
        for target in targets:
            of, name = allocations.get(names[buffer]), allocations.get(names[target])
            if of is None or name is None or name.name in chosen or _layout(of) != _layout(name):
                continue
            if may_overwrite(launch.kernel, buffer, target):
                chosen[name.name] = of.name
                break
    return chosen


def _layout(step: Allocate) -> Layout:
    return step.size, step.stride, step.dtype, step.device


def _replaced(step: Step, chosen: dict[str, str]) -> Step:
    if isinstance(step, Allocate) and step.name in chosen:
        return Reuse(step.name, chosen[step.name])
    return step


def release(
    steps: tuple[Step, ...], inputs: tuple[str, ...], outputs: frozenset[str], constants: frozenset[str]
) -> tuple[Step, ...]:
    """Puts a `Free` after the last use of every value that is not returned."""
    last = last_uses(steps)
    dying: dict[int, list[str]] = {}
    for name, number in last.items():
        if name not in outputs and name not in constants:
            dying.setdefault(number, []).append(name)
    unused = tuple(name for name in inputs if name not in last and name not in outputs)
    result: list[Step] = [Free(unused)] if unused else []
    for number, step in enumerate(steps):
        result.append(step)
        if number in dying:
            result.append(Free(tuple(dying[number])))
    return tuple(result)
