"""`differentiate`: the gradients of a captured call, recorded behind it into the same graph.

inputs + Tangent(of) for each differentiable output  ->  outputs + Gradient(of) for each input that gets one
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import cast

import torch
from torch import fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.autograd.graph import Node
from torch.fx.experimental.proxy_tensor import maybe_enable_thunkify
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.autograd.forward_lines import lines_of_forward
from assay.compiler.autograd.partition import viewed
from assay.compiler.autograd.symbolic_gradients import symbols_in_gradients
from assay.compiler.autograd.written_histories import rebased
from assay.compiler.autograd.zero_sources import noting_zeros
from assay.compiler.errors import Unexpected, Unsupported
from assay.compiler.ir.graph.captured import Captured, as_node
from assay.compiler.ir.graph.float_division import divide_as_floats
from assay.compiler.ir.graph.given_decompositions import raise_what_they_raised
from assay.compiler.ir.graph.roles import CallInput, Freed, Gradient, OutputRole, Program, Shared, Tangent
from assay.compiler.ir.graph.trace import HELD, Trace, autocast_off
from assay.compiler.ir.graph.writes.views_beyond import check_backward
from assay.compiler.ir.tensors.layout.strides import has_symbols
from assay.compiler.ir.tensors.wrappers import is_wrapper, with_inner
from assay.compiler.torch_compat import holders_of

ONLY_DATA_TELLS = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
"""What torch raises for a formula that asks for numbers which a run alone would tell."""
NO_FAKE = "There was no fake impl registered"
"""A part of what `torch.library.custom_op` raises on fake tensors."""


def differentiate(captured: Captured) -> Program:
    """The joint graph: what the call returns, then the gradients of its inputs under given tangents."""
    trace, signature = captured.trace, captured.signature
    differentiable = captured.differentiable_values
    roles, values = list(differentiable), list(differentiable.values())
    forward = {role: as_node(trace, value) for role, value in captured.returned.items()}
    given = [trace.node_of(argument) for argument in captured.arguments]
    with trace.recording(), autocast_off(), fx.traceback.preserve_node_meta():  # of the user's own backwards
        tangents = [record_tangent(trace, index, value) for index, value in enumerate(values)]
        through = _reached(differentiable, captured.leaves)
        frees = _mark_held(trace, values)
        chains = tuple(rebased(differentiable, captured.leaves))
        as_given = [trace.node_of(tangent) for tangent in tangents]
        last = trace.graph._root.prev
        with noting_zeros(trace.graph, differentiable), trace.noting_backward(), _sizes_of_rows(trace, captured):
            gradients = _gradients(trace, values, captured.leaves, tangents, through)
        divide_as_floats(last)
        after = {role: as_node(trace, value) for role, value in captured.returned.items()}
        if after != forward or given != [trace.node_of(argument) for argument in captured.arguments]:
            raise Unsupported("its backward writes an input, or a value that the call returns")
        if as_given != [trace.node_of(tangent) for tangent in tangents]:
            raise Unsupported("its backward writes a gradient that it is given, which is its caller's")
        check_backward(trace.graph, forward.values(), gradients.values())
    joint = replace(
        signature,
        inputs=(*signature.inputs, *(Tangent(role) for role in roles)),
        outputs=(*signature.outputs, *gradients),
        effects=(*signature.effects, *frees, *chains),
    )
    return Program(trace.finish([*forward.values(), *gradients.values()]), joint)


def _sizes_of_rows(trace: Trace, captured: Captured) -> AbstractContextManager[None]:
    """What is open while a backward makes jagged tensors. Numbers that follow from the size of rows, for which no input
    stands, are recorded when they are read. A graph that reads one is refused."""
    fakes = (trace.fake_of(argument) for argument in captured.arguments if not is_wrapper(argument))
    is_jagged = any(isinstance(fake, FakeTensor) and fake.nested_int_memo is not None for fake in fakes)
    return maybe_enable_thunkify() if is_jagged else nullcontext()


def _like(value: torch.Tensor) -> torch.Tensor:
    """A tensor that lies as the value, with its very strides along dimensions of one element where it fills its memory,
    as eager's `empty_like` has it; that of fakes gives others. Of a wrapper, each inner tensor lies so."""
    if is_wrapper(value):
        return with_inner(value, _like)
    is_known = value.layout is torch.strided and not has_symbols(value)
    if not is_known or not torch.ops.aten.is_non_overlapping_and_dense(value):
        return torch.empty_like(value, memory_format=torch.preserve_format)
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def record_tangent(trace: Trace, index: int, value: object, requires_grad: bool = False) -> torch.Tensor:
    """A new input of the trace: tangent number `index`, that of `value`."""
    assert isinstance(value, torch.Tensor)
    with trace.paused():
        fake = trace.fake_of(value)
        tangent = _like(fake.detach())
    return trace.wrap(trace.add_input(f"tangents_{index + 1}", tangent), requires_grad)


