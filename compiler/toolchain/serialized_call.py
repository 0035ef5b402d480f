"""A compiled call as bytes: what another process needs to make it again, without recording the program.

    KeptCall := text and code of the call, what it names, what its guard looks at, a KeptHost for each graph
    KeptHost := text and code of the host function, its constants, the files of its kernels, what a recording needs

Everything is pickled by what it is made of: functions and operators by their names, closures by what made them
(`made_by`). What has no such form raises `Unkeyed`, and the call is not kept. Only names of torch, of Python's own
modules and of this compiler are ever looked up when a call is read.
"""

from __future__ import annotations

import importlib
import io
import marshal
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import torch

from assay import compiler
from assay.compiler.codegen.call.gradients.forward_half import SavedValues
from assay.compiler.codegen.host import code_of, load
from assay.compiler.errors import Unkeyed
from assay.compiler.ir.graph.roles import GraphCall
from assay.compiler.ir.graph.target_names import BUILT_IN, target_text
from assay.compiler.ir.loops.kernel import Counts, Step
from assay.compiler.options import Options
from assay.compiler.runtime.expected_inputs import ExpectedInputs
from assay.compiler.runtime.higher_order import HigherOrder, Roots
from assay.compiler.runtime.partial_backward import Part, PartialBackward
from assay.compiler.runtime.recording.cuda_graphs import Recordable, replayed
from assay.compiler.runtime.tangent_views import TangentView
from assay.compiler.toolchain.launch import Loaded
from assay.compiler.toolchain.load import load_again

MOST_BYTES = 1 << 20
"""The largest constant tensor that is kept."""
TRUSTED = ("torch", "builtins", "collections", "operator", "_operator", "math")
"""The packages whose names a kept call may hold, beside those of the compiler."""


@dataclass(frozen=True, slots=True)
class Host:
    """A built graph: the source of its host function, the constants that it names, its kernels, what was counted, and
    the steps that the source is of.

    `recordable` is what a recording of it has to know, `reserve` what reserves the random numbers of a call, which are
    then its last input.
    """

    source: str
    constants: Mapping[str, object]
    kernels: Mapping[str, Any]
    counts: Counts
    steps: Sequence[Step] = ()
    recordable: Recordable | None = None
    reserve: Callable[[], torch.Tensor] | None = None

    def load(self) -> GraphCall:
        """The graph itself."""
        return load(self.source, {**self.constants, **self.kernels}, "graph")

    def run(self, options: Options) -> GraphCall:
        """The graph as a call runs it."""
        return _run(self.load(), self.recordable, self.reserve, options)


def _run(
    graph: GraphCall, recordable: Recordable | None, reserve: Callable[[], torch.Tensor] | None, options: Options
) -> GraphCall:
    """A graph with what goes before it: its recording, and its random numbers."""
    run = replayed(graph, recordable, options.cudagraphs)
    if reserve is None:
        return run

    def with_key(args: list[Any]) -> Sequence[Any]:
        args.append(reserve())
        return run(args)

    return with_key


@dataclass(frozen=True, slots=True)
class Linked:
    """The calling convention around the graphs of a call: its text and what that names, but for the graphs.

    `written` and `versions` are what the guard against overlapping inputs looks at; `partial` are the backwards without
    some of the tangents, of a call that records gradients.
    """

    text: str
    namespace: Mapping[str, object]
    written: tuple[int, ...]
    versions: bool
    partial: PartialBackward | None = None
    higher: HigherOrder | None = None
    code: CodeType | None = None


@dataclass(frozen=True, slots=True)
class KeptHost:
    source: str
    code: bytes
    constants: dict[str, object]
    kernels: dict[str, Any]
    counts: Counts
    recordable: Recordable | None
    reserve: Callable[[], torch.Tensor] | None

    @staticmethod
    def of(host: Host) -> KeptHost:
        """Raises: Unkeyed for kernels that no file of the cache holds."""
        if not isinstance(host.kernels, Loaded) or None in host.kernels.places.values():
            raise Unkeyed("its kernels are not compiled")
        code, constants = marshal.dumps(code_of(host.source, "graph")), dict(host.constants)
        return KeptHost(host.source, code, constants, host.kernels.places, host.counts, host.recordable, host.reserve)

    def run(self, options: Options) -> GraphCall | None:
        """The graph as a call runs it; None where its kernels are gone."""
        kernels = load_again(self.kernels, options)
        if kernels is None:
            return None
        graph = load(self.source, {**self.constants, **kernels}, "graph", marshal.loads(self.code))
        return _run(graph, self.recordable, self.reserve, options)


@dataclass(frozen=True, slots=True)
class KeptPartial:
    """The parts of a `PartialBackward` and of a `HigherOrder` that no graph is needed for."""

    layouts: tuple[Any, ...]
    zeros: tuple[Any, ...]
    results: dict[int, int]
    roots: Roots

    @staticmethod
    def of(part: PartialBackward, higher: HigherOrder) -> KeptPartial:
        return KeptPartial(tuple(part.layouts), tuple(part.zeros), part.results, higher.roots)


