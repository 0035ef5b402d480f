"""Front door for functions and modules: `aot_function`, `aot_module`, `aot_module_simplified`.

The caller brings the graph compilers; capture, autograd and the calling convention are ours. What graph compilers are
made with, and the functions that split joint graphs, are here too by the names that they have in `functorch.compile`.
"""

from __future__ import annotations

import copy
import functools
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.source import AttrSource, ConstantSource
from torch._dynamo.utils import assert_no_fake_params_or_buffers
from torch._guards import Source
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
    SubclassSymbolicContext,
    SymbolicContext,
)
from torch.utils import _pytree as pytree

from assay.compiler.assembly.compilers import Compilers
from assay.compiler.assembly.linking import specialized
from assay.compiler.capture.ambient import Ambient, in_forward_mode
from assay.compiler.capture.inputs import Call, CallLeaf, fake_leaf, fake_mode_of
from assay.compiler.capture.module_state import assign
from assay.compiler.capture.user_code.script_objects import is_object, kind_of_object
from assay.compiler.entry.ahead.assumptions import asserting
from assay.compiler.entry.ahead.described_nodes import (
    get_all_input_and_grad_nodes,
    get_all_output_and_tangent_nodes,
    get_buffer_nodes,
    get_named_buffer_nodes,
    get_named_param_nodes,
    get_param_and_grad_nodes,
    get_param_nodes,
    get_plain_input_and_grad_nodes,
    get_plain_output_and_tangent_nodes,
)
from assay.compiler.entry.ahead.given_compilers import Given
from assay.compiler.entry.ahead.graph_compilers import (
    GraphCompiler,
    default_decompositions,
    make_boxed_compiler,
    make_boxed_func,
    nop,
    print_compile,
    ts_compile,
)
from assay.compiler.entry.ahead.graph_names import (
    get_aot_compilation_context,
    get_aot_graph_name,
    get_graph_being_compiled,
)
from assay.compiler.entry.ahead.joint_graph import numbered
from assay.compiler.entry.ahead.partition_functions import (
    PartitionFn,
    default_partition,
    min_cut_rematerialization_partition,
)
from assay.compiler.entry.ahead.unwritten import refusing_writes
from assay.compiler.entry.graph_as_call import in_eager
from assay.compiler.entry.joint_export import aot_compile_joint_with_descriptors, aot_export_joint_with_descriptors
from assay.compiler.entry.module_as_call import (
    ModuleAsCall,
    called_and_assigned,
    given_leaves,
    module_state,
    state_role,
)
from assay.compiler.entry.recompile import Recompiled
from assay.compiler.entry.straight_call import MISS, STRAIGHT_CALLS, StraightCall, straight_call
from assay.compiler.errors import Unexpected, Unsupported
from assay.compiler.fallback import give_back, nodes_of, raised_by
from assay.compiler.ir.graph.roles import CallInput, GraphCall, UserInput
from assay.compiler.ir.tensors.layout.overlap import is_leaf
from assay.compiler.ir.tensors.wrappers import Recipe, inner_tensors, is_ragged, is_wrapper
from assay.compiler.journal import Journal, count_eager
from assay.compiler.options import Options
from assay.compiler.pipeline import compile
from assay.compiler.runtime.call import in_batch
from assay.compiler.torch_compat import Decompositions

__all__ = [
    "aot_compile_joint_with_descriptors",
    "aot_export_joint_with_descriptors",
    "aot_function",
    "aot_module",
    "aot_module_simplified",
    "compiled_function",
    "compiled_module",
    "default_decompositions",
    "default_partition",
    "get_all_input_and_grad_nodes",
    "get_all_output_and_tangent_nodes",
    "get_aot_compilation_context",
    "get_aot_graph_name",
    "get_buffer_nodes",
    "get_graph_being_compiled",
    "get_named_buffer_nodes",
    "get_named_param_nodes",
    "get_param_and_grad_nodes",
    "get_param_nodes",
    "get_plain_input_and_grad_nodes",
    "get_plain_output_and_tangent_nodes",
    "make_boxed_compiler",
    "make_boxed_func",
    "memory_efficient_fusion",
    "min_cut_rematerialization_partition",
    "nnc_jit",
    "nop",
    "print_compile",
    "ts_compile",
]

