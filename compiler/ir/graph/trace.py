"""`Trace`: an open recording of ATen calls into one graph.

A trace may be left and entered again, and may gain inputs after it has recorded calls. So the call, and then the
gradients of what it returned, are recorded in one pass over the user's program. Nothing has to be known beforehand of
what it mutates, what it returns, or which tangents it will need.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, disable_functional_mode
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.experimental.proxy_tensor import (
    PreDispatchTorchFunctionMode,
    PythonKeyTracer,
    disable_autocast_cache,
    disable_proxy_modes_tracing,
    get_proxy_slot,
    track_tensor_tree,
)
from torch.fx.node import _side_effectful_need_to_be_preserved_pre_dispatch
from torch.fx.passes.shape_prop import _extract_tensor_metadata
from torch.utils import _pytree as pytree

from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.float_division import divide_as_python
from assay.compiler.ir.graph.held_functions import IS_PURE
from assay.compiler.ir.graph.known_regions import KnownRegions
from assay.compiler.ir.graph.recording_lock import recording_lock
from assay.compiler.ir.graph.size_questions import size_questions_bounded
from assay.compiler.ir.graph.wrapper_nodes import wrapper_behind
from assay.compiler.ir.graph.writes.repeated_calls import follow
from assay.compiler.ir.graph.writes.storage_offsets import OffsetsRead
from assay.compiler.ir.graph.writes.views_beyond import check_unread
from assay.compiler.ir.graph.writes.watching import Recording, Replacement, Restrided, Watching
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC, Symbolic
from assay.compiler.ir.tensors.mutating_operators import functional_elem
from assay.compiler.ir.tensors.value_checks import IS_CHECK, MAY_REFUSE, may_refuse, reads
from assay.compiler.ir.tensors.wrappers import (
    RAGGED,
    Recipe,
    inner_tensor,
    inner_tensors,
    is_ragged,
    is_wrapper,
    with_inner,
)
from assay.compiler.ir.typed_nodes import int_argument, node_argument, nodes_argument, schema_of
from assay.compiler.torch_compat import Decompositions, decomposing, has_registered_effect, proxy_mode

Value = TypeVar("Value", bound=torch.Tensor | torch.SymInt | int)

RECOMPUTED = "is_recomputed"
"""Marks, in the metadata of a backward's nodes, what forward has computed before: it is rounded as it was there."""
IN_BACKWARD = "is_in_backward"
"""Marks the calls with effects that autograd made: they are backward's, whether or not they read a gradient."""
HELD = "is_held_by_eager"
"""Marks inputs, and views of them, that eager's autograd saves for backward."""

STANDS_FOR = "stands_for"
"""Says, in the metadata of an item of what a region returns, which input of the call it is."""
STASHED = "saved_tensor_with_no_vc_check"
"""Marks, in the metadata of a node, what a user's function keeps as an attribute of its context; torch sets it."""
READS_STASHED = "reads_stashed"
"""Marks, in `custom`, a node of such a function's backward that reads what is kept so, and nothing that was saved."""
UNTAGGED = (torch.ops.aten._unique.default,)
"""Operators whose results' sizes their data says, which not every torch says of them."""
MODE_SWITCHES = frozenset(_side_effectful_need_to_be_preserved_pre_dispatch)
"""What switches gradients and autocast in a graph above autograd."""
UNCHECKED = "is_unchecked"
"""Marks, in forward's nodes, what eager keeps without looking whether it is written before backward."""


