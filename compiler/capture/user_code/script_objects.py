"""Script objects, and objects of Python's that operators take: inputs of a call, for which fakes stand in recordings.

    queue.push(y)     ->     higher_order.call_torchbind(queue, "push", y)

A method is called when the graph runs, in its place. It is an effect: its object may change. A method that takes or
gives a tensor that requires grad is cut out of the graph: what it gives, then or later, has a history in eager.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.torchbind import call_torchbind
from torch._library.fake_class_registry import maybe_to_fake_obj
from torch._library.opaque_object import is_opaque_type
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.writes.watching import Watching


def is_object(value: object) -> bool:
    """Whether a value is a script object, or an object of a class that is registered for operators.

    A generator is registered by torch itself, and has no fake one: draws from it are recorded as they are.
    """
    return isinstance(value, torch.ScriptObject) or (
        is_opaque_type(type(value)) and not isinstance(value, torch.Generator)
    )


def kind_of_object(value: Any) -> object:
    """The class of an object, by its name for script objects, all of which have one class in Python."""
    return str(value._type().qualified_name()) if isinstance(value, torch.ScriptObject) else type(value)


def fake_object(value: Any, mode: FakeTensorMode) -> object:
    """What stands for an object while a call with it is recorded. Raises: Unsupported for one whose class has no fake
    one."""
    try:
        return maybe_to_fake_obj(mode, value)
    except (RuntimeError, AttributeError) as reason:
        raise Unsupported(f"an object has no fake one that stands for it: {reason}") from reason


def record_method(mode: Watching, script_object: object, name: str, *args: Any, **kwargs: Any) -> object:
    """Records a call of a method of a script object; returns what it gives, on fake tensors.

    Raises: Unsupported where it is given, or gives, a tensor that requires grad.
    """
    _check_history(name, (args, kwargs))
    result = mode.recorded_as_it_is((call_torchbind, (script_object, name, *args), kwargs))
    _check_history(name, result)
    return result


def _check_history(name: str, values: object) -> None:
    tensors = (each for each in tree_leaves(values) if isinstance(each, torch.Tensor))
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
        raise Unsupported(f"the method {name} of a script object takes or gives a tensor that requires grad")


call_torchbind.py_impl(Watching)(record_method)
