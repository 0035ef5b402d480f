"""One node in the place of another.

    h = add(u, v)                 h lies at offset 0 of memory of its own
    t = t(h)                      t, too
    replace_node(h, u)            u lies at offset 15 of what it is a view of; t is derived anew, and lies there

What a graph knows of a value stands in `meta["val"]`, and was recorded for the node that goes. It is dtype, device,
size, strides, offset, conj and neg bits, and the memory that the value is a view of. `verify_views` says where a
graph's views are not those of what they are taken from.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from assay.compiler.errors import VerifyError
from assay.compiler.ir.graph.trace import autocast_off, is_view
from assay.compiler.ir.tensors.in_place import after, part, private, window
from assay.compiler.ir.typed_nodes import function_of

FIELDS = ("dtype", "device", "layout", "shape", "strides", "offset", "conj", "neg")
"""What two values have in common if one may stand for the other."""


def replace_node(
    node: fx.Node, by: fx.Node, takes: Callable[[fx.Node], bool] | None = None, *, is_moved: bool = False
) -> None:
    """Gives the readers of `node`, or those that `takes` chooses, `by` instead; what follows from how it lies is
    derived anew. Where `is_moved`, it is on another device, which its readers compute on.

    Raises: VerifyError where `by` has another dtype, device or shape. Symbolic sizes may be written otherwise.
    Cost: linear in the nodes that lie otherwise because of it.
    """
    old, new = node.meta.get("val"), by.meta.get("val")
    for field in _incompatible(old, new, is_moved):
        raise VerifyError(f"{by.name} cannot stand for {node.name}: another {field}")
    readers = [user for user in node.users if takes is None or takes(user)]
    node.replace_all_uses_with(by, delete_user_cb=takes or (lambda _: True))
    derive_anew(_affected(readers, old, new))


def _incompatible(old: object, new: object, is_moved: bool) -> Iterator[str]:
    """The fields for which one value cannot stand for the other."""
    yield from differing(old, new, ("dtype",) if is_moved else ("dtype", "device"))
    for a, b in zip(_tensors(old), _tensors(new), strict=False):
        if len(a.shape) != len(b.shape) or not all(map(_may_be_equal, a.shape, b.shape)):
            yield "shape"


def _may_be_equal(one: int | torch.SymInt, other: int | torch.SymInt) -> bool:
    """Whether two sizes are equal, as far as numbers tell."""
    return isinstance(one, torch.SymInt) or isinstance(other, torch.SymInt) or one == other


def derive_anew(nodes: Iterable[fx.Node]) -> None:
    """Derives the values of nodes from those of their operands, and so on while what is derived lies otherwise than it
    was recorded."""
    pending = list(nodes)
    heapq.heapify(pending)  # nodes compare by their place in the graph
    seen = set(pending)
    while pending:
        node = heapq.heappop(pending)
        new = [user for user in derive_from_operands(node) if user not in seen]
        seen.update(new)
        for user in new:
            heapq.heappush(pending, user)


def derive_from_operands(node: fx.Node) -> list[fx.Node]:
    """Derives the value of a node anew. Returns those of its readers whose values follow from what is new."""
    if node.op != "call_function" or "val" not in node.meta:
        return []
    recorded, found = node.meta["val"], derived(node)
    if _gives_memory(node) or not lies_as(recorded, found):
        node.meta["val"] = found
    return _affected(node.users, recorded, node.meta["val"])


def _affected(readers: Iterable[fx.Node], old: object, new: object) -> list[fx.Node]:
    """Those of a value's readers whose own value follows from what is new: all, or views where only the memory is."""
    if not lies_as(old, new):
        return list(readers)
    return [] if _memories(old) == _memories(new) else [reader for reader in readers if _gives_memory(reader)]


