"""What eager's kernels refuse, asked of the kernels themselves.

Fake tensors and decompositions take dtypes, arguments and empty tensors that the kernels refuse. So each operator that
is recorded is called once on small real tensors of the same dtypes, ranks and empty dimensions:

    lerp(int32[8, 1024], int32[8, 1024], 0.5)   ->   lerp(int32[2, 2], int32[2, 2], 0.5) raises NotImplementedError

A kernel that refuses small tensors may refuse their sizes alone. Then it is asked again with more of the sizes, and at
last with all of them; what is not clear after that counts as accepted. Operators whose arguments have to agree with
sizes are asked with the sizes that they have, where these are small. Operators that only torch calls, as a rule, are
asked about dtypes in which hardly any of them has a kernel; norms about any, with one element. An answer is kept for
the process.

A GPU is asked about norms, a few losses, indexing with zeros, pointwise operators and reductions alone: an index out of
range would end the process, and a draw would move its generator. The latter two it takes in ordinary dtypes, if there
are elements.

Cost: 0.1 to 5 ms for a call unlike all before it, 40 us for any other (two cores that other work shared).
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._dispatch.python import no_python_dispatcher
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.ir.tensors.layout.strides import hint, is_known

GPU = "cuda"
DEVICES = ("cpu", GPU)
OF_VALUES = (
    *(torch.ops.aten.repeat_interleave, torch.ops.aten.segment_reduce, torch.ops.aten._segment_reduce_backward),
    torch.ops.aten._padded_dense_to_jagged_forward,
)
"""Operators that take counts, whose sum is a size, or such sums themselves."""
PLACING = (
    *(torch.ops.aten.index_put, torch.ops.aten.index_put_),
    *(torch.ops.aten._unsafe_index_put, torch.ops.aten._index_put_impl_),
)
"""Operators that place values, the last of their tensors, at indices. How many a mask wants only its elements tell."""
MASKS = (torch.bool, torch.uint8)
INTERNAL = (
    *("native_", "_native", "mkldnn_", "cudnn_", "miopen_", "lu_unpack"),
    *("_scaled_dot_product_", "_flash_attention", "_efficient_attention"),
)
"""Operators whose kernels trust their caller that sizes and indices agree, and that there are elements. With others
they leave their memory, or divide by zero and end the process."""
LIBRARIES = ("mkldnn_", "cudnn_", "miopen_")
ORDINARY = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Dtypes that internal operators have kernels for."""
NORMS = (
    "native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training", "_batch_norm_with_update", "_batch_norm_no_update",
)  # fmt: skip
"""Internal operators that are asked about every mix of dtypes: their sizes agree where each is 1, and dtypes decide."""
LOSSES = ("smooth_l1_loss", "huber_loss")
"""What a GPU is asked about beside norms and operators of elements, for arguments that it may refuse."""
INDEXED = ("index_add", "index_copy", "index_fill", "index_select", "gather", "scatter", "scatter_add")
"""Operators that a GPU is asked about with zeros alone: as indices they are in range wherever there are elements."""
COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
DIMENSIONS = ("dim", "dims", "dim0", "dim1", "axis")
SOME_NUMBER = 0.5
"""What a kernel is asked with for a float that is not known. Only a refusal of the dtypes is then one of the call."""
LEAST, FEW = 2, 8
"""To how many elements sizes are cut at first, and then where the kernel refuses that."""
MOST, MOST_NAMED = 1 << 24, 1 << 12
"""How many elements a kernel is asked with at most, and one whose arguments have to agree with sizes, none of which is
then cut. Calls with `out=` are rare, and asked with more."""


