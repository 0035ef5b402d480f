"""The lines of a repro whose calls are made in unusual ways: with other rows, a NaN, in inference mode, and others.

They say with torch alone what harness/protocol/fresh_numbers.py does to the arguments of an act.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from assay.harness.protocol.acts import AUTOCAST, INFERENCE, NONE, ONE, THRICE, TWICE, Act, Protocol
from assay.harness.protocol.fresh_numbers import NO_INDEX

ROWS: Mapping[str, str] = {TWICE: "torch.cat([x] * 2)", THRICE: "torch.cat([x] * 3)", ONE: "x[:1]", NONE: "x[:0]"}
"""What a tensor becomes that has as many rows as the first one."""
MIDDLE = "torch.arange(x.numel()).reshape(x.shape) == x.numel() // 2"
CHANGES: Mapping[str, str] = {
    "turns": "x.requires_grad_(not x.requires_grad) if x.is_floating_point() else x",
    "relays": "x.mT.contiguous().mT if x.dim() > 1 else x",
    "expands": "x[:1].expand(x.shape) if x.dim() and len(x) > 1 else x",
    "blots": f"x.masked_fill({MIDDLE}, torch.nan) if x.is_floating_point() else x",
    "strays": f"x if x.is_floating_point() else x.masked_fill({MIDDLE}, {NO_INDEX})",
    "in_other_dtype": "x.double() if x.is_floating_point() else x",
}
"""What a tensor becomes, by the name of what an act does with it."""
CONTEXTS: Mapping[str, str] = {
    INFERENCE: "torch.inference_mode(call in {calls})",
    AUTOCAST: "torch.autocast('cpu', torch.bfloat16, enabled=call in {calls})",
}


def can_be_said(acts: Protocol) -> bool:
    """Whether these lines say how the unusual acts are made."""
    return all(_is_said(act) for act in acts if act.is_unusual)


def _is_said(act: Act) -> bool:
    return not (act.in_thread or act.in_other_mode or act.freezes)


def changed_arguments(acts: Protocol) -> Iterator[str]:
    """The lines that change the arguments of some calls. `rows` is what the first tensor has."""
    if any(act.sizes for act in acts):
        yield "rows = next(len(x) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.dim())"
    for place, act in enumerate(acts):
        for change in _changes(act):
            changed = (
                f"({change}).detach().requires_grad_(x.requires_grad)" if "requires_grad" not in change else change
            )
            yield f"if call == {place}:"
            yield f"    args, kwargs = tree_map_only(torch.Tensor, lambda x: {changed}, (args, kwargs))"


def _changes(act: Act) -> Iterator[str]:
    leaf = "({}).detach().requires_grad_(x.requires_grad)"
    if act.sizes:
        yield leaf.format(f"{ROWS[act.sizes]} if x.dim() and len(x) == rows else x")
    for name, change in CHANGES.items():
        if getattr(act, name):
            yield change if name == "turns" else leaf.format(change)


def contexts(acts: Protocol) -> Iterator[str]:
    """The `with` around each call; it changes nothing but for some of them."""
    for name, text in CONTEXTS.items():
        if calls := [place for place, act in enumerate(acts) if act.within == name]:
            yield f"with {text.format(calls=calls)}:"


def may_raise(acts: Protocol) -> bool:
    """Whether eager itself may raise in one of the calls."""
    return any(act.strays or act.sizes == NONE for act in acts)