def _reached(
    values: dict[OutputRole, torch.Tensor], leaves: dict[CallInput | Shared, torch.Tensor]
) -> dict[CallInput | Shared, frozenset[OutputRole]]:
    """For each leaf the outputs from which autograd's graph leads to it.

    Cost: one visit a node, each with a set of leaves that is one integer.
    """
    bits = {id(leaf): 1 << position for position, leaf in enumerate(leaves.values())}
    masks: dict[Node, int] = {}
    for value in values.values():
        _mark(_history_of(value), bits, masks)
    outputs = {role: masks[_history_of(value)] for role, value in values.items()}
    return {
        role: frozenset(output for output, mask in outputs.items() if mask & bits[id(leaf)])
        for role, leaf in leaves.items()
    }


def _history_of(value: torch.Tensor) -> Node:
    """The node of autograd that made a value which is no leaf."""
    return cast(Node, value.grad_fn)


def _mark(start: Node, bits: dict[int, int], masks: dict[Node, int]) -> None:
    """Notes for each node behind `start` which leaves it leads to; parents before children, without recursion."""
    pending = [(start, False)]
    while pending:
        node, is_left = pending.pop()
        parents = [parent for parent, _ in node.next_functions if parent is not None]
        if is_left:
            own = bits.get(id(getattr(node, "variable", None)), 0)
            for parent in parents:
                own |= masks.get(parent, 0)
            masks[node] = own
        elif node not in masks:
            masks[node] = 0
            pending.append((node, True))
            pending.extend((parent, False) for parent in parents if parent not in masks)


def _mark_held(trace: Trace, values: Sequence[torch.Tensor]) -> tuple[Freed, ...]:
    """Marks the inputs, and their views, that eager's autograd saves: gradients of gradients may read them, and to
    write them before backward is an error, whatever our own backward reads. Whether anything is saved is an effect; so
    is a write through a view, of which a backward frees the function."""
    nodes = list(_nodes_behind(values))
    frees = any(node.name().endswith("::CopySlices") for node in nodes)
    for saved in _saved_by(nodes):
        frees = True
        source = trace.known_node_of(saved)
        if source is not None and viewed(source).op == "placeholder":
            source.meta[HELD] = True
    return (Freed(),) if frees else ()


def _nodes_behind(values: Sequence[torch.Tensor]) -> Iterator[Node]:
    """Autograd's nodes that backward goes through, each once."""
    seen: set[object] = set()
    pending = [value.grad_fn for value in values]
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        pending.extend(parent for parent, _ in node.next_functions)
        yield node


def _saved_by(nodes: Iterable[Node]) -> Iterator[torch.Tensor]:
    """The tensors that nodes of autograd have saved; not what a hook has packed, of which only the hook knows what it
    stands for."""
    for node in nodes:
        for name in _saving_attributes(node.__class__):
            with suppress(RuntimeError):  # nothing is left of it
                held = (getattr(saved, "data", None) for saved in pytree.tree_leaves(getattr(node, name)))
                yield from (tensor for tensor in held if isinstance(tensor, torch.Tensor))


