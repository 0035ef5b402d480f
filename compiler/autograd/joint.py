"""`differentiate`: the gradients of a captured call, recorded behind it into the same graph.

inputs + Tangent(of) for each differentiable output  ->  outputs + Gradient(of) for each input that gets one
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import fx

from compiler.errors import Unsupported
from compiler.ir.captured import Captured, as_node
from compiler.ir.roles import CallInput, Gradient, OutputRole, Program, Shared, Tangent
from compiler.ir.trace import Trace


def differentiate(captured: Captured) -> Program:
    """The joint graph: what the call returns, then the gradients of its inputs under given tangents."""
    trace, signature = captured.trace, captured.signature
    roles = [role for role in signature.outputs if role in signature.differentiable]
    forward = {role: as_node(trace, value) for role, value in captured.returned.items()}
    given = [trace.node_of(argument) for argument in captured.arguments]
    with trace.recording(), _autocast_off():
        values = [captured.returned[role] for role in roles]
        tangents = [_tangent(trace, index, value) for index, value in enumerate(values)]
        gradients = _gradients(trace, values, captured.leaves, tangents)
        after = {role: as_node(trace, value) for role, value in captured.returned.items()}
        if after != forward or given != [trace.node_of(argument) for argument in captured.arguments]:
            raise Unsupported("its backward writes an input, or a value that the call returns")
    joint = replace(
        signature,
        inputs=(*signature.inputs, *(Tangent(role) for role in roles)),
        outputs=(*signature.outputs, *gradients),
    )
    return Program(trace.finish([*forward.values(), *gradients.values()]), joint)


def _tangent(trace: Trace, index: int, value: object) -> torch.Tensor:
    assert isinstance(value, torch.Tensor)
    with trace.paused():
        fake = trace.fake_of(value)
        tangent = torch.empty_like(fake.detach(), memory_format=torch.preserve_format)
    return trace.wrap(trace.add_input(f"tangent_{index}", tangent), requires_grad=False)


def _gradients(
    trace: Trace, values: Sequence[object], leaves: dict[CallInput | Shared, torch.Tensor], tangents: list[torch.Tensor]
) -> dict[OutputRole, fx.Node]:
    try:
        grads = torch.autograd.grad(values, list(leaves.values()), tangents, allow_unused=True)  # type: ignore[arg-type]
    except RuntimeError as error:
        raise Unsupported(f"its backward fails, as eager's will when it is asked for: {error}") from error
    return {Gradient(role): trace.node_of(grad) for role, grad in zip(leaves, grads, strict=True) if grad is not None}


@contextmanager
def _autocast_off() -> Iterator[None]:
    """Eager's backward runs outside the autocast region of its forward."""
    with torch._C._DisableAutocast():
        yield
