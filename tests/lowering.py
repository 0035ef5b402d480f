"""What the tests of lowering share: a traced program, compiled with kernels run by the reference, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from assay.compiler.codegen.host import emit, load
from assay.compiler.ir.graph.roles import Program, Signature, UserInput, UserOutput
from assay.compiler.ir.loops.kernel import Schedule
from assay.compiler.ir.loops.text import parse, show
from assay.compiler.ir.loops.verify import verify_schedule
from assay.compiler.ops import lower
from assay.compiler.ops.lower import ON_CPU
from assay.compiler.schedule.fuse import fuse
from assay.compiler.schedule.order import plan
from assay.compiler.schedule.products import Choose
from assay.reference.loops import as_function


def traced(function: Callable[..., Any], *args: Any, mode: str = "fake") -> Program:
    """The functional ATen graph of a function of tensors that returns a tuple."""
    module = make_fx(function, tracing_mode=mode, _allow_non_fake_inputs=True)(*args)
    outputs = next(node for node in module.graph.nodes if node.op == "output").args[0]
    inputs = tuple(UserInput(position) for position in range(len(args)))
    return Program(module, Signature(inputs, tuple(UserOutput(k) for k in range(len(outputs)))))


def planned(
    program: Program, generate: bool = True, keep_rounding: bool = False, choose: Choose | None = None
) -> Schedule:
    """The verified schedule of a program, whose kernels print and parse."""
    schedule = plan(fuse(lower(program, ON_CPU if generate else {}), keep_rounding), choose=choose)
    verify_schedule(schedule)
    for kernel in schedule.kernels:
        assert parse(show(kernel)) == kernel, show(kernel)
    return schedule


def executable(schedule: Schedule) -> Callable[[list[Any]], tuple[Any, ...]]:
    """The host function of a schedule, with its kernels run by the reference."""
    namespace = {kernel.name: as_function(kernel) for kernel in schedule.kernels}
    return load(emit(schedule), {**namespace, **schedule.constants})


def assert_same(found: Any, expected: Any, what: str, rtol: float | None = None, atol: float | None = None) -> None:
    """Dtype, shape and stride first, then values (NaN equal to NaN)."""
    assert found.dtype == expected.dtype, f"{what}: dtype {found.dtype}, eager {expected.dtype}"
    assert found.shape == expected.shape, f"{what}: shape {tuple(found.shape)}, eager {tuple(expected.shape)}"
    if expected.numel() > 1:
        assert found.stride() == expected.stride(), f"{what}: stride {found.stride()}, eager {expected.stride()}"
    torch.testing.assert_close(
        found, expected, equal_nan=True, rtol=rtol, atol=atol, msg=lambda text: f"{what}: {text}"
    )


def check(function: Callable[..., Any], *args: Any, mode: str = "fake", **bounds: Any) -> Schedule:
    """Holds the compiled function against eager; gives its schedule."""
    schedule = planned(traced(function, *args, mode=mode))
    found = executable(schedule)(list(args))
    for position, (ours, theirs) in enumerate(zip(found, function(*args), strict=True)):
        assert_same(ours, theirs, f"output {position}", **bounds)
    return schedule


def error_of(function: Callable[..., Any], *args: Any) -> type[Exception] | None:
    """The class of what a call raises, None if it returns."""
    try:
        function(*args)
    except Exception as error:
        return type(error)
    return None
