"""Front door for FX graphs: `torch.compile(f, backend="assay")`, `compile_fx` and `compile_fx_inner`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Unpack

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from assay.compiler.assembly.compilers import Compilers
from assay.compiler.assembly.linking import specialized
from assay.compiler.assembly.step_loops import Builder, Shape, Steps, Turns, steps_of, turns_of
from assay.compiler.assembly.targets import target_of
from assay.compiler.assembly.whole_backward import switch_off, switch_on
from assay.compiler.autograd.partition import Split, default_split
from assay.compiler.autograd.rematerialization.memory_budget import budget_split
from assay.compiler.autograd.rematerialization.offload import offloaded
from assay.compiler.autograd.rematerialization.rematerialize import cheapest_split
from assay.compiler.autograd.saved_hooks import GraphHooks
from assay.compiler.capture.decompositions.table import DECOMPOSITIONS, EXACT, PLAIN
from assay.compiler.capture.examples import program_of, read_numbers, read_offsets, why_not_same
from assay.compiler.capture.inputs import Call, check_inputs, why_not_read
from assay.compiler.capture.list_arguments import has_lists, without_lists
from assay.compiler.capture.user_code.drawn_numbers import with_drawn_numbers
from assay.compiler.codegen.call.border import bordered
from assay.compiler.entry.ahead.joint_graph import numbered
from assay.compiler.entry.dynamo_counters import counted
from assay.compiler.entry.graph_as_call import Compiled, Freedom, GraphAsCall, as_call, in_eager, with_held
from assay.compiler.entry.inference_calls import by_inference, depends_on_inference
from assay.compiler.entry.inner_keywords import (
    InnerCompile,
    InnerKeywords,
    Told,
    check_keywords,
    name_of,
    with_static_inputs,
)
from assay.compiler.entry.module_as_call import ModuleAsCall, is_flat_graph
from assay.compiler.entry.pieces.compiled_functions import with_compiled_functions
from assay.compiler.entry.pieces.piece import LoopCompiler, PieceCompiler
from assay.compiler.entry.pieces.refusal import Cuts, Refusal
from assay.compiler.entry.pieces.regions import split_asked
from assay.compiler.entry.recompile import Recompiled
from assay.compiler.entry.stop import WRITTEN, stopped
from assay.compiler.entry.warm import starts as warm
from assay.compiler.errors import Unexpected, Unsupported
from assay.compiler.fallback import GivenBack, give_back, nodes_of
from assay.compiler.ir.graph.given_decompositions import given_decompositions
from assay.compiler.ir.graph.roles import GraphCall, Program
from assay.compiler.ir.graph.wrapper_nodes import has_wrappers
from assay.compiler.journal import Journal, count_cut, count_eager, count_piece
from assay.compiler.options import Options
from assay.compiler.passes import CHOICES, FUNCTIONAL, PASSES
from assay.compiler.passes.random.give_key import give_key
from assay.compiler.passes.write_in_place import write_in_place
from assay.compiler.pipeline import build, compile, divide, schedule_of
from assay.compiler.runtime.recording.cuda_graphs import Recordable, give_up_recordings
from assay.compiler.toolchain import load
from assay.compiler.toolchain.load import LoadKernels, load_kernels
from assay.compiler.toolchain.serialized_call import Host, Linked
from assay.compiler.torch_compat import Decompositions


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
    chosen = Options.of(options, mode)
    if chosen.compiled_autograd:
        switch_on(chosen, own_compilers)
    with counted():
        return compile_graph(gm, example_inputs, chosen)


def _reset() -> None:
    give_up_recordings()
    switch_off()


assay.reset = _reset  # type: ignore[attr-defined]


def compile_fx(
    model_: nn.Module,
    example_inputs_: Sequence[object],
    inner_compile: InnerCompile | None = None,
    config_patches: Mapping[str, object] | None = None,
    decompositions: Decompositions | None = None,
    ignore_shape_env: bool = False,
    compile_region_name: str | None = None,
) -> Compiled:
    """A module, or a graph of any torch calls, compiled for inputs like `example_inputs_`, which may be structures.

    `inner_compile(graph, fake_inputs, **keywords)` builds each functional graph; by default as `compile_fx_inner` does,
    whose keywords it is given. `config_patches` are options, `decompositions` takes the place of our own table. With
    `ignore_shape_env` the sizes of real tensors are numbers even where others are symbols. `compile_region_name` is
    part of the compile's name in what is printed and dumped. What the compiler cannot take runs in eager, as the option
    `fallback` says: a node of a graph of Dynamo's where `compile_fx_inner` builds it with our table, else all of it.

    Raises: OptionError for an unknown option; InputMismatch when the result is called with other inputs; Unsupported
    with `fallback="error"`; Unexpected.
    Source: the signature is that of torch/_inductor/compile_fx.py, torch 2.13.
    """
    options = Options.of(config_patches, None)
    own = EXACT if options.numerics == "exact" else DECOMPOSITIONS
    table = own if decompositions is None else given_decompositions(decompositions)
    journal = Journal.open(options, compile_region_name)
    if inner_compile is None:
        compilers = _plain_compilers(options, journal, table)
    else:
        told = Told.of(inner_compile, options, compile_region_name, table)
        forward, backward, inference = map(bordered, (told.forward, told.backward, told.inference))
        compilers = Compilers(forward, backward, inference, decompositions=table)
    is_plain = inner_compile is None and decompositions is None and not ignore_shape_env
    is_named, is_fixed = inner_compile is not None, ignore_shape_env
    try:
        return _whole(model_, example_inputs_, compilers, journal, is_named=is_named, is_fixed=is_fixed)
    except Unexpected:
        raise
    except Unsupported as reason:
        if is_plain and isinstance(model_, fx.GraphModule) and is_flat_graph(model_, example_inputs_):
            return compile_graph(model_, example_inputs_, options)
        return give_back(model_, reason, options.fallback, lambda said: count_eager(said, _nodes_in(model_)))


def _nodes_in(module: nn.Module) -> int:
    return nodes_of(module) if isinstance(module, fx.GraphModule) else 1


def _whole(
    model: nn.Module,
    examples: Sequence[object],
    compilers: Compilers,
    journal: Journal,
    *,
    is_named: bool,
    is_fixed: bool,
) -> Compiled:
    """A module of which nothing is cut out. `is_named`: the graphs' inputs have the names that torch gives them;
    `is_fixed`: sizes of real tensors are numbers. Raises: Unsupported."""

    def compiled(call: Call) -> GraphCall:
        call = replace(call, holds_functions=True)
        if is_named:
            call = replace(call, names=numbered("primals", len(call.leaves)))
        run = compile(call, compilers, journal)
        return Recompiled.of(call.leaves, run, lambda: specialized(compile, call, compilers, True, journal.options))

    if not is_flat_graph(model, examples):
        module = ModuleAsCall.of(model, examples, is_fixed=is_fixed)
        return module.function(compiled(module.call.without_regions()))
    assert isinstance(model, fx.GraphModule)
    examples = with_drawn_numbers(model, examples)
    traced = as_call(model, examples, Freedom.of(journal.options), is_fixed=is_fixed)
    return with_held(model, _unboxed(compiled(traced.call), traced.structure))


def _plain_compilers(options: Options, journal: Journal, table: Decompositions) -> Compilers:
    """Our own compiler for graphs of a caller of `compile_fx`, without the passes that choose libraries."""

    functions = _function_compiler(options)

    def build_graph(program: Program) -> GraphCall:
        return build(with_compiled_functions(program, functions), options, journal).load()

    write = functools.partial(write_in_place, generate=target_of(options) != "aten")
    build_whole = bordered(build_graph)
    return Compilers(build_whole, build_whole, build_whole, decompositions=table, write=write)


def compile_fx_inner(
    gm: fx.GraphModule,
    example_inputs: Sequence[object],
    compile_region_name: str | None = None,
    *,
    options: Options | None = None,
    **keywords: Unpack[InnerKeywords],
) -> GraphCall:
    """A functional ATen graph, built: the result takes one list of inputs, which it empties, or a tuple of them.

    What the graph's nodes do not say of their values is found by running it on fake tensors like `example_inputs`.
    Inputs that no kernel reads, as lazily conjugated ones where there were none, are for the graph itself, node by
    node, which is counted. `InnerKeywords` says what each keyword does. `compile_region_name` is part of the graph's
    name in what is printed and dumped.

    Raises: InputMismatch when it is called with inputs of another dtype, device, shape or stride; Unsupported for a
    graph that returns a structure other than one tuple or list; OptionError for a keyword that cannot be acted on.
    Source: the signature up to `options` is that of torch/_inductor/compile_fx.py, torch 2.13.
    """
    check_keywords(keywords)
    options = options or Options.of(None, None)
    program = with_static_inputs(program_of(gm, example_inputs), keywords.get("static_input_idxs", ()))
    journal = Journal.open(options, name_of(keywords, compile_region_name))
    given = with_compiled_functions(program, _function_compiler(options))
    run = _recorded(build(given, options, journal), program, options, keywords)
    fakes = [node.meta["val"] for node in program.placeholders]
    numbers, offsets = read_numbers(program), read_offsets(program)
    given_back = GivenBack(nodes_of(gm))

    def checked(args: list[object]) -> Sequence[object]:
        check_inputs(fakes, args)
        reason = why_not_read(args) or why_not_same(fakes, args, numbers, offsets)
        if not reason:
            return run(args if isinstance(args, list) else list(args))
        given_back.count(reason)
        return _by_nodes(gm, args)

    checked._boxed_call = True  # type: ignore[attr-defined]
    return checked


def _recorded(host: Host, program: Program, options: Options, keywords: InnerKeywords) -> GraphCall:
    """A built graph, recorded as a CUDA graph where the caller asks for that."""
    recordable = Recordable.of(program, host.steps) if keywords.get("cudagraphs") else None
    if recordable is None:
        return host.load()
    index = keywords.get("boxed_forward_device_index")
    if index is not None and not keywords.get("is_backward"):
        index.set(recordable.device.index)
    return replace(host, recordable=recordable).run(replace(options, cudagraphs=True))


def _by_nodes(gm: fx.GraphModule, args: Sequence[object]) -> Sequence[object]:
    """What a graph of calls below autograd returns, run as it is written; a list of inputs is emptied."""
    given = list(args)
    if isinstance(args, list):
        args.clear()
    with torch.no_grad():
        return tuple(gm(*given))


def compile_graph(
    gm: fx.GraphModule,
    example_inputs: Sequence[object],
    options: Options,
    load_kernels: LoadKernels = load_kernels,
    cuts: Cuts | None = None,
) -> Compiled:
    """Compiles a Dynamo graph. What the compiler cannot take is cut out of it and runs in eager, or is given back, as
    the option `fallback` says. `cuts` are those of the graph of which this one is a piece.

    Raises: OptionError for a partition function that a region asks for and torch does not have; Unsupported or
    Unexpected with `fallback="error"`.
    """
    options = _unrecorded_under_hooks(options, example_inputs)
    journal = Journal.open(options)
    if cuts is not None:
        count_piece()
    traced: GraphAsCall | None = None
    inside: Compiled | None = None
    example_inputs = with_drawn_numbers(gm, example_inputs)
    refusal = _refusal(gm, options, load_kernels, cuts)
    try:
        if has_lists(example_inputs):
            flat, spread = without_lists(gm, example_inputs)
            run = compile_graph(flat, spread(_copied(example_inputs)), options, load_kernels, cuts)
            return lambda *args: run(*spread(args))
        if (apart := refusal.regions_apart(example_inputs)) is not None:
            return apart
        traced = as_call(gm, example_inputs, Freedom.of(options))
        call = replace(traced.call, pieces=functools.partial(refusal.for_leaves, traced))
        asked = split_asked(gm)
        keeper = warm.keeper(gm, call, options, load_kernels is load.load_kernels and asked is None)
        compilers = _compilers(options, journal, load_kernels, keeper, traced.structure)
        if asked is not None:
            compilers = replace(compilers, partition=asked)
        if cuts is None and depends_on_inference(gm):
            inside = with_held(gm, _spread(specialized(compile, call, compilers, True, options)))
        with journal.stage("restore"):
            restored = warm.restore(keeper, call, compilers, journal)
        if restored is not None:
            made = with_held(gm, _spread(restored))
        else:
            made = with_held(gm, _unboxed(compile(call, compilers, journal), traced.structure))
    except Unexpected as reason:
        return give_back(in_eager(gm), reason, options.fallback, refusal.count)
    except Unsupported as reason:
        pieces = refusal.in_pieces(traced, reason, example_inputs)
        made = pieces or give_back(in_eager(gm), reason, options.fallback, refusal.count)
    return made if inside is None else by_inference(made, inside)


def _unrecorded_under_hooks(options: Options, inputs: Sequence[object]) -> Options:
    """The options, with no recordings by default where a hook takes a leaf's gradient, as an optimizer's step does: a
    recording would hold what that frees."""
    has_hooks = any(getattr(each, "_post_accumulate_grad_hooks", None) for each in inputs)
    return replace(options, cudagraphs=False) if has_hooks and options.cudagraphs is None else options


def _refusal(gm: fx.GraphModule, options: Options, load_kernels: LoadKernels, cuts: Cuts | None) -> Refusal:
    """What becomes of a graph where the compiler refuses it."""
    found = Cuts() if cuts is None else cuts
    compile_whole = functools.partial(compile_graph, options=options, load_kernels=load_kernels, cuts=found)
    has_loops = not options.stop_after and load_kernels is load.load_kernels
    compile_piece = PieceCompiler(compile_whole, _loop_compiler(options) if has_loops else None)
    is_refused = functools.partial(_is_refused, options, load_kernels)
    return Refusal(gm, options, found, count_eager if cuts is None else count_cut, compile_piece, is_refused)


def _function_compiler(options: Options) -> PieceCompiler:
    """What compiles the functions of loops and branches in a functional graph."""
    return PieceCompiler(functools.partial(compile_graph, options=options, cuts=Cuts()), _loop_compiler(options))


def _loop_compiler(options: Options) -> LoopCompiler | None:
    """What compiles loops as one call; None where no kernels are generated."""
    if target_of(options) == "aten":
        return None
    return LoopCompiler(functools.partial(_compile_steps, options), functools.partial(_compile_turns, options))


def _compile_steps(
    options: Options, gm: fx.GraphModule, shape: Shape, examples: Callable[[frozenset[int]], Sequence[object]]
) -> Steps:
    """All steps of a loop as one call. Raises: Unsupported where they are more than launches of kernels."""
    builder = _loop_builder(options, shape)
    freedom = replace(Freedom.of(options), selects=True)
    return steps_of(lambda needed: as_call(gm, examples(needed), freedom).call, builder, divide)


def _compile_turns(
    options: Options, condition: fx.GraphModule, body: fx.GraphModule, carried: int, examples: Sequence[object]
) -> Turns:
    """All steps of a loop whose end is data as one call. Raises: as `_compile_steps` does."""
    freedom = replace(Freedom.of(options), selects=True)
    calls = [as_call(gm, examples, freedom).call for gm in (condition, body)]
    return turns_of(calls[0], calls[1], _loop_builder(options, Shape(carried, 0)))


def _loop_builder(options: Options, shape: Shape) -> Builder:
    journal = Journal.open(options)
    count_piece()

    def graph(program: Program) -> GraphCall:
        return build(program, options, journal).load()

    plan = functools.partial(schedule_of, options=options, journal=journal)
    return Builder(shape, own_compilers(options, journal), journal, plan, graph)


def _is_refused(options: Options, load_kernels: LoadKernels, call: Call) -> bool:
    """Whether the compiler cannot take a call. Nothing is built."""
    journal, keeper = Journal(options, "probe"), warm.Keeper(None, options)
    made = _compilers(options, journal, load_kernels, keeper, [pytree.tree_structure(())])
    compilers = replace(made, forward=_unbuilt, backward=_unbuilt, inference=_unbuilt, keep=None)
    try:
        compile(call, compilers, journal)
    except Unsupported:
        return True
    return False


def _unbuilt(program: Program) -> GraphCall:
    return lambda args: ()


def own_compilers(options: Options, journal: Journal) -> Compilers:
    """Our own compiler for graphs that no cache keeps."""
    keeper = warm.Keeper(None, options)
    keeper.forget("it is a stretch of a whole backward")
    return _compilers(options, journal, load_kernels, keeper, [pytree.tree_structure(())])


def _copied(inputs: Sequence[object]) -> list[object]:
    """The inputs, with lists that may be emptied."""
    return [list(value) if isinstance(value, (list, tuple)) else value for value in inputs]


def _compilers(
    options: Options,
    journal: Journal,
    load_kernels: LoadKernels,
    keeper: warm.Keeper,
    spec: list[pytree.TreeSpec],
) -> Compilers:
    """Our own compiler for all graphs; what it makes is kept where the results are flat, as those of Dynamo are."""
    generate, is_exact = target_of(options) != "aten", options.numerics == "exact"
    writes_kernels = generate and options.stop_after != WRITTEN
    chosen = (*PASSES, FUNCTIONAL) if options.functionalize_rng else PASSES
    if generate:
        chosen += tuple(step for step in CHOICES if step.kind == "exact" or options.numerics == "fast")

    def build_graph(program: Program, cudagraphs: bool | None = options.cudagraphs) -> GraphCall:
        given, reserve = give_key(program)
        built = build(given, options, journal, load_kernels)
        host = replace(built, recordable=Recordable.of(given, built.steps), reserve=reserve)
        run = host.run(replace(options, cudagraphs=cudagraphs))
        keeper.built(program, host, run)
        return run

    def keep(linked: Linked, programs: Mapping[str, Program]) -> None:
        if GraphHooks.now(options.saved_tensors_hooks) is not None:
            keeper.forget("hooks on saved tensors are part of it")
        if not _is_flat(spec[0]):
            keeper.forget("it returns a structure")
        if any(map(has_wrappers, programs.values())):
            keeper.forget("it takes or makes a tensor of a class with inner tensors")
        keeper.linked(linked, programs)

    build_whole = bordered(build_graph)
    made = Compilers(
        build_whole, build_whole, build_whole,
        partition=_partition(options, may_round=generate and not is_exact),
        decompositions=(EXACT if is_exact else DECOMPOSITIONS) if generate else PLAIN,
        write=functools.partial(write_in_place, generate=writes_kernels),
        keep=keep,
        passes=chosen,
        # what is recorded holds all its gradients, and a hook is there to have each freed
        between_hooks=bordered(functools.partial(build_graph, cudagraphs=bool(options.cudagraphs))),
    )  # fmt: skip
    return stopped(made, options.stop_after, _calling(options, journal)) if options.stop_after else made


def _calling(options: Options, journal: Journal) -> Callable[[Program], GraphCall]:
    """Builds graphs whose operators are all calls to ATen."""

    def call_operators(program: Program) -> GraphCall:
        given, reserve = give_key(program)
        host = build(given, replace(options, target="aten"), journal)
        return replace(host, recordable=Recordable.of(given, host.steps), reserve=reserve).run(options)

    return call_operators


def _partition(options: Options, *, may_round: bool) -> Callable[[Program], Split]:
    plain = cheapest_split if may_round else default_split
    cut = functools.partial(budget_split, budget=options.memory_budget, plain=plain)
    return (lambda joint: offloaded(cut(joint))) if options.offload else cut


def _is_flat(structure: pytree.TreeSpec) -> bool:
    return structure.type in (tuple, list) and structure.num_children == structure.num_leaves


def _unboxed(run: GraphCall, spec: list[pytree.TreeSpec]) -> Compiled:
    """`run` as a function of its arguments, with the structure that the graph returns, which recording has found.

    Dynamo's graphs return a flat tuple, which `run` returns already.
    """
    (structure,) = spec
    if _is_flat(structure):
        return _spread(run)
    return lambda *args: pytree.tree_unflatten(list(run(list(args))), structure)


def _spread(run: GraphCall) -> Compiled:
    """`run` as a function of its arguments."""
    return lambda *args: run(list(args))