@functools.cache
def _saving_attributes(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


def _gradients(
    trace: Trace,
    values: Sequence[torch.Tensor],
    leaves: dict[CallInput | Shared, torch.Tensor],
    tangents: list[torch.Tensor],
    through: dict[CallInput | Shared, frozenset[OutputRole]],
) -> dict[OutputRole, fx.Node]:
    if not leaves:
        raise Unsupported("the program makes a result that requires a gradient of nothing that it is given")
    try:
        lines = lines_of_forward(trace.graph, _nodes_behind(values))
        symbols = symbols_in_gradients(trace.fake_mode)
        with by_itself(), symbols, _copied_where_others_receive(leaves.values()), lines:
            made = torch.autograd.grad(values, list(leaves.values()), tangents, allow_unused=True)
            grads = _copied_where_others_have_a_part(made)
    except Unsupported as error:
        raise Unsupported(f"its backward is none that is compiled: {error}") from error
    except ONLY_DATA_TELLS as error:
        raise Unsupported(f"its backward reads its data, which only a run would tell: {error}") from error
    except UnsupportedOperatorException as error:
        raise Unsupported(f"its backward calls {error}, which does not run on tensors without data") from error
    except ZeroDivisionError as error:  # of Python's numbers: of C++'s own, which eager divides, it is infinite
        raise Unsupported("its backward divides by a size that is 0 at these numbers") from error
    except (RuntimeError, ValueError) as error:  # fake tensors refuse a view with a ValueError
        raise_what_they_raised(error)
        if NO_FAKE in str(error):
            raise Unsupported("its backward calls a custom operator that has no fake implementation") from error
        said = f"its backward fails, as eager's will when it is asked for: {error}"
        raise Unexpected(said, in_backward=True) from error
    pairs = [(role, grad) for role, grad in zip(leaves, grads, strict=True) if grad is not None]
    return {Gradient(role, through[role]): trace.node_of(grad) for role, grad in pairs}


@contextmanager
def _copied_where_others_receive(leaves: Iterable[torch.Tensor]) -> Iterator[None]:
    """A leaf's gradient that is a view, and that another node receives too, is recorded as a copy.

    Eager's accumulation takes over a gradient that nobody else holds, as a view of a tangent, and copies any other.
    Of what a compiled backward returns nothing is held, so that a view would always be taken over.
    """
    copied = functools.partial(_copied_if_held, holders_of_one())
    hooks = [leaf.register_hook(copied) for leaf in leaves]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _copied_if_held(holders: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
    """A copy, or None to leave the gradient as it is. A formula may leave it undefined: hooks are called even then."""
    if gradient is None:
        return None
    return gradient.clone() if gradient._is_view() and holders_of(gradient) > holders else None


def _copied_where_others_have_a_part(grads: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None]:
    """The gradients, each a copy of which another leaf's is a view: eager's accumulation copies what a view holds."""
    parts = {_memory(grad) for grad in grads if grad is not None and grad._is_view()} - {None}
    return [
        grad.clone() if grad is not None and not grad._is_view() and _memory(grad) in parts else grad for grad in grads
    ]


def _memory(grad: torch.Tensor) -> int | None:
    """What tells apart the storages of gradients; None for a gradient without one of its own."""
    has_one = grad.layout == torch.strided and not is_wrapper(grad)
    return grad.untyped_storage()._cdata if has_one else None


@functools.cache
def holders_of_one() -> int:
    """How many references there are to a gradient in its hook where one node receives it."""
    counts: list[int] = []
    with _disable_current_modes(), torch.enable_grad():
        leaf = torch.zeros((), device="cpu", requires_grad=True)
        leaf.register_hook(lambda gradient: counts.append(holders_of(gradient)))
        torch.autograd.grad(-leaf, leaf)
    return counts[0]


@contextmanager
def by_itself() -> Iterator[None]:
    """Autograd runs what is recorded, whether or not torch's compiled autograd records the backwards of the program.

    All in this thread: it is there that modes record, and of two GPUs each would have a thread of its own.
    """
    outer = torch._C._dynamo.compiled_autograd.set_autograd_compiler(None, False)
    try:
        with torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        torch._C._dynamo.compiled_autograd.set_autograd_compiler(*outer)
