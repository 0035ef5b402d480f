"""Partition functions: a joint graph module into forward and backward modules, in torch's calling form.

partition_fn(joint, (primals, tangents), num_fwd_outputs=1, static_lifetime_input_indices=[0])
    joint      (primals_1, primals_2, tangents_1) -> (result, gradient of primals_1, None)
    forward    (primals_1, primals_2) -> (result, saved...)
    backward   (saved..., tangents_1) -> (gradient of primals_1, None)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from torch import fx

from assay.compiler.autograd.partition import Split, default_split
from assay.compiler.autograd.rematerialization.rematerialize import cheapest_split
from assay.compiler.entry.ahead.given_sizes import take_given_sizes
from assay.compiler.entry.ahead.graph_names import HALF, JOINT, compiling, print_as
from assay.compiler.entry.ahead.joint_graph import paired
from assay.compiler.entry.ahead.region_halves import CONFIGURED, SplitRegion, divide_regions, draws
from assay.compiler.errors import OptionError
from assay.compiler.ir.graph.materialize import set_returned
from assay.compiler.ir.graph.roles import (
    Buffer,
    Gradient,
    InputRole,
    Parameter,
    Program,
    Saved,
    Signature,
    Tangent,
    UserInput,
    UserOutput,
)
from assay.compiler.passes.eliminate_common_subexpressions import eliminate_common_subexpressions

PartitionFn = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]
RECOMPUTABLE = ("inductor", "nvfuser")
"""The names that torch has for sets of operators that are computed again. The cheapest cut weighs each by its cost."""


def default_partition(
    joint_module: fx.GraphModule,
    _joint_inputs: object,
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: list[int] | None = None,
    static_lifetime_input_nodes: object = None,
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """A joint graph into forward and backward modules; forward also returns what backward reads.

    Placeholders whose name begins with `tangents` are the incoming gradients; the first `num_fwd_outputs` outputs
    belong to forward, the others are gradients or None. Backward takes the saved values, then the tangents. Inputs that
    outlive the call are told by `static_lifetime_...`. Saving an input takes no memory either way, so the split is the
    same with them.

    Source: the calling convention is that of torch/_functorch/partitioners.py, torch 2.13.
    """
    return _modules(default_split(_joint_program(joint_module, num_fwd_outputs)))


def min_cut_rematerialization_partition(
    joint_module: fx.GraphModule,
    _joint_inputs: object,
    compiler: str = "inductor",
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: list[int] | None = None,
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """As `default_partition`, but backward computes again what costs less so than to keep; a cheapest cut decides.

    `compiler` is a name that torch has for a set of operators. The cut weighs every operator by its own cost instead,
    so each of the names gives the same cut.

    Raises: OptionError for a `compiler` that torch does not have.
    Source: the calling convention is that of torch/_functorch/partitioners.py, torch 2.13.
    """
    if compiler not in RECOMPUTABLE:
        raise OptionError(f"assay: compiler is {compiler!r}; it takes one of {', '.join(RECOMPUTABLE)}")
    return _modules(_cheapest(_joint_program(joint_module, num_fwd_outputs)))


PARTITIONERS: dict[str, PartitionFn] = {
    "default_partition": default_partition,
    "min_cut_rematerialization_partition": min_cut_rematerialization_partition,
}
"""The partition functions that a region may name."""


def split_by(partition_fn: PartitionFn, compile_id: int) -> Callable[[Program], Split]:
    """A partition function as ours. A user's is called in torch's form, the graph's name being that of a joint graph.

    Raises: OptionError, by the result, where the function returns graphs that are not the halves of the joint one.
    """
    own = {default_partition: default_split, min_cut_rematerialization_partition: _cheapest}

    def run(joint: Program) -> Split:
        take_given_sizes(joint)
        divide_regions(joint, functools.partial(_split_of, partition_fn))
        if partition_fn in own:
            return own[partition_fn](joint)
        with compiling(compile_id, "joint"):
            return _split(joint, partition_fn)

    return run


def partition_asked(config: object) -> PartitionFn | None:
    """The partition function that a region's user asks for, by itself or by its name; None where he asks for none.

    Raises: OptionError for a name that torch does not have.
    """
    asked = getattr(config, "partitioner", None)
    if isinstance(asked, str) and asked not in PARTITIONERS:
        raise OptionError(f"assay: partitioner is {asked!r}; it takes one of {', '.join(PARTITIONERS)}")
    return PARTITIONERS[asked] if isinstance(asked, str) else asked


def divide_drawing_regions(joint: Program) -> Program:
    """Splits the regions of an exported joint graph that draw random numbers, as their backward would draw others."""
    divide_regions(joint, functools.partial(_split_of, default_partition), draws)
    return joint


def _split_of(partition_fn: PartitionFn, call: fx.Node) -> SplitRegion:
    """How a region is split, by its call: as its user asks, or else by this partition function."""
    asked = partition_asked(call.meta.get("custom", {}).get(CONFIGURED)) or partition_fn
    return lambda joint, results: asked(joint, [], num_fwd_outputs=results, static_lifetime_input_indices=[])


def _cheapest(joint: Program) -> Split:
    """The cheapest cut, of a graph in which equal calls are one: forward's formulas are backward's too."""
    eliminate_common_subexpressions(joint)
    return cheapest_split(joint)


def _modules(halves: Split) -> tuple[fx.GraphModule, fx.GraphModule]:
    for half in (halves.forward, halves.backward):
        set_returned(half.module, half.returned)  # a tuple, as callers of the modules get it
        print_as(half.module, HALF).recompile()
    return halves.forward.module, halves.backward.module


def _joint_program(joint_module: fx.GraphModule, num_fwd_outputs: int) -> Program:
    """A joint graph module with the roles that its names and the order of its outputs tell."""
    inputs: list[InputRole] = []
    for node in joint_module.graph.find_nodes(op="placeholder"):
        number = sum(isinstance(role, Tangent) for role in inputs)
        is_tangent = node.name.startswith("tangents")
        inputs.append(Tangent(UserOutput(number)) if is_tangent else UserInput(len(inputs)))
    returned = next(iter(reversed(joint_module.graph.nodes))).args[0]
    outputs = tuple(
        UserOutput(index) if index < num_fwd_outputs else Gradient(UserInput(index - num_fwd_outputs))
        for index, _ in enumerate(returned)
    )
    return Program(joint_module, Signature(tuple(inputs), outputs))


def _split(joint: Program, partition_fn: PartitionFn) -> Split:
    signature = joint.signature
    roles = list(zip(signature.inputs, joint.placeholders, strict=True))
    primals = [role for role, _ in roles if not isinstance(role, Tangent)]
    tangents = {node.name: role for role, node in roles if isinstance(role, Tangent)}
    examples = (
        [node.meta["val"] for role, node in roles if not isinstance(role, Tangent)],
        [node.meta["val"] for role, node in roles if isinstance(role, Tangent)],
    )
    kept = tuple(role for role in signature.outputs if not isinstance(role, Gradient))
    known = joint.values
    forward, backward = partition_fn(
        print_as(paired(joint), JOINT),
        examples,
        num_fwd_outputs=len(kept),
        static_lifetime_input_indices=[i for i, role in enumerate(primals) if isinstance(role, (Parameter, Buffer))],
    )
    _fill_values((forward, backward), known)
    saved = tuple(Saved(node.name) for node in _returned(forward)[len(kept) :] if isinstance(node, fx.Node))
    _check_halves(forward, backward, primals, len(kept) + len(saved))
    inputs = _backward_inputs(Program(backward, signature), saved, tangents)
    gradients = _keep_gradients(backward, signature, primals)
    forward_signature = replace(signature, inputs=tuple(primals), outputs=(*kept, *saved))
    return Split(Program(forward, forward_signature), Program(backward, Signature(inputs, gradients)))


def _returned(module: fx.GraphModule) -> Sequence[object]:
    returned: Sequence[object] = next(iter(reversed(module.graph.nodes))).args[0]
    return returned


def _fill_values(modules: Sequence[fx.GraphModule], known: dict[str, object]) -> None:
    """Gives nodes the values of those of their names in the joint graph, where a partition function copied none."""
    for module in modules:
        for node in module.graph.nodes:
            if "val" not in node.meta and node.name in known:
                node.meta["val"] = known[node.name]


def _check_halves(
    forward: fx.GraphModule, backward: fx.GraphModule, primals: Sequence[InputRole], outputs: int
) -> None:
    counts = {
        "a forward that takes {} inputs": (len(forward.graph.find_nodes(op="placeholder")), len(primals)),
        "a forward that returns {} nodes": (len(_returned(forward)), outputs),
        "a backward that returns {} gradients": (len(_returned(backward)), len(primals)),
    }
    for said, (found, wanted) in counts.items():
        if found != wanted:
            raise OptionError(f"assay: partition_fn returns {said.format(found)}; they are {wanted}")


def _backward_inputs(
    backward: Program, saved: Sequence[Saved], tangents: Mapping[str, InputRole]
) -> tuple[InputRole, ...]:
    """What backward takes, by the names of its placeholders.

    Raises: OptionError for a placeholder that is neither a tangent nor a value that forward returns.
    """
    names = [node.name for node in backward.placeholders]
    unknown = [name for name in names if name not in tangents and Saved(name) not in saved]
    if unknown:
        raise OptionError(
            f"assay: partition_fn returns a backward that takes {unknown[0]}, which forward does not give"
        )
    return tuple(tangents.get(name) or Saved(name) for name in names)


def _keep_gradients(
    backward: fx.GraphModule, signature: Signature, primals: Sequence[InputRole]
) -> tuple[Gradient, ...]:
    """Has backward return only the gradients that there are, in the order of the joint graph's outputs."""
    gradients = tuple(role for role in signature.outputs if isinstance(role, Gradient))
    given = dict(zip(primals, _returned(backward), strict=True))
    set_returned(backward, [given[role.of] for role in gradients])  # type: ignore[misc]
    backward.recompile()
    return gradients
