"""Front door for export: `aot_export_module` and `aot_export_joint_simple`, and the signature object of the first.

    module, args  ->  graph(*parameters, *buffers, *inputs) -> (*mutations, *outputs, *gradients)

The graph is functional: what the module writes is returned, and whoever runs the graph writes it back. Everything that
this convention cannot say is banned with an `ExportError` that names the input or the output.
"""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx, nn
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from assay.compiler import FOLDER
from assay.compiler.autograd.joint import differentiate
from assay.compiler.capture.functionalize import capture
from assay.compiler.capture.inputs import Call, CallLeaf, fake_leaf, fake_mode_of
from assay.compiler.capture.module_state import call_with_state
from assay.compiler.entry.ahead.descriptors import InputMutationAOTOutput, PlainAOTInput, PlainAOTOutput
from assay.compiler.entry.ahead.graph_names import JOINT, WHOLE, print_as
from assay.compiler.entry.ahead.joint_graph import name_placeholders, numbered_as_joint, paired
from assay.compiler.entry.ahead.module_places import places_noted
from assay.compiler.entry.ahead.partition_functions import divide_drawing_regions
from assay.compiler.entry.ahead.tokens import (
    TokenNames,
    check_effects_outside,
    unlifted,
    with_tokens,
    with_tokens_of_both,
)
from assay.compiler.entry.graph_as_call import run_module
from assay.compiler.errors import ExportError, Unsupported
from assay.compiler.ir.graph.captured import Captured
from assay.compiler.ir.graph.given_decompositions import given_decompositions
from assay.compiler.ir.graph.materialize import materialize
from assay.compiler.ir.graph.roles import (
    Buffer,
    CallInput,
    Gradient,
    GradMode,
    InputRole,
    Mutation,
    OutputRole,
    Parameter,
    Program,
    Replaced,
    Resized,
    Shared,
    Tangent,
    Token,
    UserInput,
    UserOutput,
)
from assay.compiler.ir.tensors.layout.overlap import overlaps
from assay.compiler.ir.tensors.mutating_operators import functional_elem
from assay.compiler.ir.tensors.wrappers import is_wrapper
from assay.compiler.ir.typed_nodes import node_argument
from assay.compiler.torch_compat import Decompositions

aten = torch.ops.aten
SEED: dict[str, Any] = {"pin_memory": False, "memory_format": torch.preserve_format}
"""How torch calls for the gradient of the loss, a one that lies as the loss does."""


@dataclass
class BackwardSignature:
    """Which outputs of an exported joint graph are gradients, and which is the loss that they are of."""

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


@dataclass
class GraphSignature:
    """What each input and output of an exported graph is, by the names of their nodes and of the module's state.

    An output that is a constant has no node: its name is None. A graph takes and returns a token for each kind of
    effect of its calls. Whoever renames nodes, or adds inputs, may change the signature too.
    """

    parameters: list[str]
    buffers: list[str]
    user_inputs: list[str]
    user_outputs: list[str | None]
    inputs_to_parameters: dict[str, str]
    inputs_to_buffers: dict[str, str]
    buffers_to_mutate: dict[str, str]
    parameters_to_mutate: dict[str, str]
    user_inputs_to_mutate: dict[str, str]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    backward_signature: BackwardSignature | None
    input_tokens: list[str]
    output_tokens: list[str]


