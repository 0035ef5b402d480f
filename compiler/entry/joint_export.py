"""Front door for joint graphs that somebody changes between their export and their compile.

with ExitStack() as stack:
    joint = aot_export_joint_with_descriptors(stack, module, args)
    rewrite(joint.graph_module)     # placeholders and output say by `meta["desc"]` what they are
    f = aot_compile_joint_with_descriptors(joint, fw_compiler=compiler)
f(*parameters, *buffers, *args)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from assay.compiler.assembly.compilers import Compilers
from assay.compiler.assembly.halves import graphs_of, halve
from assay.compiler.assembly.linking import link, load_call, specialized
from assay.compiler.autograd.joint import differentiate
from assay.compiler.capture.examples import fill_values
from assay.compiler.capture.functionalize import capture
from assay.compiler.capture.inputs import Call
from assay.compiler.entry.ahead.descriptors import AOTOutput, described_input, described_output
from assay.compiler.entry.ahead.given_compilers import Given
from assay.compiler.entry.ahead.graph_compilers import GraphCompiler, nop
from assay.compiler.entry.ahead.joint_graph import (
    is_of_backward,
    name_placeholders,
    numbered,
    numbered_as_joint,
    paired,
)
from assay.compiler.entry.ahead.module_places import places_noted
from assay.compiler.entry.ahead.partition_functions import PartitionFn, default_partition, divide_drawing_regions
from assay.compiler.entry.ahead.tokens import (
    TokenNames,
    check_effects_outside,
    with_tokens,
    with_tokens_of_both,
    without_tokens,
)
from assay.compiler.entry.ahead.unwritten import refusing_writes
from assay.compiler.entry.module_as_call import IS_GIVEN, ModuleAsCall, given_leaves, module_state
from assay.compiler.entry.recompile import Recompiled
from assay.compiler.errors import InputMismatch, OptionError, Unsupported
from assay.compiler.ir.graph.captured import Captured
from assay.compiler.ir.graph.given_decompositions import given_decompositions
from assay.compiler.ir.graph.materialize import set_returned
from assay.compiler.ir.graph.roles import Gradient, GraphCall, Program, Signature, Tangent, Token
from assay.compiler.journal import Journal
from assay.compiler.options import Options
from assay.compiler.passes.runner import optimize, written
from assay.compiler.pipeline import compile
from assay.compiler.torch_compat import Decompositions


@dataclass
class JointWithDescriptors:
    """A joint graph and what its compile needs. `graph_module` may be changed, or another one put in its place.

    `params_spec` and `buffers_spec` name the tensors that the compiled function takes first, in this order.
    `constants` are those leaves of its arguments that are no inputs of the graph.
    """

    graph_module: fx.GraphModule
    params_spec: list[str]
    buffers_spec: list[str]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    captured: Captured = field(repr=False)
    call: Call = field(repr=False)
    constants: tuple[object, ...] = field(repr=False)
    signature: Signature = field(repr=False)
    decompositions: Decompositions = field(repr=False)
    keeps_writes: bool = field(repr=False)

    @property
    def fake_mode(self) -> FakeTensorMode:
        return self.call.fake_mode

    def cache_hash(self) -> str:
        """A text that tells this graph from others."""
        return hashlib.sha256(f"{self.graph_module.code}{self.signature}".encode()).hexdigest()


def aot_export_joint_with_descriptors(
    stack: ExitStack,
    mod: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    decompositions: Decompositions | None = None,
    keep_inference_input_mutations: bool = False,
    ignore_shape_env: bool = False,
    disable_functionalization: bool = False,
    _record_nn_module_stack: bool = False,
    _disable_torch_fn_metadata_mode: bool = False,
) -> JointWithDescriptors:
    """The joint graph of a module, whose inputs and outputs say by descriptors what they are.

    It is called as `graph(primals, tangents)` and returns what forward does, then a gradient or None for each primal.
    Without gradients it is called with its inputs. A result that is a view of an input is no output of the graph: the
    call takes the view. Effects have tokens, those of forward in front and those of backward behind. The compiled
    function takes none. Nothing has to stay open, so nothing is entered on the `stack`. With
    `_record_nn_module_stack` nodes know the modules that they come from. No mode notes torch's functions, so that there
    is none for `_disable_torch_fn_metadata_mode` to switch off.

    Raises: Unsupported for a program that the compiler cannot take; with `disable_functionalization=True` for one that
    writes memory or has an ordered effect, while the graphs of others are the same.
    Source: signature and calling convention are those of torch/_functorch/aot_autograd.py, torch 2.13.
    """
    made = ModuleAsCall.of(mod, args, is_fixed=ignore_shape_env, keywords=kwargs or {})
    call = replace(made.call, names=numbered("primals", len(made.call.leaves)), holds_functions=True)
    if disable_functionalization:
        call = replace(call, function=refusing_writes(call.function))
    with places_noted(mod) if _record_nn_module_stack else nullcontext():
        captured = capture(call, given_decompositions(decompositions))
    program = divide_drawing_regions(differentiate(captured)) if captured.needs_gradient else captured.finish()
    state = module_state(mod)
    params = [name for name, value in state.items() if isinstance(value, nn.Parameter)]
    program = _with_tokens(program)
    return JointWithDescriptors(
        _described(program),
        params,
        [name for name in state if name not in params],
        pytree.tree_structure(([*state.values(), *args], kwargs or {})),
        made.structure[0],
        captured,
        replace(call, function=_not_again),
        ((IS_GIVEN,) * len(state) + made.constants),
        program.signature,
        decompositions or {},
        keep_inference_input_mutations,
    )


def aot_compile_joint_with_descriptors(
    jd: JointWithDescriptors,
    *,
    partition_fn: PartitionFn = default_partition,
    fw_compiler: GraphCompiler = nop,
    bw_compiler: GraphCompiler | None = nop,
    serializable: bool = False,
) -> Callable[..., Any]:
    """A joint graph compiled, as a function of the parameters, the buffers and the arguments.

    Raises: OptionError for `serializable=True`, and for a graph with other numbers of inputs or outputs than were
    exported; when called, InputMismatch for inputs of another structure, dtype, device, shape or stride; Unsupported
    for what only the module itself would tell, as gradients of gradients.
    Source: signature and calling convention are those of torch/_functorch/aot_autograd.py, torch 2.13.
    """
    if serializable:
        raise OptionError.refused("serializable")
    options = Options.of(None, None)
    compilers = Given(fw_compiler, bw_compiler, None, partition_fn, jd.decompositions).compilers(jd.keeps_writes)
    run = _compiled(jd, compilers, Journal.open(options))
    again = specialized(compile, jd.call, compilers, True, options)
    checked = Recompiled.of(jd.call.leaves, run, lambda: again)

    def compiled(*args: Any, **kwargs: Any) -> Any:
        named = {name: kwargs[name] for name in jd.in_spec.children()[1].context if name in kwargs}
        flat, spec = pytree.tree_flatten((list(args), named | kwargs))
        if spec != jd.in_spec:
            raise InputMismatch(f"the inputs are {spec} where the graph was exported for {jd.in_spec}")
        return pytree.tree_unflatten(list(checked(list(given_leaves(flat, jd.constants)))), jd.out_spec)

    return compiled


def _compiled(jd: JointWithDescriptors, compilers: Compilers, journal: Journal) -> GraphCall:
    program = optimize(_program_of(jd), compilers.passes, journal, "joint")
    if jd.captured.needs_gradient:
        split = compilers.partition(program)
        halves = halve(jd.captured, jd.call, compilers, journal, lambda *_: split)
        linked, graphs = halves.linked, graphs_of(halves, compilers)
    else:
        program = written(program, compilers.write, journal)
        linked, graphs = link(program, jd.call), {"graph": compilers.inference(program)}
    return load_call(linked, graphs, specialized(compile, jd.call, compilers, True, journal.options), journal)


def _with_tokens(program: Program) -> Program:
    """The program with tokens for its effects. Raises: ExportError for an effect in a function, as in a branch."""
    check_effects_outside(program)
    is_joint = any(isinstance(role, Tangent) for role in program.signature.inputs)
    return numbered_as_joint(with_tokens_of_both(program)) if is_joint else with_tokens(program, TokenNames())


def _described(program: Program) -> fx.GraphModule:
    """The program as a graph module in torch's calling form, with descriptors."""
    signature = program.signature
    is_joint = any(isinstance(role, Tangent) for role in signature.inputs)
    for role, node in zip(signature.inputs, program.placeholders, strict=True):
        node.meta["desc"] = described_input(role, signature)
    outputs: list[AOTOutput | None] = [
        described_output(role, signature) for role in signature.outputs if not is_of_backward(role)
    ]
    if is_joint:
        ends = [role for role in signature.outputs if is_of_backward(role)]
        found: dict[object, AOTOutput] = {
            role.of: described_output(role, signature) for role in ends if isinstance(role, Gradient)
        }
        primals = [role for role in signature.inputs if not is_of_backward(role) and not isinstance(role, Token)]
        outputs += [found.get(role) for role in primals]
        outputs += [described_output(role, signature) for role in ends if isinstance(role, Token)]
        module = paired(program)
    else:
        name_placeholders(program, [f"arg{index}_1" for index, _ in enumerate(program.placeholders)])
        module = program.module
    next(iter(reversed(module.graph.nodes))).meta["desc"] = outputs
    return fx.GraphModule(module, module.graph, class_name="inner_f")  # by which torch prints it


