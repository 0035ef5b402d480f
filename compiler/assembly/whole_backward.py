"""The engine with its backwards compiled: what it hands over is recorded, compiled, kept by the engine itself, and run.

    run_backward -> the engine records -> Backward -> stretches and calls -> one function, kept by the engine

The engine looks for what it has recorded before by the structure of the graph. A stretch looks for what it has compiled
before by the tensors that it is given.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo import eval_frame
from torch.autograd import Variable
from torch.autograd.function import FunctionCtx
from torch.autograd.graph import Node, get_gradient_edge
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.hooks import RemovableHandle

from assay import compiler
from assay.compiler.assembly.backward_stretches import Groups, StretchCall
from assay.compiler.assembly.changed_hooks import Rest
from assay.compiler.assembly.collecting_later import collecting_later
from assay.compiler.assembly.compilers import Compilers
from assay.compiler.autograd.joint import holders_of_one
from assay.compiler.autograd.whole.eager_order import Roots
from assay.compiler.autograd.whole.missing_gradients import noting
from assay.compiler.autograd.whole.recorder import Begun, Call, Recorder
from assay.compiler.autograd.whole.segments import cut, leaves_behind
from assay.compiler.codegen.call.gradients.whole_backward import emit_backward
from assay.compiler.codegen.host import load
from assay.compiler.ir.graph.backward.engine_steps import Backward, Stretch
from assay.compiler.journal import Journal, count_backward, count_eager_backward
from assay.compiler.options import Options
from assay.compiler.runtime.call import in_batch, untraced
from assay.compiler.runtime.engine_calls import (
    Outdated,
    beside,
    changes,
    given_hooks,
    note_added,
    note_removed,
    removed,
)
from assay.compiler.torch_compat import captures_elsewhere

MakeCompilers = Callable[[Options, Journal], Compilers]
MOST_BACKWARDS = 256
"""How many recorded backwards the engine keeps: a program whose graph is another at each step records each."""

engine_hook: Any = torch._C._dynamo.compiled_autograd


@contextmanager
def compiling(options: Options, make: MakeCompilers) -> Iterator[None]:
    """While it is entered, backwards are compiled; what was there before it is there again behind it."""
    compiler = _compiler_of(options, make)
    holders_of_one()  # runs a backward when it is asked first, as a compile within a backward would
    engine = Variable._execution_engine
    outer = engine_hook.set_autograd_compiler(compiler.recorder, True)
    Variable._execution_engine = Engine(plain_engine(), compiler)  # type: ignore[assignment]
    try:
        with _noticing_hooks():
            yield
    finally:
        Variable._execution_engine = engine
        engine_hook.set_autograd_compiler(*outer)


_switched_on = ExitStack()


def switch_on(options: Options, make: MakeCompilers) -> None:
    """From here on backwards are compiled, until `switch_off`."""
    switch_off()
    _switched_on.enter_context(compiling(options, make))


def switch_off() -> None:
    """Backwards are what they were before `switch_on`."""
    _switched_on.close()


@contextmanager
def _noticing_hooks() -> Iterator[None]:
    """While it is entered, a compiled backward learns of hooks that come and go while it runs, and of functions that
    ask for gradients that are missing as None."""
    ways: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (RemovableHandle, "remove", _removing),
        (torch.Tensor, "register_hook", _adding),
        (torch.Tensor, "register_post_accumulate_grad_hook", _adding),
        (FunctionCtx, "set_materialize_grads", noting),
    )
    with ExitStack() as restored:
        for owner, name, noticing in ways:
            before = getattr(owner, name)
            setattr(owner, name, noticing(before))
            restored.callback(setattr, owner, name, before)
        yield


def _adding(register: Callable[..., RemovableHandle]) -> Callable[..., RemovableHandle]:
    """A method of tensors that registers a hook, of which a compiled backward that runs meanwhile learns."""

    @functools.wraps(register)
    def adding(tensor: torch.Tensor, hook: Callable[..., Any]) -> RemovableHandle:
        handle = register(tensor, hook)
        run = eager_engine.offered
        is_inside = run is not None and run.has_begun and run.thread == threading.get_ident()
        if run is not None and is_inside and not is_recorded() and run.meets(tensor):
            note_added(tensor)
        return handle

    return adding


def _removing(remove: Callable[[RemovableHandle], None]) -> Callable[[RemovableHandle], None]:
    """`RemovableHandle.remove`, of which a compiled backward that runs meanwhile learns."""

    def removing(handle: RemovableHandle) -> None:
        if _running.locked():
            note_removed(handle)
        remove(handle)

    return removing


_compilers: dict[Options, BackwardCompiler] = {}
_kept: list[object] = []
"""Whose backwards the engine keeps: the options, and how many the other compiler had recorded by then."""


def _compiler_of(options: Options, make: MakeCompilers) -> BackwardCompiler:
    """The compiler for these options. What the engine keeps of another one's is given up."""
    owner: list[object] = [options, captures_elsewhere()]
    if _kept != owner:
        engine_hook.clear_cache()
        _kept[:] = owner
    return _compilers.setdefault(options, BackwardCompiler(options, make))


