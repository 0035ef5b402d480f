"""A callable and its compiled twin: the same lines run on both, and everything that a program can see is compared.

A step is plain torch source. It runs first in the namespace of the eager side, then in that of the compiled side,
where `compile` compiles. Each side has its own random state and its own ambient modes, so neither sees the other.
After the step all that lives in the two namespaces is compared, whatever step it came from:

    error      the class of what the step raised
    structure  containers, kinds and plain values (scalars, the log that hooks write)
    facts      shape, dtype, stride, offset, requires_grad, is_leaf, view-ness, inference-ness, kept gradients
    values     bit for bit; where bits differ, within the bound of `harness/judge/tolerance.py`. Its samples are
               replays of the steps. Where these tell too little, its anchor is a replay in float64. Once a call was
               made under autocast, the precision is bfloat16's
    gradient   of every leaf and every tensor that retains one: None is not zero; zeros have no sign, because a backward
               of several results adds zeros for those that nothing flowed back to. The stride of a dimension of one
               element is left out: it follows from the tangent. Autograd lays all other dimensions as the leaf's
    version    whether it grew, as in `assay.harness.judge.compare`, for each tensor that lived before the step
    alias      which tensors (gradients too) are one object, or share bytes
    random     the state of torch's generator
    ambient    grad mode, inference mode, autocast, default dtype
    compiles   a call whose key was seen since the last reset compiles nothing. One with a new key compiles at most the
               graphs of its subject. It may compile as many more where its arguments share memory. A backend that
               Dynamo calls learns of that only from the call itself, once for each graph of other sizes that Dynamo
               has made since

The key of a call is what a compiler may specialise on:

- the modes, and the modules' training flags
- how the arguments overlap
- of each argument, parameter and buffer: shape, stride, offset, dtype, requires_grad, is_leaf, hooks, whether it is a
  view, and whether it is an inference tensor

What a step had done before both sides raised is not held against ours. In a backward, how far the engine came is its
own order of work, so gradients are set to None. In a call, Dynamo raises while it traces, before anything has run,
where eager has done a part. A call that raised and left the sides different ends the run (`is_over`).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch._dynamo
from torch import Tensor, nn
from torch._dynamo.utils import counters

from assay.harness.backends.registry import Backend
from assay.harness.calls.clone import nudged
from assay.harness.calls.errors import name_of, unwrapped
from assay.harness.calls.memory import aliases, bits
from assay.harness.calls.tree import Tree, walk
from assay.harness.judge import fields
from assay.harness.judge.float64 import WIDER, Drawn, Recast
from assay.harness.judge.tolerance import DIFFERS, Evidence, Finding, Precision, explain, explain_reals, is_same
from assay.harness.observe.observation import Facts, facts_of
from assay.harness.outcome import Difference

SAMPLES = 4
RECOMPILE_LIMIT = 64
"""Dynamo's own limit, after which it runs a callable in eager for good, is reached in a run of twenty steps."""
HIDDEN = ("f", "optimizer")
"""Names of a program that are no values to look at: the callable itself, and what only holds tensors seen already."""
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


class Diverged(AssertionError):
    """The twins differ; `differences` says where, `steps` how to get there."""

    def __init__(self, steps: Sequence[Step], differences: Sequence[Difference]) -> None:
        super().__init__("\n".join(f"{each.field} at {each.path}: {each.detail}" for each in differences))
        self.steps, self.differences = tuple(steps), tuple(differences)


@dataclass(frozen=True, slots=True)
class Argument:
    """One tensor argument of a subject: its shape, in which "n" stands for the size that calls change."""

    shape: tuple[int | str, ...] = ("n", 4)
    dtype: torch.dtype = torch.float32

    def sizes(self, n: int) -> tuple[int, ...]:
        return tuple(n if size == "n" else int(size) for size in self.shape)