def _program_of(jd: JointWithDescriptors) -> Program:
    """The graph of whoever has it, as the program that it was exported from.

    Raises: OptionError for a graph with other numbers of inputs or outputs.
    """
    tokened = Program(without_tokens(jd.graph_module), jd.signature)
    returned, nodes = list(tokened.returned), tokened.placeholders
    roles = [role for role in jd.signature.outputs if not is_of_backward(role)]
    primals = [role for role in jd.signature.inputs if not is_of_backward(role)]
    others = [role for role in primals if not isinstance(role, Token)]
    ends = [role for role in jd.signature.outputs if is_of_backward(role) and isinstance(role, Token)]
    kept, gradients = len(roles), len(others) if len(primals) < len(jd.signature.inputs) else 0
    counts = {"inputs": (len(nodes), len(jd.signature.inputs))}
    counts["outputs"] = (len(returned), kept + gradients + len(ends))
    for what, (found, wanted) in counts.items():
        if found != wanted:
            raise OptionError(f"assay: the joint graph has {found} {what}; {wanted} were exported")
    by_primal = dict(zip(others, returned[kept:], strict=False))
    values = [value for role, value in zip(roles, returned, strict=False) if not isinstance(role, Token)]
    values += [by_primal[role.of] for role in jd.signature.outputs if isinstance(role, Gradient)]
    program = Program(tokened.module, _without_tokens(jd.signature))
    set_returned(program.module, values)
    for role, node in zip(jd.signature.inputs, nodes, strict=True):
        if isinstance(role, Token):
            program.module.graph.erase_node(node)
    fill_values(program, [node.meta["val"] for node in program.placeholders])
    program.module.recompile()
    return program


def _without_tokens(signature: Signature) -> Signature:
    inputs = tuple(role for role in signature.inputs if not isinstance(role, Token))
    return replace(signature, inputs=inputs, outputs=tuple(r for r in signature.outputs if not isinstance(r, Token)))


def _not_again(_: list[object]) -> Sequence[object]:
    """Raises: Unsupported: the graph may no longer be what the module computes."""
    raise Unsupported(
        "a joint graph that was exported is not recorded again: it takes no inputs that overlap, no other modes, and "
        "has no gradients of gradients; compile the module itself for these"
    )
