"""A state machine over one compiled callable and its eager twin: what users do with a callable, in any order.

Each rule writes one step of plain torch code, which both twins take; after it everything that lives is compared
(`assay.harness.search.twin`). A rule draws small integers and picks among what lives by them, so that a failing run
shrinks well.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import hypothesis
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from torch import Tensor

from assay.harness.backends.registry import Backend
from assay.harness.observe.graphs import Graphs
from assay.harness.search.drive import Plan
from assay.harness.search.twin import Argument, Diverged, Step, Subject, Twin
from assay.suites.programs.subjects import SUBJECTS

SIZES = (3, 5, 2, 8, 4, 1, 0)
GRADIENTS = (
    ("none", "none"),
    ("leaf", "leaf"),
    ("none", "none"),
    ("leaf", "none"),
    ("history", "history"),
    ("none", "leaf"),
    ("history", "leaf"),
)
"""What each argument is to autograd: without gradients, a leaf, or a result with a leaf behind it."""
AMBIENTS = (
    "",
    "",
    "",
    "with torch.no_grad():",
    "with torch.inference_mode():",
    'with torch.autocast("cpu", torch.bfloat16):',
    'with torch.autocast("cpu", enabled=False):',
)
OVERLAPS = (
    ("{base}[:{n}], {base}[1:]", 1, 1),
    ("{base}, {base}", 1, 0),
    ("{base}[:{n}], {base}[{n}:]", 2, 0),
    ("{base}, {base}[:]", 1, 0),
    ("{base}[:{n}], {base}[:{n}]", 1, 2),
    ("{base}[::2], {base}[1::2]", 2, 0),
    ("{base}[:{n}].view(-1).view({base}[:{n}].shape), {base}[-{n}:]", 1, 3),
)
"""Two arguments of one shape out of one base, whose rows are so many times n and so many more."""
LAYOUTS = (
    ("{base}", lambda rows, columns: (rows, columns)),
    ("{base}.t()", lambda rows, columns: (columns, rows)),
    ("{base}[1:]", lambda rows, columns: (rows + 1, columns)),
    ("{base}[:, ::2]", lambda rows, columns: (rows, 2 * columns)),
    ("{base}.expand({rows}, -1)", lambda rows, columns: (1, columns)),
)
"""One argument out of its base, and the base's shape."""
WRITES = (".add_(1)", ".mul_(2)", ".zero_()", ".neg_()", "[:1] = 3", ".t_()", ".detach_()", ".requires_grad_()")
LEAF_HOOKS = {
    "observe": "{path}.register_hook(lambda grad: {note})",
    "replace": "{path}.register_hook(lambda grad: {note} or grad * 2)",
    "after": "{path}.register_post_accumulate_grad_hook(lambda leaf: {note})",
    "halve": "{path}.register_post_accumulate_grad_hook(lambda leaf: {note} or setattr(leaf, 'grad', leaf.grad / 2))",
    "take": "{path}.register_post_accumulate_grad_hook(lambda leaf: {note} or setattr(leaf, 'grad', None))",
}
"""Hooks on leaves, and for the first two on any tensor, by what they do."""
CONTIGUOUS = ".clone(memory_format=torch.contiguous_format)"
LAID_OUT = f"(None if each is None else each{CONTIGUOUS})"
GUARDS = ("", "with torch.no_grad():", ".data")

