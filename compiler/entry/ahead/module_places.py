"""Which modules the calls of an export come from: the `nn_module_stack` of the graph's nodes.

addmm    {"": ("", "model.Net"), "head": ("head", "torch.nn.modules.linear.Linear")}
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import fx, nn
from torch.fx.traceback import get_current_meta
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


@contextmanager
def places_noted(module: nn.Module) -> Iterator[None]:
    """While it is open, what is recorded has the modules that it comes from.

    The nodes of a graph module say so themselves, and are left to whoever runs it node by node. Dynamo has no part in
    this where it looks through a function that an operator is given.
    """
    if isinstance(module, fx.GraphModule):
        yield
        return
    paths = {id(each): path for path, each in reversed(list(module.named_modules()))}
    entered: list[OrderedDict[str, tuple[str, str]]] = [OrderedDict()]

    def enter(each: nn.Module, _: object) -> None:
        if id(each) in paths and not torch.compiler.is_dynamo_compiling():
            path, kind = paths[id(each)], type(each)
            entered.append(OrderedDict(entered[-1]) | {path: (path, f"{kind.__module__}.{kind.__qualname__}")})
            get_current_meta()["nn_module_stack"] = entered[-1]

    def leave(each: nn.Module, _args: object, _results: object) -> None:
        if id(each) in paths and not torch.compiler.is_dynamo_compiling():
            entered.pop()
            get_current_meta()["nn_module_stack"] = entered[-1]

    hooks = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
    try:
        with fx.traceback.preserve_node_meta():
            yield
    finally:
        for hook in hooks:
            hook.remove()