@dataclass(frozen=True, slots=True)
class Like:
    """What a refusal may depend on of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def cut(self, most: int) -> Like:
        """The same with each size cut to `most`."""
        return Like(tuple(min(n, most) for n in self.shape), self.dtype, self.device)

    def filled(self, fill: Callable[..., torch.Tensor]) -> torch.Tensor:
        """A real tensor like it."""
        return fill(self.shape, device=self.device).to(self.dtype)


@dataclass(frozen=True, slots=True)
class Asked:
    """One call, its tensors told by what a refusal may depend on."""

    func: torch._ops.OpOverload
    leaves: tuple[Any, ...]
    spec: pytree.TreeSpec

    def cut(self, most: int) -> Asked:
        leaves = tuple(leaf.cut(most) if isinstance(leaf, Like) else leaf for leaf in self.leaves)
        return Asked(self.func, leaves, self.spec)

    def ones(self) -> Asked:
        """The same where each size and each other integer that is not 0 is 1."""
        leaves = (1 if type(leaf) is int and leaf else leaf for leaf in self.cut(1).leaves)
        return Asked(self.func, tuple(leaves), self.spec)

    def emptied(self, places: frozenset[tuple[int, int]]) -> Asked:
        """The same without elements in some dimensions of some leaves."""
        leaves = list(self.leaves)
        for at, dim in places:
            like = leaves[at]
            leaves[at] = Like((*like.shape[:dim], 0, *like.shape[dim + 1 :]), like.dtype, like.device)
        return Asked(self.func, tuple(leaves), self.spec)

    @property
    def elements(self) -> int:
        return sum(math.prod(leaf.shape) for leaf in self.leaves if isinstance(leaf, Like))

    def run(self, fill: Callable[..., torch.Tensor]) -> Exception | None:
        """What eager raises for tensors that are filled so."""
        leaves = [leaf.filled(fill) if isinstance(leaf, Like) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        try:
            self.func(*args, **kwargs)
        except Exception as error:
            return error.with_traceback(None)
        return None


def refuse_call(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises: what eager raises for such a call, whatever the values of its tensors."""
    if not _is_asked(func):
        return
    leaves, spec = pytree.tree_flatten((args, kwargs))
    asked = _asked(func, leaves, spec)
    if asked is None:
        return
    has_numbers = any(isinstance(leaf, torch.SymFloat) for leaf in leaves)
    if (error := refusal(asked)) is not None and (not has_numbers or isinstance(error, NotImplementedError)):
        for leaf in leaves:
            if isinstance(leaf, torch.SymInt):
                int(leaf)  # a guard: called with another number, which eager may take, the program is recorded afresh
        raise error
    for size in _computed_sizes(leaves):
        if refusal(asked.emptied(_places_of(size, leaves))) is not None:
            bool(size != 0)  # a guard: called with no elements there, the program is recorded afresh


def check_position(func: torch._ops.OpOverload, args: tuple[Any, ...]) -> None:
    """Holds a position to its dimension, one that changes from call to call by a guard, or by an assertion at run time
    where only the data tell it. Torch does so from 2.13 on.

    Raises: IndexError if it lies outside.
    """
    if func is not torch.ops.aten.select.int:
        return
    value, dim, index = args
    size = value.shape[dim]
    said = f"select(): index {index} out of range for tensor of size {list(value.shape)} at dimension {dim}"
    torch._check_index(index < size, lambda: said)
    torch._check_index(index >= -size, lambda: said)


def _computed_sizes(leaves: Sequence[object]) -> list[torch.SymInt]:
    """The sizes of tensors that are computed of the sizes of inputs: those that may come to be 0."""
    found: dict[object, torch.SymInt] = {}
    for leaf in leaves:
        for size in leaf.shape if isinstance(leaf, torch.Tensor) else ():
            if isinstance(size, torch.SymInt) and not size.node.expr.is_Symbol and hint(size) > 0:
                found[size.node.expr] = size
    return list(found.values())


def _places_of(wanted: torch.SymInt, leaves: Sequence[object]) -> frozenset[tuple[int, int]]:
    """Which dimensions of which leaves have the size."""
    return frozenset(
        (at, dim)
        for at, leaf in enumerate(leaves)
        if isinstance(leaf, torch.Tensor)
        for dim, size in enumerate(leaf.shape)
        if isinstance(size, torch.SymInt) and size.node.expr == wanted.node.expr
    )


@functools.cache
def _is_asked(func: torch._ops.OpOverload) -> bool:
    """Whether an operator is asked: not one that takes everything, as views do, nor one that is there to raise or
    whose values have to add up to its sizes."""
    is_view = func.is_view or torch.Tag.inplace_view in func.tags
    is_about_values = func.overloadpacket in OF_VALUES or not (func._schema.returns or _is_into(func))
    is_left = is_view or is_about_values or _name_of(func).startswith(LIBRARIES)
    return func.namespace == "aten" and not is_left and _has_kernel(func)


def _is_internal(func: torch._ops.OpOverload) -> bool:
    return _name_of(func).startswith(INTERNAL) or "backward" in _name_of(func)


def _name_of(func: torch._ops.OpOverload) -> str:
    return func._schema.name.removeprefix("aten::")


def _is_into(func: torch._ops.OpOverload) -> bool:
    """Whether a user calls it so with `out=`, whose dtype a kernel alone may check."""
    return any(argument.is_out for argument in func._schema.arguments)