PROFILES = {
    "ci": settings(max_examples=8, stateful_step_count=12),
    "nightly": settings(max_examples=2000, stateful_step_count=20),
    "debug": settings(max_examples=20, stateful_step_count=20, print_blob=True),
}
LIMITS = {
    "freed": "A compiled call is one node of autograd: it is freed as a whole, by the backward of any of its results.",
    "siblings": "A hook on a result, or its kept gradient, sees what arrives from outside of the call, not what "
    "another result of the same call sends.",
    "undefined": "A hook on a result through which no gradient flows is called with None when another result of the "
    "same call is differentiated.",
    "apart": "A result's kept gradient is there too when torch.autograd.grad is asked for an input that another result "
    "of the same call leads to.",
    "written": "The gradient of an input as a call wrote it does not reach that call's results.",
    "strides": "The strides of what torch.autograd.grad gives are those that the backward was compiled for. So is the "
    "stride of a leaf's gradient along a dimension of one element, which twins do not compare.",
    "kept": "Torch ends the process where a result is written whose gradient is retained and that is not the first of "
    "its node (upstream_bugs/retained_gradient_of_a_second_result.py).",
    "order": "The leaves that one call leads to get their gradients in an order of the engine's own.",
}
"""What the machine steers around unless it is `strict`: known limits of compiling a call as one node of autograd."""
small = st.integers(0, 7)
KEEPS = st.sampled_from(("", "", "", "retain_graph", "create_graph"))
Drawing = tuple[int, int, tuple[int, int], tuple[str, str], str]
DRAWING: st.SearchStrategy[Drawing] = st.tuples(
    st.sampled_from(SIZES),
    st.integers(-len(OVERLAPS), len(OVERLAPS) - 1),
    st.tuples(small, small),
    st.sampled_from(GRADIENTS),
    st.sampled_from(AMBIENTS),
)
"""New arguments: their size, overlap (none if negative), layouts and gradients, and what the call runs under."""


def profile(name: str, **changes: Any) -> settings:
    """A profile's settings. Time is bounded by counts: a first compile takes longer than any deadline."""
    return settings(PROFILES[name], deadline=None, suppress_health_check=list(HealthCheck), database=None, **changes)


def indented(ambient: str, line: str) -> str:
    """A line inside a `with`, or the line itself where there is none."""
    return f"{ambient}\n    {line}" if ambient else line


def drawn(name: str, dtype: torch.dtype, shape: tuple[int, ...], gradient: str) -> str:
    """Lines that bind a tensor of new numbers: a leaf with or without gradients, or a result with a leaf behind it."""
    if not dtype.is_floating_point:
        return f"{name} = torch.randint(-4, 5, {shape})"
    number = f"torch.randn({shape}{'' if dtype == torch.float32 else f', dtype={dtype}'})"
    if gradient == "history":
        return f"leaf_{name} = {number}.requires_grad_()\n{name} = leaf_{name}.clone()"
    return f"{name} = {number}{'.requires_grad_()' if gradient == 'leaf' else ''}"


def one_argument(name: str, argument: Argument, n: int, layout: int, gradient: str) -> str:
    """Lines that bind one argument, laid over memory of its own."""
    rows, columns = argument.sizes(n)
    view, shape = LAYOUTS[layout % len(LAYOUTS)]
    base = name if view == "{base}" else f"base_{name}"
    made = drawn(base, argument.dtype, shape(rows, columns), gradient)
    return made if base == name else f"{made}\n{name} = {view.format(base=base, rows=rows)}"


def two_arguments(names: Sequence[str], argument: Argument, n: int, overlap: int, gradient: str) -> str:
    """Lines that bind two arguments over one base."""
    views, times, more = OVERLAPS[overlap % len(OVERLAPS)]
    base = f"base_{names[0]}"
    rows, columns = argument.sizes(n)
    made = drawn(base, argument.dtype, (times * rows + more, columns), gradient)
    return f"{made}\n{', '.join(names)} = {views.format(base=base, n=rows)}"


