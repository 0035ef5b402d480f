"""The quick way to a compile: one straight-line function that knows a call's arguments again and makes the call.

    def call(args, kwargs):                                      for f(x, [y, 3]), called with gradients on
        if len(args) != 2 or kwargs: return MISS
        (v_0, v_1) = args
        if type(v_1) is not list or len(v_1) != 2: return MISS
        (v_2, v_3) = v_1
        if type(v_3) is not int or v_3 != 3: return MISS
        try:
            if not (has_same_tensors(v_0, v_2) and has_same_modes() and v_0.is_leaf): return MISS
        except RuntimeError: return MISS
        results = compiled([v_0, v_2])
        return results[0]

It may miss calls that the compile would serve, never take one that it would not: a miss costs the search for the
compile that every call would cost without it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._C._dynamo.guards import GlobalStateGuard
from torch.utils import _pytree as pytree

from assay.compiler.capture.aliasing import is_refused
from assay.compiler.ir.tensors.wrappers import Recipe, is_wrapper
from assay.compiler.torch_stubs import tensor_guards

MISS = object()
"""What a straight call returns for arguments that are not its own."""

STRAIGHT_CALLS = 4
"""How many straight calls one function tries before it searches."""

StraightCall = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def straight_call(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    compiled: Callable[[list[Any]], Sequence[Any]],
    results: pytree.TreeSpec,
    gives_integers: bool = False,
) -> StraightCall | None:
    """A function for calls like this one; None where no straight line can tell that they are.

    `compiled` takes each distinct tensor once, and each integer where it `gives_integers`, in the order of the
    flattened call; its results have this structure.
    """
    writer = _Writer(gives_integers)
    if not writer.structure("args", args) or not writer.structure("kwargs", kwargs):
        return None
    writer.tensors()
    writer.lines.append(f"results = compiled([{', '.join(writer.distinct.values())}])")
    writer.lines.append(f"return {_rebuilt(results, iter(range(results.num_leaves)))}")
    text = "def call(args, kwargs):\n" + "".join(f"    {line}\n" for line in writer.lines)
    namespace: dict[str, Any] = {
        **writer.namespace,
        "compiled": compiled,
        "spec": results,
        "unflatten": pytree.tree_unflatten,
    }
    exec(compile(text, "<assay straight call>", "exec"), namespace)
    made: StraightCall = namespace["call"]
    return made


class _Writer:
    """The lines of one straight call. `distinct` are the variables of its tensors, each tensor once, and of its
    integers where it `gives_integers`."""

    def __init__(self, gives_integers: bool) -> None:
        self.gives_integers = gives_integers
        self.lines: list[str] = []
        self.namespace: dict[str, object] = {"MISS": MISS}
        self.distinct: dict[int, str] = {}
        self._guarded: list[tuple[str, torch.Tensor]] = []
        self._count = 0

    def miss_if(self, text: str) -> None:
        self.lines.append(f"if {text}: return MISS")

    def bind(self, value: object) -> str:
        name = f"known_{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def structure(self, name: str, value: Any) -> bool:
        """Lines that hold the variable `name` to the structure and the constants of `value`; False where none can."""
        if isinstance(value, torch.Tensor):
            return self._tensor(name, value)
        if type(value) in (tuple, list):
            return self._sequence(name, value)
        if type(value) is dict:
            return self._dict(name, value)
        return self._constant(name, value)

    def tensors(self) -> None:
        """The line that holds the distinct tensors to their metadata, and the ambient modes to what they are now."""
        values = [value for _, value in self._guarded]
        sizes, strides = [list(v.shape) for v in values], [list(v.stride()) for v in values]
        guards = tensor_guards(values, sizes, strides)
        tests = ["has_same_modes()"]
        if values:  # which tell inference mode by the dispatch keys that it takes away
            tests.insert(0, f"has_same_tensors({', '.join(name for name, _ in self._guarded)})")
        else:
            tests.append(("" if torch.is_inference_mode_enabled() else "not ") + "in_inference()")
        for name, value in self._guarded:
            if value.requires_grad:
                tests.append(f"{'' if value.is_leaf else 'not '}{name}.is_leaf")
        test = f"if not ({' and '.join(tests)}): return MISS"
        # autograd refuses to say of some views whether they are leaves
        self.lines += ["try:", f"    {test}", "except RuntimeError: return MISS"]
        self.namespace["has_same_tensors"] = guards.check
        self.namespace["has_same_modes"] = GlobalStateGuard().check
        self.namespace["in_inference"] = torch.is_inference_mode_enabled

    def _tensor(self, name: str, value: torch.Tensor) -> bool:
        """Of a subclass or another layout than strides the guards do not see everything. Of a view whose history
        autograd refuses to tell there is nothing to guard."""
        if is_wrapper(value):
            return self._wrapper(name, value)
        if not _is_seen_whole(value) or is_refused(value):
            return False
        if id(value) in self.distinct:
            self.miss_if(f"{name} is not {self.distinct[id(value)]}")
        else:
            self.distinct[id(value)] = name
            self._guarded.append((name, value))
        return True

    def _wrapper(self, name: str, value: torch.Tensor) -> bool:
        """A wrapper that is an argument, which is given to the compile as it is."""
        if id(value) in self.distinct:
            self.miss_if(f"{name} is not {self.distinct[id(value)]}")
            return True
        self.distinct[id(value)] = name
        return self._held_to_form(name, value)

    def _held_to_form(self, name: str, value: torch.Tensor) -> bool:
        """Lines that hold a wrapper to its class, context, size and history, and its inner tensors to theirs."""
        if value.layout is not torch.strided or value.is_inference():
            return False
        recipe = Recipe.of(value)
        self.miss_if(f"not {self.bind(recipe.makes)}({name}) or {name}.is_inference()")
        self.miss_if(f"{name}.shape != {self.bind(value.shape)} or {name}.stride() != {value.stride()}")
        self.miss_if(f"{name}.requires_grad is not {value.requires_grad} or {name}.is_leaf is not {value.is_leaf}")
        for attribute in recipe.names:
            inner, variable = getattr(value, attribute), f"{name}_{attribute}"
            self.lines.append(f"{variable} = {name}.{attribute}")
            if is_wrapper(inner):
                if not self._held_to_form(variable, inner):
                    return False
            elif not _is_seen_whole(inner):
                return False
            else:
                self._guarded.append((variable, inner))
        return True

    def _sequence(self, name: str, value: Sequence[Any]) -> bool:
        kind = "" if name == "args" else f"type({name}) is not {type(value).__name__} or "
        self.miss_if(f"{kind}len({name}) != {len(value)}")
        return self._members(name, value)

    def _dict(self, name: str, value: dict[Any, Any]) -> bool:
        """The order of the keys counts, as it does in pytree."""
        if not value and name == "kwargs":
            self.miss_if("kwargs")
            return True
        if not all(type(key) is str for key in value):
            return False
        self.miss_if(f"type({name}) is not dict or tuple({name}) != {self.bind(tuple(value))}")
        return self._members(f"{name}.values()", list(value.values()))

    def _members(self, text: str, values: Sequence[Any]) -> bool:
        names = [f"v_{self._count + index}" for index, _ in enumerate(values)]
        self._count += len(names)
        if names:
            self.lines.append(f"({', '.join(names)},) = {text}")
        return all(self.structure(name, value) for name, value in zip(names, values, strict=True))

    def _constant(self, name: str, value: object) -> bool:
        if value is None or isinstance(value, (bool, torch.dtype, torch.layout, torch.memory_format, enum.Enum)):
            self.miss_if(f"{name} is not {self.bind(value)}")
        elif type(value) in (int, str):
            self.miss_if(f"type({name}) is not {type(value).__name__} or {name} != {value!r}")
            if self.gives_integers and type(value) is int:
                self.distinct[-1 - len(self.distinct)] = name  # no id of a tensor
        elif type(value) is float:
            self.miss_if(f"type({name}) is not float or {name}.hex() != {value.hex()!r}")  # -0.0 is not 0.0
        elif isinstance(value, torch.device):
            self.miss_if(f"{name} != {self.bind(value)}")
        else:
            return False
        return True


def _is_seen_whole(value: torch.Tensor) -> bool:
    """Whether the guards see all of a tensor."""
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided


def _rebuilt(spec: pytree.TreeSpec, leaves: Iterator[int]) -> str:
    """The structure of the results as an expression; by pytree itself where it is of another kind."""
    if not _is_plain(spec):
        return "unflatten(list(results), spec)"
    return _expression(spec, leaves)


def _is_plain(spec: pytree.TreeSpec) -> bool:
    if spec.is_leaf():
        return True
    is_named = spec.type is dict and not all(type(key) is str for key in spec.context)
    return spec.type in (tuple, list, dict) and not is_named and all(map(_is_plain, spec.children()))


def _expression(spec: pytree.TreeSpec, leaves: Iterator[int]) -> str:
    if spec.is_leaf():
        return f"results[{next(leaves)}]"
    members = [_expression(child, leaves) for child in spec.children()]
    if spec.type is dict:
        return "{" + ", ".join(f"{key!r}: {text}" for key, text in zip(spec.context, members, strict=True)) + "}"
    joined = "".join(f"{text}, " for text in members)
    return f"({joined})" if spec.type is tuple else f"[{joined}]"
