"""What an fx node holds, with its type. fx says of arguments and targets no more than that they may be anything.

Nothing here is checked: the caller knows the operator, and so what its arguments are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor


def value_of(node: fx.Node) -> object:
    """What a node makes, as it was traced: a fake tensor, a tuple of them, a size. None where nothing is noted."""
    return node.meta.get("val")


def traced_value(argument: object) -> Any:
    """The value of an argument that is a node, else the argument itself."""
    return value_of(argument) if isinstance(argument, fx.Node) else argument


def fake_value(node: fx.Node) -> FakeTensor:
    """The value of a node that makes one tensor."""
    value: FakeTensor = node.meta["val"]
    return value


def node_argument(node: fx.Node, index: int) -> fx.Node:
    """Argument `index` of a call, which is a node."""
    return cast(fx.Node, node.args[index])


def node_arguments(node: fx.Node) -> tuple[fx.Node, ...]:
    """The arguments of a call that takes nodes alone."""
    return cast(tuple[fx.Node, ...], node.args)


def nodes_argument(node: fx.Node, index: int) -> list[fx.Node | None]:
    """Argument `index` of a call, which is a list of nodes; None stands for a dimension that `index` takes whole."""
    return cast(list[fx.Node | None], node.args[index])


def int_argument(node: fx.Node, index: int) -> int:
    """Argument `index` of a call, which is an integer: a dimension, or the part that `getitem` takes."""
    return cast(int, node.args[index])


def int_keyword(node: fx.Node, name: str) -> int | None:
    """A keyword argument of a call, which is an integer or None."""
    return cast(int | None, node.kwargs[name])


def nodes_keyword(node: fx.Node, name: str) -> Sequence[fx.Node]:
    """A keyword argument of a call, which is a list of nodes; empty where it is not given."""
    return cast(Sequence[fx.Node], node.kwargs.get(name, ()))


def float_argument(node: fx.Node, index: int) -> float:
    """Argument `index` of a call, which is a number."""
    return cast(float, node.args[index])


def ints_argument(node: fx.Node, index: int) -> list[int]:
    """Argument `index` of a call, which is a list of integers: dimensions, or a shape."""
    return cast(list[int], node.args[index])


def function_of(node: fx.Node) -> Callable[..., Any]:
    """What a `call_function` node calls."""
    return cast(Callable[..., Any], node.target)


def operator_of(node: fx.Node) -> torch._ops.OpOverload:
    """The operator that a node calls."""
    return cast(torch._ops.OpOverload, node.target)


def schema_of(target: object) -> torch._C.FunctionSchema:
    """The schema of an operator, from a node's `target` or from an argument that is an operator."""
    return cast(torch._ops.OpOverload, target)._schema