def aot_export_module(
    mod: nn.Module,
    args: Iterable[Any],
    *,
    decompositions: Decompositions | None = None,
    trace_joint: bool,
    output_loss_index: int | None = None,
    pre_dispatch: bool = False,
    dynamic_shapes: bool | None = None,
    kwargs: dict[str, Any] | None = None,
) -> tuple[fx.GraphModule, GraphSignature]:
    """`graph(*parameters, *buffers, *inputs) -> (*mutations, *outputs, *gradients)`, functional, and its signature.

    Calls with effects are in their order: a token for each kind of effect comes first, as an input and as an output.

    With `trace_joint` the gradients are those of the output `output_loss_index`, a loss of one element; every
    parameter and input that requires grad has one. A parameter with several names is an input by each of them, and its
    gradient is the sum of theirs. Without it the module is recorded under no_grad, or, with
    `pre_dispatch`, above autograd: composite operators stay whole, and switches of gradients and of autocast are calls
    of the graph. Sizes are symbols when `args` are fake tensors of a mode with a ShapeEnv, or with
    `dynamic_shapes=True`; parameters and buffers keep theirs. A buffer that the module replaces by assignment counts as
    written.

    Shapes: those of the module's parameters, buffers, inputs and outputs; a gradient has its parameter's or input's.
    Raises: ExportError for what the graph cannot say; the module's own errors as they are.
    Source: signature and calling convention are those of torch/_functorch/aot_autograd.py, torch 2.13.
    """
    if pre_dispatch and trace_joint:
        raise ExportError.because("pre_dispatch")
    args, kwargs = tuple(args), kwargs or {}
    inputs = _inputs_of_module(mod, args, kwargs)
    names = [role.name for role in inputs.roles if not isinstance(role, UserInput)]
    spec: list[pytree.TreeSpec] = []

    def function(leaves: list[object]) -> list[object]:
        arguments, keywords = pytree.tree_unflatten(leaves[len(names) :], inputs.spec)
        state = dict(zip(names, leaves, strict=False))
        with places_noted(mod):
            results, out_spec = pytree.tree_flatten(call_with_state(mod, state, arguments, keywords, run_module))
        spec[:] = [out_spec]
        return _with_loss(results, output_loss_index) if trace_joint else results

    kind = _Kind(trace_joint, pre_dispatch)
    captured = _captured(function, inputs, _fake_mode(mod, inputs, dynamic_shapes), decompositions, kind)
    _check_effects(inputs, captured, kind)
    program = _self_contained(captured, trace_joint)
    loss = UserOutput(output_loss_index or 0) if trace_joint else None
    if loss is not None:
        _check_gradients(inputs, captured, program)
        program = _seeded(program, loss)
    check_effects_outside(program)
    program = with_tokens(program, TokenNames())
    _name_arguments(program)
    if not trace_joint:
        _describe(program)
    program = unlifted(program)
    in_spec = pytree.tree_structure(((*inputs.values[: len(names)], *args), kwargs))
    return print_as(program.module, WHOLE), _signature(program, in_spec, spec[0], loss)


def aot_export_joint_simple(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    trace_joint: bool,
    num_params_buffers: int = 0,
    decompositions: Decompositions | None = None,
) -> fx.GraphModule:
    """`func` as a functional graph that is called as `func` is, or, with gradients, as `graph(args, tangents)`.

    With `trace_joint` and a result that requires grad the graph returns `(results, gradients)`: it takes a tangent for
    each result that requires grad, and returns a gradient, or None, for each argument. The first `num_params_buffers`
    arguments keep their sizes where those of the others are symbols.

    Effects have tokens: of forward in front of the arguments and of the results, of backward behind the tangents and
    the gradients.

    Shapes: those of the arguments and results; a tangent has its result's, a gradient its argument's.
    Raises: ExportError where the graph would need another calling convention than `func` has: nested arguments or
    results, a written argument, a result that shares an argument's memory.
    Source: signature and calling convention are those of torch/_functorch/aot_autograd.py, torch 2.13.
    """
    inputs = _inputs_of_function(func, args, num_params_buffers)

    def function(leaves: list[object]) -> list[object]:
        returned = func(*leaves)
        _check_flat(returned)
        _check_aliases(inputs, leaves, returned)
        return [_own(value) for value in returned] if trace_joint else list(returned)

    captured = _captured(function, inputs, _fake_mode(func, inputs, None), decompositions, _Kind(trace_joint, False))
    groups = overlaps(inputs.values, versions=False)
    for role in captured.signature.outputs:
        if isinstance(role, Mutation):
            _check_write(inputs, role.of.index, groups, trace_joint)
            raise ExportError.because("written", input=inputs.label(role.of))
    with_gradients = trace_joint and captured.needs_gradient
    program = _self_contained(captured, with_gradients)
    check_effects_outside(program)
    if with_gradients:
        return print_as(paired(numbered_as_joint(with_tokens_of_both(program))), JOINT)
    program = with_tokens(program, TokenNames())
    _name_arguments(program)
    return print_as(program.module, WHOLE)


