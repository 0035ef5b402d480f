"""Front door for FX graphs: `torch.compile(f, backend="assay")`, `compile_fx` and `compile_fx_inner`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from assay.compiler.assembly.compilers import Compilers
from assay.compiler.assembly.linking import specialized
from assay.compiler.assembly.targets import target_of
from assay.compiler.assembly.whole_backward import switch_off, switch_on
from assay.compiler.autograd.memory_budget import budget_split
from assay.compiler.autograd.offload import offloaded
from assay.compiler.autograd.partition import Split, default_split
from assay.compiler.autograd.rematerialize import cheapest_split
from assay.compiler.autograd.saved_hooks import GraphHooks
from assay.compiler.capture.decompositions.table import DECOMPOSITIONS, EXACT
from assay.compiler.capture.examples import program_of, read_numbers, read_offsets, why_not_same
from assay.compiler.capture.inputs import (
    Call,
    CallLeaf,
    check_inputs,
    fake_leaf,
    fake_mode_of,
    held,
    why_not_read,
)
from assay.compiler.capture.list_arguments import has_lists, without_lists
from assay.compiler.capture.user_code.attention_masks import ATTENTION, has_true_mask, laid_out, with_mask
from assay.compiler.capture.user_code.checkpoints import is_plain, run_region
from assay.compiler.capture.user_code.custom_backwards import in_its_callers_mode, mark_reads
from assay.compiler.entry.recompile import Recompiled
from assay.compiler.entry.stop import WRITTEN, stopped
from assay.compiler.entry.warm import starts as warm
from assay.compiler.errors import Unsupported
from assay.compiler.fallback import GivenBack, give_back, nodes_of
from assay.compiler.ir.graph.roles import Buffer, CallInput, GraphCall, Parameter, Program, UserInput
from assay.compiler.ir.graph.trace import with_text
from assay.compiler.ir.tensors.devices import current_if_asked
from assay.compiler.journal import Journal, count_eager
from assay.compiler.options import Options
from assay.compiler.passes import CHOICES, FUNCTIONAL, PASSES
from assay.compiler.passes.random.give_key import give_key
from assay.compiler.passes.write_in_place import write_in_place
from assay.compiler.pipeline import build, compile
from assay.compiler.runtime.recording.cuda_graphs import Recordable, give_up_recordings
from assay.compiler.toolchain import load
from assay.compiler.toolchain.load import LoadKernels, load_kernels
from assay.compiler.toolchain.serialized_call import Linked
from assay.compiler.torch_compat import Decompositions, is_guarded

Compiled = Callable[..., Any]


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
    return compile_graph(gm, example_inputs, chosen)


def _reset() -> None:
    give_up_recordings()
    switch_off()


assay.reset = _reset  # type: ignore[attr-defined]


def compile_fx(
    model_: fx.GraphModule,
    example_inputs_: Sequence[object],
    inner_compile: Callable[..., GraphCall] | None = None,
    config_patches: Mapping[str, object] | None = None,
    decompositions: Decompositions | None = None,
) -> Compiled:
    """A graph module of any torch calls, compiled for inputs like `example_inputs_`.

    `inner_compile(graph, fake_inputs)` builds each functional graph; by default as `compile_fx_inner` does.
    `config_patches` are options, `decompositions` takes the place of our own table.

    Raises: OptionError for an unknown option; InputMismatch when the result is called with other inputs.
    """
    options = Options.of(config_patches, None)

    def build_inner(program: Program) -> GraphCall:
        if inner_compile is None:
            return build(program, options, journal).load()
        return inner_compile(with_text(program.module), [node.meta["val"] for node in program.placeholders])

    journal = Journal.open(options)
    call, spec = _call(model_, example_inputs_, may_round=options.numerics == "fast")
    table = (EXACT if options.numerics == "exact" else DECOMPOSITIONS) if decompositions is None else decompositions
    write = functools.partial(write_in_place, generate=target_of(options) != "aten") if inner_compile is None else None
    compilers = Compilers(build_inner, build_inner, build_inner, decompositions=table, write=write)
    run = Recompiled.of(
        call.leaves, compile(call, compilers, journal), lambda: specialized(compile, call, compilers, True, options)
    )
    return _with_held(model_, _unboxed(run, spec))


def compile_fx_inner(
    gm: fx.GraphModule, example_inputs: Sequence[object], *, options: Options | None = None
) -> GraphCall:
    """A functional ATen graph, built: the result takes one list of inputs, which it empties, or a tuple of them.

    What the graph's nodes do not say of their values is found by running it on fake tensors like `example_inputs`.
    Inputs that no kernel reads, as lazily conjugated ones where there were none, are for the graph itself, node by
    node, which is counted.

    Raises: InputMismatch when it is called with inputs of another dtype, device, shape or stride; Unsupported for a
    graph that returns a structure other than one tuple or list.
    """
    options = options or Options.of(None, None)
    program = program_of(gm, example_inputs)
    run = build(program, options, Journal.open(options)).load()
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


def _by_nodes(gm: fx.GraphModule, args: Sequence[object]) -> Sequence[object]:
    """What a graph of calls below autograd returns, run as it is written; a list of inputs is emptied."""
    given = list(args)
    if isinstance(args, list):
        args.clear()
    with torch.no_grad():
        return tuple(gm(*given))


def compile_graph(
    gm: fx.GraphModule, example_inputs: Sequence[object], options: Options, load_kernels: LoadKernels = load_kernels
) -> Compiled:
    """Compiles a Dynamo graph. What the compiler cannot take is given back, as the option `fallback` says."""
    journal = Journal.open(options)
    try:
        if has_lists(example_inputs):
            flat, spread = without_lists(gm, example_inputs)
            run = compile_graph(flat, spread(_copied(example_inputs)), options, load_kernels)
            return lambda *args: run(*spread(args))
        call, spec = _call(gm, example_inputs, may_round=options.numerics == "fast")
        keeper = warm.keeper(gm, call, options, load_kernels is load.load_kernels)
        compilers = _compilers(options, journal, load_kernels, keeper, spec)
        with journal.stage("restore"):
            restored = warm.restore(keeper, call, compilers, journal)
        if restored is not None:
            return _with_held(gm, lambda *args: restored(list(args)))
        return _with_held(gm, _unboxed(compile(call, compilers, journal), spec))
    except Unsupported as reason:
        return give_back(_eager(gm), reason, options.fallback, lambda said: count_eager(said, nodes_of(gm)))


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

    def build_graph(program: Program) -> GraphCall:
        given, reserve = give_key(program)
        built = build(given, options, journal, load_kernels)
        host = replace(built, recordable=Recordable.of(given, built.steps), reserve=reserve)
        run = host.run(options)
        keeper.built(program, host, run)
        return run

    def keep(linked: Linked, programs: Mapping[str, Program]) -> None:
        if GraphHooks.now(options.saved_tensors_hooks) is not None:
            keeper.forget("hooks on saved tensors are part of it")
        if not _is_flat(spec[0]):
            keeper.forget("it returns a structure")
        keeper.linked(linked, programs)

    made = Compilers(
        build_graph, build_graph, build_graph,
        partition=_partition(options, may_round=generate and not is_exact),
        decompositions=(EXACT if is_exact else DECOMPOSITIONS) if generate else {},
        write=functools.partial(write_in_place, generate=writes_kernels),
        keep=keep,
        passes=chosen,
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
        return lambda *args: run(list(args))
    return lambda *args: pytree.tree_unflatten(list(run(list(args))), structure)


def _call(
    gm: fx.GraphModule, example_inputs: Sequence[object], may_round: bool = False
) -> tuple[Call, list[pytree.TreeSpec]]:
    """A graph as a call to record, and a list that will hold the structure of what it returns. Where it `may_round`
    otherwise than eager, calls of the user's are written as faster ones."""
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    own = _held_tensors(gm)
    fake_mode = _fake_mode(example_inputs)
    leaves = tuple(
        fake_leaf(_role(index, node, value), value, fake_mode, getattr(node, "_dynamo_source", None))
        for index, (node, value) in enumerate(zip([*placeholders, *own], [*example_inputs, *own.values()], strict=True))
    )
    for node, leaf in zip(placeholders, leaves, strict=False):
        _remember_number(node.meta.get("example_value"), leaf.fake)

    unmasked = frozenset(filter(has_true_mask, gm.graph.nodes)) if may_round else None
    spec: list[pytree.TreeSpec] = []

    def run(args: list[object]) -> Sequence[object]:
        state = {str(node.target): value for node, value in zip(own, args[len(placeholders) :], strict=True)}
        with fx.traceback.preserve_node_meta():
            results, structure = pytree.tree_flatten(_Recorded(gm, state, unmasked).run(*args[: len(placeholders)]))
        spec[:] = [structure]
        return results

    return Call(
        run,
        leaves,
        fake_mode,
        unguarded=_unguarded(leaves, placeholders),
        current=current_if_asked(gm),
        nodes=nodes_of(gm),
    ), spec


