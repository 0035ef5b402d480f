"""`capture`: a call, recorded as a functional ATen graph with a signature."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from compiler.capture.aliasing import Aliases, Returned, check_overlaps, mutation_of, written
from compiler.capture.ambient import preserved
from compiler.capture.inputs import Call, CallLeaf
from compiler.errors import Unsupported
from compiler.ir.captured import Captured
from compiler.ir.roles import CallInput, Mutation, OutputRole, Signature
from compiler.ir.trace import Trace
from compiler.torch_compat import Decompositions


@dataclass(frozen=True, slots=True)
class Bound:
    """An input on the tape: `leaf` is what gradients are taken of, `argument` what the program was given."""

    role: CallInput
    leaf: torch.Tensor
    argument: torch.Tensor
    version: int


def capture(call: Call, decompositions: Decompositions) -> Captured:
    """Runs the call once on fake tensors and records what it does, what it writes and what it returns.

    Raises: Unsupported for what the signature cannot say; the errors that eager itself would raise.
    """
    trace = Trace(call.fake_mode, decompositions)
    with preserved(), trace.recording():
        arguments = [_bind(trace, leaf) for leaf in call.leaves]
        flat: list[object] = [bound.argument if isinstance(bound, Bound) else bound for bound in arguments]
        results = _run(call, flat)
        bound = [argument for argument in arguments if isinstance(argument, Bound)]
        return _sign(trace, call, bound, results)


def _run(call: Call, arguments: list[object]) -> list[object]:
    """Raises: Unsupported with the program's own error, which eager will raise if it is one of the program."""
    try:
        return list(call.function(arguments))
    except Unsupported:
        raise
    except Exception as error:
        raise Unsupported(f"recording it failed with {type(error).__name__}: {error}") from error


def _bind(trace: Trace, leaf: CallLeaf) -> Bound | torch.SymInt | int:
    """One input as a functional tensor. Eager lets a program write what is no leaf, so that is bound through a copy."""
    name = _identifier(leaf.role)
    if not isinstance(leaf.fake, torch.Tensor):
        return trace.add_input(name, leaf.fake)
    with torch.no_grad():
        plain = _outside(trace, leaf.fake)
    wrapped = trace.wrap(trace.add_input(name, plain), leaf.requires_grad)
    argument = trace.as_non_leaf(wrapped) if leaf.requires_grad and not leaf.is_leaf else wrapped
    return Bound(leaf.role, wrapped, argument, argument._version)


def _identifier(role: CallInput) -> str:
    name = re.sub(r"\W", "_", getattr(role, "name", ""))
    return name if name.isidentifier() else f"input_{role.index}{name}"


def _outside(trace: Trace, fake: torch.Tensor) -> torch.Tensor:
    """A fake tensor over the same fake memory that has no autograd history of its own."""
    with trace.paused():
        return fake.detach()


def _sign(trace: Trace, call: Call, bound: list[Bound], results: list[object]) -> Captured:
    for value in results:
        if isinstance(value, torch.Tensor) and is_traceable_wrapper_subclass(value) and not hasattr(value, "elem"):
            raise Unsupported(f"the program returns a {type(value).__name__}")
    mutations = {b.role: mutation_of(b.role, b.argument, b.version) for b in bound if written(b.argument)}
    check_overlaps(call, mutations)
    aliases = Aliases(trace, {trace.node_of(b.argument): b.role for b in bound})
    made = aliases.results(results)
    returned: dict[OutputRole, Returned] = {**_writes(trace, bound, mutations), **aliases.returned}
    seen = {role for role, value in returned.items() if isinstance(role, Mutation) and isinstance(value, torch.Tensor)}
    inputs = tuple(leaf.role for leaf in call.leaves)
    differentiable = frozenset(aliases.differentiable | seen) if torch.is_grad_enabled() or seen else frozenset()
    signature = Signature(inputs, tuple(returned), made, differentiable)
    return Captured(trace, signature, {b.role: b.leaf for b in bound if b.leaf.requires_grad}, returned)


def _writes(trace: Trace, bound: list[Bound], mutations: dict[CallInput, Mutation]) -> dict[OutputRole, Returned]:
    """The values to write back: on the tape where autograd saw the write, as plain nodes elsewhere."""
    writes: dict[OutputRole, Returned] = {}
    for b in bound:
        mutation = mutations.get(b.role)
        if mutation is not None:
            on_tape = mutation.kind == "seen" and b.argument.requires_grad and not b.argument.is_leaf
            writes[mutation] = b.argument if on_tape else trace.node_of(b.argument)
    return writes