@dataclass(frozen=True, slots=True)
class Subject:
    """A function, or a module class that is made without arguments, to be driven.

    `needs` are other definitions that its source mentions; `graphs` is how many graphs one call has.
    """

    made_of: Callable[..., Any]
    arguments: tuple[Argument, ...] = (Argument(),)
    needs: tuple[Callable[..., Any], ...] = ()
    graphs: int = 1

    @property
    def name(self) -> str:
        return self.made_of.__name__

    @property
    def is_module(self) -> bool:
        return isinstance(self.made_of, type)

    def setup(self) -> Step:
        """The lines that make the callable `f`, and a module's `model`, `optimizer` and `saved` state."""
        if not self.is_module:
            return Step(f"f = compile({self.name})\nlog = []")
        return Step(
            f"model = {self.name}()\n"
            "f = compile(model)\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.125)\n"
            "saved = copy.deepcopy(model.state_dict())\n"
            "log = []",
            draws=True,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """Lines of plain torch code. `draws`: they make numbers out of nothing, which a sample moves by a rounding.
    `arguments`: the expressions that the call of `f` in these lines is given; empty if they do not call it."""

    source: str
    draws: bool = False
    arguments: tuple[str, ...] = ()

    @property
    def is_backward(self) -> bool:
        return "backward(" in self.source or "autograd.grad(" in self.source


@dataclass(slots=True)
class Modes:
    """What a step may leave changed in the process: each side has its own."""

    random: Tensor = field(default_factory=lambda: torch.Generator().manual_seed(0).get_state())
    grad: bool = True
    default_dtype: torch.dtype = torch.float32

    def enter(self) -> None:
        torch.set_rng_state(self.random)
        torch.set_grad_enabled(self.grad)
        torch.set_default_dtype(self.default_dtype)

    def keep(self) -> None:
        self.random = torch.get_rng_state()
        self.grad, self.default_dtype = torch.is_grad_enabled(), torch.get_default_dtype()

    @property
    def ambient(self) -> dict[str, object]:
        return {"grad mode": self.grad, "default dtype": self.default_dtype}


@dataclass(slots=True)
class Side:
    """One of the twins: its namespace, its modes, and what the last step left of each tensor."""

    namespace: dict[str, Any]
    modes: Modes = field(default_factory=Modes)
    error: BaseException | None = None
    tree: Tree = field(default_factory=Tree)
    versions: dict[str, tuple[Tensor, int]] = field(default_factory=dict)
    grown: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Facts | str] = field(default_factory=dict)
    """Of each tensor, gradients too; the class of the error where autograd forbids to look at it."""
    numbers: dict[str, Tensor] = field(default_factory=dict)
    written: frozenset[str] = frozenset()

    def run(self, step: Step) -> None:
        """Runs the step and looks at everything that lives after it."""
        code = _compiled_source(step.source)
        before = dict(self.versions)
        self.modes.enter()
        self.error = None
        try:
            exec(code, self.namespace)
        except Exception as error:
            self.error = error
        finally:
            self.modes.keep()
            Modes(self.modes.random).enter()
        self._look(before)

    def value(self, expression: str) -> Any:
        return eval(expression, self.namespace)

    def names(self, path: str) -> bool:
        """Whether the path of a tensor is also an expression for it."""
        try:
            return self.value(path) is self.tree.tensors[path]
        except (AttributeError, SyntaxError, NameError):
            return False

    @property
    def gradients(self) -> dict[str, Tensor | None]:
        """The gradient of every leaf and of every tensor that retains its own, by the tensor's path."""
        return {
            path: tensor.grad
            for path, tensor in self.tree.tensors.items()
            if tensor.requires_grad and path not in self.forbidden and _receives_gradient(tensor)
        }

    @property
    def forbidden(self) -> set[str]:
        """Views that autograd refuses to look at: made under no_grad, their base written with gradients on."""
        return {path for path, facts in self.facts.items() if isinstance(facts, str)}

    def drop_gradients(self) -> None:
        for path in self.gradients:
            self.tree.tensors[path].grad = None

    def _look(self, before: Mapping[str, tuple[Tensor, int]]) -> None:
        self.tree = _walk_namespace(self.namespace)
        tensors = self.tree.tensors
        names = _names(tensors)
        self.facts = {path: _facts(tensor, names) for path, tensor in tensors.items()}
        self.facts |= {path: _facts(tensor, {}) for path, tensor in _given(self.gradients).items()}
        self.versions = {path: (tensor, tensor._version) for path, tensor in tensors.items() if _has_version(tensor)}
        kept = {path for path, (tensor, _) in self.versions.items() if path in before and before[path][0] is tensor}
        self.grown = {path: self.versions[path][1] - before[path][1] for path in kept}
        numbers = {path: bits(tensor).clone() for path, tensor in tensors.items()}
        self.written = frozenset(path for path in kept if not torch.equal(numbers[path], self.numbers[path]))
        self.numbers = numbers


