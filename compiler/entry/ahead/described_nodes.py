"""The nodes of a joint graph by what they are for, as their descriptors say it.

    get_named_param_nodes(graph)           {"head.weight": primals_1}
    get_param_and_grad_nodes(graph)        {ParamAOTInput("head.weight"): (primals_1, mm_1)}

Source: the names are those of torch/_functorch/_aot_autograd/fx_utils.py, torch 2.13, which knows its own descriptors.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from assay.compiler.entry.ahead import descriptors as known

Pair = tuple[fx.Node, fx.Node | None]


def get_all_input_and_grad_nodes(g: fx.Graph) -> dict[known.DifferentiableAOTInput, Pair]:
    """Each input that may have a gradient, with the node of its gradient or None; tangents are among them."""
    gradients = {desc.grad_of: node for desc, node in _outputs(g) if isinstance(desc, known.GradAOTOutput)}
    inputs = ((desc, node) for desc, node in _inputs(g) if isinstance(desc, known.DifferentiableAOTInput))
    return {desc: (node, gradients.get(desc)) for desc, node in inputs}


def get_all_output_and_tangent_nodes(g: fx.Graph) -> dict[known.DifferentiableAOTOutput, Pair]:
    """Each output that may have a tangent, with the node of its tangent or None; gradients are among them."""
    tangents = {desc.output: node for desc, node in _inputs(g) if isinstance(desc, known.TangentAOTInput)}
    outputs = ((desc, node) for desc, node in _outputs(g) if isinstance(desc, known.DifferentiableAOTOutput))
    return {desc: (node, tangents.get(desc)) for desc, node in outputs}


def get_param_and_grad_nodes(graph: fx.Graph) -> dict[known.ParamAOTInput, Pair]:
    """Each parameter, with the node of its gradient or None."""
    found = get_all_input_and_grad_nodes(graph).items()
    return {desc: pair for desc, pair in found if isinstance(desc, known.ParamAOTInput)}


def get_plain_input_and_grad_nodes(graph: fx.Graph) -> dict[known.PlainAOTInput, Pair]:
    """Each argument, with the node of its gradient or None."""
    found = get_all_input_and_grad_nodes(graph).items()
    return {desc: pair for desc, pair in found if isinstance(desc, known.PlainAOTInput)}


def get_plain_output_and_tangent_nodes(graph: fx.Graph) -> dict[known.PlainAOTOutput, Pair]:
    """Each result, with the node of its tangent or None."""
    found = get_all_output_and_tangent_nodes(graph).items()
    return {desc: pair for desc, pair in found if isinstance(desc, known.PlainAOTOutput)}


def get_named_param_nodes(graph: fx.Graph) -> dict[str, fx.Node]:
    """The placeholder of each parameter, by its name in the module."""
    return {desc.target: node for desc, node in _inputs(graph) if isinstance(desc, known.ParamAOTInput)}


def get_named_buffer_nodes(graph: fx.Graph) -> dict[str, fx.Node]:
    """The placeholder of each buffer, by its name in the module."""
    return {desc.target: node for desc, node in _inputs(graph) if isinstance(desc, known.BufferAOTInput)}


def get_param_nodes(graph: fx.Graph) -> list[fx.Node]:
    """The placeholders of the parameters, in their order."""
    return list(get_named_param_nodes(graph).values())


def get_buffer_nodes(graph: fx.Graph) -> list[fx.Node]:
    """The placeholders of the buffers, in their order."""
    return list(get_named_buffer_nodes(graph).values())


def _inputs(graph: fx.Graph) -> Iterator[tuple[known.AOTInput, fx.Node]]:
    for node in graph.find_nodes(op="placeholder"):
        yield node.meta["desc"], node


def _outputs(graph: fx.Graph) -> Iterator[tuple[known.AOTOutput, fx.Node]]:
    """The outputs that are nodes; a gradient that there is none of, or a constant, is not."""
    (output,) = graph.find_nodes(op="output")
    for desc, node in zip(output.meta["desc"], output.args[0], strict=True):
        if isinstance(node, fx.Node):
            yield desc, node
