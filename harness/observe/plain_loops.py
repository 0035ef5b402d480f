"""Branches, loops and attentions of user functions, step by step.

Torch runs such a higher-order operator in eager by tracing its functions, with gradients by a traced function too. A
dispatch mode that is on has no rule for the operator, and tracing under it fails. Here the operator runs what it stands
for, which ordinary autograd records and every mode sees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator

Plain = Callable[..., Any]


def branch(predicate: Any, if_true: Plain, if_false: Plain, operands: Sequence[Any] = ()) -> Any:
    """`cond`: one of two functions."""
    return (if_true if predicate else if_false)(*operands)


def region(function: Plain, identifier: object, *operands: Any) -> Any:
    """`invoke_subgraph`: the function."""
    return function(*operands)


def steps(combine: Plain, init: Sequence[Tensor], xs: Sequence[Tensor], additional: Sequence[Any] = ()) -> Any:
    """`scan`: what is carried, and the results of all steps along a new first dimension."""
    carried, results = list(init), list[Any]()
    for at in range(xs[0].shape[0]):
        made = combine(*carried, *(x.select(0, at) for x in xs), *additional)
        carried, result = list(made[: len(init)]), made[len(init) :]
        results.append(result)
    stacked = (None if values[0] is None else torch.stack(values) for values in zip(*results, strict=True))
    return (*carried, *stacked)


OWN: dict[str, Plain] = {"cond": branch, "invoke_subgraph": region, "scan": steps}
"""Operators that refuse modes even as plain Python."""
TORCHS = frozenset("while_loop map_impl associative_scan flex_attention".split())
"""Operators whose plain Python is torch's."""


def plain_form(operator: HigherOrderOperator) -> Plain | None:
    """What an operator stands for, in ordinary operators; None where it runs as it is."""
    name = operator.name()
    return operator.py_kernels.get(DispatchKey.CompositeExplicitAutograd) if name in TORCHS else OWN.get(name)


@contextlib.contextmanager
def plain_loops() -> Iterator[None]:
    """Within, loops, branches and attentions of user functions run in their plain form, whatever modes are on."""
    dispatch = HigherOrderOperator.dispatch

    def step_by_step(self: HigherOrderOperator, key: DispatchKey, /, *args: Any, **kwargs: Any) -> Any:
        plain = plain_form(self)
        return dispatch(self, key, *args, **kwargs) if plain is None else plain(*args, **kwargs)

    HigherOrderOperator.dispatch = step_by_step  # type: ignore[method-assign, assignment]
    try:
        with torch.compiler.set_stance("force_eager"):  # such an operator asks Dynamo to trace its functions first
            yield
    finally:
        HigherOrderOperator.dispatch = dispatch  # type: ignore[method-assign, assignment]