@dataclass(frozen=True, slots=True)
class CompileCount:
    """How many graphs of calls a backend has compiled: by our journal where it is ours, else by Dynamo's counter.

    A whole backward that is recorded is no graph of a call.
    """

    backend: str

    def __call__(self) -> int:
        if self.backend.split(",")[0] == "assay":
            totals = importlib.import_module("assay.compiler.journal").totals()
            return int(totals["compiles"]) - int(totals["pieces"]) - int(totals["backwards"])
        return int(counters["stats"]["unique_graphs"])


class Twin:
    """A subject, eager and compiled, and the steps that both have taken."""

    def __init__(self, subject: Subject, backend: Backend) -> None:
        self.subject, self.backend = subject, backend
        self.steps: list[Step] = []
        self.keys: set[object] = set()
        self.compiles = 0
        self.is_over = False
        self._count = CompileCount(backend.name)
        torch._dynamo.reset()
        self.eager = Side(namespace_of(subject, lambda function: function))
        self.ours = Side(namespace_of(subject, backend.wrap))

    def do(self, step: Step) -> None:
        """Takes a step on both sides. Raises: Diverged if the twins differ after it."""
        if self.is_over:
            return
        self.steps.append(step)
        found = [*self._take(step)]
        self.is_over = bool(found)
        if found and not (step.arguments and self.both_raised and found[0].field != "error"):
            raise Diverged(self.steps, found)

    @property
    def both_raised(self) -> bool:
        return self.eager.error is not None and self.ours.error is not None

    def _take(self, step: Step) -> Iterator[Difference]:
        key = self._key(step) if step.arguments else None
        given = [value for name in step.arguments if isinstance(value := self.ours.value(name), torch.Tensor)]
        overlaps = len({value.untyped_storage()._cdata for value in given}) < len(given)
        if "_dynamo.reset(" in step.source:
            self.keys.clear()
        self.eager.run(step)
        before = self._count()
        with self.backend.ambient(), torch._dynamo.config.patch(recompile_limit=RECOMPILE_LIMIT):
            self.ours.run(step)
        made = self._count() - before
        self.compiles += made
        if self.both_raised and step.is_backward:
            self.eager.drop_gradients()
            self.ours.drop_gradients()
        yield from Comparison(self.eager, self.ours, self._samples, self._truth, self._is_coarse()).differences()
        yield from self._compile_difference(key, made, overlaps)

    def _compile_difference(self, key: object, made: int, overlaps: bool) -> Iterator[Difference]:
        known = key is None or key in self.keys
        limit = self.subject.graphs * (overlaps + (not known))
        if key is not None and self.ours.error is None:
            self.keys.add(key)
        if made > limit:
            said = "a call like an earlier one" if known else "this step"
            yield Difference("compiles", "call", f"{said} compiled {made} graphs; at most {limit} follow from its key")

    def _key(self, step: Step) -> object:
        """What a compiler may specialise this call on."""
        side = self.ours
        arguments = {expression: side.value(expression) for expression in step.arguments}
        model = side.namespace.get("model")
        state = {} if model is None else dict(walk(model, "model").tensors)
        training = () if model is None else tuple(module.training for module in model.modules())
        ambient = step.source.partition("f(")[0].split("\n")[:-1]
        slots = {f"{index}": tensor for index, tensor in enumerate(arguments.values())}
        return (
            tuple(ambient),
            tuple(side.modes.ambient.values()),
            tuple(_traits(tensor) for tensor in (*arguments.values(), *state.values())),
            aliases(slots | state),
            _offsets(list(arguments.values())),
            training,
        )

    def _is_coarse(self) -> bool:
        """Whether some call was made under autocast, so that numbers have been rounded to bfloat16 on their way."""
        return any(step.arguments and "torch.bfloat16" in step.source for step in self.steps)

    def _samples(self, path: str) -> list[Tensor]:
        """The numbers at a path in eager replays, each with every number that was drawn moved to a neighbour."""
        runs = [replay(self.subject, self.steps, seed, self._is_coarse()) for seed in range(1, SAMPLES + 1)]
        return [tensor for run in runs if (tensor := numbers_at(run, path)) is not None]

    def _truth(self, path: str) -> Tensor | str:
        """The numbers at a path in an eager replay in float64, or why there are none."""
        side = replay_in_float64(self.subject, self.steps)
        if side.error is not None:
            return f"the float64 run raised {name_of(side.error)}"
        if not torch.equal(side.modes.random, self.eager.modes.random):
            return "the float64 run drew other numbers"
        found = numbers_at(side, path)
        return "the float64 run has no such value" if found is None else found


