"""`flex_attention`, recorded as one operator where a kernel holds the program's score and mask functions.

    flex_attention(q, k, v, score, block_mask, scale)   ->   assay.flex_attention(q, k, v, ..., "def function(...", ...)

The functions become text (`ir/graph/scalar_functions.py`). Any other call is recorded as products, scores and a
softmax: of float64, of sizes of 0, of functions that no kernel is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from assay.compiler.ir.graph.scalar_functions import Form, Given, NoText, derivative_of, recorded, text_of

FLEX_ATTENTION: object = getattr(torch.ops.higher_order, "flex_attention", None)
Number = int | torch.SymInt


@dataclass(frozen=True, slots=True)
class GivenFunction:
    """A function of the program's as text, with the tensors and then the integers that it is given. `derivative` is
    empty where nobody asks for gradients, and else also gives those of the tensors at `wanted`."""

    text: str
    tensors: tuple[torch.Tensor, ...]
    numbers: tuple[Number, ...]
    derivative: str = ""
    wanted: tuple[int, ...] = ()

    @staticmethod
    def of(
        function: Callable[..., Any], given: Sequence[Any], form: Form, device: torch.device, derives: bool = False
    ) -> GivenFunction:
        """Raises: NoText for a function that has no text, or is given something else, or tensors of another device."""
        tensors = tuple(each for each in given if isinstance(each, torch.Tensor))
        numbers = tuple(each for each in given if isinstance(each, Number) and not isinstance(each, bool))
        if len(tensors) + len(numbers) < len(given) or any(_is_refused(each, device) for each in tensors):
            raise NoText("a score function is given what no kernel reads")
        order = sorted(range(len(given)), key=lambda place: not isinstance(given[place], torch.Tensor))

        def reordered(*arguments: Any) -> Any:
            cut = len(arguments) - len(given)
            return function(*arguments[:cut], *(arguments[cut + order.index(place)] for place in range(len(given))))

        kinds = [_kind(given[place]) for place in order]
        text = text_of(recorded(reordered, kinds, form))
        if not derives:
            return GivenFunction(text, tensors, numbers)
        wanted = tuple(place for place, each in enumerate(tensors) if each.requires_grad)
        derivative = text_of(recorded(derivative_of(reordered, wanted), kinds, Form.derivative))
        return GivenFunction(text, tensors, numbers, derivative, wanted)


Decide = Callable[[GivenFunction, GivenFunction, torch.device, torch.dtype, int, int], bool]
"""Whether a kernel holds a score and a mask function, for heads on this device of this dtype with so many elements in q
and in v."""


def attention_of(
    has_kernel: Decide, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, score: Callable[..., Any],
    block_mask: Sequence[Any], scale: float, _: object, of_score: Sequence[Any] = (), of_mask: Sequence[Any] = (),
) -> tuple[torch.Tensor, ...] | None:  # fmt: skip
    """The attention as one operator; None where no kernel holds it."""
    lists = [each for each in block_mask[2:6] if each is not None]
    *_, row_block, key_block, mask = block_mask
    derives, device = _records_gradients((q, k, v, *of_score)), q.device
    if not _is_taken(q, k, v) or not _are_lists(lists, device) or _records_gradients(of_mask):
        return None
    if derives and (k.shape[0] != q.shape[0] or block_mask[7] is None):
        return None
    turned = [each for each in block_mask[6:10] if each is not None] if derives and device.type == "cuda" else []
    if turned and (not _are_lists(turned, device) or len(turned) != len(lists)):
        return None
    try:
        changes = GivenFunction.of(score, of_score, Form.score, device, derives)
        hides = GivenFunction.of(mask, of_mask, Form.mask, device)
    except NoText:
        return None
    q, k, v = _as_autocast_casts(q, k, v)
    if not has_kernel(changes, hides, device, q.dtype, int(q.shape[3]), int(v.shape[3])):
        return None
    out, logs, tops = torch.ops.assay.flex_attention.default(
        q, k, v, changes.tensors, changes.numbers, hides.tensors, hides.numbers, lists, turned, [row_block, key_block],
        changes.text, hides.text, changes.derivative, changes.wanted, scale,
    )  # fmt: skip
    return out, logs, tops.detach()


def _as_autocast_casts(*heads: torch.Tensor) -> tuple[torch.Tensor, ...]:
    device = heads[0].device.type
    if not torch.is_autocast_enabled(device):
        return heads
    return tuple(each.to(torch.get_autocast_dtype(device)) for each in heads)


def _is_refused(value: torch.Tensor, device: torch.device) -> bool:
    is_there = device.type in ("cpu", "cuda") and value.device == device
    return not is_there or value.layout is not torch.strided or value.dtype.is_complex


def _kind(value: object) -> Given:
    return (value.dtype, value.dim()) if isinstance(value, torch.Tensor) else None


def _is_taken(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether the heads are on one device, of one dtype, and none of their sizes is 0."""
    if any(_is_refused(each, q.device) or each.dim() != 4 or each.dtype is not q.dtype for each in (q, k, v)):
        return False
    sizes = [size for each in (q, k, v) for size in each.shape]
    return not any(isinstance(size, int) and size == 0 for size in sizes) and all(
        isinstance(size, int) for size in (q.shape[3], v.shape[3], q.shape[1], k.shape[1])
    )


def _are_lists(lists: Sequence[torch.Tensor], device: torch.device) -> bool:
    """Whether these are the counts and indices of blocks as a kernel reads them."""
    is_read = all(each.dtype is torch.int32 and each.device == device for each in lists)
    return is_read and [each.dim() for each in lists] in ([3, 4], [3, 4, 3, 4])


def _records_gradients(values: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in values)