def _describe(program: Program) -> None:
    """Notes at inputs and outputs what they are, as torch does beside them where it prints a graph without gradients.

    Every input counts, those of the module too. Tokens have no descriptors, nor then has anything else.
    """
    signature, nodes = program.signature, program.placeholders
    if any(isinstance(role, Token) for role in signature.inputs):
        return
    for index, node in enumerate(nodes):
        node.meta["desc"] = PlainAOTInput(index)
    place = {role: index for index, role in enumerate(signature.inputs)}
    next(iter(reversed(program.module.graph.nodes))).meta["desc"] = [
        InputMutationAOTOutput(PlainAOTInput(place[role.of])) if isinstance(role, Mutation) else _plain(role)
        for role in signature.outputs
    ]


def _plain(role: OutputRole) -> PlainAOTOutput:
    assert isinstance(role, UserOutput)
    return PlainAOTOutput(role.index)


def _name_arguments(program: Program) -> None:
    name_placeholders(program, [f"arg{index}_1" for index, _ in enumerate(program.placeholders)])


@dataclass(frozen=True, slots=True)
class _Kind:
    """Whether an export has gradients, and whether it is recorded above autograd."""

    joint: bool
    pre_dispatch: bool


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The flat inputs of an export: what each is, its value, and what messages call it.

    `spec` is the structure of the user's own arguments, `(args, kwargs)`.
    """

    roles: tuple[CallInput, ...]
    values: tuple[object, ...]
    labels: tuple[str, ...]
    spec: pytree.TreeSpec

    def label(self, role: CallInput | Shared) -> str:
        return self.labels[role.index]


def _inputs_of_module(mod: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Inputs:
    parameters = dict(mod.named_parameters(remove_duplicate=False))
    buffers = dict(mod.named_buffers(remove_duplicate=False))
    state = {**parameters, **buffers}
    roles = [(Parameter if name in parameters else Buffer)(index, name) for index, name in enumerate(state)]
    labels = [f"{'parameter' if name in parameters else 'buffer'} {name!r}" for name in state]
    user = list(_user_inputs(mod.forward, args, kwargs))
    return _Inputs(
        (*roles, *(UserInput(len(state) + index) for index, _ in enumerate(user))),
        (*state.values(), *(value for value, _ in user)),
        (*labels, *(label for _, label in user)),
        pytree.tree_structure((args, kwargs)),
    )


def _inputs_of_function(func: Callable[..., Any], args: tuple[Any, ...], state: int) -> _Inputs:
    """Raises: ExportError for arguments that are no flat tuple or list."""
    if not isinstance(args, (tuple, list)):
        raise ExportError.because("nested_inputs", what="args", found=type(args).__name__)
    for index, arg in enumerate(args):
        if not pytree.tree_is_leaf(arg):
            raise ExportError.because("nested_inputs", what=f"args[{index}]", found=type(arg).__name__)
    user = list(_user_inputs(func, tuple(args), {}))
    roles = tuple(Buffer(i, f"state_{i}") if i < state else UserInput(i) for i, _ in enumerate(user))
    return _Inputs(roles, tuple(args), tuple(label for _, label in user), pytree.tree_structure((args, {})))


def _user_inputs(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[object, str]]:
    """Each leaf of the arguments, with what messages call it: where it is, and the parameter that it is given for."""
    positional = _positional(forward)
    for path, value in pytree.tree_flatten_with_path((args, kwargs))[0]:
        kind, *inner = path
        text = pytree.keystr(tuple(inner))
        if kind == pytree.SequenceKey(1):
            yield value, f"input kwargs{text}"
            continue
        position = inner[0].idx  # type: ignore[attr-defined]
        name = positional[position] if position < len(positional) else f"args_{position}"
        yield value, f"input args{text} ({name})"


def _positional(forward: Callable[..., Any]) -> list[str]:
    """The names of the positional parameters; none where Python does not know them."""
    try:
        parameters = inspect.signature(forward).parameters.values()
    except ValueError:
        return []
    return [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]


def _fake_mode(target: object, inputs: _Inputs, dynamic_shapes: bool | None) -> FakeTensorMode:
    """The mode of the inputs that are fake already, or of a graph module's own values; else Dynamo's; else a new one.
    Dynamo's knows of each size whether it is a symbol."""
    nodes = target.graph.nodes if isinstance(target, fx.GraphModule) else ()
    known = fake_mode_of([*inputs.values, *(node.meta.get("val") for node in nodes)])
    context = TracingContext.try_get()
    recording = None if context is None else context.fake_mode
    return known or recording or FakeTensorMode(shape_env=ShapeEnv() if dynamic_shapes else None)