class Trace:
    """Records the ATen calls made between `with trace.recording():` and its end, functionalized, on fake tensors.

    With `pre_dispatch` they are recorded above autograd: composite operators are not taken apart, and where gradients
    or autocast are switched, while `noting_modes()` is open, that is a call of the graph. `holds_functions` is open
    while functions that operators are given are recorded; without it such calls are refused.
    """

    def __init__(
        self,
        fake_mode: FakeTensorMode,
        decompositions: Decompositions,
        pre_dispatch: bool = False,
        holds_functions: Recording | None = None,
    ) -> None:
        self.fake_mode = fake_mode
        self.tracer = _Tracer()
        self.tracer.graph = fx.Graph(tracer_cls=PythonKeyTracer)
        self.tracer.root = torch.nn.Module()
        self.tracer.tensor_attrs = {}
        self.pre_dispatch = pre_dispatch
        self._proxy_mode = proxy_mode(self.tracer, decompositions, pre_dispatch)
        self._decompositions = decompositions
        self._functional_mode = Watching(self.tracer, decompositions, pre_dispatch, holds_functions)
        self._regions = KnownRegions()
        self._inputs: list[fx.Node] = []
        self._wrappers: dict[int, tuple[torch.Tensor, fx.Node]] = {}
        self._made: dict[tuple[int, tuple[fx.Node, ...]], tuple[torch.Tensor, fx.Node]] = {}

    @property
    def graph(self) -> fx.Graph:
        return self.tracer.graph

    @contextmanager
    def recording(self) -> Iterator[None]:
        """While it is open, ATen calls on functional tensors of this trace are recorded."""
        with ExitStack() as stack:
            stack.enter_context(recording_lock)
            stack.enter_context(self._regions.known())
            stack.enter_context(_saved_tensor_hooks_off())
            stack.enter_context(torch.autograd.set_detect_anomaly(False))  # it reads numbers, which fake tensors lack
            stack.enter_context(self.fake_mode)
            stack.enter_context(size_questions_bounded(self.fake_mode.shape_env))
            stack.enter_context(enable_python_dispatcher())
            stack.enter_context(decomposing(self._decompositions))
            stack.enter_context(self._proxy_mode)
            stack.enter_context(disable_autocast_cache())
            stack.enter_context(self._functional_mode)
            stack.enter_context(self._functional_mode.random_state_kept())
            yield

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside a recording: calls go to the fake tensors and are not recorded."""
        with disable_functional_mode(), disable_proxy_modes_tracing():
            yield

    def add_input(self, name: str, value: Value) -> Value:
        """A new placeholder that stands for `value`, a fake tensor or a symbolic integer."""
        proxy = self.tracer.create_proxy("placeholder", name, (), {})
        self._inputs.append(proxy.node)
        with self.paused():
            self._track(value, proxy)
        return value

    def _track(self, value: Value, proxy: fx.Proxy) -> None:
        """From here on, `proxy` stands for `value`; of a wrapper, the graph takes its inner tensors."""
        if isinstance(value, FakeTensor) and not value._has_symbolic_sizes_strides:
            follow(self.tracer, value, proxy.node, _extract_tensor_metadata(value))
            return
        if not is_wrapper(value):
            track_tensor_tree(value, proxy, constant=None, tracer=self.tracer)
            proxy.node.meta["val"] = value  # and not a copy, which later guards leave as it is
            return
        proxy.node.meta["val"] = value
        self._wrappers[id(value)] = value, proxy.node
        for name in Recipe.of(value).names:
            inner = getattr(value, name)
            place = f"{proxy.node.name}_{name.strip('_')}"
            self._track(inner, self.tracer.create_proxy("call_function", inner_tensor, (proxy, name), {}, place))

    def wrap(self, value: torch.Tensor, requires_grad: bool) -> torch.Tensor:
        """`value` as a functional leaf of this trace."""
        wrapped = self._functional(value, FunctionalTensor.to_functional)
        return wrapped.requires_grad_(True) if requires_grad else wrapped

    def _functional(self, value: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """What the function makes of a tensor; of a wrapper that stands for an input, one that does so too."""
        if not is_wrapper(value):
            return function(value)
        with disable_proxy_modes_tracing():
            made = with_inner(value, function)
        pairs = [(value, made)]
        for old, new in pairs:
            if id(old) in self._wrappers:
                self._wrappers[id(new)] = new, self._wrappers[id(old)][1]
                pairs += [(getattr(old, name), getattr(new, name)) for name in Recipe.of(old).names]
        return made

    def as_non_leaf(self, leaf: torch.Tensor) -> torch.Tensor:
        """A tensor equal to `leaf`, in its layout, that autograd lets the program write in place."""
        with torch.enable_grad():
            copy: torch.Tensor = _NonLeaf.apply(leaf, self._functional)
        return copy

    def take(self, argument: torch.Tensor) -> None:
        """From here on, `argument` is known to be what the program is given."""
        for inner in inner_tensors(argument):
            self._functional_mode.take(inner)

    def noting_offsets(self) -> OffsetsRead:
        """While it is entered, it is noted where the program itself asks where an input begins."""
        return OffsetsRead(self._functional_mode.note_offset, self._functional_mode.refuse_storage)

    def keep_lines(self) -> None:
        """From here on, nodes have the lines of the forwards that their calls are made in."""
        self.tracer.record_stack_traces = self.tracer._record_forward_stack_traces_only = True

    def noting_modes(self) -> AbstractContextManager[object]:
        """While it is entered, the program's own switches of modes are calls of a graph above autograd."""
        return PreDispatchTorchFunctionMode(self.tracer) if self.pre_dispatch else nullcontext()

    def divisors_of(self, argument: torch.Tensor) -> frozenset[int]:
        """What the program has relied on so far of where an input begins (`ir/graph/writes/storage_offsets.py`).

        Raises: Unsupported where it has relied on where an inner tensor begins.
        """
        found = self._functional_mode.divisors
        if not is_wrapper(argument):
            return frozenset(found[argument.untyped_storage()._cdata])
        if any(found[inner.untyped_storage()._cdata] for inner in inner_tensors(argument)):
            raise Unsupported("the program relies on where an inner tensor begins in its storage")
        return frozenset()

    def own(self, value: torch.Tensor, owner: object) -> None:
        """From here on, writes through `value` and its views are counted for `owner`."""
        self._functional_mode.own(value, owner)

    def owner_of(self, value: torch.Tensor) -> object | None:
        """Whose memory a tensor is a view of, among those that are owned."""
        return self._functional_mode.owner_of(value)

    def writes_by(self, owner: object) -> int:
        """How many calls wrote through what `owner` owns."""
        return self._functional_mode.writes[owner]

    def storage_sizes_of(self, value: torch.Tensor) -> tuple[int | torch.SymInt, ...]:
        """The sizes in bytes that the storage of an input was given, one after the other."""
        return self._functional_mode.storage_sizes_of(value)

    def replacement_of(self, value: torch.Tensor) -> Replacement | None:
        """What became of an input's own storage, if it was replaced."""
        return self._functional_mode.replacement_of(value)

    def assign_data(self, value: torch.Tensor, new: torch.Tensor) -> bool:
        """`value.data = new`, if they are an input and another tensor of this recording. Returns: whether they are."""
        return self._functional_mode.assign_data(value, new)

    def restrides_of(self, value: torch.Tensor) -> tuple[Restrided, ...]:
        """The calls that changed the shape or strides of this very tensor in place."""
        return self._functional_mode.restrides_of(value)

    def as_eager(self, value: torch.Tensor) -> torch.Tensor:
        """What lies as a tensor does in eager: the tensor, or one without elements where it is recorded otherwise."""
        return self._functional_mode.as_eager(value)

    def fake_of(self, value: torch.Tensor) -> torch.Tensor:
        """The fake tensor under a functional one, every pending write applied."""
        if is_wrapper(value):
            with self.paused():
                return with_inner(value, self.fake_of)
        if not isinstance(value, FunctionalTensor):
            return value
        with disable_functional_mode() if self.pre_dispatch else nullcontext():
            torch._sync(value)
        inner: torch.Tensor = torch._from_functional_tensor(value.elem)
        return inner

    def node_of(self, value: torch.Tensor | Symbolic) -> fx.Node:
        """The node that computes `value`.

        Raises: Unsupported for a tensor that this trace did not make (a captured real tensor).
        """
        if isinstance(value, SYMBOLIC):
            return get_proxy_slot(value, self.tracer).force().node
        if is_wrapper(value):
            return self._input_of(value) or self._wrapped(value)
        fake = self.fake_of(value)
        found = get_proxy_slot(fake, self.tracer, None, lambda slot: slot.proxy.node)
        if found is None:
            constant = self.tracer.create_arg(fake)
            if not isinstance(constant, fx.Node):
                raise Unsupported(f"the program returns a tensor that no call of it made: {fake}")
            constant.meta.setdefault("val", fake)
            return constant
        return found

    def _input_of(self, value: torch.Tensor) -> fx.Node | None:
        """The node of an input that a wrapper stands for, if nothing has been written to it."""
        _, node = self._wrappers.get(id(value), (value, None))
        inner = self.inner_nodes_of(value) if node is not None else []
        return node if node is not None and all(wrapper_behind(each) is node for each in inner) else None

    def _wrapped(self, value: torch.Tensor) -> fx.Node:
        """The call that makes a wrapper of its inner tensors: one for each wrapper, as long as it holds the same."""
        recipe, inner = Recipe.of(value), tuple(self.inner_nodes_of(value))
        if (id(value), inner) not in self._made:
            size, stride = ([self._number(each) for each in sizes] for sizes in (value.shape, value.stride()))
            node = self.tracer.create_node("call_function", recipe, (size, stride, *inner), {}, "wrapper")
            node.meta["val"] = self.fake_of(value)
            self._made[id(value), inner] = value, node
        return self._made[id(value), inner][1]

    def inner_nodes_of(self, value: torch.Tensor) -> list[fx.Node]:
        """The nodes that compute the inner tensors of a wrapper, in the order of its recipe."""
        return [self.node_of(getattr(value, name)) for name in Recipe.of(value).names]

    def _number(self, size: int | torch.SymInt) -> int | fx.Node:
        if not isinstance(size, torch.SymInt):
            return size
        return RAGGED if is_ragged(size) else self.node_of(size)

    def known_node_of(self, value: torch.Tensor) -> fx.Node | None:
        """The node that computes `value`; None for a tensor that this trace did not make."""
        if is_wrapper(value):
            inner = [self.known_node_of(getattr(value, name)) for name in Recipe.of(value).names]
            found = {wrapper_behind(_viewed(each)) if each is not None else None for each in inner}
            return found.pop() if len(found) == 1 else None
        return get_proxy_slot(self.fake_of(value), self.tracer, None, lambda slot: slot.proxy.node)

    def mark_refusals(self) -> None:
        """Has the calls of the program that eager may refuse made even where nobody reads what they give. What is
        recorded later is a compiler's own, and may be dropped."""
        for node in self.graph.nodes:
            if may_refuse(node):
                node.meta[MAY_REFUSE] = True

    @contextmanager
    def noting_backward(self) -> Iterator[None]:
        """The calls with effects that are recorded while it is open are noted as backward's."""
        last = self.graph._root.prev
        yield
        node = last.next
        while node.op != "root":
            if node.op == "call_function" and has_effect(node):
                node.meta[IN_BACKWARD] = True
            node = node.next

    def finish(self, outputs: Sequence[fx.Node | int | None]) -> fx.GraphModule:
        """Closes the recording: a graph module whose placeholders come first and which returns `outputs`."""
        graph = self.graph
        calls = [node for node in graph.nodes if node.op != "placeholder"]
        for node in self._inputs if calls else ():
            calls[0].prepend(node)
        graph.output(list(outputs))
        _keep_checks(graph)
        eliminate_dead_nodes(graph)
        check_unread(graph, is_view)
        for node in graph.nodes:
            if _has_made_up_size(node):
                raise Unsupported(f"the size of what {node.target} gives is its data's, and this torch makes one up")
        return module_of(self.tracer.root, graph)


