"""Copies a call so that whatever is aliased stays aliased: tensors are copied by storage, not one by one.

Each storage that the call reaches is copied once. Tensors over it are laid over the copy with their own shape, stride
and offset. A view becomes a view of the copy of its base, so that it shares the base's version counter and history.
Parameters that are tied stay one object. A tensor that is not a leaf gets a history of one addition, to a hidden leaf
of negative zeros. The addition changes no value, and the hidden leaf receives the gradient of the tensor.

`convert` maps the flat content of each storage, so that the same copy can be made in float64 (`widened`), or with
every number moved by one rounding (`nudged`).
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

HALVES = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
SINGLE = {torch.float64: torch.float32, torch.complex128: torch.complex64}


Convert = Callable[[Tensor], Tensor]
WIDE = {dtype: torch.complex128 for dtype in (torch.complex32, torch.complex64, torch.complex128)}
NEARBY = 2.0**-12
KINDS = 65_521
"""A prime: by the remainder of its bits, a number is one of so many kinds, which are moved alike."""
CPU = torch.device("cpu")
PIECE = 1 << 26
"""Numbers that are moved at once: what moves them takes several times their room."""
PLAIN = (Tensor, nn.Parameter, nn.Buffer)
SHUT = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, types.BuiltinFunctionType)


class CloneError(ValueError):
    """A call that cannot be copied or converted; the message says which part of it and why."""


@dataclass(frozen=True, slots=True)
class Call:
    """A callable with its arguments. `leaves` are the hidden leaves behind its tensors that are not, by their id."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: dict[int, Tensor] = field(default_factory=dict)


def copy_call(call: Call, convert: Convert | None = None, device: str | None = None) -> Call:
    """A copy that shares nothing with `call`, with the same aliasing inside.

    Raises: CloneError for an object that refuses to be copied, or a storage that `convert` cannot be applied to.
    """
    copier = _Copier(convert, device)
    for tensor in _tensors_in((call.function, call.args, call.kwargs)):
        copier.tensor(tensor)
    try:
        function = _function(call.function, copier.memo)
        args, kwargs = copy.deepcopy((call.args, call.kwargs), copier.memo)
    except (TypeError, RuntimeError, AttributeError, NotImplementedError) as error:
        raise CloneError(f"the case holds an object that cannot be copied: {type(error).__name__}: {error}") from error
    return Call(function, args, kwargs, copier.leaves)


def widened(flat: Tensor, wide: torch.dtype = torch.float64) -> Tensor:
    """The same numbers in float64 (complex128), or at least in float32 (complex64)."""
    if wide == torch.float32:
        return flat.to(HALVES.get(flat.dtype, flat.dtype), copy=True)
    is_number = flat.is_floating_point() or flat.is_complex()
    return flat.to(WIDE.get(flat.dtype, torch.float64), copy=True) if is_number else flat.clone()


def narrowed(seed: int) -> Convert:
    """The numbers of float64 (complex128) `nearby`, rounded to float32 (complex64)."""
    move = nearby(seed)
    return lambda flat: move(flat).to(SINGLE.get(flat.dtype, flat.dtype))


def nearby(seed: int) -> Convert:
    """The numbers of float64 (complex128) moved by up to `NEARBY` of themselves, at random: others on which the same is
    computed, with other roundings. Whole numbers stay.
    """

    def move(flat: Tensor, drawn: Tensor) -> Tensor:
        return torch.where(flat == flat.trunc(), flat, flat + flat * (2 * drawn - 1) * NEARBY)

    def draw(flat: Tensor, **given: Any) -> Tensor:
        return torch.rand(flat.shape, dtype=flat.dtype, **given)

    return _moved(seed, lambda flat: flat.dtype in SINGLE, draw, move)