class _Switch:
    """The engine runs backwards itself while anybody has switched its compiler off.

    `offered` is the backward that the engine has been given to hand over. Until it has asked for the compiler, nobody
    may switch that off: the engine would then call a compiler that is gone.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.outer: tuple[Any, bool] = (None, False)
        self.offered: Run | None = None

    def offer(self, run: Run) -> bool:
        """Whether the engine may hand a backward over: nobody has switched its compiler off."""
        with self.lock:
            if self.count:
                return False
            run.taken.clear()
            compiler = engine_hook.set_autograd_compiler(None, False)
            engine_hook.set_autograd_compiler(*compiler)
            if compiler[0] is None:  # switched off elsewhere, so that nobody asks for it
                run.taken.set()
            self.offered = run
            return True

    def __enter__(self) -> None:
        while not self._is_off():
            if (run := self.offered) is not None:
                run.taken.wait()

    def _is_off(self) -> bool:
        with self.lock:
            if self.offered is not None and not self.offered.taken.is_set():
                return False
            if not self.count:
                self.outer = engine_hook.set_autograd_compiler(None, False)
            self.count += 1
            return True

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.count -= 1
            if not self.count:
                engine_hook.set_autograd_compiler(*self.outer)


eager_engine = _Switch()
"""`with eager_engine:` backwards are the engine's own."""
_running = threading.Lock()
"""Held while a backward is recorded or runs as a compiled one: the engine takes one at a time."""


def plain_engine() -> Any:
    """The engine itself, whatever compiles its backwards."""
    engine = Variable._execution_engine
    return engine.engine if isinstance(engine, Engine) else engine


@dataclass(slots=True)
class Run:
    """One backward: the tensors that it begins at and is for, whether it has begun to run, and what is to be called
    when it is done. `taken`: the engine needs its compiler no longer."""

    outputs: Sequence[Any]
    inputs: Sequence[Any]
    has_begun: bool = False
    taken: threading.Event = field(default_factory=threading.Event)
    callbacks: list[Callable[[], None]] = field(default_factory=list)
    walked: dict[Node, int] = field(default_factory=dict)
    thread: int = field(default_factory=threading.get_ident)

    @property
    def roots(self) -> Roots:
        starts, ends = (tuple(map(_node_of, each)) for each in (self.outputs, self.inputs))
        return Roots(starts, ends or None)

    def meets(self, tensor: torch.Tensor) -> bool:
        """Whether the backward comes to a tensor."""
        return tensor.requires_grad and get_gradient_edge(tensor).node in self.numbers()

    def numbers(self) -> Mapping[Node, int]:
        """The nodes of the backward, by their numbers in the engine's order."""
        if not self.walked:
            self.walked.update(self.roots.numbers())
        return self.walked


@dataclass(slots=True)
class Engine:
    """The engine as Python calls it, where backwards are compiled."""

    engine: Any
    compiler: BackwardCompiler

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    @untraced
    def run_backward(self, *given: Any, **rest: Any) -> Any:
        """Takes what torch's engine does: tensors, gradients, keep_graph, create_graph, inputs, ...

        Dynamo does not trace it, as it traces no engine of torch's, where a compiled function goes backward.
        """
        if is_recorded():
            if _is_watched():
                count_eager_backward("a mode of the program's sees each operator")
            with eager_engine:  # a mode would see the recording, and then each operator again
                return self.engine.run_backward(*given, **rest)
        tensors, _, _, creates, inputs = given[:5]
        reason, run = why_eager(creates), Run(tensors, inputs)
        if reason or not self._begins(run):
            count_eager_backward(reason or "another backward runs")
            return self._run_eager(given, rest)
        try:
            found = self._run_compiled(run, given, rest)
            with torch.no_grad():
                for callback in run.callbacks:  # one may add others
                    callback()
            return found
        except (NotImplementedError, RuntimeError) as error:
            if run.has_begun:
                raise
            refusal = str(error)
        finally:
            run.taken.set()
            self.compiler.recording.close()
            self.compiler.run = eager_engine.offered = None
            removed.clear()
            changes.clear()
            given_hooks.clear()
            beside.leave()
            _running.release()
        found = self._run_eager(given, rest)
        count_eager_backward(f"the engine cannot hand it over: {refusal.splitlines()[0]}")
        return found

    def _begins(self, run: Run) -> bool:
        """Whether a backward is the one that is handed over now."""
        if not _running.acquire(blocking=False):
            return False
        if not eager_engine.offer(run):
            _running.release()
            return False
        self.compiler.forget_many()
        self.compiler.run = run
        return True

    def _run_compiled(self, run: Run, given: tuple[Any, ...], rest: Mapping[str, Any]) -> Any:
        """The backward, recorded anew where what is kept of it was recorded for other numbers."""
        try:
            return self.engine.run_backward(*given, **rest)
        except Outdated:
            engine_hook.clear_cache()
            is_offered = eager_engine.offer(run)
            return self.engine.run_backward(*given, **rest) if is_offered else self._run_eager(given, rest)

    def _run_eager(self, given: tuple[Any, ...], rest: Mapping[str, Any]) -> Any:
        with eager_engine:
            run = eager_engine.offered
            if run is not None and run.thread != threading.get_ident():
                beside.enter()
            return self.engine.run_backward(*given, **rest)

    @untraced
    def queue_callback(self, callback: Callable[[], None]) -> None:
        run = self.compiler.run
        if run is not None and run.has_begun and eager_engine.count <= 1:
            run.callbacks.append(callback)
        else:
            self.engine.queue_callback(callback)


def is_recorded() -> bool:
    """Whether a mode sees each operator, as where a compiler records a program: the engine then runs them itself."""
    return torch._C._len_torch_dispatch_stack() > 0


def _is_watched() -> bool:
    """Whether one of the modes is the program's, and none by which a compiler records."""
    modes: list[Any] = _get_current_dispatch_mode_stack()
    own = compiler.__name__
    return not all(mode.is_infra_mode() or type(mode).__module__.startswith(own) for mode in modes)


def why_eager(creates_graph: bool) -> str:
    """Why a backward is not recorded; "" if it is."""
    if creates_graph:
        return "gradients of its gradients are recorded (create_graph)"
    if torch.is_anomaly_enabled():
        return "anomaly detection is on"
    if in_batch():
        return "a batch goes through it"
    return "a stance forces eager" if eval_frame._stance.stance == "force_eager" else ""


@dataclass(slots=True)
class BackwardCompiler:
    """What compiles backwards under the same options. `run` is the backward that runs now, `recording` what is open
    while it is recorded."""

    options: Options
    make: MakeCompilers
    run: Run | None = None
    captures: int = 0
    kept: int = 0
    recording: ExitStack = field(default_factory=ExitStack)

    def forget_many(self) -> None:
        """Has the engine give up what it keeps where that has become too much."""
        if self.kept > MOST_BACKWARDS:
            engine_hook.clear_cache()
            self.kept = 0

    def recorder(self) -> Recorder:
        if self.run is not None:
            self.run.taken.set()
            self.recording.enter_context(collecting_later())
        self.captures += 1
        self.kept += 1
        return Recorder(self.compile, self.places, self.captures)

    def places(self, names: Sequence[str]) -> Mapping[int, int] | None:
        """Where each node stands in eager's order, by its number in the engine's; None where nobody knows the roots."""
        return None if self.run is None else self.run.roots.places(names)

    def numbers(self) -> Mapping[Node, int]:
        """The nodes of the backward that runs now, by their numbers in the engine's order."""
        return {} if self.run is None else self.run.numbers()

    @staticmethod
    def _stretch(
        backward: Backward,
        compilers: Compilers,
        journal: Journal,
        stretch: Stretch,
        groups: Groups,
    ) -> Callable[..., object]:
        call = StretchCall(backward, stretch, compilers, journal, groups)
        return call.by_leaves if groups else call

    def compile(self, backward: Backward, begun: Begun) -> tuple[Call, Callable[..., object]]:
        journal = Journal.open(self.options)
        compilers = self.make(self.options, journal)
        journal.state("backward", backward.text)
        count_backward()
        parts = cut(backward)
        source = emit_backward(
            backward,
            parts,
            leaves_behind(backward, parts),
            len(begun.inputs),
            functools.partial(self._stretch, backward, compilers, journal),
            Rest(backward, parts, self.numbers),
        )
        journal.state("source_backward", lambda: source.text)
        call = load(source.text, source.namespace, "whole_backward")
        self.recording.close()
        return functools.partial(_run, self), call


def _run(compiler: BackwardCompiler, call: Call, *given: Any) -> list[torch.Tensor | None]:
    """Calls a compiled backward, inside which the engine runs others itself."""
    if compiler.run is not None:
        compiler.run.has_begun = True
        compiler.run.taken.set()
        given_hooks[:] = given[3]
    with eager_engine:
        return call(*given)


def _node_of(root: Any) -> Node:
    return get_gradient_edge(root).node if isinstance(root, torch.Tensor) else root.node
