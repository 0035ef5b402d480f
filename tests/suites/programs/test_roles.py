"""Capture against its mirror on drawn programs: what a signature says of writes and aliases is what running shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import event, given
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from assay.compiler.capture.decompositions.table import DECOMPOSITIONS
from assay.compiler.capture.functionalize import capture
from assay.compiler.capture.inputs import Call, fake_leaf
from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.roles import (
    Bump,
    Constant,
    Input,
    Mutation,
    Restride,
    Result,
    Same,
    Signature,
    Size,
    UserInput,
    UserOutput,
    View,
)
from assay.reference.effects import Effects, effects
from assay.suites.programs import Generated
from assay.suites.programs.calls import namespace_of
from assay.suites.programs.strategies import programs

Relation = tuple[Any, ...]


def signature_of(function: Any, values: list[Any]) -> Signature:
    """What capture says of a call with these very inputs, each tensor once, and the memory that they share."""
    mode = FakeTensorMode()
    distinct = {id(value): (index, value) for index, value in reversed(list(enumerate(values)))}
    order = list(distinct)
    leaves = tuple(fake_leaf(UserInput(index), value, mode) for index, value in distinct.values())

    def flat(args: list[Any]) -> list[Any]:
        given = [args[order.index(id(value))] for value in values]
        return pytree.tree_leaves(function(*given), is_leaf=lambda value: value is None)

    call = Call(flat, leaves, mode).specialized([value for _, value in distinct.values()], versions=True)
    return capture(call, DECOMPOSITIONS).signature


def written(signature: Signature, values: list[Any]) -> set[int]:
    """The inputs whose data or version changes, those apart whose change running does not show."""
    data = [role for role in signature.outputs if isinstance(role, Mutation)]
    said = {role.of.index for role in data if role.kind != "hidden" or values[role.of.index].numel()}
    said |= {effect.of.index for effect in signature.effects if isinstance(effect, (Bump, Restride))}
    return same_as(
        frozenset(i for i in range(len(values)) if any(has_version_of(values[i], values[j]) for j in said)), values
    )


def has_version_of(value: Tensor, other: Tensor) -> bool:
    """Whether two tensors count their writes in common, as a view and its base do. Makes a version grow."""
    before = value._version
    torch.autograd.graph.increment_version(other)
    return value._version != before


def same_as(indices: frozenset[int], values: list[Any]) -> set[int]:
    """The indices, each as the first one at which its tensor is."""
    return {next(i for i, value in enumerate(values) if value is values[index]) for index in indices}


def relation(result: Result, results: tuple[Result, ...], values: list[Any]) -> Relation:
    """As the mirror has it; a view of an input is one of the first input over that storage."""
    match result:
        case Constant(value):
            return ("value", value)
        case Same(index):
            inner = relation(results[index], results, values)
            return inner if inner[0] == "input" else ("result", index)
        case Input(of):
            return ("input", of.index)
        case View(of=UserInput(index)):
            return ("input view", _first(index, values))
        case View(of=UserOutput(index)):
            return ("result view", index)
        case View(of=Same(index)):
            inner = relation(results[index], results, values)
            return ("input view", _first(inner[1], values)) if inner[0].startswith("input") else ("result view", index)
        case View():  # of memory that inputs share, or of an intermediate
            members = getattr(result.of, "of", None)
            return ("input view", _first(members[0].index, values)) if members else ("base view", result.of)
        case Size():
            return ("value", None)
    return ("new",)


def _first(index: int, values: list[Any]) -> int:
    memory = [value.untyped_storage()._cdata if isinstance(value, Tensor) else None for value in values]
    return memory.index(memory[index])


def said_of(signature: Signature, values: list[Any]) -> list[Relation]:
    """The relations of all results. Of several that autograd takes for no view, the first stands for their memory.

    Those are the detached results and what they were detached from, unless that is an intermediate that is not
    returned.
    """
    said = [relation(result, signature.results, values) for result in signature.results]
    heads: dict[Relation, int] = {}
    for index, (result, of) in enumerate(zip(signature.results, said, strict=True)):
        if of[0] in ("base view", "result view") and _is_detached(result):
            heads.setdefault(of, min(index, of[1]) if of[0] == "result view" else index)
    for index, of in enumerate(said):
        head = heads.get(("result view", index) if of == ("new",) else of)
        if head is not None:
            said[index] = ("new",) if head == index else ("result view", head)
    return numbered(said)


def numbered(relations: Sequence[Relation]) -> list[Relation]:
    """With the intermediates that are viewed numbered in the order of the results."""
    bases = list(dict.fromkeys(of[0] for name, *of in relations if name == "base view"))
    return [(name, bases.index(of[0])) if name == "base view" else (name, *of) for name, *of in relations]


def _is_detached(result: Result) -> bool:
    return isinstance(result, View) and bool(result.how) and result.how[-1].target is torch.ops.aten.detach.default


def change_numbers(values: list[Any]) -> None:
    """Gives every storage other numbers: a hidden write of those that were there shows by nothing."""
    for storage, dtype in {v.untyped_storage()._cdata: (v.untyped_storage(), v.dtype) for v in values}.values():
        flat = torch.empty(0, dtype=dtype).set_(storage)  # type: ignore[call-overload]
        flat.logical_not_() if dtype is torch.bool else flat.add_(1)


def test_a_hidden_write_of_the_same_numbers_is_seen() -> None:
    def function(a: Tensor) -> Tensor:
        a.data.zero_()
        return a * 1

    values = [torch.zeros(3)]
    assert written(signature_of(function, values), values) == {0} != effects(function, values).data
    change_numbers(values)
    assert effects(function, values).data == {0}


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
@given(program=programs())
def test_capture_says_of_programs_what_running_them_shows(grad: bool, program: Generated) -> None:
    namespace = namespace_of(program.program)
    with torch.set_grad_enabled(grad):
        values = list(namespace["inputs"]())
        try:
            signature = signature_of(namespace["program"], values)
        except Unsupported as reason:
            event(f"not captured: {str(reason)[:60]}")
            return
        said = said_of(signature, values)
        seen: Effects = effects(namespace["program"], values)
        others = list(namespace["inputs"]())
        change_numbers(others)
        data = seen.data | effects(namespace["program"], others).data
    restrided = {effect.of.index for effect in signature.effects if isinstance(effect, Restride)}
    assert said == numbered(seen.results), program.source()
    assert written(signature, values) == same_as(data, values), program.source()
    # a call that changes the strides of what has these strides already is made too, as it makes the version grow
    assert same_as(seen.metadata, values) <= restrided, program.source()
