"""Front door for FX graphs: `torch.compile(f, backend="assay")`, `compile_fx` and `compile_fx_inner`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import fx
from torch._guards import TracingContext, detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode

from compiler.capture.decompositions import DECOMPOSITIONS
from compiler.capture.inputs import Call, check_inputs, fake_leaf, overlapping
from compiler.errors import Unsupported
from compiler.ir.roles import Buffer, CallInput, Parameter, Program, Signature, UserInput, UserOutput
from compiler.journal import Journal, count_eager
from compiler.options import Options
from compiler.pipeline import Compilers, GraphCall, build, compile, target_of

Compiled = Callable[..., Sequence[object]]


def assay(
    gm: fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> Compiled:
    """The backend that `torch.compile(f, backend="assay", options=..., mode=...)` calls.

    Raises: OptionError for an option or a mode that does not exist.
    """
    return compile_graph(gm, example_inputs, Options.of(options, mode))


def compile_fx(
    model_: fx.GraphModule,
    example_inputs_: Sequence[object],
    inner_compile: Callable[..., GraphCall] | None = None,
    config_patches: Mapping[str, object] | None = None,
) -> Compiled:
    """A graph module of any torch calls, compiled for inputs like `example_inputs_`.

    `inner_compile(graph, fake_inputs)` builds each functional graph; by default `compile_fx_inner`.
    """
    options = Options.of(config_patches, None)

    def build_inner(program: Program) -> GraphCall:
        if inner_compile is None:
            return build(program, options, journal)
        return inner_compile(program.module, [node.meta["val"] for node in program.placeholders])

    journal = Journal.open(options)
    call = _call(model_, example_inputs_)
    run = compile(call, Compilers(build_inner, build_inner, build_inner), journal)
    fakes = [leaf.fake for leaf in call.leaves]

    def checked(*args: object) -> Sequence[object]:
        check_inputs(fakes, args)
        return run(list(args))

    return checked


def compile_fx_inner(
    gm: fx.GraphModule, example_inputs: Sequence[object], *, options: Options | None = None
) -> GraphCall:
    """A functional ATen graph, built: the result takes one list of inputs, which it empties."""
    options = options or Options.of(None, None)
    inputs = tuple(UserInput(index) for index, _ in enumerate(example_inputs))
    returned = next(iter(reversed(gm.graph.nodes))).args[0]
    program = Program(gm, Signature(inputs, tuple(UserOutput(index) for index, _ in enumerate(returned))))  # type: ignore[arg-type]
    run = build(program, options, Journal.open(options))
    fakes = [node.meta["val"] for node in program.placeholders]

    def checked(args: list[object]) -> Sequence[object]:
        check_inputs(fakes, args)
        return run(args)

    checked._boxed_call = True  # type: ignore[attr-defined]
    return checked


def compile_graph(gm: fx.GraphModule, example_inputs: Sequence[object], options: Options) -> Compiled:
    """Compiles a Dynamo graph. What the compiler cannot take runs in eager, counted and said once."""
    journal = Journal.open(options)

    def build_graph(program: Program) -> GraphCall:
        return build(program, options, journal)

    try:
        call = _call(gm, example_inputs)
        decompositions = DECOMPOSITIONS if target_of(options) != "aten" else {}
        compilers = Compilers(build_graph, build_graph, build_graph, decompositions=decompositions)
        return _unboxed(compile(call, compilers, journal))
    except Unsupported as reason:
        if options.fallback == "error":
            raise
        count_eager(str(reason))
        return gm.forward


def _unboxed(run: GraphCall) -> Compiled:
    def call(*args: object) -> Sequence[object]:
        return run(list(args))

    return call


def _call(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Call:
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    fake_mode = _fake_mode(example_inputs)
    leaves = tuple(
        fake_leaf(_role(index, node, value), value, fake_mode, getattr(node, "_dynamo_source", None))  # type: ignore[arg-type]
        for index, (node, value) in enumerate(zip(placeholders, example_inputs, strict=True))
    )
    interpreter = fx.Interpreter(gm)

    def run(args: list[object]) -> Sequence[object]:
        with fx.traceback.preserve_node_meta():
            return interpreter.boxed_run(args)  # type: ignore[no-any-return]

    return Call(run, leaves, fake_mode, overlapping(example_inputs))


def _fake_mode(example_inputs: Sequence[object]) -> FakeTensorMode:
    context = TracingContext.try_get()
    if context is not None and context.fake_mode is not None:
        return context.fake_mode
    return detect_fake_mode(example_inputs) or FakeTensorMode()


def _role(index: int, node: fx.Node, value: object) -> CallInput:
    if isinstance(value, torch.nn.Parameter):
        return Parameter(index, node.name)
    return Buffer(index, node.name) if "_buffers_" in node.name else UserInput(index)
