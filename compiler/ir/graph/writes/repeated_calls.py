"""`RepeatedCalls`: a call like an earlier one of its recording is copied from that, and not worked out anew.

    x * 2 with x of 64 x 64 floats      functionalized, recorded, run on fakes
    y * 3 with y of 64 x 64 floats      a node like the first, and a tensor like its result

A call is like another if its operator is the same, its tensors lie alike, and everything else that it is given is
equal. It is copied only where the first left one node of the very call behind, and a result with memory of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import PythonKeyTracer, _ProxyTensor, get_proxy_slot, set_proxy_slot

from assay.compiler.ir.graph.writes.written_layouts import ASKS_LAYOUT
from assay.compiler.ir.tensors.degrees_of_freedom import VARIANCES
from assay.compiler.ir.tensors.layout.fresh_memory import Fresh
from assay.compiler.torch_compat import Decompositions, has_registered_effect

Outline = tuple[object, ...]
"""All that the recording of a call depends on."""
TAGS = frozenset({
    *(torch.Tag.nondeterministic_seeded, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape),
    torch.Tag.inplace_view,
})  # fmt: skip
"""Of operators whose results or effects do not follow from what their arguments look like."""
PLAIN = (int, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
ORDINARY = 1 << 7
"""Below this, and above its inverse, each float is in the range of every dtype."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call by its outline; its arguments as the graph has them, and its fake tensors."""

    func: torch._ops.OpOverload
    outline: Outline
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    fakes: Sequence[FakeTensor]


@dataclass(frozen=True, slots=True)
class Result:
    """How the result of a call lies, and how torch describes it in the metadata of the node."""

    fresh: Fresh
    described: object


class RepeatedCalls:
    """The calls of one recording by their outlines, each with its result; None for one that is recorded each time."""

    def __init__(self, tracer: PythonKeyTracer, decompositions: Decompositions) -> None:
        self.tracer, self.decompositions = tracer, decompositions
        self.known: dict[Outline, Result | None] = {}

    def find(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call | None:
        """The call, if it is one that may be copied."""
        if not _is_repeatable(func) or func in self.decompositions:
            return None
        reading = _Reading(self.tracer, func)
        try:
            given = tuple([reading.read(each) for each in args])
            named = {name: reading.read(each, name) for name, each in kwargs.items()}
        except _Unknown:
            return None
        return Call(func, tuple(reading.outline), given, named, reading.fakes) if reading.fakes else None

    def copied(self, call: Call, mode: FunctionalTensorMode) -> FunctionalTensor | None:
        """The result of a call that is like an earlier one, recorded; None where there is none such."""
        if (result := self.known.get(call.outline)) is None:
            return None
        fake = result.fresh.fake(call.fakes[0].fake_mode)
        name = self.tracer.graph._target_to_str(call.func.overloadpacket.__name__)
        node = self.tracer.create_node("call_function", call.func, call.args, dict(call.kwargs), name)
        if fx.traceback.has_preserved_node_meta() and node.meta.get("original_aten") is None:
            node.meta["original_aten"] = call.func
        follow(self.tracer, fake, node, result.described)
        with torch._C._DisableTorchDispatch():  # it asks for the device, which modes need not hear of
            functional = torch._to_functional_tensor(fake)
        return FunctionalTensor(functional, mode)

    def learn(self, call: Call, before: fx.Node, result: object) -> None:
        """Keeps what a call has recorded since the node `before`."""
        if call.outline not in self.known:
            self.known[call.outline] = self._result(call, before.next, result)

    def _result(self, call: Call, node: fx.Node, result: object) -> Result | None:
        """The result, if `node` is all that was recorded, and is the call as it was made."""
        is_one = node.op == "call_function" and node.next.op == "root"
        if not is_one or (node.target, node.args, node.kwargs) != (call.func, call.args, call.kwargs):
            return None
        fake = torch._from_functional_tensor(result.elem) if type(result) is FunctionalTensor else None
        if type(fake) is not FakeTensor or fake.layout is not torch.strided or _node_of(fake, self.tracer) is not node:
            return None
        memory = fake.untyped_storage()._cdata
        is_shared = any(given.untyped_storage()._cdata == memory for given in call.fakes)
        fresh = None if is_shared else Fresh.of(fake)
        return None if fresh is None else Result(fresh, node.meta["tensor_meta"])


def follow(tracer: PythonKeyTracer, fake: torch.Tensor, node: fx.Node, described: object) -> None:
    """From here on, the node stands for a tensor whose sizes are numbers."""
    node.meta["val"], node.meta["tensor_meta"] = fake, described
    set_proxy_slot(fake, tracer, _ProxyTensor(tracer.proxy(node), None))


class _Unknown(Exception):
    """An argument of which the outline is not known."""


class _Reading:
    """Reads the arguments of a call one after the other; `outline` and `fakes` grow."""

    def __init__(self, tracer: PythonKeyTracer, func: torch._ops.OpOverload) -> None:
        self.tracer = tracer
        self.outline: list[object] = [func, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
        self.fakes: list[FakeTensor] = []
        self.is_pointwise = torch.Tag.pointwise in func.tags

    def read(self, given: Any, name: str = "") -> Any:
        """An argument as the graph has it. Raises: _Unknown."""
        kind = type(given)
        if kind is FunctionalTensor:
            return self._tensor(given)
        if kind is list or kind is tuple:
            self.outline.append((name, kind, len(given)))
            return kind([self.read(each) for each in given])
        if kind is float:
            self.outline.append((name, _ordinary(given) if self.is_pointwise else given))
        elif kind in PLAIN:
            self.outline.append((name, kind, given))
        else:
            raise _Unknown
        return given

    def _tensor(self, given: FunctionalTensor) -> fx.Node:
        torch._sync(given)
        fake = torch._from_functional_tensor(given.elem)
        node = _node_of(fake, self.tracer)
        if type(fake) is not FakeTensor or node is None:
            raise _Unknown
        if fake._has_symbolic_sizes_strides or fake.layout is not torch.strided:
            raise _Unknown
        self.outline += (fake.shape, fake.stride(), fake.storage_offset(), fake.dtype, fake.device)
        self.outline += (fake.is_conj(), fake.is_neg())
        self.fakes.append(fake)
        return node


def _ordinary(value: float) -> object:
    """A float; in the place of one that fits every dtype its sign: what eager refuses depends on no more of it."""
    is_ordinary = 1 / ORDINARY < abs(value) < ORDINARY
    return math.copysign(1.0, value) if is_ordinary else ("the number itself", value)


def _node_of(fake: torch.Tensor, tracer: PythonKeyTracer) -> fx.Node | None:
    """The node that computes a tensor; None for one that this recording did not make, or whose elements it knows."""
    slot = get_proxy_slot(fake, tracer, None)
    return slot.proxy.node if isinstance(slot, _ProxyTensor) and slot.constant is None else None


@functools.cache
def _is_repeatable(func: Any) -> bool:
    """Whether all that an operator does is to make one tensor, which lies as follows from how its arguments lie."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten" or TAGS & set(func.tags):
        return False
    schema = func._schema
    is_making = len(schema.returns) == 1 and str(schema.returns[0].type) == "Tensor"
    is_apart = not any(each.alias_info for each in (*schema.arguments, *schema.returns))
    is_watched = func in ASKS_LAYOUT or func in VARIANCES or has_registered_effect(func)
    return is_making and is_apart and not is_watched and func is not torch.ops.aten.lift_fresh.default