PreGradPasses = Callable[[fx.GraphModule, Sequence[Any]], fx.GraphModule]


def aot_function(
    fn: Callable[..., Any],
    fw_compiler: GraphCompiler,
    bw_compiler: GraphCompiler | None = None,
    partition_fn: PartitionFn = default_partition,
    decompositions: Decompositions | None = None,
    num_params_buffers: int = 0,
    keep_inference_input_mutations: bool = False,
    inference_compiler: GraphCompiler | None = None,
    *,
    dynamic: bool = False,
    enable_log: bool = True,
    disable_functionalization: bool = False,
    eager: Callable[..., Any] | None = None,
    fallback: str = "eager",
) -> Callable[..., Any]:
    """`fn` compiled ahead of time: traced when first called, its forward and backward given to the compilers.

    Each compiler takes a functional ATen graph module and its fake inputs and returns a callable. Inputs are called
    `primals_1` and so on, incoming gradients `tangents_1`, inputs of a graph without gradients `arg0_1`. A forward
    returns the inputs that it writes, the results in their order, what results are views of, and what it saves. A
    backward returns a gradient, or None, for each input of its forward. Calls with other shapes, strides, dtypes,
    constants, identities of arguments or ambient modes are traced again. With
    `dynamic=True` sizes and integers are symbols, and the call is traced again only when a guard on them fails. The
    first `num_params_buffers` arguments keep their sizes. With
    `keep_inference_input_mutations` a graph without gradients writes its inputs itself; else they are written after the
    graph. With `enable_log=False` nothing is printed and nothing is dumped. `eager` runs a call that cannot be
    compiled; by default `fn` does. `fallback` is the option of that name. With `disable_functionalization` a function
    that writes memory or has an ordered effect is one that cannot be compiled. The graphs of others are the same.

    Raises: OptionError for a `fallback` that does not exist; TypeError for decompositions that are no mapping; when
    called, the errors of `fn` as eager has them, and those of the caller's own decompositions.
    Source: the signature up to `disable_functionalization` is that of torch/_functorch/aot_autograd.py, torch 2.13.
    """
    given = Given(fw_compiler, bw_compiler, inference_compiler, partition_fn, decompositions)
    compilers = given.compilers(keep_inference_input_mutations)
    quiet: dict[str, object] = {} if enable_log else {"debug": 0, "dump": ""}
    options = Options.of({"fallback": fallback, **quiet}, None)
    recorded = refusing_writes(fn) if disable_functionalization else fn
    ahead = _AheadOfTime(recorded, eager or fn, compilers, num_params_buffers, dynamic, options)

    @functools.wraps(fn)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        if in_forward_mode() or in_batch():
            count_eager("a transform of torch.func is on", 1)
            return ahead.eager(*args, **kwargs)
        for straight in ahead.straight:
            result = straight(args, kwargs)
            if result is not MISS:
                return result
        return ahead.search(args, kwargs)

    return compiled


