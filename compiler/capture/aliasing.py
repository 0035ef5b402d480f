"""Which results are inputs, or views of inputs, of other results or of intermediates: read off the recorded graph.

    x -> mul -> view -> transpose -> result      the result is View(of=Base(mul), how=(view, transpose))

In a functional graph an alias is a chain of view calls, so the chain from a result back to the first call that is
none is exactly how eager made it. Replaying that chain on the real base gives eager's `grad_fn`, `_base` and strides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeGuard, cast

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map_only

from assay.compiler.capture.decompositions.view_steps import one_view
from assay.compiler.capture.wrapper_views import ALIASES, detached_from, steps_from
from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.held_functions import is_end_of_loop
from assay.compiler.ir.graph.roles import (
    Base,
    CallInput,
    Constant,
    Effect,
    Input,
    Layout,
    Mutation,
    OutputRole,
    Replaced,
    Resized,
    Restride,
    Result,
    Same,
    Shared,
    Size,
    UserOutput,
    View,
    ViewStep,
)
from assay.compiler.ir.graph.trace import Trace, is_view, producer
from assay.compiler.ir.graph.wrapper_nodes import inner_nodes, is_given, makes_wrapper, parts_of
from assay.compiler.ir.graph.writes.views_beyond import TAKEN_OF
from assay.compiler.ir.tensors.in_place import shares_version
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC, Symbolic
from assay.compiler.ir.tensors.mutating_operators import functional_elem
from assay.compiler.ir.tensors.wrappers import inner_tensors, is_wrapper
from assay.compiler.ir.typed_nodes import node_argument, operator_of

Returned = torch.Tensor | Symbolic | fx.Node


@dataclass(slots=True)
class Aliases:
    """Collects, result by result, what the graph must return and how each result is made of it.

    `owners` maps the node that holds an input's value after the call to that input. While recording, `arguments` stand
    for the inputs, and `storages` are theirs. `members` are those that share memory, by the call that makes them of it.
    `replaced` are those that are given other memory.
    """

    trace: Trace
    owners: dict[fx.Node, CallInput | Shared]
    storages: frozenset[int]
    members: Mapping[object, tuple[CallInput, ...]]
    arguments: Mapping[object, torch.Tensor]
    returned: dict[OutputRole, Returned] = field(default_factory=dict)
    differentiable: set[OutputRole] = field(default_factory=set)
    replaced: dict[CallInput, torch.Tensor] = field(default_factory=dict)
    _homes: dict[fx.Node, UserOutput | Base] = field(default_factory=dict)
    _first: dict[fx.Node, int] = field(default_factory=dict)

    def results(self, returned: Sequence[object], memory: Sequence[torch.Tensor] = ()) -> tuple[Result, ...]:
        """How each of the call's flat results is made; then how the other `memory` is that inputs are given."""
        values = [*returned, *memory]
        recorded = [
            (index, value)
            for index, value in enumerate(values)
            if _is_recorded(value) and not self._given_memory(value)
        ]
        for index, value in recorded:
            self._claim_home(index, value)
        for index, value in self._written_through_views(recorded):
            self._add(UserOutput(index), self.trace.node_of(value), value)
        for index, value in recorded:
            self._first.setdefault(self.trace.node_of(value), index)
        results = tuple(self._result(index, value) for index, value in enumerate(values))
        for result, made in zip(returned, results, strict=False):
            if _is_recorded(result) and not isinstance(made, Input | Same):
                self._check_memory(result, made)
        self._check_apart()
        return results

    def _given_memory(self, value: object) -> CallInput | None:
        """The input that a value is, if its storage was replaced."""
        return next((role for role, argument in self.replaced.items() if argument is value), None)

    def _check_apart(self) -> None:
        """Raises: Unsupported where two values that the graph returns share memory, of which a pass may make one."""
        found: dict[int, set[fx.Node]] = {}
        for home in self._homes:
            for part in parts_of(home):
                is_handed_on = part is not home and is_given(part)
                if "val" in part.meta and not is_handed_on:
                    found.setdefault(part.meta["val"].untyped_storage()._cdata, set()).add(part)
        if any(len(parts) > 1 for parts in found.values()):
            raise Unsupported("the program returns views of one value that are related in a way that is not known")

    def restrides(self, arguments: Mapping[CallInput, torch.Tensor]) -> Iterator[Restride]:
        """The calls to make on the caller's tensors so that their shapes and strides are as the program left them."""
        for role, argument in arguments.items():
            calls = self.trace.restrides_of(argument)
            if calls:
                yield Restride(role, tuple(ViewStep(call.target, self._arguments(call.arguments)) for call in calls))

    def resizes(self, arguments: Mapping[CallInput, torch.Tensor]) -> Iterator[Resized]:
        """The sizes that the storages of inputs have in the end, each said of one input that lies in it."""
        first = {argument.untyped_storage()._cdata: role for role, argument in reversed(list(arguments.items()))}
        for role in first.values():
            yield from self._resized(role, self.trace.storage_sizes_of(arguments[role]))

    def _resized(self, role: CallInput, sizes: Sequence[int | torch.SymInt]) -> Iterator[Resized]:
        if sizes:
            nbytes = self._size(self.trace.node_of(size), size) if isinstance(size := sizes[-1], torch.SymInt) else size
            yield Resized(role, nbytes, max(1 if isinstance(one, torch.SymInt) else one for one in sizes))

    def replacement(self, role: CallInput, by: Result, growth: int, written: Mutation | None) -> Iterator[Effect]:
        """How an input is given its other memory, and how the storages before and after are sized. Its version grows
        by so much in all."""
        argument = self.replaced[role]
        found = self.trace.replacement_of(argument)
        assert found is not None
        if not isinstance(by, UserOutput | View) or (isinstance(by, View) and isinstance(by.of, Same)):
            raise Unsupported("the program sets an input to a tensor whose relation to its results is not known")
        yield from self._resized(role, found.sizes)
        yield Replaced(role, by, growth - (written.writes if written else 0) - (not found.is_data), found.is_data)
        for resized in self._resized(role, self.trace.storage_sizes_of(argument)):
            yield replace(resized, most=0)

    def layouts(self) -> Iterator[Layout]:
        """The strides that outputs have in eager, where the recorded value was made anew with others."""
        for role, value in self.returned.items():
            for inner in inner_tensors(value) if isinstance(value, torch.Tensor) else ():
                if self._lies_as_recorded(inner):
                    continue
                if inner is not value:
                    raise Unsupported("the program returns an inner tensor that lies otherwise than it was recorded")
                yield _layout(role, value)

    def _lies_as_recorded(self, value: torch.Tensor) -> bool:
        fake = self.trace.fake_of(value)
        if (value.dtype, value.is_conj(), value.is_neg()) != (fake.dtype, fake.is_conj(), fake.is_neg()):
            raise Unsupported("the program returns a tensor that was written through a view of another kind")
        return bool((value.stride(), value.storage_offset()) == (fake.stride(), fake.storage_offset()))

    def _claim_home(self, index: int, value: torch.Tensor) -> None:
        """A result that is no view of anything becomes an output of the graph."""
        node = self.trace.node_of(value)
        if is_wrapper(value) and self._is_replayed(value):
            return
        is_own = not is_view(producer(node)[0]) or is_end_of_loop(node)
        if node not in self.owners and node not in self._homes and is_own:
            self._add(UserOutput(index), node, value)

    def _is_replayed(self, value: torch.Tensor) -> bool:
        """Whether a wrapper is made after the graph, as a view or an alias of another.

        One that a view makes together with other tensors, as jagged rows are made of values and offsets, is made of
        what the graph returns instead: no call would have these tensors.
        """
        if value._base is None:
            return detached_from(value, self.trace) is not None
        steps = steps_from(value._base, value, self.trace)
        return not any(isinstance(leaf, torch.Tensor) for step in steps for leaf in tree_leaves(step.arguments))

    def _written_through_views(self, recorded: list[tuple[int, torch.Tensor]]) -> Iterator[tuple[int, torch.Tensor]]:
        """Results that are no views and are recorded as views, of each memory the one nearest to it.

        They are recorded so because they were written through a view, or because their strides were changed. Others
        may be aliases of the nearest one.
        """
        taken = {value.untyped_storage()._cdata for _, value in recorded if self.trace.node_of(value) in self._homes}
        nearest: dict[int, tuple[int, int, torch.Tensor]] = {}
        for index, value in recorded:
            storage = value.untyped_storage()._cdata
            if base_of(value) is None and storage not in self.storages and storage not in taken:
                _, how = self._chain(self.trace.node_of(value), None)
                is_alias = any(step.target in ALIASES for step in how)
                if not is_alias and (storage not in nearest or len(how) < nearest[storage][0]):
                    nearest[storage] = (len(how), index, value)
        return ((index, value) for _, index, value in nearest.values())

    def _add(self, role: UserOutput | Base, node: fx.Node, value: Returned) -> None:
        self._homes[node] = role
        self.returned[role] = value
        if isinstance(value, torch.Tensor) and value.requires_grad:
            if history_of(value) is None:
                raise Unsupported("the program returns a leaf that requires grad and that it made itself")
            self.differentiable.add(role)

    def _result(self, index: int, value: object) -> Result:
        if isinstance(value, SYMBOLIC):
            return self._size(self.trace.node_of(value), value)
        if not _is_recorded(value):
            return Constant(value)
        if (given := self._given_memory(value)) is not None:
            return Input(given)
        node = self.trace.node_of(value)
        first = self._first[node]
        if first != index:
            return Same(first)
        owner = self.owners.get(node)
        if owner is not None and not isinstance(owner, Shared):
            return Input(owner)
        home = self._homes.get(node)
        return home if isinstance(home, UserOutput) else self._view(node, value)

    def _check_memory(self, value: torch.Tensor, made: Result) -> None:
        """Raises: Unsupported where a result that shares memory with an input was not found to be a view of one."""
        of_input = isinstance(made, View) and not isinstance(made.of, (UserOutput, Base))
        inner = inner_tensors(value) if of_input else self._computed(value)
        held = inner if is_wrapper(value) else (value,)
        if any(each.untyped_storage()._cdata in self.storages for each in held) != of_input:
            raise Unsupported("the program returns a tensor whose relation to the memory of its inputs is not known")

    def _computed(self, value: torch.Tensor) -> Iterator[torch.Tensor]:
        """The inner tensors of a wrapper that are none of those that the call is given, as they are given."""
        return (inner for inner in inner_tensors(value) if not is_given(self.trace.node_of(inner)))

    def _size(self, node: fx.Node, value: Returned) -> Size:
        role = Size(node.name)
        self.returned.setdefault(role, value)
        return role

    def _view(self, node: fx.Node, value: torch.Tensor) -> View:
        needs_gradient = value.requires_grad  # asked first: being asked for its history a view may lose it
        flows, base = history_of(value) is not None, base_of(value)
        if (given := self._given_memory(base)) is not None:
            return self._view_of_replaced(given, node, value)
        if is_wrapper(value) or (base is not None and is_wrapper(base)):
            return self._view_of_wrapper(value, base, flows)
        if needs_gradient and not flows and base is not None and not base.requires_grad:
            raise Unsupported("the program returns a view that requires grad of what it detached in place and wrote")
        if flows:
            _check_replayable(value, base)
        elif (found := self._view_of_result(node, value)) is not None:
            return found
        root, how = self._chain(node, None if base is None else self._stop(base, flows))
        if base is not None and root not in self.owners:
            root, how = self._from_home(self.trace.node_of(base), node, root, how)
        if root in self.owners:
            if flows and not self._is_of_input(base):
                raise Unsupported("the program returns an alias of an input that requires grad by a write of its own")
            if base is None and self.trace.restrides_of(value):
                raise Unsupported("the program returns an alias of an input whose strides it changed in place")
            view = View(self._owner(root, value), how, _is_in_grad_mode(value), is_refused(value))
            return self._of_member(self._with_data(view, value), value)
        if root.op == "placeholder":
            raise Unsupported(f"the program returns a view of input {root.name} as it was before it was written")
        if flows and (base is None or root is not self.trace.node_of(base)):
            raise Unsupported(f"the program returns a view that requires grad of {root.name}, which does not")
        if root not in self._homes:
            is_base = base is not None and root is self.trace.node_of(base)
            self._add(Base(len(self._homes)), root, base if base is not None and is_base else root)
        of = self._homes[root]
        if flows and base is not None and of not in self.differentiable:
            self.returned[of] = base
            self.differentiable.add(of)
        return View(of, how, _is_in_grad_mode(value))

    def _owner(self, root: fx.Node, value: torch.Tensor) -> CallInput | Shared:
        """The input whose value a node is: where several lie alike in one memory, the one that a view was taken of."""
        taken_of = self.trace.owner_of(value)
        node = next((node for node, owner in self.owners.items() if owner == taken_of), root)
        return self.owners[node if _are_made_alike(node, root) else root]

    def _view_of_replaced(self, given: CallInput, node: fx.Node, value: torch.Tensor) -> View:
        """A view of an input whose storage was replaced. Raises: Unsupported for one of what it was before that."""
        of = self.trace.node_of(self.replaced[given])
        root, how = self._chain(node, of)
        if root is not of or is_refused(value):
            raise Unsupported("the program returns a view of an input that was taken before its storage was replaced")
        return View(given, how, _is_in_grad_mode(value))

    def _view_of_wrapper(self, value: torch.Tensor, base: torch.Tensor | None, flows: bool) -> View:
        """A wrapper, or a view of one, that is a view of an input or of a wrapper that the graph makes.

        Raises: Unsupported where autograd knows it as a view of nothing, and it is no detached one.
        """
        if value.requires_grad and not flows and base is not None and not base.requires_grad:
            raise Unsupported("the program returns a view that requires grad of what it detached in place and wrote")
        if base is None:
            return self._detached_wrapper(value)
        if flows:
            _check_replayable(value, base)
        how = tuple(replace(s, arguments=self._arguments(s.arguments)) for s in steps_from(base, value, self.trace))
        owner = next((role for role, argument in self.arguments.items() if argument is base), None)
        if owner is not None:
            return View(cast(CallInput, owner), how, _is_in_grad_mode(value), is_refused(value))
        root = self.trace.node_of(base)
        if root not in self._homes:
            self._add(Base(len(self._homes)), root, base)
        return View(self._homes[root], how, _is_in_grad_mode(value))

    def _detached_wrapper(self, value: torch.Tensor) -> View:
        found = detached_from(value, self.trace)
        if found is None:
            raise Unsupported("the program returns a wrapper over memory whose relation to others is not known")
        inner, step = found
        for role, argument in self.arguments.items():
            if is_wrapper(argument) and tuple(self.trace.inner_nodes_of(argument)) == inner:
                return self._with_data(View(cast(CallInput, role), (step,), False), value)
        for home, of in self._homes.items():
            if makes_wrapper(home) and inner_nodes(home) == inner:
                return View(of, (step,), False)
        raise Unsupported("the program returns a wrapper detached from one that it does not return")

    def _is_of_input(self, base: torch.Tensor | None) -> bool:
        """Whether autograd knows a view's base as an input, or as what an input is a view of."""
        return any(base is argument or base is argument._base for argument in self.arguments.values())

    def _from_home(
        self, of: fx.Node, node: fx.Node, root: fx.Node, how: tuple[ViewStep, ...]
    ) -> tuple[fx.Node, tuple[ViewStep, ...]]:
        """The chain of a view from a result that is its base, where both are recorded as views of one value.

        Raises: Unsupported where the view was taken before the strides of that result changed.
        """
        if of is root or of not in self._homes or not isinstance(self._homes[of], UserOutput):
            return root, how
        (deep, whole), (base_root, prefix) = self._chain(node, None), self._chain_of_home(of)
        if deep is base_root and len(whole) > len(prefix) and whole[: len(prefix)] == prefix:
            return of, whole[len(prefix) :]
        raise Unsupported("the program returns a view of a result taken before the strides of that result changed")

    def _chain_of_home(self, of: fx.Node) -> tuple[fx.Node, tuple[ViewStep, ...]]:
        home = self._homes.pop(of)
        try:
            return self._chain(of, None)
        finally:
            self._homes[of] = home

    def _stop(self, base: torch.Tensor, flows: bool) -> fx.Node | None:
        """Where the chain of a view of `base` ends: not at an alias of something else, through which it leads on."""
        node = self.trace.node_of(base)
        is_alias = not flows and any(step.target in ALIASES for step in self._chain(node, None)[1])
        return None if is_alias else node

    def _view_of_result(self, node: fx.Node, value: torch.Tensor) -> View | None:
        """The view as one of another result, which aliases something and is a view of nothing to autograd."""
        base = base_of(value)
        if (
            base is None
            or (of := self.trace.node_of(base)) not in self._first
            or of in self._homes
            or of in self.owners
        ):
            return None
        (root, how), (base_root, prefix) = self._chain(node, None), self._chain(of, None)
        if root is not base_root or how[: len(prefix)] != prefix:
            raise Unsupported("the program returns a view of a result taken before the strides of that result changed")
        return View(Same(self._first[of]), how[len(prefix) :], _is_in_grad_mode(value))

    def _with_data(self, view: View, value: torch.Tensor) -> View:
        """A detached view of an input, or of memory that inputs share, made by `.data` where it does not share the
        version of the input."""
        argument = self.arguments.get(view.of.of[0] if isinstance(view.of, Shared) else view.of)
        place = next((i for i, step in enumerate(view.how) if step.target is torch.ops.aten.detach.default), None)
        if argument is None or place is None or value.is_inference() or argument.is_inference():
            return view
        data = ViewStep("data", ())
        return (
            view
            if shares_version(argument, value)
            else replace(view, how=(*view.how[:place], data, *view.how[place + 1 :]))
        )

    def _of_member(self, view: View, value: torch.Tensor) -> View:
        """A view of memory that inputs share as one of the input of which it was made, where the chain begins so."""
        if not isinstance(view.of, Shared) or not view.how:
            return view
        lying = self.members.get((view.how[0].target, view.how[0].arguments), ())
        if not lying:
            return view
        owner = self.trace.owner_of(value)
        return replace(view, of=owner if owner in lying else lying[0], how=view.how[1:])

    def _chain(self, node: fx.Node, stop: fx.Node | None) -> tuple[fx.Node, tuple[ViewStep, ...]]:
        """The first call behind `node` that is no view, and the steps from it."""
        steps: list[ViewStep] = []
        while node is not stop and node not in self.owners and (not steps or node not in self._homes):
            if steps and (made_alike := self._owner_made_alike(node)) is not None:
                return made_alike, tuple(reversed(steps))
            call, items = producer(node)
            if not is_view(call) or len(items) > 1:
                break
            if (one := one_view(call)) is not None:
                node, target, arguments = one
                steps.append(ViewStep(target, arguments))
                continue
            is_again = call.target in ALIASES and bool(steps) and steps[-1].target is call.target
            if not is_again:
                steps.append(self._step(call, items[0] if items else None))
            node = call.meta.get(TAKEN_OF) or node_argument(call, 0)
        return node, tuple(reversed(steps))

    def _owner_made_alike(self, node: fx.Node) -> fx.Node | None:
        """The node of an input's value that the same view calls make of the same value. An input whose strides were
        changed in place is such a view of what was written; the views of it are recorded through calls of their own.
        """
        return next((own for own in self.owners if own is not node and _are_made_alike(own, node)), None)

    def _step(self, call: fx.Node, item: int | None) -> ViewStep:
        if call.kwargs:
            raise Unsupported(f"the program returns a view made by {call.target} with keyword arguments")
        arguments = fx.map_arg(call.args[1:], lambda node: self._size(node, node))  # type: ignore[arg-type, return-value]
        return ViewStep(operator_of(call), cast(tuple[object, ...], arguments), item)

    def _arguments(self, arguments: tuple[object, ...]) -> tuple[object, ...]:
        """Arguments of a call that was not recorded; sizes that are symbols become outputs of the graph."""
        return tree_map_only(SYMBOLIC, lambda size: self._size(self.trace.node_of(size), size), arguments)


