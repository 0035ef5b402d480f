"""Where in a module the calls of an export come from: `nn_module_stack` and `stack_trace` of the graph's nodes.

addmm    nn_module_stack  {"": ("", "model.Net"), "head": ("head", "torch.nn.modules.linear.Linear")}
         stack_trace      File "model.py", line 12, in forward ...
"""

from __future__ import annotations

import linecache
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch import fx, nn
from torch.fx.traceback import get_current_meta
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from assay.compiler import FOLDER


@contextmanager
def places_noted(module: nn.Module) -> Iterator[None]:
    """While it is open, what is recorded has the modules and the lines that it comes from.

    The nodes of a graph module say so themselves, and are left to whoever runs it node by node.
    """
    if isinstance(module, fx.GraphModule):
        yield
        return
    paths = {id(each): path for path, each in reversed(list(module.named_modules()))}
    entered: list[OrderedDict[str, tuple[str, str]]] = [OrderedDict()]

    def enter(each: nn.Module, _: object) -> None:
        if id(each) in paths:
            path, kind = paths[id(each)], type(each)
            entered.append(OrderedDict(entered[-1]) | {path: (path, f"{kind.__module__}.{kind.__qualname__}")})
            get_current_meta()["nn_module_stack"] = entered[-1]

    def leave(each: nn.Module, _args: object, _results: object) -> None:
        if id(each) in paths:
            entered.pop()
            get_current_meta()["nn_module_stack"] = entered[-1]

    hooks = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
    try:
        with fx.traceback.preserve_node_meta(), _Lines():
            yield
    finally:
        for hook in hooks:
            hook.remove()


class _Lines(TorchFunctionMode):
    """Notes, at each call of torch's, the lines of the forwards that it is made in."""

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        lines = "".join(reversed(list(_lines_of(sys._getframe(1))))).strip()
        meta = get_current_meta()
        if lines:
            meta["stack_trace"] = lines
        else:
            meta.pop("stack_trace", None)
        return func(*args, **(kwargs or {}))


def _lines_of(frame: FrameType | None) -> Iterator[str]:
    """The forwards that are running, the innermost first, as Python prints them."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "forward" and not code.co_filename.startswith(str(FOLDER)):
            line = linecache.getline(code.co_filename, frame.f_lineno).strip()
            yield f'  File "{code.co_filename}", line {frame.f_lineno}, in forward\n    {line}\n'
        frame = frame.f_back
