"""Descriptors: what each input and output of an exported joint graph is. They stand in the metadata of its nodes.

    primals_1 ParamAOTInput("head.weight")    tangents_1 TangentAOTInput(PlainAOTOutput(0))
    output    [PlainAOTOutput(0), GradAOTOutput(ParamAOTInput("head.weight"))]

Source: the names, the fields and the texts are those of torch/_functorch/_aot_autograd/descriptors.py, torch 2.13.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.compiler.ir.graph.roles import (
    Base,
    Buffer,
    Gradient,
    InputRole,
    Mutation,
    OutputRole,
    Parameter,
    Shared,
    Signature,
    Tangent,
    Token,
    UserInput,
    UserOutput,
    View,
)


@dataclass(frozen=True)
class AOTInput:
    """Where an input comes from. `expr` says it as text."""

    def expr(self) -> str:
        raise NotImplementedError

    def is_param(self) -> bool:
        return isinstance(self, ParamAOTInput)

    def is_buffer(self) -> bool:
        return isinstance(self, BufferAOTInput)

    def is_tangent(self) -> bool:
        return isinstance(self, TangentAOTInput)


@dataclass(frozen=True)
class DifferentiableAOTInput(AOTInput):
    """An input that may have a gradient."""


@dataclass(frozen=True)
class AOTOutput:
    """What an output is for. `expr` says it as text."""

    def expr(self) -> str:
        raise NotImplementedError

    def is_grad(self) -> bool:
        return isinstance(self, GradAOTOutput)


@dataclass(frozen=True)
class DifferentiableAOTOutput(AOTOutput):
    """An output that may have a tangent."""


@dataclass(frozen=True)
class ParamAOTInput(DifferentiableAOTInput):
    """The parameter of this name."""

    target: str

    def expr(self) -> str:
        return f"self.get_parameter({self.target!r})"


@dataclass(frozen=True)
class BufferAOTInput(DifferentiableAOTInput):
    """The buffer of this name."""

    target: str

    def expr(self) -> str:
        return f"self.get_buffer({self.target!r})"


@dataclass(frozen=True)
class PlainAOTInput(DifferentiableAOTInput):
    """Leaf `idx` of the arguments and then the keyword arguments that are tensors."""

    idx: int

    def expr(self) -> str:
        return f"args[{self.idx}]"


@dataclass(frozen=True)
class SyntheticBaseAOTInput(DifferentiableAOTInput):
    """Memory in which several inputs overlap."""

    base_of: AOTInput

    def expr(self) -> str:
        return f"__make_synthetic_base({self.base_of.expr()})"


@dataclass(frozen=True)
class TangentAOTInput(DifferentiableAOTInput):
    """The incoming gradient of an output."""

    output: AOTOutput

    def expr(self) -> str:
        return f"__output_tangent({self.output.expr()})"


@dataclass(frozen=True)
class SubclassGetAttrAOTInput(AOTInput):
    """An inner tensor of a wrapper among the inputs, by its attribute."""

    base: AOTInput
    attr: str

    def expr(self) -> str:
        return f"{self.base.expr()}.{self.attr}"


@dataclass(frozen=True)
class PlainAOTOutput(DifferentiableAOTOutput):
    """Leaf `idx` of the results."""

    idx: int

    def expr(self) -> str:
        return f"output[{self.idx}]"


@dataclass(frozen=True)
class InputMutationAOTOutput(DifferentiableAOTOutput):
    """What an input holds after the call."""

    mutated_input: AOTInput

    def expr(self) -> str:
        return f"__input_mutation({self.mutated_input.expr()})"


@dataclass(frozen=True)
class IntermediateBaseAOTOutput(DifferentiableAOTOutput):
    """A tensor of which a result is a view, and that is no result itself."""

    base_of: AOTOutput

    def expr(self) -> str:
        return f"__intermediate_base({self.base_of.expr()})"


@dataclass(frozen=True)
class SubclassGetAttrAOTOutput(AOTOutput):
    """An inner tensor of a wrapper among the outputs, by its attribute."""

    base: AOTOutput
    attr: str

    def expr(self) -> str:
        return f"{self.base.expr()}.{self.attr}"


@dataclass(frozen=True)
class SavedForBackwardsAOTOutput(AOTOutput):
    """The value that a forward saves at this place among those that it does."""

    idx: int

    def expr(self) -> str:
        return f"__saved_for_backwards_{self.idx}"


@dataclass(frozen=True)
class SizeAOTOutput(AOTOutput):
    """A number that views among the results are made with, by the name of its node. Torch has none of these."""

    name: str

    def expr(self) -> str:
        return f"__size({self.name})"


@dataclass(frozen=True)
class GradAOTOutput(DifferentiableAOTOutput):
    """The gradient of an input."""

    grad_of: AOTInput

    def expr(self) -> str:
        return f"__grad({self.grad_of.expr()})"


@dataclass(frozen=True)
class ForwardTokenAOTInput(AOTInput):
    """The token of a kind of effects in forward."""

    idx: int

    def expr(self) -> str:
        return f"__forward_token{self.idx}"


@dataclass(frozen=True)
class BackwardTokenAOTInput(AOTInput):
    """The token of a kind of effects in backward."""

    idx: int

    def expr(self) -> str:
        return f"__backward_token{self.idx}"


@dataclass(frozen=True)
class ForwardTokenAOTOutput(AOTOutput):
    """The token behind the effects of a kind in forward."""

    idx: int

    def expr(self) -> str:
        return f"__forward_token{self.idx}"


@dataclass(frozen=True)
class BackwardTokenAOTOutput(AOTOutput):
    """The token behind the effects of a kind in backward."""

    idx: int

    def expr(self) -> str:
        return f"__backward_token{self.idx}"


def described_input(role: InputRole, signature: Signature) -> AOTInput:
    """The descriptor of an input by its role. Arguments are counted from the module's own tensors on."""
    if isinstance(role, Parameter):
        return ParamAOTInput(role.name)
    if isinstance(role, Buffer):
        return BufferAOTInput(role.name)
    if isinstance(role, Tangent):
        return TangentAOTInput(described_output(role.of, signature))
    if isinstance(role, Shared):
        return SyntheticBaseAOTInput(described_input(role.of[0], signature))
    if isinstance(role, Token):
        kind = BackwardTokenAOTInput if role.in_backward else ForwardTokenAOTInput
        return kind(_place_of_token(role, signature))
    assert isinstance(role, UserInput)
    return PlainAOTInput(role.index - _state_of(signature))