def replay(subject: Subject, steps: Sequence[Step], seed: int, is_coarse: bool = False) -> Side:
    """The steps in eager once more, with every drawn number moved to a neighbour by `seed`, of bfloat16 if coarse."""
    move = Drawn(_nudged_coarsely(seed) if is_coarse else nudged(seed, moves_whole=False))
    return _replay(subject, steps, lambda step: move if step.draws else contextlib.nullcontext())


def replay_in_float64(subject: Subject, steps: Sequence[Step]) -> Side:
    """The steps in eager once more, in float64, over the same drawn numbers."""
    return _replay(subject, steps, lambda _: Recast(torch.float32, torch.float64, WIDER[torch.float64]))


def _replay(
    subject: Subject, steps: Sequence[Step], within: Callable[[Step], contextlib.AbstractContextManager[object]]
) -> Side:
    """The steps in eager; what the compiled side has compiled stays, though a step resets Dynamo."""
    side = Side(namespace_of(subject, lambda function: function))
    with mock.patch.object(torch._dynamo, "reset", lambda: None):
        for step in steps:
            with within(step):
                side.run(step)
    return side


def _nudged_coarsely(seed: int) -> Callable[[Tensor], Tensor]:
    return lambda flat: nudged(seed)(flat.bfloat16()).to(flat.dtype) if flat.is_floating_point() else flat


def numbers_at(side: Side, path: str) -> Tensor | None:
    """A tensor by its path; a gradient's path ends in `.grad`."""
    if path.endswith(".grad"):
        return side.gradients.get(path.removesuffix(".grad"))
    return side.tree.tensors.get(path)


def namespace_of(subject: Subject, compile: Compile) -> dict[str, Any]:
    """What the lines of a program may name: torch, the subject, and `compile`."""
    return {
        "torch": torch,
        "nn": nn,
        "copy": copy,
        "compile": compile,
        subject.name: subject.made_of,
        "__builtins__": __builtins__,
    }


@dataclass(frozen=True, slots=True)
class Comparison:
    """The two sides after a step."""

    eager: Side
    ours: Side
    samples: Callable[[str], list[Tensor]]
    truth: Callable[[str], Tensor | str]
    is_coarse: bool

    def differences(self) -> Iterator[Difference]:
        yield from fields.errors("step", self.eager.error, self.ours.error, tell=_first_line)
        if (self.eager.error is None) != (self.ours.error is None):
            return  # what one of them did after the other stopped is no difference of its own
        yield from fields.plain("structure", self.eager.tree.kinds, self.ours.tree.kinds)
        yield from fields.plain("values", self.eager.tree.scalars, self.ours.tree.scalars)
        yield from self._tensors()
        yield from self._gradients()
        yield from fields.versions(self.eager.grown, self.ours.grown, self.eager.written)
        eager, ours = (aliases(side.tree.tensors | _given(side.gradients)) for side in (self.eager, self.ours))
        yield from fields.aliases(eager, ours)
        if not torch.equal(self.eager.modes.random, self.ours.modes.random):
            yield Difference("random", "torch", "the random state after the step is not eager's")
        yield from fields.ambient(self.eager.modes.ambient, self.ours.modes.ambient)

    def _tensors(self) -> Iterator[Difference]:
        for path in self.eager.tree.tensors.keys() & self.ours.tree.tensors.keys():
            yield from self._tensor("values", path, self.eager.tree.tensors[path], self.ours.tree.tensors[path])

    def _gradients(self) -> Iterator[Difference]:
        eager, ours = self.eager.gradients, self.ours.gradients
        for path in fields.either(eager, ours):
            one, other = eager.get(path), ours.get(path)
            yield from fields.presence(f"{path}.grad", one, other)
            if one is not None and other is not None:
                yield from self._tensor("gradient", f"{path}.grad", one, other)

    def _tensor(self, name: str, path: str, eager: Tensor, ours: Tensor) -> Iterator[Difference]:
        facts = self.eager.facts[path], self.ours.facts[path]
        if facts[0] != facts[1]:
            yield from _facts_differences(path, *facts, with_strides=name != "gradient")
        flags = [f"(inference, retains_grad) = {(t.is_inference(), t.retains_grad)}" for t in (ours, eager)]
        if flags[0] != flags[1]:
            yield Difference("flags", path, f"ours has {flags[0]}, eager's {flags[1]}")
        if eager.shape != ours.shape or eager.dtype != ours.dtype:
            return
        is_gradient = name == "gradient" or path.startswith("g")
        if is_gradient and torch.equal(eager, ours):
            return
        found = None if torch.equal(bits(eager), bits(ours)) else self._explain(path, eager, ours)
        if found is not None and found.kind == DIFFERS:
            yield Difference(name, path, found.text)

    def _explain(self, path: str, eager: Tensor, ours: Tensor) -> Finding | None:
        tensors = self.eager.tree.tensors.values()
        total = sum(tensor.numel() for tensor in tensors)
        evidence = Evidence(
            why_not="autocast rounds to bfloat16" if self.is_coarse else "held to eager alone",
            samples=lambda: [_plain(sample) for sample in self.samples(path)],
            fan_in=max(1.0, total / max(1, eager.numel())),
        )
        if self.is_coarse and eager.dtype == torch.float32:
            numbers = _plain(ours).double(), _plain(eager).double()
            return explain_reals(*numbers, None, evidence, Precision.of(torch.bfloat16))
        found = explain(_plain(ours), _plain(eager), evidence)
        if found is None or is_same(found) or self.is_coarse or eager.dtype not in WIDER[torch.float64]:
            return found
        truth = self.truth(path)  # the steps once more, for the few that need it
        if isinstance(truth, str):
            return dataclasses.replace(found, text=f"{found.text} ({truth})")
        if truth.shape == eager.shape and _is_nearer(_plain(ours), _plain(eager), truth):
            return None  # nearer than eager everywhere, though the three may be far apart
        return explain(_plain(ours), _plain(eager), dataclasses.replace(evidence, truth=_plain(truth)))


