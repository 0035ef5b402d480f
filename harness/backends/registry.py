"""Backends by name: what a run compiles with.

    eager-none          the callable as it is, without torch.compile: the harness held against itself
    assay-aot           our compiler without Dynamo, which takes a graph apart and refuses some: `aot_function`, kernels
                        through ATen; `assay-aot,dynamic` with symbolic sizes
    assay-loops         our compiler, its kernels run by the reference: slow, for small sizes
    assay-recorded      our compiler without kernels, each operator in ATen, its result laid out as is recorded
    assay-triton        our compiler, its kernels as Triton programs, interpreted: slow, for small sizes
    assay-sm90          our compiler, its kernels compiled by Triton for a GPU beside the C++ that runs: what each takes
    switched            a part of a program on another backend (harness/backends/switches.py)
    NAME                any backend that torch.compile knows: assay, eager, aot_eager, inductor, ...
    module:attribute    an importable callable (graph module, example inputs) -> callable
    SPEC,dynamic        any of these with torch.compile(dynamic=True); `,fullgraph` likewise
    SPEC,compiled_autograd    any of these with each whole backward compiled too, as torch's compiled autograd traces it
    SPEC,own_backward         the same, as our own compiled autograd does it
    SPEC,key=value      with an option of the backend: assay,target=aten or assay,dynamic,memory_budget=0.5

A backend's callable may declare two things, by attributes that are true:

- `has_own_random_stream`: its random streams cannot be eager's. What follows from random draws is then `no-oracle`.
- `runs_in_eager`: it is there to run operators in eager, and returns Dynamo's graph as it is. Any other backend that
  does so gave the program back (harness/observe/fell_back.py).
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo
from torch import fx, nn

from assay.harness.observe.fell_back import watched, watching

FOR_GPU = "assay-sm90"
OWN = {
    "assay": "assay.compiler.entry.dynamo:assay",
    "assay-loops": "assay.harness.backends.stages:assay_loops",
    "assay-recorded": "assay.harness.backends.recorded:assay_recorded",
    "assay-triton": "assay.harness.backends.interpreted:assay_triton",
    FOR_GPU: "assay.harness.backends.for_gpu:assay_sm90",
    "assay_reference": "assay.reference.pipeline:assay_reference",
    "switched": "assay.harness.backends.switches:switched",
}
"""Our own backends, found from a checkout too, where no entry point is installed."""

WITHOUT_DYNAMO = "assay-aot"

JOURNALLED = ("assay", "assay-loops", "assay-recorded", "assay-triton", FOR_GPU, WITHOUT_DYNAMO)
"""The backends whose compiles the compiler's journal counts."""

STRICT = ("assay", "assay-loops", "assay-recorded", "assay-triton", FOR_GPU)
"""Our backends with the option `fallback`. Here an error that is no declared limit is raised, not given back."""

RUN_IN_EAGER = ("eager", "eager_debug", "eager_noexcept", "pre_dispatch_eager")
"""Torch's backends that return Dynamo's graph as it is: rungs on which something is looked for."""

FLAGS = ("dynamic", "fullgraph")
"""What torch.compile itself can be asked for behind a backend's name."""

BEGUN = ("restored", "recorded", "replayed", "tuned")
"""What the journal counts that begins late, or not at each compile."""

RECOMPILES = 64
"""How often Dynamo may compile a function in a run: more often than any sequence of acts calls it."""

WHOLE_BACKWARD = "compiled_autograd"
OWN_BACKWARD = "own_backward"

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


class BackendError(ValueError):
    """A backend that does not exist; the message lists those that do."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A way to compile a callable. `wrap` gives the compiled callable, and `ambient` holds while it is compiled and
    run. A backend that `has_eagers_bits` is held to them. A backend that `uses_dynamo` is given graphs by Dynamo."""

    name: str
    wrap: Wrap
    has_own_random_stream: bool = False
    ambient: Callable[[], AbstractContextManager[Any]] = nullcontext
    has_eagers_bits: bool = False
    uses_dynamo: bool = False


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the compiler's own journal counted, and what was seen of a backend that keeps none.

    `eager` are the nodes of graphs that ran in eager, by the reason, and are among the journal's `nodes`; `raised` are
    those of graphs that the backend raised for, `given` all that Dynamo gave it. `begun` counts what begins late, or
    not at each compile: graphs restored from the cache, recorded, replayed, kernels tuned.
    """

    nodes: int | None = None
    nodes_generated: int | None = None
    fallbacks: dict[str, int] = field(default_factory=dict)
    eager: dict[str, int] = field(default_factory=dict)
    raised: dict[str, int] = field(default_factory=dict)
    given: int = 0
    begun: dict[str, int] = field(default_factory=dict)


def resolve(name: str) -> Backend:
    """The backend of that name.

    Raises: BackendError, with the known names, if there is none; with the cause, if its module cannot be imported.
    """
    bare, *settings = name.split(",")
    if bare == "eager-none":
        alone = _own_backward(_settings(name, settings))
        return Backend(name, lambda function: function, ambient=_ambient(alone))
    if bare == WITHOUT_DYNAMO:
        ahead = functools.partial(_ahead_of_time, settings=_settings(name, settings))
        return Backend(name, ahead, has_eagers_bits=promises_bits(name))
    target = _watched(name, _target(bare))
    given = _settings(name, settings)
    is_whole = given.pop(WHOLE_BACKWARD, False)
    own_whole = _own_backward(given)
    given.pop(OWN_BACKWARD, None)
    whole = functools.partial(_whole_backward, torch.compile(backend=target, **given)) if is_whole else None
    ambient = _ambient(_errors_shown, whole, own_whole, _streams_of_eager if bare == "inductor" else None, _graphs_kept)
    asked = given.get("options", {}).get("functionalize_rng", False)
    own = bool(asked or getattr(target, "has_own_random_stream", False))

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(_compilable(function), backend=target, **given)  # type: ignore[no-any-return]

    return Backend(name, wrap, own, ambient, promises_bits(name), uses_dynamo=True)


def promises_bits(name: str) -> bool:
    """Whether the backend of that name says that its results have eager's bits."""
    bare, *settings = name.split(",")
    return bare in JOURNALLED and "numerics=exact" in settings