def _place_of_token(role: Token, signature: Signature) -> int:
    """Which of the tokens of its part of the graph it is."""
    tokens = [other for other in signature.inputs if isinstance(other, Token)]
    return [token for token in tokens if token.in_backward is role.in_backward].index(role)


def described_output(role: OutputRole, signature: Signature) -> AOTOutput:
    """The descriptor of an output by its role."""
    if isinstance(role, UserOutput):
        return PlainAOTOutput(role.index)
    if isinstance(role, Token):
        kind = BackwardTokenAOTOutput if role.in_backward else ForwardTokenAOTOutput
        return kind(_place_of_token(role, signature))
    if isinstance(role, Mutation):
        return InputMutationAOTOutput(described_input(role.of, signature))
    if isinstance(role, Gradient):
        return GradAOTOutput(described_input(role.of, signature))
    if isinstance(role, Base):
        if (moved := signature.memory_of(role)) is not None:
            return InputMutationAOTOutput(described_input(moved, signature))
        views = enumerate(signature.results)
        return IntermediateBaseAOTOutput(
            PlainAOTOutput(next(i for i, view in views if isinstance(view, View) and view.of == role))
        )
    return SizeAOTOutput(str(getattr(role, "of", role)))


def _state_of(signature: Signature) -> int:
    """How many of the inputs are parameters and buffers."""
    return sum(isinstance(role, Parameter | Buffer) for role in signature.inputs)