def _are_made_alike(one: fx.Node, other: fx.Node) -> bool:
    """Whether the same view calls make two nodes of one node."""
    while one is not other:
        if not is_view(one) or one.target is not other.target or one.args[1:] != other.args[1:] or one.kwargs:
            return False
        one, other = node_argument(one, 0), node_argument(other, 0)
    return True


def _is_in_grad_mode(value: torch.Tensor) -> bool:
    """Whether a view was made where gradients are recorded, which autograd remembers."""
    if value._base is None or history_of(value) is not None:
        return value._base is not None
    made = torch._C._autograd._get_creation_meta(value)
    return made is not torch._C._autograd.CreationMeta.NO_GRAD_MODE and not value._base.requires_grad


def _layout(role: OutputRole, value: torch.Tensor) -> Layout:
    strides, offset = value.stride(), value.storage_offset()
    if any(isinstance(step, torch.SymInt) for step in (*strides, offset)):
        raise Unsupported("the program returns a tensor written in place whose symbolic strides eager keeps")
    return Layout(role, tuple(map(int, strides)), int(offset))


def _check_replayable(value: torch.Tensor, base: torch.Tensor | None) -> None:
    """Raises: Unsupported where replaying a view's chain would not give its gradient: a custom autograd.Function made
    it, or a part of the chain was taken without gradients.
    """
    reached, pending, seen = False, [history_of(value)], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if base is not None and (node is base.grad_fn or getattr(node, "variable", None) is base):
            reached = True
        elif isinstance(node, torch.autograd.function.BackwardCFunction):
            raise Unsupported("the program returns a view that an autograd.Function made")
        else:
            pending.extend(parent for parent, _ in node.next_functions)
    if not reached:
        raise Unsupported("the program returns a view that was in part taken without gradients")


