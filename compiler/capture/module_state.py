"""A module, called with its state given, that is left as it was found: what a forward assigns is noticed.

self.buffer = self.buffer * 2      the same as writing the buffer in place
self.seen = x, self.weight = ...   ExportError: nothing outside the module would know of it
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from assay.compiler.errors import ExportError
from assay.compiler.ir.tensors.layout.overlap import is_alias

Contents = tuple[Any, Any]
"""A container, and a copy of it as it was."""

CONTAINERS = (list, dict, set, deque)


@dataclass(frozen=True, slots=True)
class _Attribute:
    """A plain attribute as it was: its value, what its lists, dicts and sets held, and the tensors in it."""

    module: nn.Module
    name: str
    path: str
    value: object
    contents: tuple[Contents, ...]
    tensors: tuple[torch.Tensor, ...]


def call_with_state(
    module: nn.Module,
    state: Mapping[str, object],
    args: Any,
    kwargs: Any,
    call: Callable[..., Any] = nn.Module.__call__,
) -> Any:
    """What `call(module, *args, **kwargs)` returns when the module's parameters and buffers are those of `state`.

    A buffer that the forward replaces by a tensor like it is written with that tensor's values.

    Raises: ExportError for any other parameter, buffer or tensor attribute that the forward assigns.
    """
    before = list(_attributes(module))
    registered = list(_registered(module))
    try:
        _bind(module, state)
        given = _state(module)
        results = call(module, *args, **kwargs)
        after = _state(module)
        _check_attributes(module, before, given.values())
    finally:
        _restore(module, [*before, *registered])
    return _write_assigned(module, given, after, results)


def _bind(module: nn.Module, state: Mapping[str, object]) -> None:
    """Puts the values of `state` in the place of the module's tensors, wherever it holds them.

    One tensor may be registered in several modules or under several names, and plain attributes may refer to it.
    """
    own = _state(module)
    places = _places(module)
    given = {id(own[name]): value for name, value in state.items()}
    for name, (tensors, key) in places.items():
        tensors[key] = state[name] if name in state else given.get(id(own[name]), own[name])
    for each in _attributes(module):
        if any(id(tensor) in given for tensor in each.tensors):
            rebound = pytree.tree_map_only(torch.Tensor, lambda tensor: given.get(id(tensor), tensor), each.value)
            vars(each.module)[each.name] = rebound


def _places(module: nn.Module) -> dict[str, tuple[dict[str, Any], str]]:
    """By its name, the dictionary and the key in which the module finds a parameter or buffer; a module that has two
    names has its tensors by both."""
    found: dict[str, tuple[dict[str, Any], str]] = {}
    for prefix, each in module.named_modules(remove_duplicate=False):
        for tensors in (each._parameters, each._buffers):
            names = {f"{prefix}.{key}".lstrip("."): key for key, value in tensors.items() if value is not None}
            found |= {name: (tensors, key) for name, key in names.items()}
    return found


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
            yield _Attribute(
                each, name, f"{prefix}.{name}".lstrip("."), value, tuple(_contents(value)), _tensors(value)
            )


def _registered(module: nn.Module) -> Iterator[_Attribute]:
    """Where modules keep what was registered with them."""
    for each in module.modules():
        for name in ("_parameters", "_buffers", "_modules"):
            value = vars(each)[name]
            yield _Attribute(each, name, name, value, ((value, dict(value)),), ())


def _contents(value: object) -> Iterator[Contents]:
    """Each list, dict, set and deque of a value, those inside others too, with a copy of it."""
    pending, seen = [value], set[int]()
    while pending:
        one = pending.pop()
        if id(one) in seen or not isinstance(one, (list, tuple, *CONTAINERS)):
            continue
        seen.add(id(one))
        pending.extend(one.values() if isinstance(one, dict) else one)
        if isinstance(one, CONTAINERS):
            yield one, copy.copy(one)


def _tensors(value: object) -> tuple[torch.Tensor, ...]:
    return tuple(leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _check_attributes(module: nn.Module, before: list[_Attribute], given: Iterable[object]) -> None:
    """Raises: ExportError naming the attributes that hold tensors which they did not hold before. Tensors that were
    `given` for the module's own may be anywhere: those of an LSTM are in a list that it makes anew."""
    held = {each.path: {id(tensor) for tensor in each.tensors} for each in before}
    own = set(map(id, given))
    now = _attributes(module)
    assigned = [each.path for each in now if {id(t) for t in each.tensors} - held.get(each.path, set()) - own]
    if assigned:
        raise ExportError.because("attribute", names=", ".join(map(repr, assigned)))


def _restore(module: nn.Module, before: list[_Attribute]) -> None:
    """Puts every plain attribute back, and what its containers held."""
    known = {(id(each.module), each.name) for each in before}
    for each in module.modules():
        for name in [name for name in _plain(each) if (id(each), name) not in known]:
            delattr(each, name)
    for old in before:
        vars(old.module)[old.name] = old.value
        for container, contents in old.contents:
            container.clear()
            (container.extend if isinstance(container, (list, deque)) else container.update)(contents)


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

    def kept(value: torch.Tensor) -> torch.Tensor:
        return value.clone() if any(is_alias(value, each) for each in old.values()) else value

    results = pytree.tree_map_only(torch.Tensor, kept, results)
    with torch.no_grad():
        new = {name: kept(after[name]) for name in changed}
        for name, value in {id(value): (name, value) for name, value in old.items()}.values():
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