def graph_compiler(name: str) -> tuple[Callable[..., Any], bool]:
    """What torch.compile would hand a graph and its inputs to under that name, and whether sizes are symbols there.

    Raises: BackendError if there is no such backend.
    """
    bare, *settings = name.split(",")
    target, given = _target(bare), _settings(name, settings)
    if given.keys() & {WHOLE_BACKWARD, OWN_BACKWARD}:
        raise BackendError(f"backend {name!r}: it is about a whole backward, and there is only a graph here")
    compiler: Callable[..., Any] = torch._dynamo.lookup_backend(target) if isinstance(target, str) else target
    if "options" in given:
        compiler = functools.partial(compiler, options=given["options"])
    return compiler, given.get("dynamic", False)


def _settings(name: str, settings: list[str]) -> dict[str, Any]:
    """What `torch.compile` is given beside the backend. Raises: BackendError for a setting that is neither form."""
    flags = (*FLAGS, WHOLE_BACKWARD, OWN_BACKWARD)
    given: dict[str, Any] = {setting: True for setting in settings if setting in flags}
    options = {name: _value(text) for name, text in (s.split("=", 1) for s in settings if "=" in s)}
    for setting in settings:
        if setting not in flags and "=" not in setting:
            raise BackendError(f"backend {name!r}: {setting!r} is neither {' nor '.join(flags)} nor key=value")
    if name.split(",")[0] in STRICT:
        options = {"fallback": "limits"} | options
    return given | ({"options": options} if options else {})


def _value(text: str) -> object:
    """The number, or True or False, that a text writes; else the text."""
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def with_own_backward(name: str) -> str:
    """The name of one of our backends, whole backwards compiled too where it says nothing of these."""
    bare, *settings = name.split(",")
    asks = {WHOLE_BACKWARD, OWN_BACKWARD} & set(settings)
    return f"{name},{OWN_BACKWARD}" if bare in JOURNALLED and bare != WITHOUT_DYNAMO and not asks else name


def is_given_shapes(name: str) -> bool:
    """Whether a backend's name already says how sizes are compiled, or there is nothing to say."""
    bare, *settings = name.split(",")
    return bare == "eager-none" or "dynamic" in settings


def _ahead_of_time(function: Callable[..., Any], settings: dict[str, Any]) -> Callable[..., Any]:
    """The callable through `aot_function`, or `aot_module` for a module; the reference runs its graphs."""
    compile_ahead = _attribute(WITHOUT_DYNAMO, f"assay.compiler.entry.aot:aot_{_kind(function)}")
    as_recorded = _attribute(WITHOUT_DYNAMO, "assay.harness.backends.stages:as_recorded")
    return compile_ahead(function, as_recorded, fallback="limits", **settings)  # type: ignore[no-any-return]