def _has_kernel(func: torch._ops.OpOverload) -> bool:
    """Whether a CPU can run the operator. Some names of aten's, as that of sizes, the dispatcher does not know."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    is_known = torch._C._dispatch_has_kernel(func.name())
    return is_known and any(has_kernel(func.name(), key) for key in ("CPU", *COMPOSITE))


@functools.cache
def _names_sizes(func: torch._ops.OpOverload) -> bool:
    """Whether an argument may have to agree with sizes: an integer or a list of them that is no dimension."""
    named = (argument for argument in func._schema.arguments if argument.name not in DIMENSIONS)
    return any(str(argument.real_type).lower().endswith(("int", "int]")) for argument in named)


def _asked(func: torch._ops.OpOverload, leaves: list[Any], spec: pytree.TreeSpec) -> Asked | None:
    """The call by what a refusal may depend on; None where that is not known."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not tensors or not all(map(_is_plain, tensors)):
        return None
    if any(tensor.device.type == GPU for tensor in tensors) and not _may_ask_gpu(func, tensors):
        return None
    found = [_like(leaf) for leaf in leaves]
    if func.overloadpacket in PLACING and any(tensor.dtype in MASKS for tensor in tensors[1:-1]):
        at = max(n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor))
        found[at] = Like((), tensors[-1].dtype, tensors[-1].device)
    return None if any(isinstance(leaf, _Unknown) for leaf in found) else Asked(func, tuple(found), spec)


def _is_plain(tensor: torch.Tensor) -> bool:
    is_sized = tensor.layout is torch.strided and all(map(is_known, tensor.shape))
    return is_sized and tensor.device.type in DEVICES


def _may_ask_gpu(func: torch._ops.OpOverload, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a GPU that is there may refuse these tensors, and can be asked without harm."""
    if not torch.cuda.is_available() or torch.cuda.is_current_stream_capturing():
        return False
    if _name_of(func) in (*NORMS, *LOSSES):
        return True
    is_empty = any(0 in tensor.shape for tensor in tensors)
    if _name_of(func) in INDEXED:
        return not is_empty
    dtypes = {tensor.dtype for tensor in tensors}
    is_ordinary = len(dtypes) == 1 and dtypes <= {*ORDINARY} and not is_empty
    return not is_ordinary and not {torch.Tag.pointwise, torch.Tag.reduction}.isdisjoint(func.tags)


class _Unknown:
    """Stands for an argument of which nothing is known."""


def _like(leaf: object) -> object:
    if isinstance(leaf, torch.Tensor):
        return Like(tuple(hint(size) for size in leaf.shape), leaf.dtype, leaf.device)
    if isinstance(leaf, torch.SymInt):
        return hint(leaf) if is_known(leaf) else _Unknown()
    if isinstance(leaf, torch.SymFloat):
        return SOME_NUMBER
    return _Unknown() if isinstance(leaf, torch.SymBool | torch.Generator) else leaf


def refusal(asked: Asked) -> Exception | None:
    """What eager raises for such a call, None where it takes it or that is not clear."""
    if _name_of(asked.func) in NORMS:
        return _answer(asked.ones())
    if _is_internal(asked.func) and not _is_into(asked.func):
        return _refusal_of_dtypes(asked)
    if _names_sizes(asked.func) or _is_internal(asked.func):
        most = MOST if _is_into(asked.func) else MOST_NAMED
        return None if asked.elements > most else _answer(asked)
    found = None
    for wider in (asked.cut(LEAST), asked.cut(FEW), asked):
        if wider.elements > MOST:
            return found if isinstance(found, NotImplementedError) else None
        found = _answer(wider)
        if found is None:
            return None
    return found


def _refusal_of_dtypes(asked: Asked) -> Exception | None:
    """What an internal operator raises for its dtypes. Zeros are indices that are in range, of what has elements."""
    tensors = [leaf for leaf in asked.leaves if isinstance(leaf, Like)]
    is_ordinary = not tensors or tensors[0].dtype in ORDINARY
    if is_ordinary or asked.elements > MOST_NAMED or any(0 in like.shape for like in tensors):
        return None
    found = _answer(asked)
    return found if isinstance(found, NotImplementedError) else None


@functools.lru_cache(maxsize=1 << 14)
def _answer_typed(asked: Asked, types: tuple[type, ...]) -> Exception | None:
    """What eager raises for the call; where it is decided by values, nothing."""
    found = None
    with as_eager():
        is_about_indices = _name_of(asked.func) in INDEXED
        for fill in FILLS[:1] if _is_internal(asked.func) or is_about_indices else FILLS:
            found = asked.run(fill)
            if found is None:
                break
    return found


def _answer(asked: Asked) -> Exception | None:
    return _answer_typed(asked, tuple(type(leaf) for leaf in asked.leaves))


def _unit(shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """A batch of unit matrices, which can be inverted and factored."""
    if len(shape) < 2:
        return torch.ones(shape, device=device)
    return torch.eye(*shape[-2:], device=device).repeat(*shape[:-2], 1, 1)


FILLS = (torch.zeros, torch.ones, _unit)
"""Zeros are in range as indices, ones as divisors and as weights of a draw."""


@contextmanager
def as_eager() -> Iterator[None]:
    """Calls go to the kernels, are not recorded and leave no trace: no random number, no warning."""
    with ExitStack() as stack:
        stack.enter_context(_disable_current_modes())
        stack.enter_context(no_python_dispatcher())
        stack.enter_context(torch._C._DisableAutocast())
        stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield
