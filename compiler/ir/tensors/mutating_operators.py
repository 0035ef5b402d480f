"""Operators of the user's own that write their arguments: what recording them has to know beyond their schema.

Functionalization records such a call as `auto_functionalized_v2(op, ..., _all_bases=[...])`, which writes copies of the
bases; each argument is a part of its base by size, stride and offset.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import fx
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.errors import Unsupported
from assay.compiler.ir.tensors.in_place import shares_version, version
from assay.compiler.ir.tensors.layout.strides import hint, hints, may_overlap
from assay.compiler.ir.typed_nodes import fake_value, nodes_keyword, traced_value

Arguments = dict[str, Any]
MUTATING = torch.ops.higher_order.auto_functionalized_v2
HIDDEN = "hidden_slots"
"""In the `meta` of a functionalized call: its bases that are an input's memory, but not of the input's version."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A call that is about to be recorded: its arguments by name, and the versions of those that it writes.

    For an operator that is not ATen's it also has their recorded values, and which of them are an input's memory but
    not of its version. `last` is what was recorded last.
    """

    func: torch._ops.OpOverload
    given: Arguments
    versions: Mapping[str, int]
    parts: Mapping[str, torch.Tensor]
    hidden: frozenset[str]
    last: fx.Node | None


def seen_before(
    func: torch._ops.OpOverload,
    args: tuple[Any, ...],
    kwargs: Arguments,
    inputs: Sequence[torch.Tensor],
    graph: fx.Graph,
) -> Seen | None:
    """What `correct` needs to know of a call in a program with these inputs; None where its recording is right."""
    is_operator = func.namespace not in ("aten", "prims")
    if not is_operator and not writes_lists(func):
        return None
    given = named_arguments(func, args, kwargs)
    written = dict(written_arguments(func, given))
    if is_operator:
        check_bases(func, list(written.values()))
    versions = {name: version(value) for name, value in written.items()}
    parts = {name: inner_of(value) for name, value in written.items()} if is_operator else {}
    hidden = frozenset(name for name in parts if _is_hidden(written[name], inputs))
    return Seen(func, given, versions, parts, hidden, next(iter(reversed(graph.nodes)), None))


def _is_hidden(value: torch.Tensor, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether a tensor is the memory of inputs and has a version of its own."""
    memory = value.untyped_storage()._cdata
    over = [each for each in inputs if each.untyped_storage()._cdata == memory]
    return bool(over) and not any(shares_version(value, each) for each in over)


def correct(call: Seen, graph: fx.Graph) -> None:
    """Corrects what was recorded of a call. Raises: Unsupported where it cannot be made what eager does."""
    if writes_lists(call.func):
        grow_versions(call.func, call.given, call.versions)
    made = itertools.takewhile(lambda node: node is not call.last, reversed(graph.nodes))
    recorded = next((node for node in made if node.target is MUTATING and node.args[0] is call.func), None)
    if recorded is not None:
        check_reads(call.func, call.given)
        place_parts(recorded, call.parts)
        recorded.meta[HIDDEN] = frozenset(recorded.kwargs[f"{prefix}_base_index"] for prefix in call.hidden)


def named_arguments(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Arguments) -> Arguments:
    """The arguments that were given, by their names."""
    return {**dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)), **kwargs}