def _is_recorded(value: object) -> TypeGuard[torch.Tensor]:
    if not isinstance(value, torch.Tensor):
        return False
    return all(torch._is_functional_tensor(getattr(inner, "elem", inner)) for inner in inner_tensors(value))


WriteKind = Literal["seen", "no_grad", "hidden"]


def base_of(value: torch.Tensor) -> torch.Tensor | None:
    """What a tensor is a view of. Autograd does not know that of inference tensors."""
    if value._base is None and value.is_inference():
        base: torch.Tensor | None = getattr(value, "_inference_mode_base", None)
        return base
    return value._base


def history_of(value: torch.Tensor) -> torch.autograd.graph.Node | None:
    """What autograd knows a tensor to come from. A view that it refuses to look at, having been taken without gradients
    before its base was written, has none.
    """
    try:
        return value.grad_fn
    except RuntimeError:
        return None


def is_refused(value: torch.Tensor) -> bool:
    """Whether autograd refuses to say where a view comes from."""
    try:
        return value.grad_fn is value  # only the access matters
    except RuntimeError:
        return True


def kind_of_write(argument: torch.Tensor) -> WriteKind:
    """Whether autograd saw the writes of an input."""
    elems = list(map(functional_elem, inner_tensors(argument)))
    if all(map(torch._functionalize_are_all_mutations_hidden_from_autograd, elems)):
        return "hidden"
    under_no_grad = all(map(torch._functionalize_are_all_mutations_under_no_grad_or_inference_mode, elems))
    return "no_grad" if under_no_grad else "seen"