def aot_module(mod: nn.Module, fw_compiler: GraphCompiler, *args: Any, **kwargs: Any) -> nn.Module:
    """A module with the parameters and buffers of `mod` whose forward is compiled; the rest as `aot_function`.

    A buffer that the forward replaces is one more result of the graph, and replaced by it after each call.

    Raises: AssertionError for a parameter or buffer that is a fake tensor.
    Source: the signature is that of torch/_functorch/aot_autograd.py, torch 2.13.
    """

    assert_no_fake_params_or_buffers(mod)

    def functional(state: dict[str, Any], _: object, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return called_and_assigned(mod, state, inputs, keywords)

    def eager(_state: object, _: object, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return mod(*inputs, **keywords), {}

    kwargs["num_params_buffers"] = len(module_state(mod))
    compiled = aot_function(functional, fw_compiler, *args, eager=eager, **kwargs)

    class AOTModule(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.orig_module = mod

        def forward(self, *inputs: Any, **keywords: Any) -> Any:
            training = [each.training for each in mod.modules()]  # for another mode it is compiled anew
            results, assigned = compiled(module_state(mod), training, inputs, keywords)
            assign(mod, assigned)
            return results

        def __deepcopy__(self, memo: dict[int, Any]) -> nn.Module:
            return aot_module(copy.deepcopy(mod, memo), fw_compiler, *args, **kwargs)

    return AOTModule()


def aot_module_simplified(
    mod: nn.Module,
    args: Sequence[object],
    fw_compiler: GraphCompiler,
    bw_compiler: GraphCompiler | None = None,
    partition_fn: PartitionFn = default_partition,
    decompositions: Decompositions | None = None,
    keep_inference_input_mutations: bool = False,
    inference_compiler: GraphCompiler | None = None,
    compiler_config_extra: object = None,
    ignore_shape_env: bool = False,
    disable_functionalization: bool = False,
    pre_grad_passes: PreGradPasses | None = None,
    compile_region_name: str | None = None,
) -> Callable[..., Any]:
    """A module, compiled now for inputs like `args`.

    The result takes the same inputs as `mod`, which may be structures, and reads its parameters and buffers. It has
    `zero_grad`, `named_parameters` and `named_buffers` of `mod`. With `ignore_shape_env` the sizes of real tensors are
    numbers even where others are symbols. `pre_grad_passes(mod, args)` may rewrite a graph module before it is
    recorded. `compile_region_name` is part of the compile's name in what is printed and dumped. Torch's cache tells
    compiles apart by `compiler_config_extra`; nothing reads it here, as no cache keeps these graphs. A module that the
    compiler cannot take runs in eager, which is counted. All else is as for `aot_function`.

    Raises: InputMismatch when it is called with inputs of another dtype, device, shape or stride, and BrokenAssumption
    for others where torch's `debug_assert` is set; what the module raises when it is recorded.
    Source: the signature is that of torch/_functorch/aot_autograd.py, torch 2.13.
    """
    if pre_grad_passes is not None and isinstance(mod, fx.GraphModule):
        mod = pre_grad_passes(mod, args)
    given = Given(fw_compiler, bw_compiler, inference_compiler, partition_fn, decompositions)
    compilers, options = given.compilers(keep_inference_input_mutations), Options.of(None, None)
    failed: Unexpected | None = None
    try:
        made = ModuleAsCall.of(mod, args, is_fixed=ignore_shape_env)
        if disable_functionalization:
            made = replace(made, call=replace(made.call, function=refusing_writes(made.call.function)))
        forward = _simplified(made, args, compilers, Journal.open(options, compile_region_name))
    except Unexpected as reason:
        failed = reason
    except Unsupported as reason:
        forward = _given_back(mod, reason, options)
    if failed is not None:  # not raised above: each of the two errors would be the other's cause
        raise raised_by(failed)
    for name in ("zero_grad", "named_parameters", "named_buffers"):
        setattr(forward, name, getattr(mod, name))
    return forward


def _simplified(
    made: ModuleAsCall, args: Sequence[object], compilers: Compilers, journal: Journal
) -> Callable[..., Any]:
    names = numbered("primals", len(made.call.leaves))
    call = replace(made.call, names=names, holds_functions=True, shows_results=True)
    compiled = Recompiled.of(
        call.leaves,
        compile(call, compilers, journal),
        lambda: specialized(compile, call, compilers, True, journal.options),
    )
    values = [*made.state, *given_leaves(pytree.tree_leaves(tuple(args)), made.constants)]
    return made.function(asserting(compiled, values, len(made.state)))


def _given_back(mod: nn.Module, reason: Unsupported, options: Options) -> Callable[..., Any]:
    """A function that runs the module in eager, which is counted."""
    run, nodes = (in_eager(mod), nodes_of(mod)) if isinstance(mod, fx.GraphModule) else (mod, 1)
    found = give_back(run, reason, options.fallback, lambda said: count_eager(said, nodes))
    return lambda *args: found(*args)


def memory_efficient_fusion(fn: Callable[..., Any] | nn.Module, **kwargs: Any) -> Callable[..., Any]:
    """A function or module compiled by TorchScript, its backward computing again what a cheapest cut says.

    Keywords are those of `aot_function`, and take the place of the compilers, the partition function and the
    decompositions that are used otherwise.

    Raises: what `aot_function` does, or `aot_module` for a module.
    Source: the signature is that of torch/_functorch/compilers.py, torch 2.13.
    """
    settings: dict[str, Any] = {
        "fw_compiler": ts_compile,
        "bw_compiler": ts_compile,
        "partition_fn": min_cut_rematerialization_partition,
        "decompositions": default_decompositions,
        **kwargs,
    }
    return aot_module(fn, **settings) if isinstance(fn, nn.Module) else aot_function(fn, **settings)


def nnc_jit(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function compiled by TorchScript, forward and backward.

    Raises: when called, the errors of TorchScript for a graph that it cannot express, as one with symbolic sizes.
    Source: the signature is that of torch/_functorch/compilers.py, torch 2.13.
    """
    return aot_function(f, ts_compile)


compiled_function = aot_function
compiled_module = aot_module


@dataclass(frozen=True, slots=True)
class _Entry:
    """One compile: `guards` says whether it is valid for a call's tensors."""

    guards: Callable[[list[object]], bool]
    compiled: GraphCall
    unique: tuple[int, ...]
    spec: list[pytree.TreeSpec]


@dataclass(slots=True)
class _AheadOfTime:
    """A function and its compiles, by what a compile is valid for.

    A call like one that was made twice is known again by one straight-line function; `straight` are the last of them,
    `recent` what calls that needed the search were like. `refused` are those that are not compiled but run in eager.
    """

    fn: Callable[..., Any]
    eager: Callable[..., Any]
    compilers: Compilers
    num_params_buffers: int
    dynamic: bool
    options: Options
    entries: dict[object, list[_Entry]] = field(default_factory=dict)
    straight: tuple[StraightCall, ...] = ()
    refused: set[object] = field(default_factory=set)
    recent: deque[object] = field(default_factory=lambda: deque(maxlen=STRAIGHT_CALLS))

    def search(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call by the compile that serves it, which is made if there is none."""
        flat, spec = pytree.tree_flatten((args, kwargs))
        key = self._key(flat, spec, self.dynamic)
        alike = self._key(flat, spec, False) if self.dynamic else key
        for entry in self.entries.setdefault(key, []):
            if entry.guards(flat):
                self._straighten(entry, args, kwargs, alike)
                return self._run(entry, flat)
        if alike in self.refused:
            return self.eager(*args, **kwargs)
        try:
            entry = self._compile(flat, spec)
        except Unsupported as reason:
            run = give_back(self.eager, reason, self.options.fallback, lambda said: count_eager(said, 1))
            if run is self.eager:
                self.refused.add(alike)
            return run(*args, **kwargs)
        self.entries[key].append(entry)
        return self._run(entry, flat)

    def _straighten(self, entry: _Entry, args: tuple[Any, ...], kwargs: dict[str, Any], alike: object) -> None:
        """Before the call, as what it writes may change its arguments."""
        if alike not in self.recent:
            self.recent.append(alike)
            return
        self.recent.remove(alike)
        made = straight_call(args, kwargs, entry.compiled, entry.spec[0], self.dynamic)
        if made is not None:
            self.straight = (made, *self.straight[: STRAIGHT_CALLS - 1])

    def _run(self, entry: _Entry, flat: list[object]) -> Any:
        results = entry.compiled([flat[position] for position in entry.unique])
        return pytree.tree_unflatten(list(results), entry.spec[0])

    def _compile(self, flat: list[object], spec: pytree.TreeSpec) -> _Entry:
        """Records the call with each distinct tensor once, so that one tensor in two slots stays one tensor."""
        first: dict[int, int] = {}
        place: dict[int, int] = {}
        for position, value in enumerate(flat):
            if isinstance(value, torch.Tensor) or is_object(value):
                place[position] = first.setdefault(id(value), position)
            elif self.dynamic and type(value) is int:
                place[position] = position
        unique = tuple(dict.fromkeys(place.values()))
        others = [None if position in place else value for position, value in enumerate(flat)]  # holds no tensor
        out_spec: list[pytree.TreeSpec] = []

        def function(leaves: list[object]) -> Sequence[object]:
            given = dict(zip(unique, leaves, strict=True))
            filled = [given[place[n]] if n in place else value for n, value in enumerate(others)]
            args, kwargs = pytree.tree_unflatten(filled, spec)
            results, result_spec = pytree.tree_flatten(self.fn(*args, **kwargs))
            out_spec[:] = [result_spec]
            return results

        shape_env = ShapeEnv() if self.dynamic or any(map(_is_jagged, flat)) else None
        known = None if self.dynamic else fake_mode_of(flat)
        fake_mode = known or FakeTensorMode(shape_env=shape_env)
        values = [flat[position] for position in unique]
        roles = [self._role(index, value) for index, value in enumerate(values)]
        leaves = _leaves(roles, values, fake_mode, self.dynamic)
        names = numbered("primals", len(leaves))
        call = Call(function, leaves, fake_mode, constants=tuple(others), names=names)
        call = replace(call, holds_functions=True, shows_results=True)
        compiled = compile(call, self.compilers, Journal.open(self.options))
        guards = _guards(shape_env if self.dynamic else None, leaves, unique)
        try:
            guards(flat)
        except NameError as reason:
            raise Unsupported("the sizes of an input are not told by those of its inner tensors") from reason
        return _Entry(guards, compiled, unique, out_spec)

    def _key(self, flat: list[object], spec: pytree.TreeSpec, dynamic: bool) -> object:
        """What one compile is valid for: structure, constants, the tensors' metadata, ambient modes."""
        seen: dict[int, int] = {}
        parts: list[object] = [spec, Ambient.now()]
        ragged: dict[int, int] = {}
        for position, value in enumerate(flat):
            if isinstance(value, torch.Tensor):
                is_free = dynamic and position >= self.num_params_buffers and not _is_jagged(value)
                parts.append((seen.setdefault(id(value), position), *_metadata(value, is_free, ragged)))
            elif is_object(value):
                parts.append((seen.setdefault(id(value), position), kind_of_object(value)))
            elif dynamic and type(value) is int:
                parts.append(int)
            else:
                parts.append((type(value), _constant(value)))
        return tuple(parts)

    def _role(self, index: int, value: object) -> CallInput:
        return state_role(index, f"state_{index}", value) if index < self.num_params_buffers else UserInput(index)


def _leaves(
    roles: Sequence[CallInput], values: Sequence[object], fake_mode: FakeTensorMode, dynamic: bool
) -> tuple[CallLeaf, ...]:
    pairs = list(zip(roles, values, strict=True))
    return tuple(
        _symbolic_leaf(role, value, fake_mode, dynamic and not _is_jagged(value))
        if _is_jagged(value) or (dynamic and isinstance(role, UserInput))
        else fake_leaf(role, value, fake_mode, is_fixed=fake_mode.shape_env is not None)
        for role, value in pairs
    )


def _symbolic_leaf(role: CallInput, value: object, fake_mode: FakeTensorMode, is_free: bool) -> CallLeaf:
    """An input whose sizes are symbols; if it is not free, its ragged ones alone."""
    source = ConstantSource(f"input_{role.index}")
    if is_object(value):
        return fake_leaf(role, value, fake_mode)
    if not isinstance(value, torch.Tensor):
        assert isinstance(value, int) and fake_mode.shape_env is not None
        number = fake_mode.shape_env.create_unspecified_symint_and_symbol(value, source, DimDynamic.DYNAMIC)
        return CallLeaf(role, number, False, True)
    fake = fake_mode.from_tensor(value, source=source, symbolic_context=_symbols(value, source, is_free))
    return CallLeaf(role, fake, value.requires_grad, value.is_leaf, value.is_inference())


def _symbols(value: torch.Tensor, source: Source, is_free: bool) -> StatelessSymbolicContext:
    """Which sizes of a tensor are symbols, and of the inner tensors of a wrapper: all of a free one, or ragged ones."""
    kinds = [DimDynamic.DYNAMIC if is_free or is_ragged(size) else DimDynamic.STATIC for size in value.shape]
    sizes: dict[str, Any] = {"dynamic_sizes": kinds, "constraint_sizes": [None] * value.dim()}
    if value._base is not None and not is_free:
        sizes["view_base_context"] = _symbols(value._base, source, is_free)
    if not is_wrapper(value):
        return StatelessSymbolicContext(**sizes)
    named = {name: getattr(value, name) for name in Recipe.of(value).names}
    inner: dict[str, SymbolicContext] = {
        name: _symbols(each, AttrSource(source, name), is_free) for name, each in named.items()
    }
    return SubclassSymbolicContext(**sizes, tensor_source=source, inner_contexts=inner)


def _guards(
    shape_env: ShapeEnv | None, leaves: tuple[CallLeaf, ...], unique: tuple[int, ...]
) -> Callable[[list[object]], bool]:
    if shape_env is None:
        return lambda flat: True
    fakes = [each for leaf in leaves for each in _plain(leaf.fake)]

    def holds(flat: list[object]) -> bool:
        """Sizes that are numbers here, as those of one element are, are numbers in the graph."""
        given = [each for position in unique for each in _plain(flat[position])]
        return bool(shape_env.evaluate_guards_for_args(fakes, given, ignore_static=False))  # type: ignore[arg-type]

    return holds


def _plain(value: object) -> Iterator[object]:
    """A value, or the inner tensors of a wrapper."""
    yield from inner_tensors(value) if isinstance(value, torch.Tensor) else (value,)


def _constant(value: object) -> Hashable:
    """What tells a constant from others of its type; of a float also the sign of its zero."""
    return value.hex() if isinstance(value, float) else value


def _is_jagged(value: object) -> bool:
    """Whether a tensor has rows of lengths of their own. Each of its other sizes is a number, even among symbols."""
    return isinstance(value, torch.Tensor) and value.layout is torch.jagged


def _metadata(value: torch.Tensor, dynamic: bool, ragged: dict[int, int]) -> tuple[object, ...]:
    """What tells tensors apart. `ragged` numbers the ragged sizes of a call, of which only equality counts."""
    shape: Sequence[Any] = value.shape
    sizes = (ragged.setdefault(each.node.nested_int(), -1 - len(ragged)) if is_ragged(each) else each for each in shape)
    layout = (value.dim(),) if dynamic else (*sizes, value.stride() if value.layout is torch.strided else ())
    kind = (type(value), value.dtype, value.device, value.is_conj(), value.is_neg())
    facts = (*layout, *kind, value.requires_grad, is_leaf(value), value.is_inference())
    if not is_wrapper(value):
        return facts
    recipe = Recipe.of(value)
    inner = (_metadata(getattr(value, name), dynamic, ragged) for name in recipe.names)
    return (*facts, recipe.key(), *inner)
