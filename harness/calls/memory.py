"""Which tensors share memory: the alias graph by address, and the poke test that writes and looks.

The graph is by bytes, not by storage. Two storages over the same memory alias. Two columns of one matrix do not,
although their intervals overlap. Intervals are swept in the order of their addresses; only those that overlap are
looked at byte by byte.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from assay.compiler.ir.tensors.wrappers import is_wrapper

EXACT_BYTES = 1 << 26
"""Above this interval two tensors count as overlapping when their intervals do."""
POKE_BYTES = 1 << 30
"""How much memory the pokes of one observation may compare; outputs beyond it are not poked, in any run."""

DIGESTED_BYTES = 1 << 24
"""Of tensors that a poke must not change, as large as this, no copy is kept but a digest."""

Alias = tuple[str, str, str]


def has_memory(tensor: Tensor) -> bool:
    """Whether a tensor is laid over bytes that can be addressed. Of a wrapper its inner tensors are."""
    if is_wrapper(tensor) or tensor.layout != torch.strided or tensor.is_nested or tensor.numel() == 0:
        return False
    return is_allocated(tensor) and tensor.data_ptr() != 0


def is_allocated(tensor: Tensor) -> bool:
    """Whether a tensor's storage holds all of its elements, which it does not after `untyped_storage().resize_(0)`."""
    if is_wrapper(tensor) or tensor.layout != torch.strided or tensor.is_nested or tensor.numel() == 0:
        return True
    if tensor.is_contiguous():
        return (tensor.storage_offset() + tensor.numel()) * tensor.element_size() <= tensor.untyped_storage().nbytes()
    last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.size(), tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size() <= tensor.untyped_storage().nbytes()


def aliases(tensors: Mapping[str, Tensor]) -> frozenset[Alias]:
    """Pairs of paths that are one object (`is`) or share bytes (`overlaps`); empty tensors share nothing."""
    found: set[Alias] = set()
    intervals = sorted((*_interval(tensor), path) for path, tensor in tensors.items() if has_memory(tensor))
    live: list[tuple[int, str]] = []
    for start, end, path in intervals:
        live = [(other_end, other) for other_end, other in live if other_end > start]
        for _, other in live:
            if kind := _relation(tensors[path], tensors[other]):
                found.add((min(path, other), max(path, other), kind))
        live.append((end, path))
    return frozenset(found | set(_same_objects_without_memory(tensors)))


def poke(outputs: Mapping[str, Tensor], watched: Mapping[str, Tensor]) -> dict[str, tuple[str, ...]]:
    """For each output that can be written to: what else changed when it was. Everything is put back."""
    budget, found = POKE_BYTES, {}
    cost = sum(tensor.nbytes for tensor in watched.values() if has_memory(tensor))
    for path, tensor in outputs.items():
        budget -= cost
        if budget >= 0 and has_memory(tensor) and is_without_overlap(tensor) and not _has_lazy_bits(tensor):
            found[path] = _changed_by_writing(path, tensor, watched)
    return found


def _changed_by_writing(path: str, tensor: Tensor, watched: Mapping[str, Tensor]) -> tuple[str, ...]:
    others = {name: other for name, other in watched.items() if name != path and has_memory(other)}
    before = {name: _mark(other) for name, other in others.items()}
    kept = tensor.detach().clone()
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        tensor.copy_(_other_values(kept))
    changed = tuple(sorted(name for name, other in others.items() if not _has_mark(other, before[name])))
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        tensor.copy_(kept)
    return changed


def _mark(tensor: Tensor) -> Tensor | bytes:
    """What the tensor's numbers are known by: a copy of their bytes, or a digest of many on a CPU."""
    if tensor.is_cuda or tensor.nbytes < DIGESTED_BYTES:
        return bits(tensor).clone()
    return hashlib.sha1(bits(tensor).contiguous().numpy().data).digest()


def _has_mark(tensor: Tensor, mark: Tensor | bytes) -> bool:
    return _mark(tensor) == mark if isinstance(mark, bytes) else torch.equal(bits(tensor), mark)


def _other_values(tensor: Tensor) -> Tensor:
    """Values of which every byte pattern differs from the tensor's."""
    if tensor.dtype == torch.bool:
        return ~tensor
    flipped = bits(tensor.contiguous()) ^ 1
    return flipped.view(tensor.dtype) if not tensor.is_complex() else flipped.view(tensor.dtype).view(tensor.shape)


def give_back() -> None:
    """Gives memory that was freed back to the system, where the C library keeps it for later and can let go of it."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def bits(tensor: Tensor) -> Tensor:
    """The tensor's bytes as integers, so that NaN equals itself; the same memory, never a copy of it."""
    plain = tensor.detach()
    if _has_lazy_bits(plain):
        plain = plain.resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return plain.view(integers[plain.element_size()])


def number_bits(tensor: Tensor) -> Tensor:
    """The bytes of a tensor's numbers, those of one NaN for all: which operand's a NaN is is the machine's choice."""
    plain = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    has_many_nans = plain.is_floating_point() and plain.element_size() > 1
    return bits(torch.where(plain.isnan(), torch.nan, plain) if has_many_nans else plain)


def _has_lazy_bits(tensor: Tensor) -> bool:
    return tensor.is_conj() or tensor.is_neg()


def _interval(tensor: Tensor) -> tuple[int, int]:
    extent = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True)) + 1
    return tensor.data_ptr(), tensor.data_ptr() + extent * tensor.element_size()


def _relation(one: Tensor, other: Tensor) -> str:
    if one is other:
        return "is"
    return "overlaps" if one.device == other.device and _share_a_byte(one, other) else ""


def _share_a_byte(one: Tensor, other: Tensor) -> bool:
    """Whether some byte belongs to both, which intervals alone do not tell: columns of a matrix are interleaved."""
    if _is_dense(one) and _is_dense(other):
        return True
    start = min(one.data_ptr(), other.data_ptr())
    size = max(_interval(one)[1], _interval(other)[1]) - start
    if size > EXACT_BYTES:
        return True
    return bool((_footprint(one, start, size) & _footprint(other, start, size)).any())


def _footprint(tensor: Tensor, start: int, size: int) -> Tensor:
    """A mask of `size` bytes from address `start`: those that the tensor occupies."""
    item = tensor.element_size()
    mask = torch.zeros(size + item, dtype=torch.bool)
    shape = (*tensor.size(), item)
    strides = (*(stride * item for stride in tensor.stride()), 1)
    mask.as_strided(shape, strides, tensor.data_ptr() - start).fill_(True)
    return mask[:size]


def _is_dense(tensor: Tensor) -> bool:
    """Whether the tensor occupies every byte of its interval."""
    start, end = _interval(tensor)
    return is_without_overlap(tensor) and end - start == tensor.numel() * tensor.element_size()


def is_without_overlap(tensor: Tensor) -> bool:
    """Whether each element has memory of its own, by strides that step over all that the smaller ones reach."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if size > 1:
            if stride < reach:
                return False
            reach += stride * (size - 1)
    return True


def _same_objects_without_memory(tensors: Mapping[str, Tensor]) -> Iterator[Alias]:
    first: dict[int, str] = {}
    for path, tensor in tensors.items():
        if not has_memory(tensor):
            other = first.setdefault(id(tensor), path)
            if other != path:
                yield min(path, other), max(path, other), "is"