def derived(node: fx.Node) -> object:
    """The value of a call of what is known of its operands."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda read: read.meta["val"])
    fakes = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
    if not fakes:
        return function_of(node)(*args, **kwargs)
    with fakes[0].fake_mode, autocast_off(), enable_python_dispatcher():  # as recordings do
        return function_of(node)(*args, **kwargs)


def lies_as(one: object, other: object) -> bool:
    """Whether two values agree in every field; they may be two memories."""
    return next(differing(one, other), None) is None


def differing(one: object, other: object, fields: Sequence[str] = FIELDS) -> Iterator[str]:
    """The fields in which two values differ. Symbolic sizes are compared as they are written; nothing is guarded."""
    mine, theirs = _tensors(one), _tensors(other)
    if len(mine) != len(theirs):
        yield "number of tensors"
        return
    for a, b in zip(mine, theirs, strict=True):
        known = _facts(a), _facts(b)
        yield from (field for field in fields if known[0][field] != known[1][field])


def _facts(value: torch.Tensor) -> dict[str, object]:
    facts: dict[str, object] = {"dtype": value.dtype, "device": value.device, "layout": value.layout}
    facts["shape"] = [_written(size) for size in value.shape]
    is_strided = value.layout is torch.strided
    facts["strides"] = [_written(step) for step in value.stride()] if is_strided else None
    facts["offset"] = _written(value.storage_offset()) if is_strided else None
    return facts | {"conj": value.is_conj(), "neg": value.is_neg()}


PLACES = ("shape", "strides", "offset")
"""The facts that sizes and positions are in."""


def _written(size: int | torch.SymInt) -> object:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _tensors(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _memories(value: object) -> list[int | None]:
    tensors = _tensors(value)
    return [each.untyped_storage()._cdata if each.layout is torch.strided else None for each in tensors]


def _is_empty(value: object) -> bool:
    """Whether a value holds no element. Before torch 2.12 a fake view of none has memory of its own."""
    return all(any(_written(size) == 0 for size in each.shape) for each in _tensors(value))


def _gives_memory(node: fx.Node) -> bool:
    """Whether a call gives its operand's memory, or what it holds, another name."""
    return node.target in (operator.getitem, after, private, part, window) or is_view(node)


def above_named_offsets(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that a view follows from which names its place in memory by a number: it means the very strides and
    offset that they were recorded with. Cost: linear in the graph's edges."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node in found or _names_offset(node.target):
            found.update(node.all_input_nodes)
    return found


def _names_offset(target: object) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return any(argument.name == "storage_offset" for argument in target._schema.arguments)


def _symbols_of(value: object) -> set[object]:
    numbers = [number for each in _tensors(value) if each.layout is torch.strided for number in _numbers_of(each)]
    return {
        symbol for number in numbers if isinstance(number, torch.SymInt) for symbol in number.node.expr.free_symbols
    }


def _numbers_of(value: torch.Tensor) -> tuple[int | torch.SymInt, ...]:
    return (*value.shape, *value.stride(), value.storage_offset())


# ---- the check -------------------------------------------------------------------------------------------------------


def verify_views(graph: fx.Graph, step: str = "its making") -> None:
    """Checks the views of a graph, of which `step` made the present state.

    Raises: VerifyError where a view does not lie as the same view of its operand would, or in other memory.

    Cost: each view of the graph is taken once more, of fake tensors.
    """
    for node in graph.nodes:
        if not is_view(node) or "val" not in node.meta or not isinstance(node.args[0], fx.Node):
            continue
        expected = derived(node)
        makes_symbols = not _symbols_of(expected) <= _symbols_of(node.meta["val"])
        for field in differing(node.meta["val"], expected):
            if makes_symbols and field in PLACES:  # a position that only the data tell is a new symbol at each call
                continue
            raise VerifyError(f"after {step}: {node.format_node()}: its {field} is not that of the view that it takes")
        if not _is_empty(expected) and _memories(node.meta["val"]) != _memories(expected):
            raise VerifyError(f"after {step}: {node.format_node()}: it does not lie in its operand's memory")
