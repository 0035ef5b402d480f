"""Operators whose kernels on fake tensors say other strides than the real ones give, and the strides in their place.

Where their arguments lie in different ways, these are the strides that the iteration over the arguments gives. Where a
size is 0 or 1, so that strides say nothing, the real operator is run on memory that lies alike.

    with x of 2 x 4 in columns and y of one element: fake logical_or(y, x) is in rows, the real one in columns
    with x of 1 x 4 in columns: fake x * 3 has strides (4, 1), the real one (1, 1)
"""

from __future__ import annotations

import functools
import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import fx
from torch._prims_common import suggest_memory_format
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import (
    PythonKeyTracer,
    get_proxy_slot,
    track_tensor_tree,
)
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.errors import Unsupported
from assay.compiler.ir.tensors.harmful_calls import writes_beyond_memory
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC, hints, is_known, iterated, rows_of
from assay.compiler.ir.tensors.mutating_operators import inner_of
from assay.compiler.ir.typed_nodes import int_argument, node_argument

aten = torch.ops.aten


def _iterated(one: torch.Tensor, other: torch.Tensor, *_: object) -> torch.Tensor:
    """What the iteration over two tensors makes."""
    return aten.ne.Tensor(one, other)


def _in_rows(_first: object, second: torch.Tensor, *_: object) -> torch.Tensor:
    """Of the second argument's size, in rows."""
    return torch.empty_like(second, memory_format=torch.contiguous_format)


def _pixel_losses(
    x: torch.Tensor, target: torch.Tensor, _weight: object, reduction: int, *_: object
) -> tuple[torch.Tensor, torch.Tensor]:
    """A loss for each pixel is in rows, however the targets lie."""
    total = x.new_empty(())
    return (total if reduction else _in_rows(x, target)), total