def rule_then_call(**strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """A rule whose effect shows in a call: half of the time one like an earlier call follows at once.

    Hypothesis leaves whole rules out of a run, so that calls of their own may never come.
    """

    def decorate(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def wrapped(self: Machine, then: str, which: int, **drawn: Any) -> None:
            function(self, **({"which": which} if "which" in strategies else {}), **drawn)
            if then == "alike":
                self.do_call_alike(which)
            elif then == "again":
                self.do_call_again(which, "same")

        del wrapped.__wrapped__  # Hypothesis would read the signature of what is wrapped
        others = {name: strategy for name, strategy in strategies.items() if name != "which"}
        drawn: dict[str, Any] = {"then": st.sampled_from(("", "alike", "", "again")), "which": small} | others
        return rule(**drawn)(wrapped)

    return decorate


@dataclass(frozen=True, slots=True)
class Made:
    """A call that was made: its arguments, what it ran under, and the lines that drew the tensors named `drawn`."""

    arguments: tuple[str, ...]
    ambient: str
    source: str
    drawn: tuple[str, ...]
    n: int
    gradient: str

    def redrawn(self, names: Mapping[str, str]) -> Made:
        """The same lines binding new names, and a call of what they bind."""
        source = re.sub(r"x\d+", lambda name: names[name.group()], self.source)
        drawn = tuple(names[name] for name in self.drawn)
        return replace(self, arguments=drawn, source=source, drawn=drawn)


class Machine(RuleBasedStateMachine):
    """The rules. `backend` and `subjects` are set by a subclass; `failed` takes each difference that was found."""

    backend: ClassVar[Backend]
    subjects: ClassVar[Sequence[Subject]] = SUBJECTS
    strict: ClassVar[bool] = False
    failed: ClassVar[Callable[[Twin, Diverged], None]] = staticmethod(lambda twin, diverged: None)
    ended: ClassVar[Callable[[Twin, Counter[str]], None]] = staticmethod(lambda twin, rules: None)

    def __init__(self) -> None:
        super().__init__()
        self.twin: Twin | None = None
        self.calls: list[Made] = []
        self.taken: Counter[str] = Counter()
        self.graphs = Graphs()
        self.count = 0

    @initialize(salt=st.integers(0, 1 << 30), data=st.data(), drawing=DRAWING)
    def begin(self, salt: int, data: st.DataObject, drawing: Drawing) -> None:
        """Makes the twins and calls them once. Hypothesis begins with all choices 0, which says little."""
        hypothesis.assume(salt)
        self.twin = Twin(data.draw(st.sampled_from(self.subjects)), self.backend)
        self.do(self.twin.subject.setup())
        self.draw_and_call(drawing)

    def teardown(self) -> None:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        if self.twin is not None:
            type(self).ended(self.twin, self.taken)

    def do(self, step: Step) -> None:
        assert self.twin is not None
        self.taken[sys._getframe(1).f_code.co_name] += 1
        try:
            self.twin.do(step)
        except Diverged as diverged:
            type(self).failed(self.twin, diverged)
            raise

    # ---- what lives: expressions that name tensors on both sides

    def new_name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def living(self, *prefixes: str) -> list[str]:
        """Expressions of the tensors that live under names with these prefixes, the latest first."""
        assert self.twin is not None
        paths = [path for path in self.twin.eager.tree.tensors if path.startswith(prefixes)]
        return [path for path in reversed(paths) if self.twin.eager.names(path)]

    def writable(self, prefix: str) -> list[str]:
        return [path for path in self.living(prefix) if self.strict or not self.is_kept(path)]

    def is_kept(self, path: str) -> bool:
        """Whether the gradient of a tensor that is no leaf is retained, or that of another one over its memory."""
        memory = self.tensor(path).untyped_storage()._cdata
        return any(
            tensor.retains_grad and tensor.untyped_storage()._cdata == memory for tensor in self.seeable().values()
        )

    def seeable(self) -> dict[str, Tensor]:
        """The tensors that live, those apart that autograd refuses to look at."""
        assert self.twin is not None
        side = self.twin.eager
        return {path: tensor for path, tensor in side.tree.tensors.items() if path not in side.forbidden}

    def tensor(self, expression: str) -> Tensor:
        assert self.twin is not None
        return self.twin.eager.tree.tensors[expression]

    def parameters(self) -> list[str]:
        assert self.twin is not None
        return [f"model.{name}" for name, _ in self.twin.eager.value("model").named_parameters()]

    def is_begun(self) -> bool:
        return self.twin is not None

    def is_module(self) -> bool:
        return self.twin is not None and self.twin.subject.is_module

    def has_calls(self) -> bool:
        return bool(self.calls)

    def has_a_pair(self) -> bool:
        wanted = () if self.twin is None else self.twin.subject.arguments
        return len(wanted) == 2 and wanted[0] == wanted[1]

    def can_overlap(self) -> bool:
        return self.has_calls() and self.has_a_pair()

    def has_outputs(self) -> bool:
        return bool(self.living("y"))

    def is_without_gradients(self) -> bool:
        return self.twin is not None and not self.twin.eager.modes.grad

    # ---- calls

    def call(self, made: Made) -> None:
        self.calls.append(made)
        line = f"{self.new_name('y')} = f({', '.join(made.arguments)})"
        self.graphs.note_before(self.seeable())
        self.do(Step(indented(made.ambient, line), arguments=made.arguments))
        self.graphs.note_call(self.seeable())

    @precondition(is_begun)
    @rule(drawing=DRAWING)
    def call_with_new_arguments(self, drawing: Drawing) -> None:
        self.draw_and_call(drawing)

    def draw_and_call(self, drawing: Drawing) -> None:
        assert self.twin is not None
        n, overlap, layouts, gradients, ambient = drawing
        wanted = self.twin.subject.arguments
        names = tuple(self.new_name("x") for _ in wanted)
        if overlap >= 0 and self.has_a_pair():
            source = two_arguments(names, wanted[0], n, overlap, gradients[0])
        else:
            each = zip(names, wanted, layouts, gradients, strict=False)
            source = "\n".join(one_argument(name, arg, n, layout, grad) for name, arg, layout, grad in each)
        self.do(Step(source, draws=True))
        self.call(Made(names, ambient, source, names, n, gradients[0]))

    @precondition(has_calls)
    @rule(which=small)
    def call_alike(self, which: int) -> None:
        self.do_call_alike(which)

    def do_call_alike(self, which: int) -> None:
        """New numbers in everything else like an earlier call: what was compiled for that one serves this one."""
        made = self.calls[-1 - which % len(self.calls)]
        redrawn = made.redrawn({name: self.new_name("x") for name in made.drawn})
        self.do(Step(redrawn.source, draws=True))
        self.call(redrawn)

    @precondition(can_overlap)
    @rule(which=small, overlap=st.integers(-2, len(OVERLAPS) - 1))
    def call_with_another_overlap(self, which: int, overlap: int) -> None:
        """New numbers of the sizes of an earlier call, whose tensors share memory in another way, or not at all."""
        assert self.twin is not None
        made = self.calls[-1 - which % len(self.calls)]
        names, wanted = (self.new_name("x"), self.new_name("x")), self.twin.subject.arguments[0]
        if overlap >= 0:
            source = two_arguments(names, wanted, made.n, overlap, made.gradient)
        else:
            source = "\n".join(one_argument(name, wanted, made.n, 0, made.gradient) for name in names)
        self.do(Step(source, draws=True))
        self.call(replace(made, arguments=names, source=source, drawn=names))

    @precondition(has_calls)
    @rule(which=small, ambient=st.sampled_from(("same", "same", *AMBIENTS)))
    def call_again(self, which: int, ambient: str) -> None:
        self.do_call_again(which, ambient)

    def do_call_again(self, which: int, ambient: str) -> None:
        """The same arguments as an earlier call, if they still live."""
        made = self.calls[-1 - which % len(self.calls)]
        if set(made.arguments) <= {*self.writable("x"), *self.writable("y")}:
            self.call(made if ambient == "same" else replace(made, ambient=ambient))

    @precondition(has_outputs)
    @rule(which=small, slot=small, other=small)
    def call_with_an_output(self, which: int, slot: int, other: int) -> None:
        """Earlier results as arguments, as in a recurrence."""
        assert self.twin is not None
        arguments = list(self.calls[-1].arguments)
        fitting = [path for path in self.writable("y") if self.fits(path, arguments[0])]
        if fitting and set(arguments) <= set(self.living("x", "y")):
            arguments[slot % len(arguments)] = fitting[which % len(fitting)]
            if other == 7:
                arguments[(slot + 1) % len(arguments)] = fitting[0]
            self.call(replace(self.calls[-1], arguments=tuple(arguments), ambient=""))

    def fits(self, path: str, example: str) -> bool:
        living = self.living("x", "y")
        return (
            example in living and self.tensor(path).dtype == self.tensor(example).dtype and self.tensor(path).dim() == 2
        )

    # ---- gradients

    @precondition(has_outputs)
    @rule(which=small, others=small, how=small, times=st.sampled_from((1, 1, 1, 2)), keeps=KEEPS)
    def backward(self, which: int, others: int, how: int, times: int, keeps: str) -> None:
        """Backward from one result, or from several of one call.

        It may run twice with retain_graph, leave the graph for whatever comes, or make a graph of the gradients too.
        """
        ends = self.ends(which, others)
        if not ends:
            return
        if keeps:
            self.do(Step("(" + " + ".join(f"{end}.square().sum()" for end in ends) + f").backward({keeps}=True)"))
            return
        if how % 2:
            call = "(" + " + ".join(f"{end}.sum()" for end in ends) + ").backward({})"
        else:
            seeds = ", ".join(f"torch.randn_like({end})" for end in ends)
            call = f"torch.autograd.backward([{', '.join(ends)}], [{seeds}]{{}})"
        tensors = [self.tensor(end) for end in ends]
        for left in reversed(range(times)):
            if not left:
                self.graphs.note_backward(tensors)
            retain = "retain_graph=True" if left else ""
            self.do(Step(call.format(retain if how % 2 or not retain else f", {retain}")))

    def ask_again(self, ends: list[str], inputs: list[str], of: int, by: int) -> None:
        """The gradient of one input, then that of its norm with respect to another, over a graph that may stay."""
        retain = bool(by % 2)
        end, wanted, other = ends[0], inputs[of % len(inputs)], inputs[by % len(inputs)]
        if not retain:
            self.graphs.note_backward([self.tensor(end)])
        name, slope = self.new_name("g"), self.new_name("s")
        again = f"torch.autograd.grad({slope}.square().sum(), [{other}], allow_unused=True, retain_graph={retain})"
        lines = (
            f"({slope},) = torch.autograd.grad({end}.square().sum(), [{wanted}], create_graph=True)",
            f"{name} = {again} if {slope}.requires_grad else None",
            *(() if self.strict else (f"{name} = {name} and [{LAID_OUT} for each in {name}]",)),
            f"{slope} = {slope}.requires_grad, {slope}.detach(){'' if self.strict else CONTIGUOUS}",
        )
        self.do(Step("\n".join(lines)))

    def ends(self, which: int, others: int) -> list[str]:
        """Differentiable results: one, or all of the same call."""
        assert self.twin is not None
        forbidden = set() if self.strict else self.twin.eager.forbidden
        found = [path for path in self.living("y") if self.tensor(path).requires_grad and path not in forbidden]
        found = [path for path in found if self.strict or not self.graphs.is_freed(self.tensor(path))]
        if not found:
            return []
        chosen = found[which % len(found)]
        name = chosen.partition("[")[0].partition(".")[0]
        same = [path for path in found if path == name or path.startswith((f"{name}[", f"{name}."))]
        return same if others % 2 else [chosen]

    @precondition(has_outputs)
    @rule(which=small, of=small, order=st.sampled_from((1, 1, 2)), by=small)
    def ask_for_gradients(self, which: int, of: int, order: int, by: int) -> None:
        """`torch.autograd.grad` with respect to the inputs that take gradients; of the gradients, too."""
        ends = self.ends(which, 0)
        inputs = self.askable(ends)
        if inputs and order == 2:
            if self.strict or not self.is_watched():
                self.ask_again(ends, inputs, of, by)
        elif inputs:
            wanted = inputs[of % len(inputs)]
            self.graphs.note_backward([self.tensor(ends[0])])
            name = self.new_name("g")
            line = f"{name} = torch.autograd.grad({ends[0]}.sum(), [{wanted}], allow_unused=True)"
            same = f"\n{name} = [{LAID_OUT} for each in {name}]"
            self.do(Step(line + ("" if self.strict else same)))

    def is_watched(self) -> bool:
        """Whether somebody looks at the gradients of a result, which those of its gradients are a part of."""
        ends = [self.tensor(path) for path in self.living("y")]
        return any(end.retains_grad or end._backward_hooks for end in ends)

    def askable(self, ends: list[str]) -> list[str]:
        """The inputs whose gradient may be asked for, of what these results come to."""
        if not ends:
            return []
        inputs = [path for path in self.living("x", "leaf_", "base_") if self.tensor(path).requires_grad]
        inputs = [path for path in inputs if self.strict or not self.is_made(path)]
        return [path for path in inputs if self.strict or self._leads_to(ends, path)]

    def _leads_to(self, ends: list[str], path: str) -> bool:
        return bool(ends) and self.graphs.leads_to(self.tensor(ends[0]), self.tensor(path))

    @precondition(has_outputs)
    @rule(which=small, how=st.sampled_from(("hook", "retain_grad")), inputs=st.sampled_from(("", "", *LEAF_HOOKS)))
    def watch(self, which: int, how: str, inputs: str) -> None:
        """A hook on a result, or its kept gradient; or a hook on an input."""
        if inputs:
            self.watch_an_input(which, inputs)
            return
        ends = [end for end in self.ends(which, 0) if self.strict or not self.feeds(end)]
        if how == "hook" and not self.strict:
            ends = [end for end in ends if not self.graphs.has_siblings(self.tensor(end))]
        if ends and how == "hook":
            self.do(Step(f"{ends[0]}.register_hook(lambda grad: log.append({ends[0]!r}) or grad * 2)"))
        elif ends:
            self.do(Step(f"{ends[0]}.retain_grad()"))

    def watch_an_input(self, which: int, how: str) -> None:
        """A hook on an input, or on the leaf behind one. What it notes has no order among leaves, unless `strict`."""
        found = [path for path in self.living("x", "leaf_", "base_", "model") if self.tensor(path).requires_grad]
        is_whole = self.strict or all(path.isidentifier() for path in self.living("y"))  # or None may flow to it
        between = is_whole and how in ("observe", "replace")
        found = [path for path in found if self.is_leaf(path) or (between and (self.strict or not self.is_made(path)))]
        if found:
            path = found[which % len(found)]
            note = f"log.append({path!r})" if self.strict else f"(log.append({path!r}), log.sort())[1]"
            self.do(Step(LEAF_HOOKS[how].format(path=path, note=note)))

    def is_made(self, path: str) -> bool:
        return self.graphs.is_made_by_a_call(self.tensor(path))

    def is_leaf(self, path: str) -> bool:
        """Whether a value is a leaf. Eager does not say of a view that `no_grad` made of what was written since."""
        try:
            return self.tensor(path).is_leaf
        except RuntimeError:
            return False

    def feeds(self, end: str) -> bool:
        return self.graphs.feeds_its_siblings(self.tensor(end))

    # ---- writes by the caller

    @precondition(has_outputs)
    @rule(
        where=st.sampled_from(("y", "y", "x")),
        which=small,
        write=st.sampled_from(WRITES),
        guard=st.sampled_from(GUARDS),
    )
    def write(self, where: str, which: int, write: str, guard: str) -> None:
        """An in-place write to a result or to an input."""
        living = self.writable(where)
        if not living:
            return
        target = living[which % len(living)]
        if guard == ".data":
            ends = [path for path in self.living("y") if self.tensor(path).requires_grad]
            if not self.strict and where == "x" and ends:
                return  # what eager's formulas keep, and would not notice, ours may have kept as another value
            self.do(Step(f"{target}.data{write}"))
        else:
            self.do(Step(indented(guard, f"{target}{write}")))

    @precondition(has_outputs)
    @rule(which=small)
    def forget(self, which: int) -> None:
        """The caller drops a result."""
        assert self.twin is not None
        names = [name for name in self.twin.eager.namespace if name.startswith("y")]
        self.do(Step(f"del {names[which % len(names)]}"))

    # ---- a module's state

    @precondition(is_module)
    @rule_then_call(training=st.booleans())
    def set_training(self, training: bool) -> None:
        self.do(Step("model.train()" if training else "model.eval()"))

    @precondition(is_module)
    @rule_then_call(to_none=st.booleans())
    def zero_grad(self, to_none: bool) -> None:
        self.do(Step(f"model.zero_grad(set_to_none={to_none})"))

    @precondition(is_module)
    @rule_then_call()
    def optimizer_step(self) -> None:
        self.do(Step("optimizer.step()"))

    @precondition(is_module)
    @rule_then_call(assign=st.booleans())
    def load_state_dict(self, assign: bool) -> None:
        state, options = ("copy.deepcopy(saved)", ", assign=True") if assign else ("saved", "")
        self.do(Step(f"model.load_state_dict({state}{options})"))

    @precondition(is_module)
    @rule_then_call(which=small, how=st.sampled_from(("new", "write", "data", "freeze", "thaw")))
    def change_parameter(self, which: int, how: str) -> None:
        names = self.parameters()
        name = names[which % len(names)]
        lines = {
            "new": f"{name} = nn.Parameter({name}.detach() * 2)",
            "write": f"with torch.no_grad():\n    {name}.mul_(0.5)",
            "data": f"{name}.data = {name}.data + 1",
            "freeze": f"{name}.requires_grad_(False)",
            "thaw": f"{name}.requires_grad_(True)",
        }
        self.do(Step(lines[how]))

    # ---- the process

    @precondition(has_calls)
    @rule_then_call()
    def reset_dynamo(self) -> None:
        self.do(Step("torch._dynamo.reset()"))

    @precondition(is_without_gradients)
    @rule_then_call()
    def turn_gradients_on(self) -> None:
        """After a callable that left them off."""
        self.do(Step("torch.set_grad_enabled(True)"))


def machine_for(
    backend: Backend,
    subjects: Sequence[Subject] = SUBJECTS,
    failed: Callable[[Twin, Diverged], None] = Machine.failed,
    ended: Callable[[Twin, Counter[str]], None] = Machine.ended,
    strict: bool = False,
) -> type[Machine]:
    """The machine on a backend, as Hypothesis takes it: a class."""
    hooks = {"failed": staticmethod(failed), "ended": staticmethod(ended)}
    return type("Machine", (Machine,), {"backend": backend, "subjects": subjects, "strict": strict, **hooks})


def search(
    backend: Backend,
    plan: Plan,
    failed: Callable[[Twin, Diverged], None],
    ended: Callable[[Twin, Counter[str]], None],
) -> None:
    """Draws the runs of a plan, ending with the first that fails. What fails and what ends is told, nothing raised.

    Of more than 8 runs Hypothesis makes many out of earlier ones, so a campaign is many searches with other seeds.
    """
    chosen = [subject for subject in SUBJECTS if not plan.subjects or subject.name in plan.subjects.split(",")]
    machine = hypothesis.seed(plan.seed)(machine_for(backend, chosen, failed, ended, plan.strict))
    wanted = profile("nightly", max_examples=plan.runs + 1, stateful_step_count=plan.steps, phases=[Phase.generate])
    with contextlib.suppress(Diverged):
        run_state_machine_as_test(machine, settings=settings(wanted, report_multiple_bugs=False))