def _unguarded(leaves: Sequence[CallLeaf], placeholders: Sequence[fx.Node]) -> tuple[int, ...]:
    """The positions of tensors of which Dynamo does not notice that they are others than when it compiled."""
    pairs = enumerate(zip(leaves, placeholders, strict=False))
    return tuple(
        position
        for position, (leaf, node) in pairs
        if isinstance(leaf.fake, torch.Tensor) and not is_guarded(getattr(node, "_dynamo_source", None))
    )


class _Recorded(fx.Interpreter):
    """Runs a graph on what is recorded, its own tensors too.

    Attention has no mask where it is `unmasked`, and elsewhere one that lies as its kernels want it; where that is
    None, all is called as it is written.
    """

    def __init__(
        self, gm: fx.GraphModule, state: Mapping[str, object], unmasked: frozenset[fx.Node] | None = None
    ) -> None:
        super().__init__(gm)
        self._state, self._unmasked = state, unmasked
        self._named: set[Any] = set()

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
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
            return run_region(_inside, *args, **kwargs)
        if target is torch.ops.higher_order.invoke_subgraph:
            region, _, *given = args
            return _inside(region, *given)
        return super().call_function(target, args, kwargs)


def _message_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What a check says where it fails."""
    message = kwargs.get("message", args[1] if len(args) > 1 else None)
    return str(message()) if callable(message) else "Expected cond to be True, but got False"


def _inside(region: fx.GraphModule, *args: object) -> Any:
    """What a graph inside a graph returns, recorded as if it stood there."""
    return _Recorded(region, {}).run(*args)


def _eager(gm: fx.GraphModule) -> Compiled:
    """The graph as eager runs it, where no compiler has a part: its regions as they stand, which torch would trace to
    find their gradients."""
    has_regions = any(
        graph.graph.find_nodes(op="call_function", target=torch.ops.higher_order.invoke_subgraph)
        for graph in gm.modules()
        if isinstance(graph, fx.GraphModule)
    )

    def run(*args: object) -> Any:
        return (_Recorded(gm, {}).run if has_regions or torch.is_anomaly_enabled() else gm.forward)(*args)

    return run


def _held_tensors(gm: fx.GraphModule) -> dict[fx.Node, torch.Tensor]:
    """The tensors that a graph holds itself, as Dynamo's graphs of optimizers do, by the first node that reads each."""
    found: dict[str, fx.Node] = {}
    for node in gm.graph.find_nodes(op="get_attr"):
        if isinstance(held(gm, node), torch.Tensor):
            found.setdefault(str(node.target), node)
    values = ((node, held(gm, node)) for node in found.values())
    return {node: value for node, value in values if isinstance(value, torch.Tensor)}


def _with_held(gm: fx.GraphModule, run: Compiled) -> Compiled:
    """`run`, given after its arguments the tensors that the graph holds, as they are at each call."""
    own = [_place_of(gm, str(node.target)) for node in _held_tensors(gm)]
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


def _fake_mode(example_inputs: Sequence[object]) -> FakeTensorMode:
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
    return Buffer(index, node.name) if "_buffers_" in node.name else UserInput(index)