def module_of(root: torch.nn.Module, graph: fx.Graph) -> fx.GraphModule:
    """A graph as a module that holds what `root` does. Its Python text, which most are never asked for and which takes
    longer to write than a cheapest cut to find, is written when it is first called or read."""
    return _LazyGraphModule(root, graph, class_name="Program")


def with_text(module: fx.GraphModule) -> fx.GraphModule:
    """The module, its Python text written: for somebody else, who may take its `forward` and keep it. Until then that
    is a detour by the module's own call, of 2 us."""
    divide_as_python(module.graph)
    _LazyGraphModule.force_recompile(module)
    return module


class _Tracer(PythonKeyTracer):
    """Names arithmetic on sizes apart, so that a program's tensors have the same names whether its sizes are symbols
    or numbers.
    """

    def create_node(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any | None = None,
    ) -> fx.Node:
        if kind == "call_function" and name is None and isinstance(target, BuiltinFunctionType | FunctionType):
            is_of_sizes = target is not operator.getitem and target not in MODE_SWITCHES
            name = f"size_{target.__name__}" if is_of_sizes else None
        return super().create_node(kind, target, args, kwargs, name, type_expr)


@contextmanager
def autocast_off() -> Iterator[None]:
    """Below the autocast region that a call may be compiled in: what was recorded has its casts. Eager's backward runs
    outside of it too."""
    with torch._C._DisableAutocast():
        yield