def ahead_of_time(module: str) -> Wrap:
    """The `aot_function` and `aot_module` of a module, with graphs that run as they are recorded."""

    def as_recorded(graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        return boxed(graph.forward)

    boxed = _attribute(module, f"{module}:make_boxed_func")
    return lambda function: _attribute(module, f"{module}:aot_{_kind(function)}")(function, as_recorded)  # type: ignore[no-any-return]


def _kind(function: Callable[..., Any]) -> str:
    return "module" if isinstance(function, nn.Module) else "function"


def backend_names() -> tuple[str, ...]:
    """Every name that `resolve` takes, `module:attribute` apart."""
    return tuple(sorted({"eager-none", WITHOUT_DYNAMO, *OWN, *torch._dynamo.list_backends(None)}))


def statistics(backend: str) -> Statistics:
    """The counts since the process began; those of the compiler's journal only for a backend that keeps it."""
    seen = watched(backend)
    totals = importlib.import_module("assay.compiler.journal").totals()
    backwards = dict(totals["eager_backwards"]) if OWN_BACKWARD in backend.split(",") else {}
    if backend.split(",")[0] not in JOURNALLED:
        return Statistics(eager=dict(seen.eager) | backwards, raised=dict(seen.raised), given=seen.nodes)
    eager = dict(totals["eager"]) | backwards
    nodes = totals["nodes"] + sum(eager.values())
    begun = {name: totals[name] for name in BEGUN}
    return Statistics(
        nodes, totals["nodes_generated"], dict(totals["fallbacks"]), eager, dict(seen.raised), seen.nodes, begun
    )


def counted_since(before: Statistics, now: Statistics) -> Statistics:
    """What was counted between two readings."""
    return Statistics(
        _grown(before.nodes, now.nodes),
        _grown(before.nodes_generated, now.nodes_generated),
        _all_grown(before.fallbacks, now.fallbacks),
        _all_grown(before.eager, now.eager),
        _all_grown(before.raised, now.raised),
        now.given - before.given,
        _all_grown(before.begun, now.begun),
    )


def _grown(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else now - before


def _all_grown(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    grown = {name: count - before.get(name, 0) for name, count in now.items()}
    return {name: count for name, count in grown.items() if count}


def _watched(name: str, target: Any) -> Any:
    """A backend for torch.compile that is watched. Inductor is known by its name alone, and is not."""
    if target == "inductor":
        return target
    bare = name.split(",")[0]
    backend = torch._dynamo.lookup_backend(target)
    by_design = getattr(backend, "runs_in_eager", False)
    return watching(name, backend, may_give_back=bare in (*JOURNALLED, *RUN_IN_EAGER) or by_design)


def _target(name: str) -> Any:
    if ":" in name:
        return _attribute(name, name)
    if name in OWN:
        return _attribute(name, OWN[name])
    if name in torch._dynamo.list_backends(None):
        return name
    near = difflib.get_close_matches(name, backend_names(), 1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise BackendError(
        f"backend {name!r} does not exist{hint} The backends are {', '.join(backend_names())}; "
        "one of your own is written module:attribute"
    )


def _attribute(name: str, place: str) -> Callable[..., Any]:
    module, _, attribute = place.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except Exception as error:
        raise BackendError(f"backend {name!r}: {place} gave {type(error).__name__}: {error}") from error
    if not callable(value):
        raise BackendError(f"backend {name!r}: {place} is a {type(value).__name__}, and must be callable")
    return value


def _compilable(function: Callable[..., Any]) -> Callable[..., Any]:
    """The callable itself where torch.compile takes it; a partial or other object inside a function of its own."""
    if isinstance(function, nn.Module) or hasattr(function, "__code__"):
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _ambient(*contexts: Callable[[], AbstractContextManager[Any]] | None) -> Callable[[], AbstractContextManager[Any]]:
    """Those of the contexts that there are, each within the one before."""

    @contextlib.contextmanager
    def all_of_them() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for context in contexts:
                if context is not None:
                    stack.enter_context(context())
            yield

    return all_of_them


def _whole_backward(compiler: Callable[..., Any]) -> AbstractContextManager[Any]:
    """Every backward as one graph that `compiler` is given."""
    return importlib.import_module("torch._dynamo.compiled_autograd")._enable(compiler)  # type: ignore[no-any-return]


def _own_backward(settings: Mapping[str, Any]) -> Callable[[], AbstractContextManager[Any]] | None:
    """Every backward compiled whole, by our own compiler under the backend's options; None where nobody asks for it."""
    if OWN_BACKWARD not in settings:
        return None
    options = settings.get("options", {})

    def entered() -> AbstractContextManager[Any]:
        return importlib.import_module("assay.compiler.entry.compiled_autograd").compiled_autograd(options)  # type: ignore[no-any-return]

    return entered


def _errors_shown() -> AbstractContextManager[Any]:
    """What a backend raises ends the call. Dynamo may compile anew at each call of a run, so that no late call runs in
    eager. What a backend sets of Dynamo's own limits ends with the run."""
    return torch._dynamo.config.patch(suppress_errors=False, recompile_limit=RECOMPILES)


@contextlib.contextmanager
def _graphs_kept() -> Iterator[None]:
    """Backwards of torch's own that may be gone through twice. With donated buffers, as they are by default, they
    refuse `retain_graph=True` with an error that asks for this setting."""
    config = importlib.import_module("torch._functorch.config")
    with config.patch(donated_buffer=False):
        yield


@contextlib.contextmanager
def _streams_of_eager() -> Iterator[None]:
    """Inductor drawing its random numbers as eager does."""
    config = importlib.import_module("torch._inductor.config")
    with config.patch(fallback_random=True):
        yield
