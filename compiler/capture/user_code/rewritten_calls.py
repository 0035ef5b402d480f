"""Calls of the user's that are written otherwise before torch takes them apart, or that eager refuses and no recording.

dropout(x, p, train=False), dropout(x, 0.0)     ->     x itself, as for an x without elements
dropout(x, 1.0)                                 ->     x * 0, and no random number is drawn
batch_norm(x, ..., cudnn), instance_norm        ->     without cuDNN on a GPU
max_pool3d of one volume by channels            ->     left to eager, which raises
aminmax, multinomial with out= of other dtypes  ->     left to eager, which raises
one_hot                                         ->     in rows, however the index lies
matmul of batches, attention that ends in one   ->     a tensor of its own, no view of what nobody gets
matmul, max_pool1d in dtypes that eager refuses ->     eager's error: what they are taken apart into takes more dtypes
interpolate of what is by channels, on a GPU    ->     by channels, however few these are
rms_norm over sizes that are symbols, there     ->     over these numbers, which the graph then holds for
affine_grid under autocast                      ->     as the product that it is (`grids_under_autocast.py`)
lstm on a CPU, with gradients                   ->     without oneDNN
pow(n, x) of a number n that varies             ->     with a tensor of that number: torch has no logarithm of it
pow(x, n) of an integer n that varies           ->     with a tensor of that integer (`varying_powers.py`)
var(x), std(x) of as many as only data tells    ->     along all dimensions: torch would ask how many there are
cumsum, matmul of as many as only data tells    ->     with gradients that ask nothing (`gradients_of_any_size.py`)
tensor(n) of a number n that varies             ->     full((), n): torch would read the number
msort(x, out=y)                                 ->     sort(x, 0, out=(y, indices)), whose indices have their size
_scaled_mm(x, y, out=z)                         ->     with the dtype of z, in which the kernel multiplies
sum(x, out=y) of another dtype                  ->     in the dtype of y (`reduced_into.py`)
x[:, 1:] of sizes that are symbols              ->     without whole slices (`whole_slices.py`)
y.contiguous(), reshape of what was written     ->     a copy where eager's has gaps, and is recorded without
numbers that are known and beyond 64 bits       ->     as Python's (`far_numbers.py`)
roll(x, n) of a number n that varies            ->     of numbers that eager takes, which the graph then holds for

Dropout of nothing and of everything is as eager has it, while torch's kernel for recordings copies and draws. The
batch norm of cuDNN is one call, and writes its running statistics unsaid. Ours is sums and arithmetic, with which
whatever follows is fused. Recordings lay an interpolation out in rows where kernels for few channels would be slower,
and eager does not. Torch's RMS norm for a GPU takes no symbols. Given some, it takes their addresses for numbers. The
Python form of matmul, which recordings run, ends in a view where the C++ one does not. The LSTM of oneDNN keeps what
its backward needs only where gradients are on, which they are not around a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, guard_or_true
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.capture.decompositions.batch_norm import without_cudnn
from assay.compiler.capture.user_code.far_numbers import with_far_numbers
from assay.compiler.capture.user_code.gradients_of_any_size import of_any_size
from assay.compiler.capture.user_code.grids_under_autocast import grid_under_autocast
from assay.compiler.capture.user_code.reduced_into import reduced_into
from assay.compiler.capture.user_code.varying_powers import power
from assay.compiler.capture.user_code.whole_slices import indexed
from assay.compiler.errors import Unsupported
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC, hint, is_known, rows_of
from assay.compiler.ir.tensors.refusals import refuse_call

NORMS = (torch.batch_norm, torch.instance_norm)
OF_NORMS = (F.batch_norm, F.instance_norm)
POOLS = (F.max_pool3d, F.max_pool3d_with_indices, torch.max_pool3d, torch._C._nn.max_pool3d_with_indices)
POOLS_OF_LINES = (F.max_pool1d, torch.max_pool1d)
MATMULS = (
    torch.matmul, torch.linalg.matmul, torch.Tensor.matmul,
    torch.Tensor.__matmul__, torch.Tensor.__rmatmul__,
)  # fmt: skip
OF_MATMULS = (
    F.scaled_dot_product_attention, torch.chain_matmul, torch.linalg.multi_dot,
    torch.matrix_power, torch.Tensor.matrix_power, torch.linalg.matrix_power, torch.svd_lowrank, torch.pca_lowrank,
)  # fmt: skip
"""Functions that end in a matmul of their own, which no call of the user's shows."""
POWERS = (torch.pow, torch.Tensor.__rpow__)
IN_PLACE = (torch.Tensor.pow_, torch.Tensor.__ipow__)
POWERS_OF_TENSORS = (torch.pow, torch.Tensor.pow, torch.Tensor.__pow__, *IN_PLACE)
SPREADS = (
    *(torch.var, torch.std, torch.var_mean, torch.std_mean),
    *(torch.Tensor.var, torch.Tensor.std),
)
ONE_HOTS = (F.one_hot, torch.ops.aten.one_hot, torch.ops.aten.one_hot.default)
MOST_HELD = 1 << 24
"""Below this float32 holds every integer."""
CUDNN = 8
"""Where among their arguments it says whether cuDNN may run."""
LAYS_OUT = (
    *(torch.Tensor.contiguous, torch.Tensor.reshape, torch.Tensor.flatten, torch.Tensor.ravel),
    *(torch.reshape, torch.flatten, torch.ravel),
)
"""Calls that give a view or a copy, as a tensor lies."""
BATCHES = 3
"""How many dimensions a product of batches has before it is given its own."""
OUT_DTYPE = 6
"""Where among those of `_scaled_mm` the dtype of the result is."""