def _like_second(_first: object, second: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(second)


def _times_power(one: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """`one * 2**exponent`, whose second factor is in rows where eager has no kernel for both dtypes."""
    is_number = exponent.dtype.is_floating_point or exponent.dtype.is_complex
    is_exact = not one.dtype.is_floating_point and not one.dtype.is_complex
    is_in_rows = is_exact or (one.dtype is torch.float32 and is_number)
    return aten.ne.Tensor(one, _in_rows(2, exponent) if is_in_rows else exponent)


def _iterated_backwards(gradient: torch.Tensor, x: torch.Tensor, *_: object) -> torch.Tensor:
    """The kernel takes the values before the gradient."""
    return aten.ne.Tensor(x, gradient)


def _unpooled(x: torch.Tensor, _places: torch.Tensor, size: Sequence[int | torch.SymInt]) -> torch.Tensor:
    """Images with their channels innermost stay so, unless there are none; not on a GPU."""
    is_by_channels = x.dim() == 4 and suggest_memory_format(x) is torch.channels_last and _is_on_cpu(x)
    chosen = torch.channels_last if is_by_channels and x.numel() else torch.contiguous_format
    return torch.empty((*x.shape[:-2], *size), dtype=x.dtype, device=x.device, memory_format=chosen)


def _resized(x: torch.Tensor, size: Sequence[int | torch.SymInt], *_: object) -> torch.Tensor:
    """In the image's format of memory, however few channels it has: a fake one of a GPU with few is in rows."""
    return torch.empty((*x.shape[:2], *size), dtype=x.dtype, device=x.device, memory_format=suggest_memory_format(x))


def _padded(x: torch.Tensor, padding: Sequence[int | torch.SymInt]) -> torch.Tensor:
    """In eager's format of memory; a volume without a batch is taken for images. On a GPU in rows."""
    count = len(padding) // 2
    sizes = [size + padding[2 * k] + padding[2 * k + 1] for k, size in enumerate(reversed(x.shape[-count:]))]
    shape = (*x.shape[:-count], *reversed(sizes))
    chosen = suggest_memory_format(x) if _is_on_cpu(x) else torch.contiguous_format
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=chosen)


def _like_padded(_gradient: torch.Tensor, x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(x, memory_format=suggest_memory_format(x))


def _log_sigmoid(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A GPU keeps nothing for backward."""
    return (_in_rows(None, x), _in_rows(None, x)) if _is_on_cpu(x) else (aten.neg.default(x), x.new_empty(0))


def _is_on_cpu(x: torch.Tensor) -> bool:
    return x.device.type == "cpu"


def _margins(x: torch.Tensor, places: torch.Tensor, reduction: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The margin of a vector is a number."""
    return x.new_empty(x.shape[:1] if x.dim() == 2 and reduction == 0 else ()), torch.empty_like(places, dtype=x.dtype)


def _elu_backward(
    gradient: torch.Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, of: torch.Tensor
) -> torch.Tensor:
    return _iterated(gradient, of)


def _angle(x: torch.Tensor) -> torch.Tensor:
    """Angles of complex numbers are in rows."""
    return torch.empty_like(x, memory_format=torch.contiguous_format) if x.is_complex() else aten.neg.default(x)


def _looked_up(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Where the indices lie otherwise than in rows, so does the result."""
    given = [index for index in indices if index is not None]
    numbered = [dim for dim, index in enumerate(indices) if index is not None]
    first = numbered[0] if numbered[-1] - numbered[0] == len(numbered) - 1 else 0
    rest = [dim for dim in range(x.dim()) if dim not in numbered]
    spread = torch.broadcast_tensors(*given)
    before, after, wide = rest[:first], rest[first:], spread[0].shape
    shape = (*(x.shape[dim] for dim in before), *wide, *(x.shape[dim] for dim in after))
    read = (*(x.stride(dim) for dim in before), *(0 for _ in wide), *(x.stride(dim) for dim in after))
    moved = [(*(0 for _ in before), *index.stride(), *(0 for _ in after)) for index in spread]
    return x.new_empty_strided(shape, iterated(shape, [read, *moved]))


def _is_in_rows(args: Sequence[object]) -> bool:
    """Whether the indices of a lookup are integers in rows, or masks."""
    indices = [index for index in cast(Sequence[object], args[1]) if isinstance(index, torch.Tensor)]
    masks = (torch.bool, torch.uint8)
    return all(index.dtype in masks or index.stride() == rows_of(index.shape) for index in indices)


def _like_first(x: torch.Tensor, *_: object) -> torch.Tensor:
    """Of the first argument's size, in rows; not on a GPU."""
    return _in_rows(None, x) if _is_on_cpu(x) else torch.empty_like(x)


def _broadcast(one: torch.Tensor, other: object, *_: object) -> torch.Tensor:
    """Of the size that the arguments have together, in rows; on a GPU as the iteration over them has it."""
    iteration = aten.ne.Tensor(one, other) if isinstance(other, torch.Tensor) else torch.empty_like(one)
    return _in_rows(None, iteration) if _is_on_cpu(one) else iteration


def _any(x: torch.Tensor, dims: Sequence[int] | None = None, *rest: bool) -> torch.Tensor:
    """Over no dimensions in rows."""
    made: torch.Tensor = aten.any.dims(x, dims, *rest)
    return _in_rows(None, made) if dims is not None and len(dims) == 0 else made


def _rolled(
    x: torch.Tensor, shifts: Sequence[int | torch.SymInt], dims: Sequence[int] = (), *_: object
) -> torch.Tensor:
    """Two parts put together, which keep the image's format of memory if neither is empty. On a GPU in rows."""
    is_parted = len(dims) > 0 and all(_has_parts(x.shape[dim], by) for by, dim in zip(shifts, dims, strict=True))
    chosen = suggest_memory_format(x) if is_parted and _is_on_cpu(x) else torch.contiguous_format
    return torch.empty_like(x, memory_format=chosen)


def _has_parts(size: int | torch.SymInt, by: int | torch.SymInt) -> bool:
    return bool(size == 0) or bool(by % size != 0)  # type: ignore[operator]


def _undropped(gradient: torch.Tensor, mask: torch.Tensor, *_: object) -> torch.Tensor:
    """On a GPU in the gradient's format of memory."""
    if _is_on_cpu(gradient):
        return _iterated(gradient, mask)
    return torch.empty_like(gradient, memory_format=suggest_memory_format(gradient))


ITERATED = (
    *(aten.copysign.Tensor, aten.div.Tensor_mode, aten.heaviside.default, aten.logaddexp.default),
    aten.floor_divide.default,
    *(aten.logaddexp2.default, aten.logical_and.default, aten.logical_or.default, aten.logical_xor.default),
    *(aten.logit_backward.default, aten.special_xlog1py.default),
    *(aten.xlogy.Tensor, aten.hardswish_backward.default),
    *(aten.hardtanh_backward.default, aten.hardsigmoid_backward.default, aten.softplus_backward.default),
    aten.log_sigmoid_backward.default,
)
LOOKUPS = (aten.index.Tensor, aten._unsafe_index.Tensor)
WRONG: dict[object, Callable[..., object]] = {
    **dict.fromkeys(LOOKUPS, _looked_up),
    **dict.fromkeys(ITERATED, _iterated),
    aten.threshold_backward.default: _iterated_backwards,
    aten.native_dropout_backward.default: _undropped,
    aten.pow.Scalar: _in_rows,
    aten.ldexp.Tensor: _times_power,
    aten.max_unpool2d.default: _unpooled,
    **dict.fromkeys((aten.upsample_nearest2d.default, aten._upsample_nearest_exact2d.default), _resized),
    **dict.fromkeys((aten.upsample_bilinear2d.default, aten.upsample_bicubic2d.default), _resized),
    **dict.fromkeys((aten.reflection_pad2d.default, aten.replication_pad2d.default), _padded),  # before torch 2.13
    **dict.fromkeys((aten.reflection_pad3d.default, aten.replication_pad3d.default), _padded),
    **dict.fromkeys((aten.reflection_pad2d_backward.default, aten.reflection_pad3d_backward.default), _like_padded),
    **dict.fromkeys((aten.replication_pad2d_backward.default, aten.replication_pad3d_backward.default), _like_padded),
    aten.angle.default: _angle,
    aten.roll.default: _rolled,
    aten.any.dims: _any,
    **dict.fromkeys((aten.isin.Tensor_Tensor, aten.isin.Tensor_Scalar, aten.normal.Tensor_float), _like_first),
    **dict.fromkeys((aten.normal.Tensor_Tensor,), _broadcast),
    aten.normal.float_Tensor: _in_rows,
    aten.log_sigmoid_forward.default: _log_sigmoid,
    aten.multilabel_margin_loss_forward.default: _margins,
    aten.elu_backward.default: _elu_backward,
    aten.binary_cross_entropy_backward.default: _like_second,
    **dict.fromkeys((aten._log_softmax_backward_data.default, aten.glu_backward.default), _in_rows),
    **dict.fromkeys((aten.mse_loss_backward.default, aten.huber_loss_backward.default), _in_rows),
    aten.smooth_l1_loss_backward.default: _in_rows,
    aten.nll_loss2d_forward.default: _pixel_losses,
}
"""By operator, something with the strides of the real result. Found by running every pointwise operator of torch 2.13
on tensors that lie in different ways, real and fake."""


def with_strides(
    func: object, args: tuple[object, ...], result: object, tracer: PythonKeyTracer, mode: FunctionalTensorMode
) -> object:
    """The results of such a call, recorded by `tracer` under `mode`, with the strides of the real ones."""
    if func in LOOKUPS and _is_in_rows(args):
        return result
    operands = pytree.tree_map_only(FunctionalTensor, inner_of, list(args))
    if func in ITERATED and not all(isinstance(operand, torch.Tensor) for operand in operands[:2]):
        return result
    if _lie_alike(operands):
        return result
    right = WRONG[func](*operands)  # recorded, so that its sizes have nodes; nothing reads it
    if isinstance(result, tuple | list) and isinstance(right, tuple):
        return tuple(_relaid(one, like, tracer, mode) for one, like in zip(result, right, strict=True))
    return _relaid(result, right, tracer, mode)


MOST_MADE = 1 << 20
"""Elements of an operand of an elementwise operator that is made to ask for the strides of its result: a millisecond.
Of more, the fakes' strides along dimensions of one element stay."""
MOST_OTHERS = 1 << 16
"""Elements of an operand of any other operator, which may take longer for each."""


LAID_LIKE = frozenset({
    *(aten.empty_like, aten.zeros_like, aten.ones_like, aten.full_like, aten._to_copy),
    *(aten.rand_like, aten.randn_like, aten.randint_like, aten.bernoulli, aten.native_dropout),
})  # fmt: skip
"""Operators beside the pointwise ones whose results lie as their argument does."""
FOUND_IN_DATA = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)
"""Of operators whose results' sizes their operands' values say."""
STATE = frozenset({
    *("philox_seed", "philox_offset", "rng_state", "dropout_state"),
    *("reserve", "reserveSpace", "reservedSpace", "workspace", "weight_buf"),
})  # fmt: skip
"""Arguments, by their names, that hold what another call of the same library left. Memory that only lies alike ends
the process: the fake of a seed may be on the GPU where the kernel reads it on the CPU."""


def as_run(
    func: torch._ops.OpOverload,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    result: object,
    tracer: PythonKeyTracer,
    mode: FunctionalTensorMode,
) -> object:
    """The results of a call, recorded by `tracer` under `mode`, with the strides that the real operator gives them.

    Where they have no elements, or a size is 1 somewhere, the operator is called on memory that lies alike. It leaves
    the random state as it is. Raises: Unsupported where the strides of an elementwise operator's result are no
    products of sizes, which may change.
    """
    made = list(result) if isinstance(result, tuple | list) else [result]
    if not any(map(_is_degenerate, made)) or not _may_run(func, args, kwargs, made):
        return result
    operands = pytree.tree_map_only(FunctionalTensor, inner_of, (args, kwargs))
    real = _run_alike(func, operands)
    if len(real) != len(made):
        return result
    is_elementwise = _is_elementwise(func)
    like = [each for each in pytree.tree_leaves(operands) if isinstance(each, torch.Tensor)]
    right = [_as_real(*pair, tracer, mode, is_elementwise, like) for pair in zip(made, real, strict=True)]
    return type(result)(right) if isinstance(result, tuple | list) else right[0]


def _run_alike(func: torch._ops.OpOverload, operands: object) -> list[object]:
    """The results of the operator on real memory that lies as the operands do. None where it refuses what that holds,
    as the inverse of a matrix of ones: then nothing more is known of how its results lie."""
    found = (value.device for value in pytree.tree_leaves(operands) if isinstance(value, torch.Tensor))
    gpus = sorted({device.index for device in found if device.type == "cuda"})
    draws = torch.Tag.nondeterministic_seeded in func.tags
    fill = 1 if _is_elementwise(func) else 0  # integers: nothing is divided by 0, and there is a first place
    make = functools.partial(_made_alike, fill=fill)
    with _disable_current_modes(), torch.random.fork_rng(devices=gpus, enabled=draws), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            args, kwargs = pytree.tree_map_only((torch.Tensor, *SYMBOLIC), make, operands)
            real = func(*args, **kwargs)
        except (RuntimeError, IndexError, ValueError):
            return []
    return list(real) if isinstance(real, tuple | list) else [real]


def _as_real(
    result: object, real: object, tracer: PythonKeyTracer, mode: FunctionalTensorMode, is_elementwise: bool,
    like: Sequence[torch.Tensor],
) -> object:  # fmt: skip
    if not isinstance(result, FunctionalTensor) or not isinstance(real, torch.Tensor):
        return result
    if real.shape != tuple(hints(result.shape)):
        return result  # another size follows from what the memory holds
    if real.stride() == tuple(hints(result.stride())) and not _is_view(result, tracer):
        return result
    strides = real.stride() if _is_known(result) else _following(result.shape, real) or _kept(like, real)
    if strides is not None:
        return _put(result, result.shape, strides, tracer, mode)
    if is_elementwise:
        raise Unsupported(f"a result of size {tuple(result.shape)} has strides {real.stride()}, which follow from more")
    return result


def _is_view(result: FunctionalTensor, tracer: PythonKeyTracer) -> bool:
    """Whether what a call was taken apart to ends in a view: of dimensions of one element the fake's say too little."""
    found = get_proxy_slot(torch._from_functional_tensor(result.elem), tracer, None)
    target = None if found is None else found.proxy.node.target
    return isinstance(target, torch._ops.OpOverload) and target.is_view


def _following(shape: Sequence[int | torch.SymInt], real: torch.Tensor) -> Sequence[int | torch.SymInt] | None:
    """The strides of a tensor, each the product of the sizes within it. None where it lies otherwise. In rows, a size
    of 0 counts as 1."""
    inner_first = sorted(range(real.dim()), key=lambda dim: (real.stride(dim) == 0, real.stride(dim), real.shape[dim]))
    rows, counted = list(reversed(range(real.dim()))), [1 if isinstance(n, int) and n == 0 else n for n in shape]
    found = (_products(shape, inner_first), _products(counted, rows))
    return next((strides for strides in found if tuple(hints(strides)) == real.stride()), None)


def _products(shape: Sequence[int | torch.SymInt], inner_first: Sequence[int]) -> Sequence[int | torch.SymInt]:
    strides: list[int | torch.SymInt] = [0] * len(shape)
    step: int | torch.SymInt = 1
    for dim in inner_first:
        strides[dim], step = step, step * shape[dim]
    return strides


def _kept(operands: Sequence[torch.Tensor], real: torch.Tensor) -> Sequence[int | torch.SymInt] | None:
    """The strides of the first operand of a tensor's size that lies as it does, as `index_put` keeps those of its
    first, and what is elementwise of no elements; None where none does."""
    wanted = list(real.shape), list(real.stride())
    alike = (each for each in operands if (hints(each.shape), hints(each.stride())) == wanted)
    return next((each.stride() for each in alike), None)


def _is_degenerate(value: object) -> bool:
    """Whether a result may have strides that say nothing, and are not the fake's."""
    if not isinstance(value, FunctionalTensor) or value.dim() < 2:
        return False
    return min((size for size in value.shape if isinstance(size, int)), default=2) <= 1


def _is_elementwise(func: torch._ops.OpOverload) -> bool:
    return torch.Tag.pointwise in func.tags or func in ITERATED or func.overloadpacket in LAID_LIKE


def _is_known(value: torch.Tensor) -> bool:
    return all(isinstance(size, int) for size in (*value.shape, *value.stride()))


def _lies_in_rows(value: torch.Tensor) -> bool:
    return _is_known(value) and bool(value.numel()) and value.stride() == rows_of(value.shape)


def _may_run(
    func: torch._ops.OpOverload, args: tuple[object, ...], kwargs: dict[str, object], made: Sequence[object]
) -> bool:
    """Whether an operator can be called on tensors like its operands, and may then say another thing than the fakes
    do.

    It can if their memory is to be had, and if it does not read what they hold.
    """
    leaves = pytree.arg_tree_leaves(*args, **kwargs)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    devices = [*(value.device for value in tensors), *(leaf for leaf in leaves if isinstance(leaf, torch.device))]
    if func.namespace != "aten" or not tensors or not all(map(_has_memory, devices)) or takes_state(func):
        return False
    if writes_beyond_memory(func, args):
        return False
    if any(tag in func.tags for tag in FOUND_IN_DATA) or any(value.layout is not torch.strided for value in tensors):
        return False
    numbers = [leaf for leaf in leaves if isinstance(leaf, SYMBOLIC)]
    results = [value for value in made if isinstance(value, torch.Tensor)]
    sizes = [size for tensor in (*tensors, *results) for size in (*tensor.shape, *tensor.stride())]
    if not all(map(is_known, sizes)) or not all(number.node.has_hint() for number in numbers):
        return False
    if all(map(_lies_in_rows, tensors)) and (_is_elementwise(func) or all(value.dim() < 4 for value in results)):
        return False  # but images of one channel may be laid out by channels again
    most = MOST_MADE if _is_elementwise(func) else MOST_OTHERS
    return all(0 in (shape := hints(value.shape)) or math.prod(shape) <= most for value in (*tensors, *results))


def takes_state(func: torch._ops.OpOverload) -> bool:
    """Whether an operator reads what another call left, as the backward of an attention does its seed."""
    return any(argument.name in STATE for argument in func._schema.arguments)


def _has_memory(device: torch.device) -> bool:
    return device.type == "cpu" or (device.type == "cuda" and torch.cuda.is_available())


def _made_alike(value: Any, fill: int) -> Any:
    """A tensor that lies alike, or a number as it was when the program was recorded."""
    if isinstance(value, SYMBOLIC):
        return value.node.hint
    sizes, steps = hints(value.shape), hints(value.stride())
    is_number = value.dtype.is_floating_point or value.dtype.is_complex or value.dtype is torch.bool
    made = torch.empty_strided(sizes, steps, dtype=value.dtype, device=value.device)
    return made.fill_(1 if is_number else fill)


def _lie_alike(operands: Sequence[object]) -> bool:
    """Whether two tensors of one size, known without asking for it, lie in rows: then nothing can be wrong."""
    first, second, *_ = (*operands, None)
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return False
    sizes = (*first.shape, *first.stride(), *second.shape)
    is_known = all(isinstance(size, int) for size in sizes)
    return is_known and first.shape == second.shape and first.is_contiguous() and second.is_contiguous()


def _relaid(result: object, like: object, tracer: PythonKeyTracer, mode: FunctionalTensorMode) -> object:
    if not isinstance(result, FunctionalTensor) or not isinstance(like, torch.Tensor):
        return result
    return _put(result, like.shape, like.stride(), tracer, mode)


def _put(
    result: FunctionalTensor,
    shape: Sequence[int | torch.SymInt],
    strides: Sequence[int | torch.SymInt],
    tracer: PythonKeyTracer,
    mode: FunctionalTensorMode,
    dtype: torch.dtype | None = None,
) -> FunctionalTensor:
    """The result recorded with this shape, these strides and that dtype. Memory that others read too is copied."""
    fake = torch._from_functional_tensor(result.elem)
    is_fresh = _is_fresh(get_proxy_slot(fake, tracer).proxy.node)
    dtype = dtype or fake.dtype
    if is_fresh and shape == fake.shape and strides == fake.stride() and dtype == fake.dtype:
        return result
    if not is_fresh:
        fake = aten.clone.default(fake)
    relaid = torch.empty_strided(shape, strides, dtype=dtype, device=fake.device)
    proxy = get_proxy_slot(fake, tracer).proxy
    track_tensor_tree(relaid, proxy, constant=None, tracer=tracer)
    proxy.node.meta["val"] = relaid
    if proxy.node.target is operator.getitem:
        _replace_part(proxy.node, relaid)
    return FunctionalTensor(torch._to_functional_tensor(relaid), mode)


def retyped(
    result: FunctionalTensor, dtype: torch.dtype, tracer: PythonKeyTracer, mode: FunctionalTensorMode
) -> FunctionalTensor:
    """The result recorded with that dtype, where the kernel on fake tensors says another one."""
    return _put(result, result.shape, result.stride(), tracer, mode, dtype)


def _is_fresh(node: fx.Node) -> bool:
    """Whether a node is a call's own result that nothing reads yet."""
    is_view = isinstance(node.target, torch._ops.OpOverload) and node.target.is_view
    return node.op == "call_function" and not is_view and not node.users


def _replace_part(node: fx.Node, value: torch.Tensor) -> None:
    """A part of a call's results is what the call itself says of it."""
    call = node_argument(node, 0)
    parts = list(call.meta["val"])
    parts[int_argument(node, 1)] = value
    call.meta["val"] = tuple(parts)
