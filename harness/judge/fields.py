"""How each field of a run differs from eager's, whoever asks: a row of `assay run`, or the twins of the state machine.

Each function takes eager's and ours and yields a `Difference` for each path at which they are not the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from assay.harness.calls.errors import is_same_error, name_of
from assay.harness.calls.memory import Alias
from assay.harness.observe.observation import Facts
from assay.harness.observe.view_chain import CUSTOM
from assay.harness.outcome import Difference

FLAGS = (
    "device",
    "layout",
    "stride",
    "offset",
    "requires_grad",
    "is_leaf",
    "has_grad_fn",
    "conj",
    "neg",
    "is_inference",
    "is_allocated",
    "hooks_left",
)
SAME_VIEWS = {"ReshapeAliasBackward": "ViewBackward", "UnsafeViewBackward": "ViewBackward"}
"""What eager calls a view that `reshape` made; `view` makes the same. The digit says whether it was made in place."""
DERIVED_AGAIN = "AsStridedBackward0"
"""What eager makes of the chain of a view whose base was written after it was made; any chain of views is as good."""
UNOBSERVED = "(unobserved)"
"""The base of a view that nothing which is looked at holds."""


def is_equal_error(eager: BaseException | None, ours: BaseException | None) -> bool:
    """Whether both raised the same class, or neither raised."""
    return eager is ours if eager is None or ours is None else is_same_error(eager, ours)


def errors(
    path: str,
    eager: BaseException | None,
    ours: BaseException | None,
    during: tuple[str, str] = ("", ""),
    field: str = "error",
    tell: Callable[[BaseException], str] = str,
) -> Iterator[Difference]:
    """What was raised; `during` says in what part of the step, eager's and ours, and `tell` what an error says."""
    if not is_equal_error(eager, ours):
        told, other = (_raised(error, where, tell) for error, where in ((ours, during[1]), (eager, during[0])))
        yield Difference(field, path, f"ours raised {told}; eager raised {other}")


def _raised(error: BaseException | None, during: str, tell: Callable[[BaseException], str]) -> str:
    if error is None:
        return "no error"
    where = f" in the {during}" if during else ""
    return f"{name_of(error)}{where} ({tell(error)})"


def plain(name: str, eager: Mapping[str, object], ours: Mapping[str, object]) -> Iterator[Difference]:
    """Kinds of things, and numbers and words that are no tensors, which are equal in type and value."""
    for path in either(eager, ours):
        one, other = ours.get(path, "nothing"), eager.get(path, "nothing")
        if type(one) is not type(other) or one != other:
            yield Difference(name, path, f"ours is {one}, eager's {other}")


def presence(path: str, eager: object | None, ours: object | None) -> Iterator[Difference]:
    """Of a gradient: None is not zero."""
    if (eager is None) != (ours is None):
        told = ["None" if found is None else "a tensor" for found in (ours, eager)]
        yield Difference("gradient", path, f"ours is {told[0]}, eager's {told[1]}")


def facts(
    path: str, eager: Facts, ours: Facts, *, with_strides: bool = True, with_bases: bool = False
) -> Iterator[Difference]:
    """Shape, dtype, flags, memory that is kept, and whose view it is.

    `with_strides`: strides that address nothing too, and the offset of no elements. `with_bases`: whether it is a view
    at all, though nobody looks at its base.
    """
    for name in ("shape", "dtype"):
        one, other = getattr(ours, name), getattr(eager, name)
        if one != other:
            yield Difference(name, path, f"ours is {said(one)}, eager's {said(other)}")
    if eager.shape != ours.shape:
        return
    for name in FLAGS:
        one, other = (_flag(name, each, with_strides) for each in (ours, eager))
        if one != other:
            yield Difference(name, path, f"ours is {said(one)}, eager's {said(other)}")
    is_placed_alike = (ours.dtype, ours.offset) == (eager.dtype, eager.offset)  # else that says it
    if is_placed_alike and ours.storage_bytes > eager.storage_bytes > 0:
        told = f"ours has {ours.storage_bytes} bytes, eager's {eager.storage_bytes}"
        yield Difference("storage", path, f"{told}. Rule: no more than eager's")
    yield from _view(path, eager, ours, with_bases)


def _flag(name: str, of: Facts, with_strides: bool) -> object:
    is_empty = 0 in of.shape
    if name == "offset" and is_empty and not with_strides:
        return 0
    if name != "stride" or with_strides:
        return getattr(of, name)
    return tuple(0 if is_empty or size == 1 else step for size, step in zip(of.shape, of.stride, strict=False))


def _view(path: str, eager: Facts, ours: Facts, with_bases: bool) -> Iterator[Difference]:
    base, other = ("" if f.view == UNOBSERVED and not with_bases else f.view for f in (ours, eager))
    if base != other:
        yield Difference(
            "view", path, f"ours is a view of {ours.view or 'nothing'}, eager's of {eager.view or 'nothing'}"
        )
    elif other and eager.view_chain and ours.view_chain and not _is_same_chain(eager.view_chain, ours.view_chain):
        told = [" of ".join(each.view_chain) or "nothing" for each in (ours, eager)]
        yield Difference("view", path, f"ours was made by {told[0]}, eager's by {told[1]}")


def _is_same_chain(eager: tuple[str, ...], ours: tuple[str, ...]) -> bool:
    named = [
        tuple(SAME_VIEWS.get(kind := name.rstrip("0123456789"), kind) for name in chain) for chain in (eager, ours)
    ]
    if named[0] == named[1]:
        return True
    return DERIVED_AGAIN in eager and CUSTOM not in ours


def versions(
    eager: Mapping[str, int], ours: Mapping[str, int], unmarked: Collection[str], *, by_how_much: bool = False
) -> Iterator[Difference]:
    """Whether versions grew. Not of what eager writes without it, which `unmarked` names."""
    for path in eager.keys() & ours.keys():
        one, other = ours[path], eager[path]
        is_other = one != other if by_how_much else (one > 0) != (other > 0)
        if is_other and not (other == 0 and path in unmarked):
            yield Difference("version", path, f"ours grew by {one}, eager's by {other}")


def aliases(eager: frozenset[Alias], ours: frozenset[Alias]) -> Iterator[Difference]:
    """Pairs of tensors that are one object, or share bytes."""
    for one, other, kind in sorted(eager - ours):
        yield Difference("alias", one, f"lost: in eager it {kind} {other}, in ours it does not")
    for one, other, kind in sorted(ours - eager):
        yield Difference("alias", one, f"extra: in ours it {kind} {other}, in eager it does not")


def ambient(eager: Mapping[str, object], ours: Mapping[str, object]) -> Iterator[Difference]:
    """The settings of the process afterwards."""
    for name, other in eager.items():
        if ours.get(name) != other:
            yield Difference("ambient", name, f"after the act it is {ours.get(name)} in ours, {other} in eager")


def said(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


def either(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    """The paths of both, in order, each once."""
    return list(dict.fromkeys([*one, *other]))
