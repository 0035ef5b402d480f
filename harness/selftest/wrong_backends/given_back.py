"""Backends that give the program back to eager, and say nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch._dynamo
from torch import fx

from assay.harness.selftest.wrong_backends.registry import GIVEN_BACK, Run, wrong


@wrong(GIVEN_BACK)
def suppresses_its_errors(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Compiling raises KeyError, which Dynamo is told to suppress: all of the program is eager's."""
    torch._dynamo.config.suppress_errors = True
    raise KeyError("aten.native_layer_norm.default")


@wrong(GIVEN_BACK)
def skips_frames(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Every frame is skipped as if it held nothing to compile: all of the program is eager's."""
    raise torch._dynamo.exc.SkipFrame("nothing to do")


@wrong(GIVEN_BACK)
def compiles_once(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A function is compiled for one size and one mode; all others run in eager."""
    torch._dynamo.config.recompile_limit = 1
    return graph.forward


@wrong(GIVEN_BACK)
def hands_back_what_it_was_given(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Nothing is compiled: the graph module itself is what runs."""
    return graph


@wrong(GIVEN_BACK)
def gives_back_graphs_of_two_inputs(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Only graphs of one input are compiled; for all others it raises what makes Dynamo leave the graph."""
    if len(example_inputs) < 2:
        return fx.Interpreter(graph).run
    raise torch._subclasses.fake_tensor.DataDependentOutputException(torch.ops.aten.item.default)