def _compiled_source(source: str) -> Any:
    return compile(source, "<step>", "exec")


def _walk_namespace(namespace: Mapping[str, Any]) -> Tree:
    tree = Tree()
    for name, value in namespace.items():
        if name in HIDDEN or (callable(value) and not isinstance(value, nn.Module)) or name in ("copy", "torch", "nn"):
            continue
        found = walk(value, name)
        tree.kinds.update(found.kinds)
        tree.tensors.update(found.tensors)
        tree.scalars.update(found.scalars)
    return tree


def _has_version(tensor: Tensor) -> bool:
    return not tensor.is_inference()


def _names(tensors: Mapping[str, Tensor]) -> dict[int, str]:
    """Paths by the identity of their tensor; the first path where a tensor has several."""
    return {id(tensor): path for path, tensor in reversed(list(tensors.items()))}


def _given(gradients: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    return {f"{path}.grad": gradient for path, gradient in gradients.items() if gradient is not None}


def _receives_gradient(tensor: Tensor) -> bool:
    """Whether a backward leaves a gradient at the tensor: not at a view that autograd refuses to look at."""
    try:
        return tensor.is_leaf or tensor.retains_grad
    except RuntimeError:
        return False


def _facts(tensor: Tensor, names: Mapping[int, str]) -> Facts | str:
    try:
        return facts_of(tensor, names)
    except RuntimeError as error:
        return type(error).__name__


def _facts_differences(path: str, eager: Facts | str, ours: Facts | str, *, with_strides: bool) -> Iterator[Difference]:
    if isinstance(eager, str) or isinstance(ours, str):
        told = [facts if isinstance(facts, str) else "no error" for facts in (ours, eager)]
        yield Difference("error", path, f"looking at grad_fn raises {told[0]} in ours, {told[1]} in eager")
        return
    yield from fields.facts(path, eager, ours, with_strides=with_strides)


def _is_nearer(ours: Tensor, eager: Tensor, truth: Tensor) -> bool:
    """Whether no number of ours is further from the truth than eager's; what is no number is nearer to nothing."""
    with torch.no_grad():
        return bool(((ours - truth).abs() <= (eager - truth).abs()).all())


def _plain(tensor: Tensor) -> Tensor:
    """The numbers alone, in memory of their own."""
    with torch.no_grad():
        return tensor.detach().resolve_conj().resolve_neg().clone()


def _traits(tensor: Tensor) -> object:
    return type(tensor), _facts(tensor, {}), tensor.is_inference(), bool(tensor._backward_hooks)


def _offsets(tensors: Sequence[Tensor]) -> tuple[float, ...]:
    """How far apart tensors of one storage begin; infinite where they have different ones."""
    first = tensors[0]
    return tuple(
        float(tensor.data_ptr() - first.data_ptr())
        if tensor.untyped_storage()._cdata == first.untyped_storage()._cdata
        else math.inf
        for tensor in tensors
    )


def _first_line(error: BaseException) -> str:
    """Of what was raised first, where a backend's frames have made other errors of it."""
    return (str(unwrapped(error)[-1]).strip().splitlines() or [""])[0][:200]
