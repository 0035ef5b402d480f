"""What a compiled backward calls in the engine's place: hooks, functions of the user's, accumulations into `.grad`.

Each does what eager's engine does at that point, with its checks and its errors.
"""

from __future__ import annotations

import gc
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge
from torch.utils.hooks import RemovableHandle

from assay.compiler.ir.graph.backward.engine_steps import Unpacking

Gradient = torch.Tensor | None
call_retained: Callable[[int, torch.Tensor], torch.Tensor] = (
    torch._C._dynamo.compiled_autograd.call_cpp_tensor_pre_hooks
)


class Outdated(Exception):
    """A backward was recorded for other numbers than those that it is called with; nothing of it has run."""


removed: set[int] = set()
"""The hooks, by identity, that were taken away since the backward that runs now began: eager does not call them."""
changes: list[torch.Tensor | None] = []
"""The tensors to which hooks have come, or from which one of several equal ones was taken, in the backward that runs
now; None for a node. Its other hooks are found anew."""
given_hooks: list[object] = []
"""The hooks of the backward that runs now."""
_is_noticed = [True]


@contextmanager
def unnoticed() -> Iterator[None]:
    """Hooks that come and go meanwhile are the compiler's own."""
    _is_noticed[0] = False
    try:
        yield
    finally:
        _is_noticed[0] = True


def note_removed(handle: RemovableHandle) -> None:
    """Notes that a hook is taken away, while a backward may run that has still to call it."""
    hooks = handle.hooks_dict_ref()
    if hooks is None or handle.id not in hooks or not _is_noticed[0]:
        return
    hook = hooks[handle.id]
    if sum(each is hook for each in given_hooks) <= 1:
        removed.add(id(hook))
    else:
        owners = [each for each in gc.get_referrers(hooks) if isinstance(each, torch.Tensor)]
        changes.extend(owners or [None])


def note_added(tensor: torch.Tensor) -> None:
    """Notes that a tensor gets a hook, while a backward may run that has still to come to it."""
    changes.append(tensor)


def check_version(saved: torch.Tensor, version: int) -> None:
    """Raises: RuntimeError, in eager's words, where a call of the user's has written a tensor that is read later."""
    if saved._version == version:
        return
    source = "" if saved.grad_fn is None else f", which is output {saved.output_nr} of {saved.grad_fn.name()},"
    raise RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{saved.type()} {list(saved.shape)}]{source} is at version {saved._version}; expected version {version} "
        "instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
        "torch.autograd.set_detect_anomaly(True)."
    )


def tensor_pre_hook(hook: Callable[..., Any], gradient: Gradient, gone: Collection[int] = removed) -> Gradient:
    """The gradient, or what the hook gives in its place; of `gone` hooks nothing is asked.

    Where a tensor has several hooks, `gone` is what was taken away before the first of them was called: eager reads
    the hooks of a tensor, or of a node, once.
    """
    if gone and id(hook) in gone:
        return gradient
    found = hook(gradient)
    if found is None:
        return gradient
    _check(found, gradient, hook)
    return found


def retain_grad(index: int, gradient: Gradient) -> Gradient:
    """The gradient, which a tensor that is no leaf keeps."""
    return None if gradient is None else call_retained(index, gradient)


def pre_hook(
    hook: Callable[..., Any], gradients: tuple[Gradient, ...], gone: Collection[int] = removed
) -> Sequence[Gradient]:
    """The gradients that a node is given, or what the hook gives in their place."""
    if gone and id(hook) in gone:
        return gradients
    found = hook(gradients)
    return gradients if found is None else _checked(found, gradients, hook)


def post_hook(
    hook: Callable[..., Any],
    outputs: tuple[Gradient, ...],
    inputs: tuple[Gradient, ...],
    gone: Collection[int] = removed,
) -> Sequence[Gradient]:
    """The gradients that a node gives, or what the hook gives in their place."""
    if gone and id(hook) in gone:
        return outputs
    found = hook(outputs, inputs)
    return outputs if found is None else _checked(found, outputs, hook)