def _fake(role: CallInput, value: object, mode: FakeTensorMode) -> CallLeaf:
    """What is no tensor is an input of the graph that nothing reads: the graph is valid for this value of it."""
    if not isinstance(value, torch.Tensor):
        return fake_leaf(role, value, mode)
    fixed = mode.shape_env is not None and not isinstance(role, UserInput)
    if fixed and type(value) in (torch.Tensor, nn.Parameter):
        return CallLeaf(role, mode.from_tensor(value, static_shapes=True), value.requires_grad, value.is_leaf)
    if isinstance(value, FakeTensor) and value.fake_mode is not mode:
        return CallLeaf(role, mode.from_tensor(value), value.requires_grad, value.is_leaf)
    return fake_leaf(role, value, mode)


def _captured(
    function: Callable[[list[object]], list[object]],
    inputs: _Inputs,
    mode: FakeTensorMode,
    decompositions: Decompositions | None,
    kind: _Kind,
) -> Captured:
    """The function, recorded. An error of its own is raised as it is: there is no eager call to raise it instead."""

    def watched(leaves: list[object]) -> list[object]:
        _check_plain(leaves)
        before = [_metadata(leaf) for leaf in leaves]
        results = function(leaves)
        _check_plain(results)
        _check_metadata(inputs, before, [_metadata(leaf) for leaf in leaves])
        return results

    leaves = tuple(_fake(role, value, mode) for role, value in zip(inputs.roles, inputs.values, strict=True))
    without_gradients = nullcontext() if kind.joint or kind.pre_dispatch else torch.no_grad()
    with _refused_by_name(), without_gradients:
        call = Call(watched, leaves, mode, holds_functions=True, shows_results=True)
        return capture(call, given_decompositions(decompositions), kind.pre_dispatch, keeps_lines=True)


@contextmanager
def _refused_by_name() -> Iterator[None]:
    """Raises: ExportError in the place of Unsupported, with the line of the user's; an error of the module's as it
    is."""
    try:
        yield
    except ExportError:
        raise
    except Unsupported as error:
        cause = error.__cause__
        if cause is not None and not isinstance(cause, Unsupported) and not _is_of_recording(cause):
            raise cause from None
        raise ExportError.because("unsupported", reason=error, place=_place(cause or error)) from error


def _check_plain(values: Iterable[object]) -> None:
    for value in filter(is_wrapper, values):
        raise Unsupported(f"a {type(value).__name__} has inner tensors, and an exported graph has plain ones")


def _is_of_recording(error: BaseException) -> bool:
    """Whether torch's own recording raised an error, of which the module knows nothing."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, (AssertionError, NotImplementedError)) and any(
        part in frames[-1].filename
        for part in ("/_subclasses/", "/fx/experimental/", "/_higher_order_ops/", "/torch/_ops.py")
    )


def _place(error: BaseException) -> str:
    """The line of the user's at which an error came up."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if _is_of_users(each.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "a line that is not known"


def _is_of_users(filename: str) -> bool:
    """Whether a file is neither torch's nor ours nor Python's own, nor the text of a graph."""
    own = (os.path.dirname(torch.__file__), str(FOLDER))
    is_pythons = filename.startswith(os.path.dirname(os.__file__)) and "site-packages" not in filename
    return os.path.exists(filename) and not filename.startswith(own) and not is_pythons


def _metadata(value: object) -> dict[str, object]:
    """What an exported graph cannot change of a tensor. That it is asked here is not the program's doing."""
    if not isinstance(value, torch.Tensor):
        return {}
    with torch._C.DisableTorchFunction():
        return _metadata_of(value)


def _metadata_of(value: torch.Tensor) -> dict[str, object]:
    layout = {"shape": tuple(value.shape), "strides": value.stride(), "offset": value.storage_offset()}
    replaced = torch._functionalize_was_storage_changed(functional_elem(value))
    storage = (value.untyped_storage()._cdata, replaced)
    return {**layout, "storage": storage, "requires_grad": value.requires_grad}


