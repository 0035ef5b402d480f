"""Roles: what each input and output of a graph is, and `Program`, the graph together with its roles.

    Signature := inputs: (InputRole, ...)  outputs: (OutputRole, ...)
    InputRole  := UserInput(index) | Parameter(name) | Buffer(name) | Tangent(of) | Saved(of) | Token(effect) | Seed()
    OutputRole := UserOutput(index) | Mutation(of, kind) | Base(index) | Gradient(of) | Saved(of) | Token(effect)

The calling convention, the write-back of mutations, the replay of aliases, the saved tensors and the gradients
are all read off the signature; nothing counts offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch


@dataclass(frozen=True, slots=True)
class UserInput:
    """Leaf `index` of the flattened call arguments."""

    index: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """A module parameter, by its qualified name."""

    name: str


@dataclass(frozen=True, slots=True)
class Buffer:
    """A module buffer, by its qualified name."""

    name: str


@dataclass(frozen=True, slots=True)
class Tangent:
    """The incoming gradient of a forward output."""

    of: OutputRole


@dataclass(frozen=True, slots=True)
class Saved:
    """A value that forward keeps for backward, by its node's name; an output of forward, an input of backward."""

    of: str


@dataclass(frozen=True, slots=True)
class Token:
    """Orders effects of one kind."""

    effect: str


@dataclass(frozen=True, slots=True)
class Seed:
    """The state of the random number generator, as an input."""


@dataclass(frozen=True, slots=True)
class UserOutput:
    """Leaf `index` of the flattened result."""

    index: int


@dataclass(frozen=True, slots=True)
class Mutation:
    """The value that input `of` has after the call. `hidden` writes back where autograd does not see it."""

    of: InputRole
    kind: Literal["seen", "hidden"]


@dataclass(frozen=True, slots=True)
class Base:
    """Intermediate number `index`, returned because user outputs are views of it."""

    index: int


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of an input."""

    of: InputRole


InputRole: TypeAlias = UserInput | Parameter | Buffer | Tangent | Saved | Token | Seed
OutputRole: TypeAlias = UserOutput | Mutation | Base | Gradient | Saved | Token


@dataclass(frozen=True, slots=True)
class Signature:
    """The roles of a graph's placeholders and of its outputs, in their order."""

    inputs: tuple[InputRole, ...]
    outputs: tuple[OutputRole, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A functional ATen graph and its roles. Every placeholder and value carries a fake tensor in `meta["val"]`.

    The graph's output node returns one flat list, in the order of `signature.outputs`.
    """

    module: torch.fx.GraphModule
    signature: Signature