def post_accumulate_hook(hook: Callable[..., Any], leaf: torch.Tensor, gone: Collection[int] = removed) -> None:
    """Calls a hook behind an accumulation. Raises: eager's errors where it returns anything but None or its leaf."""
    if (gone and id(hook) in gone) or id(leaf) in beside.hooked:
        return
    found = hook(leaf)
    if found is not None and found is not leaf:
        _check(found, leaf, hook)
        raise RuntimeError("Tensor post accumulate grad hooks should return None.")


def unpack(hook: Callable[..., Any], packed: object) -> torch.Tensor:
    """The tensor that a hook on saved tensors has packed. Raises: TypeError where it gives something else."""
    found = hook(packed)
    if not isinstance(found, torch.Tensor):
        raise TypeError(
            f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(found).__name__}"
        )
    return found


def backward(
    context: Any,
    gradients: tuple[Gradient, ...],
    saved: tuple[Gradient | Unpacking, ...],
    is_tensor: tuple[bool, ...],
    takes_zeros: tuple[bool, ...],
) -> Sequence[Any]:
    """What the backward of a function of the user's gives, under the context of its forward; `takes_zeros` says for
    which gradients it is given zeros where they are missing.

    Raises: RuntimeError where that is no gradient or None for each input, or a gradient of what `is_tensor` denies.
    """
    if any([each is None for each in gradients]):
        gradients = tuple(
            _zeros(context._input_metadata[place]) if each is None and takes else each
            for place, (each, takes) in enumerate(zip(gradients, takes_zeros, strict=True))
        )
    own = Context(context, saved)
    found = type(context).apply(own, *gradients)
    own.forget()
    given, count = found if isinstance(found, tuple) else (found,), len(is_tensor)
    if len(given) > count and all(each is None for each in given[count:]):
        given = given[:count]
    name = context._forward_cls.__name__ + "Backward"
    if len(given) != count:
        raise RuntimeError(
            f"function {name} returned an incorrect number of gradients (expected {count}, got {len(given)})"
        )
    for position, (gradient, is_one) in enumerate(zip(given, is_tensor, strict=True), 1):
        if gradient is not None and not (is_one and isinstance(gradient, torch.Tensor)):
            raise RuntimeError(_no_gradient(name, position, gradient, is_one))
    return given


def _zeros(result: Any) -> torch.Tensor:
    """The gradient of a result to which none comes."""
    return torch.zeros(result.shape, dtype=result.dtype, device=result.device)


def _no_gradient(name: str, position: int, gradient: object, is_tensor: bool) -> str:
    if is_tensor:
        return f"expected Variable or None (got {type(gradient).__name__})"
    return (
        f"function {name} returned a gradient different than None at position {position}, "
        "but the corresponding forward input was not a Variable"
    )


class Context:
    """A function's own context. What the engine has handed over of its saved tensors is freed there already."""

    __slots__ = ("_context", "_saved")

    def __init__(self, context: Any, saved: tuple[Gradient | Unpacking, ...]) -> None:
        object.__setattr__(self, "_context", context)
        object.__setattr__(self, "_saved", saved)

    @property
    def saved_tensors(self) -> tuple[Gradient, ...]:
        if self._saved is None:
            return self._context.saved_tensors
        return tuple([unpack(*each) if type(each) is Unpacking else each for each in self._saved])

    @property
    def saved_variables(self) -> tuple[Gradient, ...]:
        """An old name of `saved_tensors`, which warns."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    def forget(self) -> None:
        """The backward is done: who still holds this context is told what the function's own knows by now."""
        object.__setattr__(self, "_saved", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._context, name, value)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What `isinstance` goes by."""
        return type(self._context)

    def maybe_clear_saved_tensors(self) -> None:
        """The engine frees them when the whole backward has run."""


class Beside:
    """Whether the engine runs another thread's backward beside the compiled one: both may accumulate into one leaf.

    `hooked` are the leaves, by identity, whose hooks behind an accumulation the engine has called.
    """

    __slots__ = ("hooked", "is_any", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_any = False
        self.hooked: set[int] = set()

    def enter(self) -> None:
        """From here on the engine accumulates, under its locks, until `leave`."""
        with self.lock:
            self.is_any = True

    def leave(self) -> None:
        """The compiled backward is done."""
        self.is_any = False
        self.hooked.clear()


beside = Beside()


def accumulate(leaf: torch.Tensor, box: list[Gradient], is_shown: bool = False) -> None:
    """Adds a gradient to a leaf's `.grad`; `box` holds it, so that it is known whether anybody else does.

    `is_shown`: the caller holds it for hooks behind the leaf's node, which are given the memory that the leaf takes
    over.
    """
    if box[0] is None:
        return
    with beside.lock:
        if not beside.is_any:
            _accumulate_alone(leaf, box, is_shown)
            return
    _accumulate_by_the_engine(leaf, box)


def _accumulate_by_the_engine(leaf: torch.Tensor, box: list[Gradient]) -> None:
    """The leaf's own node adds the gradient, and calls the hooks behind it."""
    beside.hooked.add(id(leaf))
    _node_of(leaf)(box.pop())