class UserCalls(TorchFunctionMode):
    """While it is entered, those calls are written so. `as_eager` gives what lies as a tensor does in eager."""

    def __init__(self, as_eager: Callable[[torch.Tensor], torch.Tensor] = lambda value: value) -> None:
        super().__init__()
        self.as_eager = as_eager

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        args, kwargs = with_far_numbers(func, tuple(args), kwargs or {})
        if func in (F.dropout, torch.dropout):
            value, share, train, in_place = _arguments(*args, **kwargs or {})
            if 0 <= share <= 1 and (share == 0 or not train or _is_empty(value)):
                return value
            if share == 1 and not in_place:
                return value * torch.zeros((), dtype=value.dtype, device=value.device)
        if func is torch.Tensor.__getitem__ and (view := indexed(*args)) is not None:
            return view
        if func in POWERS and (base := _varying_base(func, *args, **kwargs or {})) is not None:
            return torch.pow(*base)
        if func in SPREADS and (along := _along_all_dimensions(*args, **kwargs or {})) is not None:
            return func(_first(args, kwargs), **along)
        for rewritten in (of_any_size, self._laid_out, _of_varying_power, grid_under_autocast):
            if (found := rewritten(func, args, kwargs or {})) is not None:
                return found
        if func is torch.tensor and args and isinstance(args[0], torch.SymFloat):
            return torch.full((), *args, **kwargs or {})
        if func in NORMS and len(args) > CUDNN and args[0].is_cuda:
            with without_cudnn(bool(args[CUDNN])):
                return func(*args[:CUDNN], False, **kwargs or {})
        if func in OF_NORMS and _first(args, kwargs).is_cuda:
            with without_cudnn(torch.backends.cudnn.enabled):
                return func(*args, **kwargs or {})
        if func is F.interpolate and (value := _first(args, kwargs)).is_cuda and not _is_by_area(*args, **kwargs or {}):
            result, laid_out = func(*args, **kwargs or {}), suggest_memory_format(value)
            return result if laid_out is torch.contiguous_format else result.to(memory_format=laid_out)
        if func in (F.rms_norm, torch.rms_norm) and _first(args, kwargs).is_cuda:
            return _rms_norm(*args, **kwargs or {})
        if func is torch.lstm and torch.is_grad_enabled():
            with torch.backends.mkldnn.flags(enabled=False):
                return func(*args, **kwargs or {})
        if func in POOLS and _is_by_channels(_first(args, kwargs)):
            raise Unsupported("the program gives max_pool3d a volume by channels, which eager refuses")
        if func in POOLS_OF_LINES and not _records_gradients(_first(args, kwargs)):
            _refuse_pool(*args, **kwargs or {})
            return _unsqueezed(func(*args, **kwargs or {}))
        if func in ONE_HOTS:
            return _in_rows(func(*args, **kwargs or {}))
        if func in MATMULS and "out" not in (kwargs or {}):
            if not torch.is_autocast_enabled(_first(args, kwargs).device.type):  # which casts to one dtype first
                refuse_call(torch.ops.aten.matmul.default, tuple(args), dict(kwargs or {}))
            return _of_its_own(func(*args, **kwargs or {}))
        if func in OF_MATMULS and "out" not in (kwargs or {}):
            return pytree.tree_map_only(torch.Tensor, _of_its_own_if_batches, func(*args, **kwargs or {}))
        if func is torch.msort and (kwargs or {}).get("out") is not None:
            return _sorted_into(*args, **kwargs or {})
        if func is torch._scaled_mm and (kwargs or {}).get("out") is not None:
            return func(*args, **_in_dtype_of_out(args, dict(kwargs or {})))
        if (reduced := reduced_into(func, args, kwargs or {})) is not None:
            return reduced
        if func in (torch.aminmax, torch.multinomial):
            _check_out(func, _first(args, kwargs), (kwargs or {}).get("out"))
        return func(*args, **kwargs or {})

    def _laid_out(
        self, func: Callable[..., torch.Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> torch.Tensor | None:
        """What a call gives of a tensor that eager's lies otherwise than: a copy where eager's is one. None of others,
        and where eager's is a view that has to be made."""
        value = _first(args, kwargs) if func in LAYS_OUT else None
        if value is None or (eagers := self.as_eager(value)) is value:
            return None
        kwargs = {name: each for name, each in kwargs.items() if name != "input"}
        given, named = pytree.tree_map_only(torch.SymInt, hint, (args[1:], kwargs))
        with _disable_current_modes():
            found = func(eagers, *given, **named)
        if found.untyped_storage()._cdata != eagers.untyped_storage()._cdata:
            memory_format = kwargs.get("memory_format", torch.contiguous_format)
            copied = value.clone(memory_format=memory_format)
            sizes = func(copied, *args[1:], **kwargs).shape
            return copied if func is torch.Tensor.contiguous else torch.ops.aten._unsafe_view.default(copied, sizes)
        return value if found is eagers else None


def _first(args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Any:
    return args[0] if args else (kwargs or {})["input"]


def _is_empty(value: torch.Tensor) -> bool:
    return is_known(value.numel()) and value.numel() == 0


def _varying_base(func: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The base, as a tensor, and the exponent of a power of a symbolic number whose gradient is recorded; else None.

    The tensor of more than one element decides the dtype, so that the base keeps all digits beside it.
    """
    base, exponent = _base_and_exponent(*args, **kwargs)
    if func is torch.Tensor.__rpow__:
        base, exponent = exponent, base
    if not isinstance(base, SYMBOLIC) or not _records_gradients(exponent):
        return None
    dtype = torch.float64 if exponent.dim() else exponent.dtype
    return torch.ops.aten.scalar_tensor.default(base, dtype=dtype, device=exponent.device), exponent


def _of_varying_power(
    func: Callable[..., torch.Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> torch.Tensor | None:
    """A power whose exponent is a symbolic integer, and whose gradient is recorded; None of other calls."""
    exponent = _varying_exponent(*args, **kwargs) if func in POWERS_OF_TENSORS else None
    if exponent is None:
        return None
    value = _first(args, kwargs)
    is_taken = isinstance(exponent, torch.Tensor) and func not in IN_PLACE
    return power(value, exponent) if is_taken else func(value, exponent)  # type: ignore[arg-type]


def _varying_exponent(input: Any, exponent: Any, *, out: Any = None) -> torch.Tensor | int | None:
    """What stands for a symbolic integer as the exponent where the gradient is recorded, which takes none; else None.

    It is a tensor where float32 holds the integer, and the very number beyond and for complex numbers.
    """
    is_number = isinstance(exponent, torch.SymInt) and isinstance(input, torch.Tensor) and out is None
    if not is_number or not _records_gradients(input):
        return None
    is_held = guard_or_true(exponent < MOST_HELD) and guard_or_true(exponent > -MOST_HELD)
    if not is_held or input.is_complex():  # eager takes a small number as a factor so often, and no tensor
        return int(exponent)
    return torch.ops.aten.scalar_tensor.default(exponent, dtype=torch.int64, device=input.device)


def _along_all_dimensions(
    input: Any, dim: Any = None, *_: Any, unbiased: bool = True, correction: Any = None, keepdim: bool = False,
    **__: Any,
) -> dict[str, Any] | None:  # fmt: skip
    """What a spread of all elements is given beside the tensor where only data tells how many these are; else None.

    The gradient of a spread along dimensions asks for nothing, and is the same.
    """
    if isinstance(dim, bool):  # the form spread(input, unbiased)
        dim, unbiased = None, dim
    if dim or isinstance(dim, int) or not free_unbacked_symbols(input.shape) or not _records_gradients(input):
        return None
    correction = int(unbiased) if correction is None else correction
    return {"dim": list(range(input.dim())), "correction": correction, "keepdim": keepdim}


def _base_and_exponent(input: Any, exponent: Any, **_: Any) -> tuple[Any, Any]:
    return input, exponent


def _is_by_area(
    input: torch.Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", *_: Any, **__: Any
) -> bool:
    """Whether an interpolation is a pooling, whose result lies as that of one does."""
    return mode == "area"


def _rms_norm(
    input: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    return torch.rms_norm(input, list(map(int, normalized_shape)), weight, eps)


def _in_rows(value: torch.Tensor) -> torch.Tensor:
    """The value, copied where it lies otherwise than in rows."""
    return value if value.stride() == rows_of(value.shape) else value.clone(memory_format=torch.contiguous_format)


def _of_its_own(product: torch.Tensor) -> torch.Tensor:
    """A product of batches as eager gives it: no view, but where it is one that was computed transposed."""
    base = product._base
    if base is None or (base.dim() > 1 and (product.shape, product.stride()) == (base.mT.shape, base.mT.stride())):
        return product
    return torch.ops.aten._unsafe_view.default(product, product.shape)


def _of_its_own_if_batches(value: torch.Tensor) -> torch.Tensor:
    """A product of batches as a matmul gives it; anything else as it is."""
    base = value._base
    return value if base is None or base.dim() != BATCHES else _of_its_own(value)


def _unsqueezed(pooled: Any) -> Any:
    """What `max_pool1d` gives where no gradients are recorded: no view, but with indices."""
    if not isinstance(pooled, torch.Tensor) or pooled._base is None:
        return pooled
    return torch.ops.aten._unsafe_view.default(pooled, pooled.shape)


def _sorted_into(input: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """Torch's own indices have no size, which a recording takes for that of the sorted values."""
    return torch.sort(input, 0, out=(out, torch.empty_like(input, dtype=torch.int64)))[0]


def _in_dtype_of_out(args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The named arguments, with the dtype of `out` where the call names none."""
    is_named = len(args) > OUT_DTYPE or kwargs.get("out_dtype") is not None
    return kwargs if is_named else {**kwargs, "out_dtype": kwargs["out"].dtype}


def _check_out(func: Callable[..., Any], value: torch.Tensor, out: Any) -> None:
    """Raises: Unsupported where `out` is not of the very dtype of the results."""
    wanted = torch.int64 if func is torch.multinomial else value.dtype
    if any(isinstance(leaf, torch.Tensor) and leaf.dtype is not wanted for leaf in pytree.tree_leaves(out)):
        raise Unsupported(f"the program gives {func.__name__} an out= that eager refuses")


def _records_gradients(value: torch.Tensor) -> bool:
    return value.requires_grad and torch.is_grad_enabled()


def _refuse_pool(
    input: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> None:  # fmt: skip
    """Raises: what eager raises for such a pooling, which one kernel computes where no gradients are recorded."""
    given = (kernel_size, () if stride is None else stride, padding, dilation)
    asked = [[one] if isinstance(one, int | torch.SymInt) else list(one) for one in given]
    if not return_indices:
        refuse_call(torch.ops.aten.max_pool1d.default, (input, *asked, ceil_mode), {})


def _is_by_channels(volume: torch.Tensor) -> bool:
    return volume.dim() == 4 and suggest_memory_format(volume) is torch.channels_last


def _arguments(
    input: Any, p: float = 0.5, training: bool = True, inplace: bool = False, train: bool | None = None
) -> tuple[Any, float, bool, bool]:
    return input, p, training if train is None else train, inplace