def nudged(seed: int, moves_whole: bool = True, least: float = 0.0, moves_alike: bool = False) -> Convert:
    """Moves every floating number to a neighbour, up or down at random: what one more rounding could have done.

    Without `moves_whole` whole numbers stay: labels and flags, which no rounding made. No number moves by
    less than `least` of itself, but for one in float64. With `moves_alike` equal numbers stay equal, and numbers stay
    each other's negatives. So a row of one number keeps a variance of zero, and what cancels still does.
    """

    def move(flat: Tensor, drawn: Tensor) -> Tensor:
        own = torch.finfo(flat.dtype)
        epsilon = max(least, own.eps) if own.bits < 64 else own.eps
        step = drawn.to(flat.dtype).mul_(2).sub_(1).mul_(flat).mul_(epsilon)
        moved = step.add_(flat)
        return moved if moves_whole else torch.where(flat == flat.trunc(), flat, moved)

    def draw(flat: Tensor, **given: Any) -> Tensor:
        return torch.randint(0, 2, flat.shape, dtype=torch.bool, **given)

    def draw_alike(flat: Tensor, **_: Any) -> Tensor:
        ups = torch.randint(0, 2, (KINDS,), dtype=torch.bool, generator=torch.Generator().manual_seed(seed))
        return ups.to(flat.device)[flat.abs().double().view(torch.int64) % KINDS]

    drawn = draw_alike if moves_alike else draw
    return _moved(seed, lambda flat: flat.is_floating_point() and torch.finfo(flat.dtype).bits >= 16, drawn, move)


def _moved(
    seed: int, is_moved: Callable[[Tensor], bool], draw: Callable[..., Tensor], move: Callable[[Tensor, Tensor], Tensor]
) -> Convert:
    """Moves the tensors that it is about, complex ones as pairs, by what is drawn for each number. The stream goes on
    from one tensor to the next; those on a GPU are moved by one of its own, which is drawn there.
    """
    generators: dict[torch.device, torch.Generator] = {}

    def moved(flat: Tensor) -> Tensor:
        place = flat.device if flat.is_cuda else CPU
        if place not in generators:
            generators[place] = torch.Generator(place).manual_seed(seed)
        return move(flat, draw(flat, generator=generators[place], device=place).to(flat.device))

    def convert(flat: Tensor) -> Tensor:
        if flat.is_complex():
            return torch.view_as_complex(convert(torch.view_as_real(flat)))
        if not is_moved(flat):
            return flat.clone()
        if flat.numel() <= PIECE:
            return moved(flat)
        return torch.cat([moved(piece) for piece in flat.reshape(-1).split(PIECE)]).reshape(flat.shape)

    return convert


