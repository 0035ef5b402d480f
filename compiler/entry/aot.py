"""Front door for functions and modules: `aot_function`, `aot_module`, `aot_module_simplified`, `default_partition`.

The caller brings the graph compilers; capture, autograd and the calling convention are ours.
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
from assay.compiler.autograd.partition import Split, default_split
from assay.compiler.capture.ambient import Ambient, in_forward_mode
from assay.compiler.capture.inputs import Call, CallLeaf, fake_leaf, fake_mode_of
from assay.compiler.capture.module_state import call_with_state
from assay.compiler.codegen.call.border import bordered
from assay.compiler.entry.recompile import Recompiled
from assay.compiler.entry.straight_call import MISS, StraightCall, straight_call
from assay.compiler.errors import ExportError, Unsupported
from assay.compiler.fallback import give_back
from assay.compiler.ir.graph.roles import (
    Buffer,
    CallInput,
    Gradient,
    GraphCall,
    Parameter,
    Program,
    Saved,
    Signature,
    Tangent,
    UserInput,
    UserOutput,
)
from assay.compiler.ir.graph.trace import with_text
from assay.compiler.ir.tensors.overlap import is_leaf
from assay.compiler.ir.tensors.wrappers import Recipe, inner_tensors, is_wrapper
from assay.compiler.journal import Journal, count_eager
from assay.compiler.options import Options
from assay.compiler.pipeline import compile
from assay.compiler.runtime.call import in_batch
from assay.compiler.torch_compat import Decompositions

STRAIGHT_CALLS = 4
"""How many straight calls one function tries before it searches."""

GraphCompiler = Callable[[fx.GraphModule, Sequence[object]], Callable[..., Any]]
PartitionFn = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


def make_boxed_func(f: Callable[..., Any]) -> GraphCall:
    """`f(*args)` as a function of one list of arguments, which it empties so that they can be freed early.

    Source: the convention is that of torch/_functorch/_aot_autograd/utils.py, torch 2.13.
    """

    def boxed(args: list[object]) -> Sequence[object]:
        taken = list(args)
        args.clear()
        return f(*taken)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def default_partition(
    joint_module: fx.GraphModule, _joint_inputs: object, *, num_fwd_outputs: int, **_unused: object
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """A joint graph into forward and backward modules; forward also returns what backward reads.

    Placeholders whose name begins with `tangents` are the incoming gradients; the first `num_fwd_outputs` outputs
    belong to forward, the others are gradients or None. Backward takes the saved values, then the tangents.

    Source: the calling convention is that of torch/_functorch/partitioners.py, torch 2.13.
    """
    placeholders = [node for node in joint_module.graph.nodes if node.op == "placeholder"]
    tangents = iter(range(len(placeholders)))
    inputs = tuple(
        Tangent(UserOutput(next(tangents))) if node.name.startswith("tangents") else UserInput(index)
        for index, node in enumerate(placeholders)
    )
    returned = next(iter(reversed(joint_module.graph.nodes))).args[0]
    outputs = tuple(
        UserOutput(index) if index < num_fwd_outputs else Gradient(UserInput(index - num_fwd_outputs))
        for index, _ in enumerate(returned)
    )
    split = default_split(Program(joint_module, Signature(inputs, outputs)))
    return split.forward.module, split.backward.module


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
    eager: Callable[..., Any] | None = None,
    fallback: str = "eager",
) -> Callable[..., Any]:
    """`fn` compiled ahead of time: traced when first called, its forward and backward given to the compilers.

    Each compiler takes a functional ATen graph module and its fake inputs and returns a callable. Calls with other
    shapes, strides, dtypes, constants, identities of arguments or ambient modes are traced again; with `dynamic=True`
    sizes are symbols and are traced again only when a guard on them fails. `keep_inference_input_mutations` is taken
    for callers that pass it: writes of inputs are always made after the graph. `eager` runs a call that cannot be
    compiled; by default `fn` does. `fallback` is the option of that name.

    Raises: OptionError for a `fallback` that does not exist; when called, the errors of `fn` as eager has them.
    Source: the signature up to `dynamic` is that of torch/_functorch/aot_autograd.py, torch 2.13.
    """
    compilers = _compilers(fw_compiler, bw_compiler, inference_compiler, partition_fn, decompositions)
    ahead = _AheadOfTime(
        fn, eager or fn, compilers, num_params_buffers, dynamic, Options.of({"fallback": fallback}, None)
    )

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

    Source: the signature is that of torch/_functorch/aot_autograd.py, torch 2.13.
    """

    def functional(state: dict[str, Any], _: object, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return _called(mod, state, inputs, keywords)

    def eager(_state: object, _: object, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return mod(*inputs, **keywords)

    kwargs["num_params_buffers"] = len(_state(mod))
    compiled = aot_function(functional, fw_compiler, *args, eager=eager, **kwargs)

    class AOTModule(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.orig_module = mod

        def forward(self, *inputs: Any, **keywords: Any) -> Any:
            training = [each.training for each in mod.modules()]  # for another mode it is compiled anew
            return compiled(_state(mod), training, inputs, keywords)

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
) -> Callable[..., Any]:
    """A module whose forward takes and returns flat tensors, compiled now for inputs like `args`.

    The result takes the same inputs as `mod`, without its parameters and buffers.

    Raises: InputMismatch when it is called with inputs of another dtype, device, shape or stride.
    Source: the signature is that of torch/_functorch/aot_autograd.py, torch 2.13.
    """
    named = _state(mod)
    roles = [_named_role(index, name, value) for index, (name, value) in enumerate(named.items())]
    leaves = [*named.values(), *args]

    out_spec: list[pytree.TreeSpec] = []

    def function(flat: list[object]) -> Sequence[object]:
        state = dict(zip(named, flat, strict=False))
        results, spec = pytree.tree_flatten(_called(mod, state, tuple(flat[len(named) :]), {}))
        out_spec[:] = [spec]
        return results

    fake_mode = fake_mode_of(leaves) or FakeTensorMode()
    inputs = [*roles, *(UserInput(index) for index in range(len(named), len(leaves)))]
    call = Call(function, _leaves(inputs, leaves, fake_mode, False), fake_mode)
    compilers = _compilers(fw_compiler, bw_compiler, inference_compiler, partition_fn, decompositions)
    options = Options.of(None, None)
    compiled = Recompiled.of(
        call.leaves,
        compile(call, compilers, Journal.open(options)),
        lambda: specialized(compile, call, compilers, True, options),
    )

    def forward(*runtime_args: object) -> Any:
        return pytree.tree_unflatten(list(compiled([*named.values(), *runtime_args])), out_spec[0])

    return forward


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
        key = _key(flat, spec, self.dynamic)
        alike = _key(flat, spec, False) if self.dynamic else key
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
        made = straight_call(args, kwargs, entry.compiled, entry.spec[0])
        if made is not None:
            self.straight = (made, *self.straight[: STRAIGHT_CALLS - 1])

    def _run(self, entry: _Entry, flat: list[object]) -> Any:
        results = entry.compiled([flat[position] for position in entry.unique])
        return pytree.tree_unflatten(list(results), entry.spec[0])

    def _compile(self, flat: list[object], spec: pytree.TreeSpec) -> _Entry:
        """Records the call with each distinct tensor once, so that one tensor in two slots stays one tensor."""
        tensors = [position for position, value in enumerate(flat) if isinstance(value, torch.Tensor)]
        first: dict[int, int] = {}
        for position in tensors:
            first.setdefault(id(flat[position]), position)
        unique = tuple(first.values())
        place = {position: first[id(flat[position])] for position in tensors}
        others = [None if position in place else value for position, value in enumerate(flat)]  # holds no tensor
        out_spec: list[pytree.TreeSpec] = []

        def function(leaves: list[object]) -> Sequence[object]:
            given = dict(zip(unique, leaves, strict=True))
            filled = [given[place[n]] if n in place else value for n, value in enumerate(others)]
            args, kwargs = pytree.tree_unflatten(filled, spec)
            results, result_spec = pytree.tree_flatten(self.fn(*args, **kwargs))
            out_spec[:] = [result_spec]
            return results

        shape_env = ShapeEnv() if self.dynamic else None
        known = None if self.dynamic else fake_mode_of(flat)
        fake_mode = known or FakeTensorMode(shape_env=shape_env)
        values = [flat[position] for position in unique]
        roles = [self._role(index, value) for index, value in enumerate(values)]
        leaves = _leaves(roles, values, fake_mode, self.dynamic)
        call = Call(function, leaves, fake_mode, constants=tuple(others))
        compiled = compile(call, self.compilers, Journal.open(self.options))
        guards = _guards(shape_env, leaves, unique)
        try:
            guards(flat)
        except NameError as reason:
            raise Unsupported("the sizes of an input are not told by those of its inner tensors") from reason
        return _Entry(guards, compiled, unique, out_spec)

    def _role(self, index: int, value: object) -> CallInput:
        return _named_role(index, f"state_{index}", value) if index < self.num_params_buffers else UserInput(index)


def _called(mod: nn.Module, state: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a module returns with this state. Raises: Unsupported where it assigns what nothing outside learns of."""
    try:
        return call_with_state(mod, state, args, kwargs)
    except ExportError as reason:
        raise Unsupported(str(reason)) from reason


def _state(mod: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(mod.named_parameters()), **dict(mod.named_buffers())}


def _named_role(index: int, name: str, value: object) -> CallInput:
    return Parameter(index, name) if isinstance(value, nn.Parameter) else Buffer(index, name)


def _leaves(
    roles: Sequence[CallInput], values: Sequence[object], fake_mode: FakeTensorMode, dynamic: bool
) -> tuple[CallLeaf, ...]:
    pairs = list(zip(roles, values, strict=True))
    if not dynamic:
        return tuple(fake_leaf(role, value, fake_mode) for role, value in pairs)
    return tuple(_symbolic_leaf(role, value, fake_mode) for role, value in pairs)  # type: ignore[arg-type]


def _symbolic_leaf(role: CallInput, value: torch.Tensor, fake_mode: FakeTensorMode) -> CallLeaf:
    source = ConstantSource(f"input_{role.index}")
    fake = fake_mode.from_tensor(value, source=source, symbolic_context=_all_dynamic(value, source))
    return CallLeaf(role, fake, value.requires_grad, value.is_leaf, value.is_inference())


def _all_dynamic(value: torch.Tensor, source: Source) -> StatelessSymbolicContext:
    """That all sizes of a tensor are symbols, and those of the inner tensors of a wrapper."""
    sizes: dict[str, Any] = {"dynamic_sizes": [DimDynamic.DYNAMIC] * value.dim()}
    sizes["constraint_sizes"] = [None] * value.dim()
    if not is_wrapper(value):
        return StatelessSymbolicContext(**sizes)
    named = {name: getattr(value, name) for name in Recipe.of(value).names}
    inner: dict[str, SymbolicContext] = {n: _all_dynamic(each, AttrSource(source, n)) for n, each in named.items()}
    return SubclassSymbolicContext(**sizes, tensor_source=source, inner_contexts=inner)


def _guards(
    shape_env: ShapeEnv | None, leaves: tuple[CallLeaf, ...], unique: tuple[int, ...]
) -> Callable[[list[object]], bool]:
    if shape_env is None:
        return lambda flat: True
    fakes = [each for leaf in leaves for each in _plain(leaf.fake)]

    def holds(flat: list[object]) -> bool:
        given = [each for position in unique for each in _plain(flat[position])]
        return bool(shape_env.evaluate_guards_for_args(fakes, given))  # type: ignore[arg-type]

    return holds


def _plain(value: object) -> Iterator[object]:
    """A value, or the inner tensors of a wrapper."""
    yield from inner_tensors(value) if isinstance(value, torch.Tensor) else (value,)


def _key(flat: list[object], spec: pytree.TreeSpec, dynamic: bool) -> object:
    """What one compile is valid for: structure, constants, the tensors' metadata, ambient modes."""
    seen: dict[int, int] = {}
    parts: list[object] = [spec, Ambient.now()]
    for position, value in enumerate(flat):
        if isinstance(value, torch.Tensor):
            parts.append((seen.setdefault(id(value), position), *_metadata(value, dynamic)))
        else:
            parts.append((type(value), _constant(value)))
    return tuple(parts)


def _constant(value: object) -> Hashable:
    """What tells a constant from others of its type; of a float also the sign of its zero."""
    return value.hex() if isinstance(value, float) else value


def _metadata(value: torch.Tensor, dynamic: bool) -> tuple[object, ...]:
    layout = (value.dim(),) if dynamic else (value.shape, value.stride() if value.layout is torch.strided else ())
    kind = (type(value), value.dtype, value.device, value.is_conj(), value.is_neg())
    facts = (*layout, *kind, value.requires_grad, is_leaf(value), value.is_inference())
    if not is_wrapper(value):
        return facts
    recipe = Recipe.of(value)
    inner = (_metadata(getattr(value, name), dynamic) for name in recipe.names)
    return (*facts, recipe.key(), *inner)


def _compilers(
    forward: GraphCompiler,
    backward: GraphCompiler | None,
    inference: GraphCompiler | None,
    partition_fn: PartitionFn,
    decompositions: Decompositions | None,
) -> Compilers:
    """The caller's graph compilers as ours: by the usual convention, forward's serves where another is not given."""
    partition = default_split if partition_fn is default_partition else _split_by(partition_fn)
    return Compilers(
        _builder(forward),
        _builder(backward or forward),
        _builder(inference or forward),
        partition,
        decompositions if decompositions is not None else {},
    )


def _builder(compiler: GraphCompiler) -> Callable[[Program], GraphCall]:
    def build_graph(program: Program) -> GraphCall:
        built = compiler(with_text(program.module), [node.meta.get("val") for node in program.placeholders])
        return built if getattr(built, "_boxed_call", False) else make_boxed_func(built)

    return bordered(build_graph)


def _split_by(partition_fn: PartitionFn) -> Callable[[Program], Split]:
    """A user's partitioner, which knows inputs by the names `primals_i` and `tangents_i` and outputs by position."""

    def run(joint: Program) -> Split:
        signature = joint.signature
        _rename_placeholders(joint)
        kept = tuple(role for role in signature.outputs if not isinstance(role, Gradient))
        examples = [node.meta["val"] for node in joint.placeholders]
        forward, backward = partition_fn(joint.module, examples, num_fwd_outputs=len(kept))
        returned = Program(forward, signature).returned[len(kept) :]
        saved = tuple(Saved(node.name) for node in returned)  # type: ignore[union-attr]
        tangents = {f"tangents_{i + 1}": r for i, r in enumerate(r for r in signature.inputs if isinstance(r, Tangent))}
        taken = Program(backward, signature).placeholders
        inputs = tuple(tangents.get(node.name) or Saved(node.name) for node in taken)
        primals = tuple(role for role in signature.inputs if not isinstance(role, Tangent))
        gradients = tuple(role for role in signature.outputs if isinstance(role, Gradient))
        forward_signature = replace(signature, inputs=primals, outputs=(*kept, *saved))
        return Split(Program(forward, forward_signature), Program(backward, Signature(inputs, gradients)))

    return run


def _rename_placeholders(joint: Program) -> None:
    counts = {"primals": 0, "tangents": 0}
    for role, node in zip(joint.signature.inputs, joint.placeholders, strict=True):
        kind = "tangents" if isinstance(role, Tangent) else "primals"
        counts[kind] += 1
        node.name = node.target = f"{kind}_{counts[kind]}"
    joint.module.recompile()
