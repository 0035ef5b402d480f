"""The text of a call while it is written, and the names of values in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeGuard

import torch

from assay.compiler.ir.graph.roles import (
    Base,
    CallInput,
    Gradient,
    InputRole,
    Mutation,
    OutputRole,
    Saved,
    Shared,
    Shown,
    Size,
    Tangent,
    UserOutput,
)
from assay.compiler.runtime.call import GradOff

LITERALS = (int, float, bool, str, type(None))


@dataclass(slots=True)
class Source:
    """Python text being written, and the objects that it names.

    `views_outside`: the results that are views made outside of inference mode, where the call is made inside.
    """

    lines: list[str] = field(default_factory=list)
    namespace: dict[str, object] = field(default_factory=dict)
    is_grad_off: bool = False
    views_outside: frozenset[int] = frozenset()
    pieces: dict[tuple[str, str, bool], tuple[str, set[int]]] = field(default_factory=dict)

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def bind(self, name: str, value: object) -> str:
        """A name for `value`, `name` or `name_1`, `name_2`, ... when that is taken."""
        unique, count = name, 0
        while self.namespace.get(unique, value) is not value:
            count += 1
            unique = f"{name}_{count}"
        self.namespace[unique] = value
        return unique

    def unrecorded(self) -> str:
        """What stands before a statement that autograd must not record; nothing where the call is made so anyway."""
        return "" if self.is_grad_off else f"with {self.bind('no_grad', GradOff)}(): "

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def name_of(role: OutputRole) -> str:
    """The variable that holds an output of the graph."""
    match role:
        case UserOutput(index):
            return f"output_{index}"
        case Mutation(of=of):
            return f"new_{of.index}"
        case Base(index):
            return f"base_{index}"
        case Size(of) | Saved(of):
            return f"size_{of}" if isinstance(role, Size) else f"saved_{of}"
        case Gradient(of):
            return f"grad_{of.index}"
        case Shown(of):
            return f"shown_{of.index}" if isinstance(of, UserOutput) else f"shown_input_{of.index}"
    raise AssertionError(role)


def name_of_result(index: int) -> str:
    return f"result_{index}"


def name_of_argument(role: InputRole) -> str:
    """The variable that holds an input of backward."""
    match role:
        case Saved():
            return name_of(role)
        case Tangent(of):
            return f"tangent_{name_of(of)}"
    raise AssertionError(role)


def is_tensor(node: object) -> TypeGuard[torch.fx.Node]:
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def name_of_kept(role: CallInput | Shared) -> str:
    """The variable that holds an input of the call, or the memory that inputs share."""
    return f"shared_{role.index}" if isinstance(role, Shared) else f"keep_{role.index}"