class _Copier:
    """One copying: the memo that `copy.deepcopy` reads, the storages copied so far, the hidden leaves."""

    def __init__(self, convert: Convert | None, device: str | None) -> None:
        self.memo: dict[int, Any] = {id(torch.default_generator): torch.default_generator}
        self.leaves: dict[int, Tensor] = {}
        self._convert, self._device = convert, device
        self._flats: dict[int, tuple[torch.dtype, Tensor]] = {}
        self._originals: list[Tensor] = []  # alive while their ids are keys

    def tensor(self, tensor: Tensor) -> Tensor:
        """The copy of a tensor: made on first sight, the same one from then on."""
        if id(tensor) not in self.memo:
            self._originals.append(tensor)
            made = self.memo[id(tensor)] = self._made(tensor)
            if tensor.is_leaf and tensor.grad is not None:
                made.grad = self.tensor(tensor.grad)
        return self.memo[id(tensor)]

    def _made(self, tensor: Tensor) -> Tensor:
        if not is_plain(tensor):
            return self._opaque(tensor)
        base = tensor._base
        if base is not None and base.dtype == tensor.dtype:
            return self._view(self.tensor(base), base, tensor)
        return self._root(tensor)

    def _opaque(self, tensor: Tensor) -> Tensor:
        """Sparse tensors, subclasses and the like, by their own means."""
        made = tensor.detach().clone()
        if self._convert is not None and (tensor.is_floating_point() or tensor.is_complex()):
            made = self._convert(made)
        made = made.to(self._device or made.device)
        if tensor.requires_grad and not tensor.is_leaf:
            hidden = self.leaves[id(made)] = torch.full_like(made, -0.0).requires_grad_()
            return made.add_(hidden)
        return made.requires_grad_(tensor.requires_grad)

    def _view(self, made_base: Tensor, base: Tensor, tensor: Tensor) -> Tensor:
        with torch.set_grad_enabled(tensor.requires_grad or not base.requires_grad):
            made = made_base.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        if tensor.requires_grad and not made.requires_grad:
            made.requires_grad_()
        return _with_bits(made, tensor)

    def _root(self, tensor: Tensor) -> Tensor:
        flat = self._flat(tensor)
        dtype = flat.dtype if self._convert is not None else tensor.dtype
        made = torch.empty(0, dtype=dtype, device=flat.device)
        made.set_(flat.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
        made = _with_bits(made, tensor)
        if type(tensor) is nn.Parameter:
            made = nn.Parameter(made, tensor.requires_grad)
        elif tensor.requires_grad and (tensor.is_leaf or _overlaps_itself(tensor)):
            made.requires_grad_()
        elif tensor.requires_grad:
            hidden = self.leaves[id(made)] = torch.full_like(made, -0.0).requires_grad_()
            made.add_(hidden)
        made.__dict__.update(tensor.__dict__)
        return made

    def _flat(self, tensor: Tensor) -> Tensor:
        """The copy of the tensor's storage, flat: of bytes where nothing is converted, else of the tensor's dtype."""
        storage = tensor.untyped_storage()
        dtype = torch.uint8 if self._convert is None else tensor.dtype
        if storage._cdata not in self._flats:
            count = storage.nbytes() // dtype.itemsize
            flat = torch.empty(0, dtype=dtype, device=tensor.device).set_(storage, 0, (count,), (1,))
            made = flat.clone() if self._convert is None else self._convert(flat)
            self._flats[storage._cdata] = dtype, made.to(self._device or made.device)
        known, made = self._flats[storage._cdata]
        if known != dtype:
            raise CloneError(f"tensors of {known} and {dtype} share a storage, which has no conversion")
        return made


def _with_bits(made: Tensor, tensor: Tensor) -> Tensor:
    if made.is_conj() != tensor.is_conj():
        torch._C._set_conj(made, tensor.is_conj())
    if made.is_neg() != tensor.is_neg():
        torch._C._set_neg(made, tensor.is_neg())
    return made


def is_plain(tensor: Tensor) -> bool:
    return (
        type(tensor) in PLAIN
        and tensor.layout == torch.strided
        and not (tensor.is_quantized or tensor.is_nested or is_traceable_wrapper_subclass(tensor))
    )


def _overlaps_itself(tensor: Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.size(), tensor.stride(), strict=True))


def _function(function: Callable[..., Any], memo: dict[int, Any]) -> Callable[..., Any]:
    """A copy of a callable. A function is copied with its closure, which `copy.deepcopy` would share."""
    if not isinstance(function, types.FunctionType) or not function.__closure__:
        return copy.deepcopy(function, memo)
    cells = tuple(_cell(cell, memo) for cell in function.__closure__)
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    made.__dict__.update(function.__dict__)
    return made


def _cell(cell: types.CellType, memo: dict[int, Any]) -> types.CellType:
    """The copy of a closure's cell; cells that two functions share stay shared."""
    if id(cell) not in memo:
        made = memo[id(cell)] = types.CellType()
        try:
            content = cell.cell_contents
        except ValueError:  # an empty cell: the name was deleted or is not bound yet
            return made
        made.cell_contents = _held(content, memo)
    return memo[id(cell)]


def _held(content: Any, memo: dict[int, Any]) -> Any:
    """The copy of what a cell holds. An imported module, which nothing can copy, is held by both."""
    if isinstance(content, types.ModuleType):
        return content
    return _function(content, memo) if callable(content) else copy.deepcopy(content, memo)


def _tensors_in(root: object) -> Iterator[Tensor]:
    """Every tensor that can be reached from `root` through containers, attributes and closures."""
    seen: set[int] = set()
    pending = [root]
    while pending:
        value = pending.pop()
        if isinstance(value, SHUT) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            yield value
        else:
            pending.extend(reversed(list(_inside(value))))


def _inside(value: Any) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    elif isinstance(value, types.FunctionType):
        yield from value.__closure__ or ()
    elif isinstance(value, types.CellType):
        yield from _content(value)
    elif isinstance(value, types.MethodType):
        yield value.__self__
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    else:
        yield from getattr(value, "__dict__", {}).values()
        for owner in type(value).__mro__:
            yield from (getattr(value, name) for name in getattr(owner, "__slots__", ()) if hasattr(value, name))


def _content(cell: types.CellType) -> Iterator[object]:
    try:
        yield cell.cell_contents
    except ValueError:  # an empty cell
        return
