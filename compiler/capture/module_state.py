"""A module, called with its state given, that is left as it was found: what a forward assigns is noticed.

self.buffer = self.buffer * 2      the same as writing the buffer in place, or one more result for the caller to assign
self.seen = x, self.weight = ...   ExportError: nothing outside the module would know of it
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
NUMBERS = (bool, int, float, complex, str)
IS_NEW = object()
"""Stands for the value of an attribute that was not there."""


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
    done = _called(module, state, args, kwargs, call)
    return _write_assigned(module, done)


def call_and_assigned(
    module: nn.Module,
    state: Mapping[str, object],
    args: Any,
    kwargs: Any,
    call: Callable[..., Any] = nn.Module.__call__,
) -> tuple[Any, dict[str, torch.Tensor | None]]:
    """What such a call returns, and by their names the buffers that the forward replaced, for `assign`.

    Raises: ExportError for any other parameter, buffer, tensor or number that the forward assigns.
    """
    done = _called(module, state, args, kwargs, call)
    if done.numbers:
        raise ExportError.because("number", names=", ".join(map(repr, done.numbers)))
    assigned = dict(done.assigned())
    for name in assigned:
        owner, key = _owner(module, name)
        if key in owner._parameters:
            raise ExportError.because("parameter_assigned", name=name)
        if key not in owner._buffers:
            raise ExportError.because("registered", name=name)
    return done.results, assigned


def assign(module: nn.Module, assigned: Mapping[str, torch.Tensor | None]) -> None:
    """Replaces buffers of a module, by their names."""
    for name, value in assigned.items():
        owner, key = _owner(module, name)
        owner._buffers[key] = value


def _owner(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, key = name.rpartition(".")
    return module.get_submodule(path), key


@dataclass(frozen=True, slots=True)
class _Done:
    """A call that was made: the state that it was given, the state that it left, and the names of plain attributes that
    hold other numbers than before."""

    results: Any
    given: Mapping[str, torch.Tensor]
    after: Mapping[str, torch.Tensor]
    numbers: Sequence[str]

    def assigned(self) -> Iterator[tuple[str, torch.Tensor | None]]:
        """What the call registered in the place of what it was given."""
        for name in {**self.given, **self.after}:
            if self.given.get(name) is not (new := self.after.get(name)):
                yield name, new


def _called(module: nn.Module, state: Mapping[str, object], args: Any, kwargs: Any, call: Callable[..., Any]) -> _Done:
    """Makes the call with this state, and leaves the module as it was."""
    before = list(_attributes(module))
    registered = list(_registered(module))
    try:
        _bind(module, state)
        given = _state(module)
        results = call(module, *args, **kwargs)
        after = _state(module)
        _check_attributes(module, before, given.values())
        numbers = list(_other_numbers(module, before))
    finally:
        _restore(module, [*before, *registered])
    return _Done(results, given, after, numbers)


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


def _other_numbers(module: nn.Module, before: Iterable[_Attribute]) -> Iterator[str]:
    """The plain attributes that hold another number, flag or text than before, or did not hold one."""
    held = {each.path: each.value for each in before}
    for each in _attributes(module):
        old = held.get(each.path, IS_NEW)
        if isinstance(each.value, NUMBERS) and each.value is not old and each.value != old:
            yield each.path


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


def _write_assigned(module: nn.Module, done: _Done) -> Any:
    """Writes the buffers that were replaced. Results that share their memory keep the value that they have."""
    assigned, results = dict(done.assigned()), done.results
    for name, value in assigned.items():
        _check_buffer(module, name, done.given.get(name), value)
    if not assigned:
        return results
    old = {name: done.given[name] for name in assigned}

    def kept(value: torch.Tensor) -> torch.Tensor:
        return value.clone() if any(is_alias(value, each) for each in old.values()) else value

    results = pytree.tree_map_only(torch.Tensor, kept, results)
    with torch.no_grad():
        new = {name: kept(done.after[name]) for name in assigned}
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