@contextmanager
def _saved_tensor_hooks_off() -> Iterator[None]:
    """The hooks of whoever calls are for what the call saves, not for what its recording does."""
    taken: list[Any] = []
    while (hooks := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:
        taken.append(hooks)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for hooks in reversed(taken):
            torch._C._autograd._push_saved_tensors_default_hooks(*hooks)


class _NonLeaf(torch.autograd.Function):
    """The identity, whose result has memory of its own over the same recorded value."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, made_of: Callable[..., torch.Tensor]) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        return made_of(leaf, _beside)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor | None) -> tuple[torch.Tensor | None, None]:
        """The gradient as it is, undefined too: eager's would be, and is no zero."""
        return gradient, None


def _beside(leaf: torch.Tensor) -> torch.Tensor:
    """A functional tensor with memory of its own over the value of another."""
    return FunctionalTensor.to_functional(torch._from_functional_tensor(functional_elem(leaf)))


def _viewed(node: fx.Node) -> fx.Node:
    """What a chain of views begins with."""
    while is_view(node):
        node = node_argument(node, 0)
    return node


def is_random(node: fx.Node) -> bool:
    """Whether running the node advances a random number generator."""
    return isinstance(node.target, torch._ops.OpOverload) and _draws(node.target) and not _drops_nothing(node)


@functools.cache
def _draws(target: torch._ops.OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in target.tags


def has_effect(node: fx.Node) -> bool:
    """Whether a node must run even when nobody reads what it returns."""
    if node.op in ("placeholder", "output") or IS_CHECK in node.meta:
        return True
    if IS_PURE in node.meta:
        return False
    return is_effectful(node.target) and not (_is_plain(node.target) and _drops_nothing(node))


def _has_made_up_size(node: fx.Node) -> bool:
    """Whether a call whose result's size is found in its data has one that is a number: where torch has no rule for
    fake tensors it runs the operator on zeros."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if torch.Tag.dynamic_output_shape not in target.tags and target not in UNTAGGED:
        return False
    given = dict(zip((a.name for a in target._schema.arguments), node.args, strict=False)) | node.kwargs
    if given.get("output_size") is not None or given.get("num_classes", -1) != -1:
        return False
    if target is torch.ops.aten.index.Tensor:
        masks = (each for each in nodes_argument(node, 1) if isinstance(each, fx.Node))
        if not any(mask.meta["val"].dtype in (torch.bool, torch.uint8) for mask in masks):
            return False
    values = [v for v in pytree.tree_leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]
    return bool(values) and not any(isinstance(size, torch.SymInt) for size in values[0].shape)


def _is_plain(target: object) -> bool:
    """Whether an operator has no effect but to draw."""
    return isinstance(target, torch._ops.OpOverload) and _draws(target) and not target._schema.is_mutable


def _drops_nothing(node: fx.Node) -> bool:
    """Whether a call of attention has no dropout, so that it draws nothing although its operator may."""
    for place, argument in enumerate(schema_of(node.target).arguments):
        if argument.name == "dropout_p":
            given = node.args[place] if place < len(node.args) else node.kwargs.get("dropout_p", argument.default_value)
            return bool(given == 0)
    return False


def is_effectful(target: object) -> bool:
    """Whether a call must run even if nothing uses its result, and in the order of the program.

    It does if it writes, draws random numbers, switches a mode, or is registered as one with an effect. It does too if
    it returns nothing, as it is then there to raise, or if it takes an object of Python's, which may change.
    """
    if target in MODE_SWITCHES:
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return isinstance(target, torch._ops.HigherOrderOperator)
    return _tells_effect(target) or has_registered_effect(target)


@functools.cache
def _tells_effect(target: torch._ops.OpOverload) -> bool:
    schema = target._schema
    takes_object = any(argument.type.kind() == "PyObjectType" for argument in schema.arguments)
    return schema.is_mutable or _draws(target) or not schema.returns or takes_object


def _keep_checks(graph: fx.Graph) -> None:
    """Makes checks of the calls that eager may refuse and that lead to no output, or whose elements no call reads."""
    live: set[fx.Node] = set()
    for node in reversed(list(graph.nodes)):
        is_read = any(user in live and reads(user, node) for user in node.users)
        if not is_read and MAY_REFUSE in node.meta:
            node.meta[IS_CHECK] = True
        if is_read or has_effect(node):
            live.add(node)


def eliminate_dead_nodes(graph: fx.Graph) -> None:
    """Removes every node that nothing reads and that has no effect."""
    for node in reversed(list(graph.nodes)):
        if not node.users and not has_effect(node):
            graph.erase_node(node)


def is_view(call: fx.Node) -> bool:
    """Whether a call gives a view of its argument."""
    return isinstance(call.target, torch._ops.OpOverload) and call.target.is_view


def gives_memory_on(call: fx.Node) -> bool:
    """Whether a call's result is its argument's memory: a view, or one that nothing is said of."""
    return is_view(call) or call.target in (torch.ops.aten._unsafe_view.default, inner_tensor)


def producer(node: fx.Node) -> tuple[fx.Node, tuple[int, ...]]:
    """The call behind a chain of `getitem`, and the indices taken."""
    path: list[int] = []
    while node.op == "call_function" and node.target is operator.getitem:
        path.append(int_argument(node, 1))
        node = node_argument(node, 0)
    return node, tuple(reversed(path))