def written_arguments(func: torch._ops.OpOverload, given: Arguments) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that a call writes, each by its name in the functionalized call: `_x`, `_xs_0`."""
    for argument in func._schema.arguments:
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = given.get(argument.name)
        if isinstance(value, torch.Tensor):
            yield f"_{argument.name}", value
        elif isinstance(value, (list, tuple)):
            yield from ((f"_{argument.name}_{i}", v) for i, v in enumerate(value) if isinstance(v, torch.Tensor))


def written_by(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Arguments) -> list[torch.Tensor]:
    """The tensors that a call writes."""
    return [value for _, value in written_arguments(func, named_arguments(func, args, kwargs))]


def check_bases(func: torch._ops.OpOverload, written: list[torch.Tensor]) -> None:
    """Raises: Unsupported where an operator writes one memory through tensors that autograd does not know as views of
    one. Each would be recorded as a part of a copy of its own, and only the last copy would be left.
    """
    bases: dict[int, torch.Tensor] = {}
    for value in written:
        known = value._inference_mode_base if torch.is_inference_mode_enabled() else value._base  # type: ignore[attr-defined]
        base = value if known is None else known
        if bases.setdefault(value.untyped_storage()._cdata, base) is not base:
            raise Unsupported(f"{func} writes one memory through several aliases")


def check_reads(func: torch._ops.OpOverload, given: Arguments) -> None:
    """Raises: Unsupported where an operator reads by one argument what it writes by another.

    The copy that it would write is not what it reads, so it would not see what it writes.
    """
    written = [value for _, value in written_arguments(func, given)]
    for argument in func._schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            continue
        for value in _tensors(given.get(argument.name)):
            if any(may_overlap(value, other) for other in written):
                raise Unsupported(f"{func} reads by its argument {argument.name} memory that it writes by another")


def _tensors(value: object) -> list[torch.Tensor]:
    items = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in items if isinstance(item, torch.Tensor)]


def inner_of(value: torch.Tensor) -> torch.Tensor:
    """The recorded value of a tensor, every pending write applied: of a view, a view of the recorded base."""
    torch._sync(value)
    inner: torch.Tensor = torch._from_functional_tensor(functional_elem(value))
    return inner


def functional_elem(value: torch.Tensor) -> torch.Tensor:
    """The `elem` of a `FunctionalTensor`: what `torch._functionalize_...` asks for."""
    return cast(FunctionalTensor, value).elem


def place_parts(call: fx.Node, parts: Mapping[str, torch.Tensor]) -> None:
    """Corrects the places of parts in a functionalized call of an operator; `parts` are their recorded values.

    They are recorded as they lie in the program's tensor. The base in the graph may begin elsewhere in its storage, or
    be a value that was computed anew. A slice is recorded as if the base began where its storage does.

    Raises: Unsupported where a part has sizes for which there is no node.
    """
    kwargs: Arguments = dict(call.kwargs)
    for prefix, part in parts.items():
        if f"{prefix}_slice_dim" in kwargs:
            base = kwargs["_all_bases"][kwargs[f"{prefix}_base_index"]].meta["val"]
            start, dim = traced_value(kwargs[f"{prefix}_slice_start"]), kwargs[f"{prefix}_slice_dim"]
            first = start * base.stride(dim)
            if _is_equal((base.storage_offset(), *base.stride(), first), (0, *part.stride(), part.storage_offset())):
                continue
        elif f"{prefix}_storage_offset" not in kwargs:
            continue
        elif _is_equal(_window(part), _recorded(kwargs, prefix)) and _is_placed(kwargs, prefix, part):
            continue
        _set_window(kwargs, prefix, part)
    call.kwargs = kwargs


def starts_of(call: fx.Node) -> tuple[int, ...]:
    """Where each base of a functionalized call begins in its storage, as it was recorded.

    It is nothing where all begin at its start. It is nothing too where one begins at a symbol, as then parts have no
    place of their own (`place_parts`).
    """
    starts = [fake_value(base).storage_offset() for base in nodes_keyword(call, "_all_bases")]
    known = tuple(start for start in starts if isinstance(start, int))
    return known if len(known) == len(starts) and any(known) else ()


def written_where_they_lie(op: torch._ops.OpOverload, *, _starts: tuple[int, ...], **kwargs: Any) -> Any:
    """A functionalized call whose bases were computed anew, and so may begin elsewhere than they were recorded to."""
    bases = kwargs["_all_bases"]
    moved = [base.storage_offset() - start for base, start in zip(bases, _starts, strict=True)]
    for name in [name for name in kwargs if name.endswith("_storage_offset")]:
        index = kwargs[f"{name.removesuffix('_storage_offset')}_base_index"]
        kwargs[name] += moved[index] if index is not None else 0
    return MUTATING(op, **kwargs)


def _window(part: torch.Tensor) -> tuple[object, ...]:
    return (*part.shape, *part.stride(), part.storage_offset())


def _recorded(kwargs: Arguments, prefix: str) -> tuple[object, ...]:
    recorded = (*kwargs[f"{prefix}_size"], *kwargs[f"{prefix}_stride"], kwargs[f"{prefix}_storage_offset"])
    return tuple(traced_value(size) for size in recorded)


def _is_placed(kwargs: Arguments, prefix: str, part: torch.Tensor) -> bool:
    """Whether the place of a part in its base is known: the base begins where its storage does, or all is static."""
    start = kwargs["_all_bases"][kwargs[f"{prefix}_base_index"]].meta["val"].storage_offset()
    return isinstance(start, int) and (start == 0 or isinstance(part.storage_offset(), int))


def _is_equal(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether two layouts are written alike, without a guard on symbols."""
    return [str(size) for size in a] == [str(size) for size in b]