def _check_metadata(inputs: _Inputs, before: list[dict[str, object]], after: list[dict[str, object]]) -> None:
    for label, old, new in zip(inputs.labels, before, after, strict=True):
        for what in old:
            if what == "storage" and old[what] != new[what]:
                raise ExportError.because("storage", input=label)
            if old[what] != new[what]:
                raise ExportError.because("metadata", input=label, what=what, old=old[what], new=new[what])


def _check_effects(inputs: _Inputs, captured: Captured, kind: _Kind) -> None:
    """Raises: ExportError for a write that reaches more than the input itself, for a storage that is sized anew, and
    for a mode that is left changed."""
    for effect in captured.signature.effects:
        if isinstance(effect, Resized | Replaced):
            raise ExportError.because("storage", input=inputs.labels[effect.of.index])
    groups = overlaps(inputs.values, versions=False)
    for role in captured.signature.outputs:
        if isinstance(role, Mutation):
            _check_write(inputs, role.of.index, groups, kind.joint)
    for effect in captured.signature.effects:
        if isinstance(effect, GradMode) and not kind.pre_dispatch:
            raise ExportError.because("grad_mode", state="on" if effect.enabled else "off")


def _check_write(inputs: _Inputs, written: int, groups: Iterable[tuple[int, ...]], trace_joint: bool) -> None:
    value, label = inputs.values[written], inputs.labels[written]
    if trace_joint and value.requires_grad:  # type: ignore[attr-defined]
        raise ExportError.because("written_gradient", input=label)
    for group in groups:
        if written in group:
            other = next(position for position in group if position != written)
            ban = "duplicate" if inputs.values[other] is value else "overlap"
            raise ExportError.because(ban, input=label, other=inputs.labels[other])


def _check_flat(returned: object) -> None:
    if not isinstance(returned, (tuple, list)):
        found = "one tensor" if isinstance(returned, torch.Tensor) else f"a {type(returned).__name__}"
        raise ExportError.because("nested_results", found=found)
    for index, value in enumerate(returned):
        if not pytree.tree_is_leaf(value):
            raise ExportError.because("nested_results", found=f"a {type(value).__name__} as output {index}")


def _storage_of(value: torch.Tensor) -> int:
    """The storage of a tensor, asked for by us and not by the program."""
    with torch._C.DisableTorchFunction():
        return value.untyped_storage()._cdata


def _check_aliases(inputs: _Inputs, leaves: Sequence[object], returned: Sequence[object]) -> None:
    owners = {
        _storage_of(leaf): label
        for leaf, label in zip(leaves, inputs.labels, strict=True)
        if isinstance(leaf, torch.Tensor)
    }
    for index, value in enumerate(returned):
        if isinstance(value, torch.Tensor) and (owner := owners.get(_storage_of(value))):
            raise ExportError.because("aliased_result", index=index, input=owner)


def _with_loss(results: list[object], index: int | None) -> list[object]:
    """The results, the loss as an output of its own. Raises: ExportError unless exactly it can be differentiated."""
    if index is None:
        raise ExportError.because("no_loss_index", count=len(results))
    if not 0 <= index < len(results):
        raise ExportError.because("loss_index", index=index, count=len(results))
    for other, value in enumerate(results):
        if other != index and isinstance(value, torch.Tensor) and value.requires_grad:
            raise ExportError.because("other_gradient", index=other, loss=index)
    loss = results[index]
    if not isinstance(loss, torch.Tensor):
        raise ExportError.because("loss_not_tensor", index=index, found=type(loss).__name__)
    if not loss.requires_grad:
        raise ExportError.because("loss_without_gradient", index=index)
    if loss.numel() != 1:
        raise ExportError.because("loss_not_scalar", index=index, shape=tuple(loss.shape))
    return [*results[:index], _own(loss), *results[index + 1 :]]


def _own(value: object) -> object:
    """A differentiable result as a tensor that aliases nothing, so that a tangent is of it and not of its base."""
    return value.clone() if isinstance(value, torch.Tensor) and value.requires_grad else value


