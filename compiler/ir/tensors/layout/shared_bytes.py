"""Whether two strided tensors over one storage have a byte in common, decided exactly.

base[:, ::2], base[:, 1::2]       share_a_byte == False
base[:, ::2], base[:, 4::3]       share_a_byte == True
"""

from __future__ import annotations

import math

import torch

SEARCH_LIMIT = 4096
"""How many partial solutions the search for a common byte may look at before an overlap is assumed."""


def share_a_byte(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether some byte belongs to two strided tensors over one storage. Where deciding takes too long: yes."""
    if one.numel() == 0 or other.numel() == 0:
        return False
    item, other_item = one.element_size(), other.element_size()
    ours = [(item * stride, size - 1) for size, stride in zip(one.size(), one.stride(), strict=True)]
    theirs = [(other_item * stride, size - 1) for size, stride in zip(other.size(), other.stride(), strict=True)]
    start, other_start = item * int(one.storage_offset()), other_item * int(other.storage_offset())
    # a byte of one: start + sum(stride * index) + byte. Counting the other's indices from their end makes all
    # coefficients of "one's address = the other's address" positive.
    terms = [*ours, (1, item - 1), *theirs, (1, other_item - 1)]
    target = other_start + sum(step * last for step, last in theirs) + other_item - 1 - start
    return _is_sum_of(target, terms)


def _is_sum_of(target: int, terms: list[tuple[int, int]]) -> bool:
    """Whether sum(step * count) == target for some counts between 0 and each term's last."""
    ordered = sorted((step, last) for step, last in _merged(terms) if step and last)[::-1]
    reach = [0] * (len(ordered) + 1)
    common = [0] * (len(ordered) + 1)
    for index in range(len(ordered) - 1, -1, -1):
        step, last = ordered[index]
        reach[index] = reach[index + 1] + step * last
        common[index] = math.gcd(common[index + 1], step)
    pending, looked = [(target, 0)], 0
    while pending:
        rest, index = pending.pop()
        looked += 1
        if looked > SEARCH_LIMIT:
            return True
        if rest == 0:
            return True
        if index == len(ordered) or not 0 < rest <= reach[index] or rest % common[index]:
            continue
        step, last = ordered[index]
        counts = range(max(0, -((reach[index + 1] - rest) // step)), min(last, rest // step) + 1)
        if len(counts) > SEARCH_LIMIT:
            return True
        pending.extend((rest - step * count, index + 1) for count in counts)
    return False


def _merged(terms: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Terms of one step as one, since only the sum of their counts matters."""
    lasts: dict[int, int] = {}
    for step, last in terms:
        lasts[step] = lasts.get(step, 0) + last
    return list(lasts.items())
