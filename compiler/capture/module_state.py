"""A module, called with its state given, that is left as it was found: what a forward assigns is noticed.

self.buffer = self.buffer * 2      the same as writing the buffer in place
self.seen = x, self.weight = ...   ExportError: nothing outside the module would know of it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from compiler.errors import ExportError

Contents = list[object] | dict[object, object] | None


class _Watched(nn.Module):
    """`inner`, with the parameters and buffers that it has when its forward is over."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, torch.Tensor]]:
        return self.inner(*args, **kwargs), _state(self.inner)


@dataclass(frozen=True, slots=True)
class _Attribute:
    """A plain attribute as it was: its value, what a list or dict held, and the tensors in it."""

    module: nn.Module
    name: str
    path: str
    value: object
    contents: Contents
    tensors: tuple[torch.Tensor, ...]


def call_with_state(module: nn.Module, state: Mapping[str, object], args: Any, kwargs: Any) -> Any:
    """What `module(*args, **kwargs)` returns when its parameters and buffers are those of `state`.

    A buffer that the forward replaces by a tensor like it is written with that tensor's values.

    Raises: ExportError for any other parameter, buffer or tensor attribute that the forward assigns.
    """
    before = list(_attributes(module))
    registered = list(_registered(module))
    try:
        given = {f"inner.{name}": value for name, value in state.items()}
        results, after = torch.func.functional_call(_Watched(module), given, args, kwargs, tie_weights=False)  # type: ignore[arg-type]
        _check_attributes(module, before)
    finally:
        _restore(module, [*before, *registered])
    return _write_assigned(module, state, after, results)


def _state(module: nn.Module) -> dict[str, torch.Tensor]:
    parameters = module.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(module.named_buffers(remove_duplicate=False))}


def _plain(module: nn.Module) -> dict[str, object]:
    """The attributes of one module that are no parameters, buffers or modules."""
    return {name: value for name, value in vars(module).items() if name not in _OWN}


_OWN = frozenset(vars(nn.Module()))


def _attributes(module: nn.Module) -> Iterator[_Attribute]:
    for prefix, each in module.named_modules():
        for name, value in _plain(each).items():
            yield _Attribute(each, name, f"{prefix}.{name}".lstrip("."), value, _contents(value), _tensors(value))


def _registered(module: nn.Module) -> Iterator[_Attribute]:
    """Where modules keep what was registered with them."""
    for each in module.modules():
        for name in ("_parameters", "_buffers", "_modules"):
            value = vars(each)[name]
            yield _Attribute(each, name, name, value, _contents(value), ())


def _contents(value: object) -> Contents:
    return list(value) if isinstance(value, list) else dict(value) if isinstance(value, dict) else None


def _tensors(value: object) -> tuple[torch.Tensor, ...]:
    return tuple(leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _check_attributes(module: nn.Module, before: list[_Attribute]) -> None:
    """Raises: ExportError naming the attributes that hold tensors which they did not hold before."""
    held = {each.path: {id(tensor) for tensor in each.tensors} for each in before}
    now = _attributes(module)
    assigned = [each.path for each in now if {id(t) for t in each.tensors} - held.get(each.path, set())]
    if assigned:
        raise ExportError.because("attribute", names=", ".join(map(repr, assigned)))


def _restore(module: nn.Module, before: list[_Attribute]) -> None:
    """Puts every plain attribute back, and what its list or dict held."""
    known = {(id(each.module), each.name) for each in before}
    for each in module.modules():
        for name in [name for name in _plain(each) if (id(each), name) not in known]:
            delattr(each, name)
    for old in before:
        vars(old.module)[old.name] = old.value
        if isinstance(old.value, list):
            old.value[:] = old.contents  # type: ignore[assignment, index]
        elif isinstance(old.value, dict):
            old.value.clear()
            old.value.update(old.contents)  # type: ignore[arg-type]


def _write_assigned(
    module: nn.Module, given: Mapping[str, object], after: Mapping[str, torch.Tensor], results: Any
) -> Any:
    """Writes the buffers that were replaced. Results that share their memory keep the value that they have."""
    changed = [name for name in {**given, **after} if given.get(name) is not after.get(name)]
    for name in changed:
        _check_buffer(module, name, given.get(name), after.get(name))
    if not changed:
        return results
    old: dict[str, torch.Tensor] = {name: given[name] for name in changed}  # type: ignore[misc]
    storages = {value.untyped_storage()._cdata for value in old.values()}

    def kept(value: torch.Tensor) -> torch.Tensor:
        return value.clone() if value.untyped_storage()._cdata in storages else value

    results = pytree.tree_map_only(torch.Tensor, kept, results)
    with torch.no_grad():
        new = {name: kept(after[name]) for name in changed}
        for name, value in old.items():
            value.copy_(new[name])
    return results


def _check_buffer(module: nn.Module, name: str, old: object, new: object) -> None:
    """Raises: ExportError unless a buffer was replaced by a tensor that its own memory can hold."""
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
        raise ExportError.because("registered", name=name)
    if name in dict(module.named_parameters(remove_duplicate=False)):
        raise ExportError.because("parameter_assigned", name=name)
    for what in ("shape", "dtype", "device"):
        if getattr(old, what) != getattr(new, what):
            facts = {"what": what, "old": getattr(old, what), "new": getattr(new, what)}
            raise ExportError.because("buffer_assigned", name=name, **facts)