def _node_of(leaf: torch.Tensor) -> Any:
    """The node that accumulates a leaf's gradient."""
    if leaf.layout is torch.strided:
        return get_gradient_edge(leaf).node
    with torch.enable_grad():
        return leaf.clone().grad_fn.next_functions[0][0]  # type: ignore[union-attr]


def accumulate_each(leaves: Sequence[torch.Tensor], gradients: list[Gradient]) -> None:
    """Adds to each leaf its gradient, as `accumulate` does one by one; `gradients` holds them, and is emptied.

    Cost: 0.7 us a leaf less than one by one.
    """
    with beside.lock:
        is_alone = not beside.is_any
        if is_alone:
            _accumulate_each_alone(leaves, gradients)
    if not is_alone:
        gradients.reverse()
        for leaf in leaves:
            accumulate(leaf, [gradients.pop()])


def _accumulate_each_alone(leaves: Sequence[torch.Tensor], gradients: list[Gradient]) -> None:
    """Leaves that follow each other, and have gradients already, get theirs by one call."""
    gradients.reverse()
    sums: list[torch.Tensor] = []
    added: list[torch.Tensor] = []
    for leaf in leaves:
        gradient, before = gradients[-1], leaf.grad
        if gradient is not None and before is not None and _is_plain(before) and _is_plain(gradient):
            sums.append(before)
            added.append(gradient)
            gradients.pop()
            continue
        _add_each(sums, added)
        is_missing = gradient is None
        del gradient, before
        if is_missing:
            gradients.pop()
        else:
            _accumulate_alone(leaf, gradients)
    _add_each(sums, added)


def _add_each(sums: list[torch.Tensor], added: list[torch.Tensor]) -> None:
    """Adds tensors in place, in order; the lists are emptied. On a CPU the one call adds in order too."""
    is_ordered = all(each.is_cpu for each in sums) or _are_apart(sums, added)
    if sums and is_ordered:
        torch._foreach_add_(sums, added)
    else:
        for one, other in zip(sums, added, strict=True):
            one += other
    sums.clear()
    added.clear()


def _are_apart(sums: Sequence[torch.Tensor], added: Sequence[torch.Tensor]) -> bool:
    """Whether no two sums share memory, and none with what is added."""
    written = {each.untyped_storage()._cdata for each in sums}
    return len(written) == len(sums) and written.isdisjoint(each.untyped_storage()._cdata for each in added)


def _is_plain(value: torch.Tensor) -> bool:
    return type(value) is torch.Tensor and value.layout is torch.strided


