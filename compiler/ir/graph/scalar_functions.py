"""Functions of scalar tensors as text: what a user's score function computes, as an argument of one operator.

    lambda score, b, h, q, k: score + bias[h]    ->    def function(score, b, h, q, k, given_0):
                                                           index = torch.ops.aten.index.Tensor(given_0, [h])
                                                           add = torch.ops.aten.add.Tensor(score, index)
                                                           return add

The text is a constant of the graph: it is printed, compared and kept in the cache like any number, and it runs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._dynamo.source import ConstantSource
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.trace import is_effectful

NAME = "function"
SCORE, GIVEN = "score", "given_"
POSITIONS = ("b", "h", "q", "k")
"""The parameters of the functions before what they are given: the score, and where it is."""
HINT = 7
"""Stands for sizes and strides while a function is recorded."""

Given: TypeAlias = tuple[torch.dtype, int] | None
"""The dtype and the number of dimensions of a tensor that a function is given, or None for an integer."""
LIFTED = torch.ops.aten.lift_fresh_copy.default
"""What a recording makes of a tensor that the function itself makes of a number."""


def parameters(count: int, has_score: bool = True) -> list[str]:
    """The names of the parameters of a score function that is given so much; a mask function has no score."""
    return [*([SCORE] if has_score else []), *POSITIONS, *(f"{GIVEN}{place}" for place in range(count))]


def recorded(function: Callable[..., Any], given: Sequence[Given], has_score: bool = True) -> fx.GraphModule:
    """The ATen calls of a function of a score, its position and what it is given, for all sizes and strides of these.
    A tensor that is indexed by scalar tensors gives a tensor, as in eager's attention.

    Raises: Unsupported for a function that computes something else for some sizes; what the function itself raises.
    """
    environment = ShapeEnv(specialize_zero_one=False, duck_shape=False)
    mode, numbers = FakeTensorMode(shape_env=environment), _Numbers(environment)
    with _disable_current_modes(), torch.no_grad(), torch._C._DisableAutocast(), mode, TransformGetItemToIndex():
        score = [torch.empty((), dtype=torch.float32)] if has_score else []
        positions = [torch.empty((), dtype=torch.int64) for _ in POSITIONS]
        module = make_fx(function, tracing_mode="real")(*score, *positions, *map(numbers.example, given))
    if environment.replacements:  # other guards are about what lies without gaps, on which no value depends
        raise Unsupported("a score function computes something else for some sizes")
    names = parameters(len(given), has_score)
    for node, name in zip(module.graph.find_nodes(op="placeholder"), names, strict=True):
        node.name = name
    return module


class _Numbers:
    """Makes integers of which nothing is known, and tensors of such sizes and strides."""

    def __init__(self, environment: ShapeEnv) -> None:
        self._environment, self._count = environment, 0

    def example(self, given: Given) -> torch.Tensor | torch.SymInt:
        if given is None:
            return self._number(None)
        dtype, dims = given
        sizes, strides = ([self._number(True) for _ in range(dims)] for _ in range(2))
        return torch.empty_strided(sizes, strides, dtype=dtype)

    def _number(self, is_positive: bool | None) -> torch.SymInt:
        self._count += 1
        hint, source = HINT + self._count, ConstantSource(f"number_{self._count}")
        dynamic = DimDynamic.DYNAMIC
        symbol = self._environment.create_symbol(hint, source, dynamic_dim=dynamic, positive=is_positive)
        made = self._environment.create_symintnode(symbol, hint=hint, source=source)
        assert isinstance(made, torch.SymInt)
        return made


def text_of(module: fx.GraphModule) -> str:
    """A recorded function as text.

    Raises: Unsupported for a graph that does more than to compute one tensor by ATen operators.
    """
    names = [node.name for node in module.graph.find_nodes(op="placeholder")]
    lines, renamed = [f"def {NAME}({', '.join(names)}):"], dict[fx.Node, str]()
    for node in module.graph.nodes:
        if node.op == "placeholder":
            renamed[node] = node.name
        elif node.op == "output":
            (result,) = node.args[0] if isinstance(node.args[0], list | tuple) else (node.args[0],)
            lines.append(f"    return {_text(result, renamed)}")
        elif node.op != "get_attr":
            renamed[node] = f"{node.name}_" if node.name in names else node.name
            lines.append(f"    {renamed[node]} = {_call(module, node, renamed)}")
    return "\n".join(lines)


def _call(module: fx.GraphModule, node: fx.Node, names: dict[fx.Node, str]) -> str:
    if node.target is LIFTED:
        return _number(module, node.args[0])
    if not isinstance(node.target, torch._ops.OpOverload) or is_effectful(node.target):
        raise Unsupported(f"a score function calls {node.target}")
    given = [_text(argument, names) for argument in node.args]
    given += [f"{name}={_text(argument, names)}" for name, argument in node.kwargs.items()]
    return f"torch.ops.{node.target}({', '.join(given)})"


def _number(module: fx.GraphModule, node: Any) -> str:
    """The call that makes a tensor which the graph holds. Raises: Unsupported for one that is no scalar."""
    value = getattr(module, node.target)
    if isinstance(value, FakeTensor):
        value = value.constant
    if value is None or value.dim():
        raise Unsupported("a score function makes a tensor of several numbers")
    return f"torch.ops.aten.scalar_tensor.default({_text(value.item(), {})}, dtype={value.dtype})"


def _text(argument: object, names: dict[fx.Node, str]) -> str:
    if isinstance(argument, fx.Node):
        if argument not in names:
            raise Unsupported("a score function reads a tensor that it holds itself")
        return names[argument]
    if isinstance(argument, list | tuple):
        return f"[{', '.join(_text(each, names) for each in argument)}]"
    if isinstance(argument, float) and not math.isfinite(argument):
        return f'float("{argument}")'
    if isinstance(argument, torch.device):
        return f'torch.device("{argument}")'
    if argument is None or isinstance(argument, bool | int | float | torch.dtype | torch.layout):
        return repr(argument)
    raise Unsupported(f"a score function gives an operator a {type(argument).__name__}")


@functools.lru_cache(maxsize=256)
def function_of(text: str) -> Callable[..., torch.Tensor]:
    """The function that a text is of."""
    scope: dict[str, Any] = {"torch": torch}
    exec(text, scope)
    made: Callable[..., torch.Tensor] = scope[NAME]
    return made
