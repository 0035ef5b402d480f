"""A graph of Dynamo's as a call to record, and as what eager runs."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._functorch.eager_transforms import _autograd_grad
from torch._guards import TracingContext
from torch._higher_order_ops.torchbind import call_torchbind
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from assay.compiler.assembly.targets import target_of
from assay.compiler.capture.ambient import autocast_unwound, transforms_left
from assay.compiler.capture.inputs import Call, CallLeaf, fake_leaf, fake_mode_of, held
from assay.compiler.capture.user_code.attention_masks import ATTENTION, has_true_mask, laid_out, with_mask
from assay.compiler.capture.user_code.checkpoints import is_plain, run_region
from assay.compiler.capture.user_code.custom_backwards import in_its_callers_mode, mark_reads
from assay.compiler.capture.user_code.inlined_regions import inlined
from assay.compiler.capture.user_code.score_functions import FLEX_ATTENTION, Decide, GivenFunction, attention_of
from assay.compiler.entry.selected_branches import select_branch
from assay.compiler.errors import Unsupported, WrongCount
from assay.compiler.fallback import nodes_of
from assay.compiler.ir.graph.held_functions import REGION
from assay.compiler.ir.graph.roles import Buffer, CallInput, Parameter, UserInput
from assay.compiler.ir.tensors.devices import current_if_asked
from assay.compiler.ir.tensors.refusals import as_eager
from assay.compiler.ops.calls.flex_attention import has_kernel, kinds_of
from assay.compiler.ops.calls.score_kernels import Functions
from assay.compiler.options import Options
from assay.compiler.torch_compat import is_guarded

Compiled = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class GraphAsCall:
    """A graph as a call to record.

    Each recording leaves two things: in `structure` that of what the graph returns, in `failed` the node at which the
    recording ended, if it failed at one.
    """

    call: Call
    structure: list[pytree.TreeSpec] = field(default_factory=list)
    failed: list[fx.Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Freedom:
    """What may be recorded in the place of the user's calls: `may_round` tells whether calls are written as faster ones
    that round otherwise than eager, `attends` which attention has a kernel that holds its score function. Where it
    `selects`, branches are computed both, and elements are chosen."""

    may_round: bool = False
    attends: Decide | None = None
    selects: bool = False

    @staticmethod
    def of(options: Options) -> Freedom:
        """What the options allow."""
        is_fast = options.numerics == "fast"
        return Freedom(is_fast, holds_functions if is_fast and target_of(options) != "aten" else None)


def as_call(
    gm: fx.GraphModule, example_inputs: Sequence[object], freedom: Freedom | None = None, is_fixed: bool = False
) -> GraphAsCall:
    """A graph as a call to record. Where it `is_fixed`, the sizes of real tensors are numbers.

    Raises: Unsupported for an input that the compiler does not take, WrongCount for another number of them.
    """
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    if len(placeholders) != len(example_inputs):
        raise WrongCount(f"the graph takes {len(placeholders)} inputs and is given {len(example_inputs)} examples")
    own = held_tensors(gm)
    fake_mode = recording_mode(example_inputs)
    leaves = tuple(
        fake_leaf(_role(index, node, value), value, fake_mode, getattr(node, "_dynamo_source", None), is_fixed)
        for index, (node, value) in enumerate(zip([*placeholders, *own], [*example_inputs, *own.values()], strict=True))
    )
    for node, leaf in zip(placeholders, leaves, strict=False):
        _remember_number(node.meta.get("example_value"), leaf.fake)

    freedom = freedom or Freedom()
    unmasked = frozenset(filter(has_true_mask, gm.graph.nodes)) if freedom.may_round else None
    structure: list[pytree.TreeSpec] = []
    failed: list[fx.Node] = []

    def run(args: list[object]) -> Sequence[object]:
        state = {str(node.target): value for node, value in zip(own, args[len(placeholders) :], strict=True)}
        with fx.traceback.preserve_node_meta():
            failed.clear()
            recorded = _Recorded(gm, state, unmasked, failed, freedom.attends, Inner(selects=freedom.selects))
            results, found = pytree.tree_flatten(recorded.run(*args[: len(placeholders)]))
        structure[:] = [found]
        return results

    call = Call(
        run,
        leaves,
        fake_mode,
        unguarded=_unguarded(leaves, placeholders),
        current=current_if_asked(gm),
        nodes=nodes_of(gm),
    )
    return GraphAsCall(call, structure, failed)


def holds_functions(
    score: GivenFunction, mask: GivenFunction, device: torch.device, dtype: torch.dtype, depth: int, out_depth: int
) -> bool:
    """Whether there is a kernel of attention that holds these functions."""
    of_score, of_mask = (kinds_of(each.tensors, each.numbers) for each in (score, mask))
    functions = Functions(score.text, mask.text, of_score, of_mask, score.derivative, score.wanted)
    return has_kernel(functions, device, dtype, depth, out_depth)


def _unguarded(leaves: Sequence[CallLeaf], placeholders: Sequence[fx.Node]) -> tuple[int, ...]:
    """The positions of tensors of which Dynamo does not notice that they are others than when it compiled."""
    pairs = enumerate(zip(leaves, placeholders, strict=False))
    return tuple(
        position
        for position, (leaf, node) in pairs
        if isinstance(leaf.fake, torch.Tensor) and not is_guarded(getattr(node, "_dynamo_source", None))
    )


@dataclass(frozen=True, slots=True)
class Inner:
    """What becomes of graphs inside a graph: whether calls of regions stay calls, and whether of branches both are
    computed and elements chosen."""

    keeps_regions: bool = False
    selects: bool = False


class _Recorded(fx.Interpreter):
    """Runs a graph on what is recorded, its own tensors too.

    Attention has no mask where it is `unmasked`, and elsewhere one that lies as its kernels want it; where that is
    None, all is called as it is written. The node at which a run fails is noted in `failed`. Attention with a score
    function is one call where `attends` says that a kernel holds the function.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        state: Mapping[str, object],
        unmasked: frozenset[fx.Node] | None = None,
        failed: list[fx.Node] | None = None,
        attends: Decide | None = None,
        inner: Inner | None = None,
    ) -> None:
        super().__init__(gm)
        self._inner = inner or Inner()
        self._state, self._unmasked, self._failed, self._attends = state, unmasked, failed, attends
        self._named: set[Any] = set()

    def run_node(self, n: fx.Node) -> Any:
        try:
            result = super().run_node(n)
        except BaseException:
            if self._failed is not None:
                self._failed[:] = [n]
            raise
        if torch.is_anomaly_enabled() and n.stack_trace:
            self._name(result, n.stack_trace)
        return result

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        if self._unmasked is None or n.target is not ATTENTION:
            return args, kwargs
        return with_mask(args, kwargs, None) if n in self._unmasked else laid_out(args, kwargs)

    def _name(self, result: Any, lines: str) -> None:
        """Has anomaly mode say which lines of the user's made the nodes of a result that autograd has made just now."""
        pending = [one.grad_fn for one in pytree.tree_leaves(result) if isinstance(one, torch.Tensor)]
        while pending:
            node = pending.pop()
            if node is not None and node not in self._named and not hasattr(node, "variable"):
                self._named.add(node)
                node.metadata["traceback_"] = [lines]  # type: ignore[index]
                pending.extend(following for following, _ in node.next_functions)

    def _inside(self, region: fx.GraphModule, *args: object) -> Any:
        """What a graph inside this graph returns, recorded as if it stood here."""
        return _Recorded(region, {}, inner=self._inner).run(*args)

    def get_attr(self, target: fx.node.Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._state[str(target)] if target in self._state else super().get_attr(target, args, kwargs)

    def call_function(self, target: fx.node.Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is torch.ops.higher_order.autograd_function_apply:
            forward, backward, *given = args
            backward = in_its_callers_mode(backward)
            if "saved_for_backward_idx" in kwargs:  # older versions of torch do not tell
                mark_reads(forward, backward, kwargs["saved_for_backward_idx"])
            args = (forward, backward, *given)
        if target is torch._check and isinstance(args[0], torch.SymBool):  # older versions of torch leave it so
            return torch.ops.aten._assert_scalar.default(args[0], _message_of(args, kwargs))
        if target is torch.ops.higher_order.tag_activation_checkpoint and is_plain(args[0]):
            return run_region(self._inside, *args, **kwargs)
        if target is REGION and not self._inner.keeps_regions:
            region, _, *given = args
            return self._inside(region, *given)
        if target is FLEX_ATTENTION and self._attends is not None:
            found = attention_of(self._attends, *args, **kwargs)
            if found is not None:
                return found
        if target is _autograd_grad and torch.is_inference_mode_enabled():
            with torch.inference_mode(False), torch.set_grad_enabled(torch.is_grad_enabled()):
                found = super().call_function(target, args, kwargs)
            return pytree.tree_map_only(torch.Tensor, torch.clone, found) if _makes_inference_tensors() else found
        if target is torch.ops.higher_order.cond and self._inner.selects:
            return select_branch(self._inside, *args, **kwargs)
        if (record := inlined(target)) is not None:
            return record(self._inside, *args, **kwargs)
        return super().call_function(target, args, kwargs)


@functools.cache
def _makes_inference_tensors() -> bool:
    """Whether a gradient taken by torch.func in inference mode is an inference tensor, as before torch 2.13."""
    with transforms_left(), as_eager(), torch.inference_mode():
        return bool(torch.func.grad(torch.sum)(torch.ones(1, device="cpu")).is_inference())


class _Eager(_Recorded):
    """Runs a graph as eager does: a method of a script object is called, which torch's operator gives no gradient."""

    def call_function(self, target: fx.node.Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is call_torchbind and isinstance(args[0], torch.ScriptObject):
            return getattr(args[0], args[1])(*args[2:], **kwargs)
        return super().call_function(target, args, kwargs)


def has_regions(module: torch.nn.Module) -> bool:
    """Whether a module is a graph that calls a region."""
    graphs = [each.graph for each in module.modules() if isinstance(each, fx.GraphModule)]
    return any(graph.find_nodes(op="call_function", target=REGION) for graph in graphs)


def run_inlined(module: torch.nn.Module, *args: object, **kwargs: object) -> Any:
    """What a module returns, recorded as by `run_module`, but without calls of regions."""
    return run_module(module, *args, keeps_regions=False, **kwargs)


def run_module(module: torch.nn.Module, *args: object, keeps_regions: bool = True, **kwargs: object) -> Any:
    """What a module returns; a graph module is run node by node, so that what is recorded has its lines and modules."""
    is_called = module._forward_hooks or module._forward_pre_hooks  # which the module's own call runs
    if not isinstance(module, fx.GraphModule) or is_called or kwargs:
        return module(*args, **kwargs)
    with fx.traceback.preserve_node_meta():
        return _Recorded(module, {}, inner=Inner(keeps_regions)).run(*args)


def _message_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What a check says where it fails."""
    message = kwargs.get("message", args[1] if len(args) > 1 else None)
    return str(message()) if callable(message) else "Expected cond to be True, but got False"


def in_eager(gm: fx.GraphModule) -> Compiled:
    """The graph as eager runs it, where no compiler has a part. Its regions run as they stand, which torch would trace
    to find their gradients, methods of script objects are called, and powers are as the nodes say them."""
    graphs = [one.graph for one in gm.modules() if isinstance(one, fx.GraphModule)]
    told = (REGION, call_torchbind)
    is_by_nodes = any(
        any(graph.find_nodes(op="call_function", target=target) for target in told) or _has_misprinted_power(graph)
        for graph in graphs
    )

    def run(*args: object) -> Any:
        return (_Eager(gm, {}).run if is_by_nodes or torch.is_anomaly_enabled() else gm.forward)(*args)

    return autocast_unwound()(run) if any(map(enters_autocast, graphs)) else run


def enters_autocast(graph: fx.Graph) -> bool:
    """Whether a graph has a call that enters autocast."""
    return bool(graph.find_nodes(op="call_function", target=torch.amp.autocast_mode._enter_autocast))


def _has_misprinted_power(graph: fx.Graph) -> bool:
    """Whether the code that torch writes for a graph says `-2.0 ** x`, which is the negative of a power.

    Source: suites/upstream_bugs/power_of_a_negative_number.py
    """
    bases = [node.args[0] for node in graph.find_nodes(op="call_function", target=operator.pow)]
    return any(isinstance(base, int | float) and math.copysign(1, base) < 0 for base in bases)


def held_tensors(gm: fx.GraphModule) -> dict[fx.Node, torch.Tensor]:
    """The tensors that a graph holds itself, as Dynamo's graphs of optimizers do, by the first node that reads each."""
    found: dict[str, fx.Node] = {}
    for node in gm.graph.find_nodes(op="get_attr"):
        if isinstance(held(gm, node), torch.Tensor):
            found.setdefault(str(node.target), node)
    values = ((node, held(gm, node)) for node in found.values())
    return {node: value for node, value in values if isinstance(value, torch.Tensor)}


def with_held(gm: fx.GraphModule, run: Compiled) -> Compiled:
    """`run`, given after its arguments the tensors that the graph holds, as they are at each call."""
    own = [_place_of(gm, str(node.target)) for node in held_tensors(gm)]
    return (lambda *args: run(*args, *[place[name] for place, name in own])) if own else run


def _place_of(gm: fx.GraphModule, target: str) -> tuple[dict[str, Any], str]:
    """The dictionary, and the name in it, in which a module finds a tensor of its own."""
    path, _, name = target.rpartition(".")
    owner = gm.get_submodule(path)
    places = (owner.__dict__, owner._parameters, owner._buffers)
    return next(place for place in places if name in place), name


def _remember_number(traced: object, fake: object) -> None:
    """A Python float that Dynamo hands over as a tensor is, when it is read, the number that Dynamo guards on."""
    number = traced.item_memo if isinstance(traced, FakeTensor) and traced.dim() == 0 else None
    if number is not None and isinstance(fake, FakeTensor):
        fake.item_memo = number


def recording_mode(example_inputs: Sequence[object]) -> FakeTensorMode:
    """The mode in which Dynamo records, or else that of the examples.

    Raises: Unsupported for an input of Dynamo's caller that is a fake tensor itself: no kernel can read it.
    """
    context = TracingContext.try_get()
    mode = None if context is None else context.fake_mode
    if mode is None:
        return fake_mode_of(example_inputs) or FakeTensorMode()
    if any(isinstance(value, FakeTensor) and value.fake_mode is not mode for value in example_inputs):
        raise Unsupported("an input is a fake tensor, which has no memory")
    return mode


def _role(index: int, node: fx.Node, value: object) -> CallInput:
    if isinstance(value, torch.nn.Parameter):
        return Parameter(index, node.name)
    is_marked = "_dynamo_static_input_type" in (
        node.meta.get("tensor_dict") or {}
    )  # by torch._dynamo.mark_static_address
    if is_marked:
        return Buffer(index, node.name)
    return Buffer(index, node.name) if "_buffers_" in node.name else UserInput(index)