def _accumulate_alone(leaf: torch.Tensor, box: list[Gradient], is_shown: bool = False) -> None:
    """A first gradient is taken over as it is where it lies as it should and nobody else holds it."""
    before = leaf.grad
    if before is None and leaf.layout is not torch.strided:
        _accumulate_by_the_engine(leaf, box)  # `.grad` of such a leaf takes no gradient of another layout
        return
    gradient = box.pop()
    assert gradient is not None
    if before is None:
        is_held = sys.getrefcount(gradient) > _FREE + is_shown
        if is_held or not _lies_as(gradient, leaf):
            leaf.grad = _copied(gradient, leaf)
        else:
            is_apart = is_shown or gradient.requires_grad or gradient._base is not None
            leaf.grad = gradient.detach() if is_apart else gradient
    elif before.layout is not torch.strided and gradient.layout is torch.strided:
        leaf.grad = gradient + before
    else:
        before += gradient


def _references() -> int:
    box: list[torch.Tensor] = [torch.empty(0)]
    gradient = box.pop()
    return sys.getrefcount(gradient)


_FREE = _references()
"""How many references a gradient has that nobody else holds, as `sys.getrefcount` counts them."""


def _lies_as(gradient: torch.Tensor, leaf: torch.Tensor) -> bool:
    """Whether a gradient may become the leaf's as it is: as dense as the leaf and with its strides, or else in rows."""
    if gradient.layout is torch.sparse_coo:
        return gradient._indices().is_contiguous() and gradient._values().is_contiguous()
    if gradient.layout is not torch.strided or leaf.layout is not torch.strided:
        return gradient.layout is not torch.strided
    if not _is_dense(leaf):
        return gradient.is_contiguous()
    return gradient.stride() == leaf.stride() or _same_but_for_ones(gradient, leaf)


def _same_but_for_ones(gradient: torch.Tensor, leaf: torch.Tensor) -> bool:
    rows = zip(gradient.shape, gradient.stride(), leaf.stride(), strict=True)
    return all(size <= 1 or own == other for size, own, other in rows)


_is_dense: Callable[[torch.Tensor], bool] = torch.ops.aten.is_non_overlapping_and_dense


def _copied(gradient: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    if gradient.layout is not torch.strided or leaf.layout is not torch.strided:
        return gradient.clone()
    if _is_dense(leaf):
        return gradient.new_empty_strided(leaf.shape, leaf.stride()).copy_(gradient)
    return gradient.clone(memory_format=torch.contiguous_format)


def _checked(found: Any, before: tuple[Gradient, ...], hook: Callable[..., Any]) -> Sequence[Gradient]:
    """What a hook gave for several gradients.

    Raises: TypeError for what is no tuple of tensors, RuntimeError for another number of them.
    """
    if not isinstance(found, tuple):
        raise TypeError(f"expected tuple, but hook returned '{type(found).__name__}'")
    if len(found) != len(before):
        raise RuntimeError(
            f"hook '{_name(hook)}' has returned an incorrect number of values "
            f"(got {len(found)}, but expected {len(before)})"
        )
    for new, old in zip(found, before, strict=True):
        _check(new, old, hook)
    return found


def _check(found: Any, before: Gradient, hook: Callable[..., Any]) -> None:
    """Raises: eager's errors for what may not stand in a gradient's place; None may."""
    if found is None:
        return
    if before is None:
        raise RuntimeError("can't replace a None gradient with a non-None value")
    if not isinstance(found, torch.Tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(found).__name__}'")
    if found.dtype != before.dtype or found.device.type != before.device.type or found.layout != before.layout:
        raise RuntimeError(
            f"hook '{_name(hook)}' has changed the type of value (was {before.type()} got {found.type()})"
        )
    if found.device != before.device:
        raise RuntimeError(f"hook '{_name(hook)}' has changed the type of value")
    if found.shape != before.shape:
        raise RuntimeError(f"hook '{_name(hook)}' has changed the size of value")


def _name(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__name__", "<unknown>")


CALLS: Mapping[str, Callable[..., Any]] = {
    "tensor_pre_hook": tensor_pre_hook,
    "retain_grad": retain_grad,
    "pre_hook": pre_hook,
    "post_hook": post_hook,
    "post_accumulate_hook": post_accumulate_hook,
    "unpack": unpack,
    "backward": backward,
}
"""What runs a step, by its kind."""