def _set_window(kwargs: Arguments, prefix: str, part: torch.Tensor) -> None:
    if not all(isinstance(size, int) for size in _window(part)):
        raise Unsupported("an operator writes a part of symbolic size of a tensor that begins within its storage")
    for name in ("dim", "start", "end"):
        kwargs.pop(f"{prefix}_slice_{name}", None)
    kwargs[f"{prefix}_size"], kwargs[f"{prefix}_stride"] = tuple(part.shape), tuple(part.stride())
    kwargs[f"{prefix}_storage_offset"] = part.storage_offset()


def grow_versions(func: torch._ops.OpOverload, given: Arguments, before: Mapping[str, int]) -> None:
    """Makes the versions of the tensors in written lists grow as eager's do: recorded, such operators leave them alone.

    `before` holds the versions from before the call, by the arguments' names. Views of one base share a version, which
    grows for each of them.
    """
    written = list(written_arguments(func, given))
    for name, value in written:
        torch._C._autograd._unsafe_set_version_counter((value,), (before[name],))
    for _, value in written:
        grown = value._version + growth_of_lists(func, value.device.type, given)
        torch._C._autograd._unsafe_set_version_counter((value,), (grown,))


def writes_lists(func: torch._ops.OpOverload) -> bool:
    """Whether an operator of ATen writes lists of tensors, as `_foreach_add_` does."""
    written = [a for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return func.namespace == "aten" and any("List" in str(argument.type) for argument in written)


def growth_of_lists(func: torch._ops.OpOverload, device: str, given: Arguments) -> int:
    """By how much a call makes the version of each tensor that it writes grow.

    A call on small tensors shows it. Operators that ask for tensors of their sizes, as `split_with_sizes_copy` does,
    are called on such.
    """
    if (func, device) not in _growths:
        try:
            _growths[func, device] = _growth(func, _small(given))
        except (RuntimeError, IndexError):
            _growths[func, device] = _growth(func, _as_large(given))
    return _growths[func, device]


def _growth(func: torch._ops.OpOverload, given: Arguments) -> int:
    with _disable_current_modes(), _counting_versions():
        func(**given)
        return max(value._version for _, value in written_arguments(func, given))


def _counting_versions() -> torch._C._ForceDispatchKeyGuard:
    """Inside the dispatch of a recorded call: what is called counts versions again, as it does outside."""
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    return torch._C._ForceDispatchKeyGuard(included, excluded.remove(torch._C.DispatchKey.ADInplaceOrView))


_growths: dict[tuple[torch._ops.OpOverload, str], int] = {}


def _small(given: Arguments) -> Arguments:
    """The arguments with a tensor of one element in the place of each."""
    return _made(given, torch.Tensor, lambda value: torch.ones((1,) * min(value.dim(), 1), **_kind(value)))


def _as_large(given: Arguments) -> Arguments:
    """The arguments with a tensor of ones in the place of each, and numbers in that of symbols."""

    def made(value: torch.Tensor | torch.SymInt) -> torch.Tensor | int:
        return hint(value) if isinstance(value, torch.SymInt) else torch.ones(hints(value.shape), **_kind(value))

    return _made(given, (torch.Tensor, torch.SymInt), made)


def _made(given: Arguments, types: Any, make: Callable[[Any], object]) -> Arguments:
    with _disable_current_modes():
        return pytree.tree_map_only(types, make, given)


def _kind(value: torch.Tensor) -> dict[str, Any]:
    return {"dtype": value.dtype, "device": value.device}