@dataclass(frozen=True, slots=True)
class KeptPart:
    """A backward without some of the tangents: a `Part`, but for its graph."""

    host: KeptHost
    arguments: tuple[tuple[str, int], ...]
    written: tuple[int, ...]
    gradients: tuple[tuple[int, frozenset[int]] | None, ...]
    tensors: tuple[int, ...]
    inputs: ExpectedInputs
    views: tuple[tuple[int, int, TangentView], ...]

    @staticmethod
    def of(part: Part, host: Host) -> KeptPart:
        rest = part.arguments, part.written, part.gradients, part.tensors, part.inputs, part.views
        return KeptPart(KeptHost.of(host), *rest)


@dataclass(frozen=True, slots=True)
class KeptCall:
    text: str
    code: bytes
    namespace: dict[str, object]
    written: tuple[int, ...]
    versions: bool
    partial: KeptPartial | None
    hosts: dict[str, KeptHost]
    parts: dict[frozenset[int], KeptPart]
    guards: str
    saved: SavedValues

    @staticmethod
    def of(
        linked: Linked,
        hosts: Mapping[str, KeptHost],
        parts: Mapping[frozenset[int], KeptPart],
        guards: str,
        saved: SavedValues,
    ) -> KeptCall:
        part, higher = linked.partial, linked.higher
        partial = None if part is None or higher is None else KeptPartial.of(part, higher)
        code = marshal.dumps(linked.code or code_of(linked.text, "call"))
        namespace = dict(linked.namespace)
        return KeptCall(
            linked.text,
            code,
            namespace,
            linked.written,
            linked.versions,
            partial,
            dict(hosts),
            dict(parts),
            guards,
            saved,
        )

    @property
    def linked(self) -> Linked:
        return Linked(self.text, self.namespace, self.written, self.versions, code=marshal.loads(self.code))


def dumps(kept: KeptCall) -> bytes:
    """Raises: Unkeyed for an object with no form that another process could read."""
    held = io.BytesIO()
    try:
        _Pickler(held, protocol=pickle.HIGHEST_PROTOCOL).dump(kept)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise Unkeyed(f"it holds what cannot be kept: {error}") from error
    return held.getvalue()


def loads(data: bytes) -> KeptCall:
    """The call that `dumps` wrote. Raises: Unkeyed where the data is none of this process's kind."""
    try:
        found = _Unpickler(io.BytesIO(data)).load()
    except Exception as error:
        raise Unkeyed(f"a kept call cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(found, KeptCall):
        raise Unkeyed("a kept call is of another kind")
    return found


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, ModuleType):
            return _module, (value.__name__,)
        if isinstance(value, torch._ops.OpOverload):
            return _operator, _name_of(value)
        if isinstance(value, BuiltinFunctionType):
            return _function, _place_of(value)
        if made_by := getattr(value, "made_by", None):
            return made_by
        if isinstance(value, torch.Tensor):
            _check_tensor(value)
        elif not _is_trusted(value):
            raise Unkeyed(f"it holds {getattr(value, '__name__', 'an object')} of type {type(value).__name__}")
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if not _is_trusted_module(module):
            raise pickle.UnpicklingError(f"{module}.{name} is not looked up")
        return super().find_class(module, name)


def _module(name: str) -> ModuleType:
    if not _is_trusted_module(name):
        raise pickle.UnpicklingError(f"the module {name} is not looked up")
    return importlib.import_module(name)


def _is_trusted_module(name: str) -> bool:
    return name.partition(".")[0] in TRUSTED or f"{name}.".startswith(f"{compiler.__name__}.")


def _is_trusted(value: object) -> bool:
    """Whether the value, or its class, is one of those that a name says all of."""
    is_named = isinstance(value, type | FunctionType | BuiltinFunctionType)
    module = getattr(value if is_named else type(value), "__module__", None) or "builtins"
    return _is_trusted_module(module) and not isinstance(value, torch.SymInt | torch.Generator)


def _place_of(function: BuiltinFunctionType) -> tuple[str, str]:
    """The module and the name of a function written in C. Raises: Unkeyed where it is not found there again."""
    module, name = target_text(function).split(" ")
    try:
        if _function(module, name) is function:
            return module, name
    except (ImportError, AttributeError, pickle.UnpicklingError):
        pass
    raise Unkeyed(f"{function!r} is no function of a module")


def _function(module: str, name: str) -> BuiltinFunctionType:
    found: Any = _module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _name_of(target: torch._ops.OpOverload) -> tuple[str, str, str]:
    namespace, name = target._schema.name.split("::")
    if namespace not in BUILT_IN:
        raise Unkeyed(f"{target} is an operator of the user's own")
    return namespace, name, target._overloadname


def _operator(namespace: str, name: str, overload: str) -> torch._ops.OpOverload:
    found: torch._ops.OpOverload = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    return found


def _check_tensor(value: torch.Tensor) -> None:
    """Raises: Unkeyed for a tensor that is more than its numbers."""
    is_plain = type(value) is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu"
    if not is_plain or value.requires_grad or value.is_conj() or value.is_neg():
        raise Unkeyed("it holds a tensor that is more than its numbers")
    if value.untyped_storage().nbytes() > MOST_BYTES:
        raise Unkeyed("it holds a large tensor")
