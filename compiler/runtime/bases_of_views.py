"""The value that results are views of, where a graph returns the views alone.

graph returns (view,)        view lies in the memory of a (2, 3)        base = that memory as a (2, 3)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from assay.compiler.ir.tensors.layout.strides import extent
from assay.compiler.runtime.call import reinterpret


@dataclass(frozen=True, slots=True)
class Lying:
    """How a tensor lies in its memory."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @staticmethod
    def of(value: torch.Tensor) -> Lying:
        """How a tensor of known sizes lies."""
        return Lying(tuple(map(int, value.size())), tuple(map(int, value.stride())), int(value.storage_offset()))

    def is_of(self, value: torch.Tensor) -> bool:
        """Whether a tensor lies so."""
        return (value.size(), value.stride(), value.storage_offset()) == (self.size, self.strides, self.offset)

    @property
    def end(self) -> int:
        """Behind its last element."""
        return self.offset + (int(extent(self.size, self.strides)) if all(self.size) else 0)


@dataclass(frozen=True, slots=True)
class BaseOfViews:
    """A value that no graph returns, and how the views of it lie that one does."""

    base: Lying
    views: tuple[Lying, ...]

    def made(self, views: Sequence[torch.Tensor]) -> torch.Tensor:
        """The base over the memory of the views; where they lie otherwise than told, a new one with their values."""
        first = views[0]
        is_held = first.untyped_storage().nbytes() >= self.base.end * first.element_size()
        if is_held and self._are_of_one(views):
            return reinterpret(first, self.base.size, self.base.strides, self.base.offset - self.views[0].offset)
        memory = torch.empty(self.base.end, dtype=first.dtype, device=first.device)
        for lying, view in zip(self.views, views, strict=True):
            memory.as_strided(lying.size, lying.strides, lying.offset).copy_(view)
        return reinterpret(memory, self.base.size, self.base.strides, self.base.offset)

    def _are_of_one(self, views: Sequence[torch.Tensor]) -> bool:
        """Whether the views lie as told, in one memory."""
        memory = views[0].untyped_storage()._cdata
        pairs = zip(self.views, views, strict=True)
        return all(lying.is_of(view) and view.untyped_storage()._cdata == memory for lying, view in pairs)