def _self_contained(captured: Captured, with_gradients: bool) -> Program:
    """The program with every result among its outputs, less the copies that `_own` made. Raises: ExportError for what
    only the finished graph tells, as that it reads a view that leaves its tensor."""
    with _refused_by_name():
        program = divide_drawing_regions(differentiate(captured)) if with_gradients else captured.finish()
        program = materialize(program)
    if with_gradients:
        for role, node in zip(program.signature.outputs, program.returned, strict=True):
            if role not in program.signature.differentiable or not isinstance(node, torch.fx.Node):
                continue
            if node.target is aten.clone.default:
                node.replace_all_uses_with(node_argument(node, 0))
                program.module.graph.erase_node(node)
    program.module.recompile()
    return program


def _check_gradients(inputs: _Inputs, captured: Captured, program: Program) -> None:
    """Raises: ExportError for an input without a gradient. Of the names of one tensor one has to have it."""
    given = {role.of for role in program.signature.outputs if isinstance(role, Gradient)}
    tensors = {id(inputs.values[role.index]) for role in given if not isinstance(role, Shared)}
    for role in captured.leaves:
        if role not in given and id(inputs.values[role.index]) not in tensors:
            raise ExportError.because("no_gradient", input=inputs.label(role))


def _seeded(program: Program, loss: UserOutput) -> Program:
    """The joint graph with a one in place of the loss's tangent."""
    graph = program.module.graph
    inputs = dict(zip(program.signature.inputs, program.placeholders, strict=True))
    tangent = inputs.pop(Tangent(loss))
    value = dict(zip(program.signature.outputs, program.returned, strict=True))[loss]
    reader = next(node for node in graph.nodes if tangent in node.all_input_nodes)
    with graph.inserting_before(reader):
        seed = graph.create_node("call_function", aten.ones_like.default, (value,), SEED, "ones_like")
    seed.meta["val"] = tangent.meta["val"]
    tangent.replace_all_uses_with(seed)
    graph.erase_node(tangent)
    return Program(program.module, replace(program.signature, inputs=tuple(inputs)))


def _signature(
    program: Program, in_spec: pytree.TreeSpec, out_spec: pytree.TreeSpec, loss: UserOutput | None
) -> GraphSignature:
    """The roles of a program, said by name."""
    inputs = {role: node.name for role, node in zip(program.signature.inputs, program.placeholders, strict=True)}
    values = zip(program.signature.outputs, program.returned, strict=True)
    outputs: dict[object, Any] = {role: getattr(node, "name", None) for role, node in values}
    parameters = {name: role.name for role, name in inputs.items() if isinstance(role, Parameter)}
    buffers = {name: role.name for role, name in inputs.items() if isinstance(role, Buffer)}
    return GraphSignature(
        parameters=list(parameters.values()),
        buffers=list(buffers.values()),
        user_inputs=[name for role, name in inputs.items() if isinstance(role, UserInput)],
        user_outputs=[name for role, name in outputs.items() if isinstance(role, UserOutput)],
        inputs_to_parameters=parameters,
        inputs_to_buffers=buffers,
        buffers_to_mutate=_named(outputs, Mutation, Buffer, inputs),
        parameters_to_mutate=_named(outputs, Mutation, Parameter, inputs),
        user_inputs_to_mutate=_named(outputs, Mutation, UserInput, inputs),
        in_spec=in_spec,
        out_spec=out_spec,
        backward_signature=None if loss is None else _backward_signature(inputs, outputs, loss),
        input_tokens=[name for role, name in inputs.items() if isinstance(role, Token)],
        output_tokens=[name for role, name in outputs.items() if isinstance(role, Token)],
    )


def _backward_signature(
    inputs: dict[InputRole, str], outputs: dict[object, Any], loss: UserOutput
) -> BackwardSignature:
    to_parameters = _named(outputs, Gradient, Parameter, inputs)
    to_buffers = _named(outputs, Gradient, Buffer, inputs)
    return BackwardSignature(
        {**to_parameters, **to_buffers}, _named(outputs, Gradient, UserInput, inputs), outputs[loss]
    )


def _named(
    outputs: dict[object, Any], kind: type[Mutation | Gradient], of: type[CallInput], inputs: dict[InputRole, str]
) -> dict[str, str]:
    """The outputs of one kind, by node name: the name in the module of what they belong to, or its placeholder's."""
    return {
        name: getattr(role.of, "name", None) or inputs[role.of]
        for role, name in outputs.items()
        if isinstance(role, kind) and isinstance(role.of, of)
    }
