"""Descriptors at the graphs of one compile: beside each input and output, where they are printed, stands what it is.

    forward     primals_1  # PlainAOTInput(idx=0)              sin    # PlainAOTOutput(idx=0)
    backward    tangents_1 # TangentAOTInput(output=...)       mul    # GradAOTOutput(grad_of=PlainAOTInput(idx=0))

Source: what has a descriptor, and which, is that of torch 2.13. Graphs that take tokens have none.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

from assay.compiler.entry.ahead import descriptors as known
from assay.compiler.ir.graph.roles import (
    Base,
    CallInput,
    Gradient,
    Inner,
    InputRole,
    OutputRole,
    Program,
    Saved,
    Shared,
    Shown,
    Signature,
    Tangent,
    Token,
    UserOutput,
)


@dataclass(frozen=True, slots=True)
class GraphDescriptors:
    """The descriptors of one compile. Backward's gradients and saved inputs are told by forward's inputs."""

    inputs: dict[InputRole, known.AOTInput] = field(default_factory=dict)
    saved: dict[str, known.AOTInput] = field(default_factory=dict)

    def describe(self, program: Program, outputs: Sequence[OutputRole | None]) -> None:
        """Notes the descriptors in a graph's metadata; `outputs` are the roles of what it returns, in that order."""
        signature = program.signature
        if any(isinstance(role, Token) for role in signature.inputs):
            return
        for role, node in zip(signature.inputs, program.placeholders, strict=True):
            desc = self.saved.get(node.name) if isinstance(role, Saved) else self._input(role, signature)
            node.meta.pop("desc", None)
            if desc is not None:
                node.meta["desc"] = desc
            if desc is not None and not program.is_backward:
                self.saved[node.name] = desc
                self._note(role, signature)
        first = next((place for place, role in enumerate(outputs) if isinstance(role, Saved)), 0)
        output = next(iter(reversed(program.module.graph.nodes)))
        output.meta["desc"] = [self._output(role, signature, place - first) for place, role in enumerate(outputs)]

    def _note(self, role: InputRole, signature: Signature) -> None:
        """Notes what an input is, of which a gradient is then; of an inner tensor, its wrapper."""
        outer = role.of if isinstance(role, Inner) else role
        if isinstance(outer, CallInput | Shared):
            self.inputs[outer] = known.described_input(outer, signature)

    def _input(self, role: InputRole | OutputRole, signature: Signature) -> known.AOTInput | None:
        if isinstance(role, Inner):
            base = self._input(role.of, signature)
            return functools.reduce(known.SubclassGetAttrAOTInput, role.path, base) if base is not None else None
        if isinstance(role, Tangent) and not isinstance(role.of, UserOutput):
            return None
        return known.described_input(role, signature) if isinstance(role, CallInput | Shared | Tangent) else None

    def _output(self, role: InputRole | OutputRole | None, signature: Signature, number: int) -> known.AOTOutput | None:
        if isinstance(role, Inner):
            made = self._output(role.of, signature, number)
            return functools.reduce(known.SubclassGetAttrAOTOutput, role.path, made) if made is not None else None
        if isinstance(role, Gradient):
            return known.GradAOTOutput(self.inputs[role.of]) if role.of in self.inputs else None
        if isinstance(role, Saved):
            return known.SavedForBackwardsAOTOutput(number)
        if isinstance(role, Shown) and isinstance(role.of, UserOutput):
            return known.PlainAOTOutput(role.of.index)
        if isinstance(role, Base) and not signature.results:
            return None
        return known.described_output(role, signature) if isinstance(role, OutputRole) else None
