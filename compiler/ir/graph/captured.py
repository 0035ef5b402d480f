"""`Captured`: a call that has been recorded, with what the next stage needs to record its gradients too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch

from assay.compiler.ir.graph.roles import CallInput, OutputRole, Program, Shared, Signature
from assay.compiler.ir.graph.trace import Trace
from assay.compiler.ir.tensors.layout.strides import Symbolic


@dataclass(frozen=True, slots=True)
class Captured:
    """The recorded call. The trace is still open: gradients may be recorded into it before `finish`.

    `leaves` are the inputs that require grad, `returned` the values that the graph returns, `arguments` what the
    program was given, all on the trace's tape.
    """

    trace: Trace
    signature: Signature
    leaves: dict[CallInput | Shared, torch.Tensor]
    returned: dict[OutputRole, torch.Tensor | Symbolic | torch.fx.Node]
    arguments: tuple[torch.Tensor, ...]

    @property
    def needs_gradient(self) -> bool:
        """Whether eager would have recorded a gradient for anything that the call returns or writes."""
        return bool(self.signature.differentiable)

    @property
    def differentiable_values(self) -> dict[OutputRole, torch.Tensor]:
        """The values that gradients flow through, in the order of the outputs."""
        roles = (role for role in self.signature.outputs if role in self.signature.differentiable)
        return {role: cast(torch.Tensor, self.returned[role]) for role in roles}

    def finish(self) -> Program:
        """The program of the call alone, with no gradients."""
        nodes = [as_node(self.trace, value) for value in self.returned.values()]
        return Program(self.trace.finish(nodes), self.signature)


def as_node(trace: Trace, value: torch.Tensor | Symbolic | torch.fx.Node) -> torch.fx.Node:
    return value if isinstance(value, torch.fx.Node) else trace.node_of(value)
