"""Makes writes in place: where nobody reads the old value later, its memory takes the new one, without a copy.

    new = slice_scatter(cache, k, 1, 2, 4); return new       part = slice(private(cache), 1, 2, 4)
                                                       ->    done = copy_(part, k)
                                                             (cache is written, and is returned no more)

Two kinds of memory may be written. One is what a call made in this graph. The other is an input that the call writes
anyway (`Mutation`), if every write of it from the first to the last can be made so.

The proof is in `readers`. All that reads the old value, through whatever view, stands before the write in the program,
and is ordered before it by `after`. So no result changes by a bit. Law: the program, run before and after this pass,
gives the same, inputs included.

Operators of the user's own that mutate run on their arguments themselves, or on copies where that is not proven.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from assay.compiler.ir.graph.replacement import replace_node
from assay.compiler.ir.graph.roles import (
    Bump,
    CallInput,
    Effect,
    Mutation,
    OutputRole,
    Program,
    Shared,
    Size,
    View,
    Written,
)
from assay.compiler.ir.graph.trace import eliminate_dead_nodes
from assay.compiler.ir.tensors.in_place import IS_FOLDED, IS_PLACED, after, growth, part, private, version, window
from assay.compiler.ir.tensors.mutating_operators import HIDDEN
from assay.compiler.ir.typed_nodes import int_argument, int_keyword, nodes_keyword, schema_of, value_of
from assay.compiler.passes.readers import (
    chain_of,
    eliminate_unused,
    has_same_layout,
    in_place_form,
    is_dense,
    is_generated,
    names_of,
    owns_memory,
    readers_of,
    ways_back,
    whole_of,
)

aten = torch.ops.aten
MUTATING = torch.ops.higher_order.auto_functionalized_v2
PLACES: dict[object, Any] = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
    aten.diagonal_scatter.default: aten.diagonal.default,
}
"""Operators that put a value in a part of another, and the views that are that part."""
PARTIAL = frozenset(
    "index_put scatter scatter_add scatter_reduce index_add index_copy index_fill index_reduce masked_fill"
    " masked_scatter copy fill put".split()
)
"""Operators that write, in their form in place, their first argument or some of its elements, and never read others
of it than they write."""


@dataclass(frozen=True, slots=True)
class Write:
    """Base number `slot` of a call becomes that base with something written to it."""

    call: fx.Node
    slot: int
    base: fx.Node = field(compare=False)


def write_in_place(program: Program, generate: bool) -> Program:
    """The program with its provable writes in place. `generate` says whether kernels will be generated for it: then
    a value that one kernel computes whole is left to it.

    Cost: linear in nodes and in the uses of written values.
    """
    return _Writer(program, generate).run()


class _Writer:
    """The state of one walk: which writes are made in place, and into what."""

    def __init__(self, program: Program, generate: bool) -> None:
        self.program = program
        self.graph = program.module.graph
        self.generate = generate
        self.position = {node: number for number, node in enumerate(self.graph.nodes)}
        self.roles = dict(zip(program.placeholders, program.signature.inputs, strict=True))
        self.inputs: dict[CallInput, Written] = {}
        self.of_input: dict[Write, CallInput] = {}
        self.chosen: set[Write] = set()
        self.whole: dict[fx.Node, fx.Node] = {}
        self.measured: dict[Write, CallInput] = {}
        self.copied: dict[Write, CallInput] = {}
        self.growths: list[tuple[CallInput, fx.Node, int]] = []
        self.starts = {write: value_of(write.base) for call in self.graph.nodes for write in writes_of(call)}

    def run(self) -> Program:
        pairs = list(zip(self.program.signature.outputs, self.program.returned, strict=True))
        if any(isinstance(role, Mutation) for role, _ in pairs):
            self._note_whole()
        for role, node in pairs:
            if isinstance(role, Mutation) and isinstance(node, fx.Node):
                self._choose_chain(role, node)
        self._measure_copies()
        for call in list(self.graph.nodes):
            self.chosen.update(write for write in writes_of(call) if self._is_free(write))
        for call in list(self.graph.nodes):
            writes = writes_of(call)
            if call.target is MUTATING and writes:
                self._run_on_arguments(call, writes)
            elif writes and writes[0] in self.chosen:
                self._replace(writes[0])
        return self._finish()

    # ---- proofs

    def _note_whole(self) -> None:
        """Notes of every value what it is a view of: the call behind it, or what undoes the views through which that
        one wrote. Each is found from those before it."""
        for node in self.graph.nodes:
            self.whole[node] = self._written_behind(node)[1]

    def _written_behind(self, node: fx.Node) -> tuple[Write | None, fx.Node]:
        """The write of what a node is a view of, and where on the way to the node this is the whole base again."""
        made, views = chain_of(node)
        write = write_of(made)
        if write is None or (old := self.whole[write.base]) is write.base:
            return write, made
        back, _ = _ways_back(write, made, old)
        result = next((view for view in views if view in back), None)
        return (write, result) if result is not None else (None, made)

    def _choose_chain(self, role: Mutation, end: fx.Node) -> None:
        """Chooses the writes from an input to what it holds after the call, if all can be made in it."""
        if isinstance(role.of, Shared):  # autograd records it
            return
        chain: list[Write] = []
        copied: list[Write] = []
        node, is_provable = end, True
        while whole_of(node) not in self.roles:
            if (write := copy_of(node)) is not None:
                copied.append(write)
                node, is_provable = write.base, False
                continue
            write, result = self._written_behind(node)
            if write is None:
                return
            is_provable = is_provable and (node is not end or result is end)
            is_provable = is_provable and self._fits(write, result, self.whole[write.base], is_last=node is end)
            chain.append(write)
            node = write.base
        calls = [write for write in chain if write.call.target is MUTATING]
        seen = [write for write in calls if not _is_hidden(write)]
        if not (chain or copied) or self.roles[whole_of(node)] != role.of:
            return
        self.copied.update({write: role.of for write in copied if role.writes and not _is_hidden(write)})
        is_whole = self.generate and not calls and any(not _is_partial(write.call) for write in chain)
        if is_whole or not is_provable or not self._is_open(role, end):
            self.measured.update(dict.fromkeys(seen if role.writes else (), role.of))
            return
        self.chosen.update(chain)
        self.of_input.update(dict.fromkeys(chain, role.of))
        self.inputs[role.of] = Written(role.of, role.writes - sum(_counted(write) for write in seen))

    def _is_open(self, role: Mutation, end: fx.Node) -> bool:
        """Whether the graph itself may write an input: autograd has nothing to record of it, and nothing else that
        the graph returns or holds may be its memory."""
        signature = self.program.signature
        recorded = bool(signature.differentiable) and role.kind != "seen"
        early = any(isinstance(result, View) and result.is_early for result in signature.results)
        if role in signature.differentiable or recorded or early:
            return False
        if any(node.op == "get_attr" and _is_of_the_program(node) for node in self.graph.nodes):
            return False
        names = names_of(whole_of(end))
        return [node for node in self.program.returned if node in names] == [end]

    def _is_free(self, write: Write) -> bool:
        """Whether a write into memory that this graph made can be made in place."""
        if write in self.chosen or not self._is_made_here(whole_of(write.base)):
            return False
        if write.call.target is not MUTATING and not _is_partial(write.call):
            return False
        if self.generate and is_generated(write.call) and is_generated(whole_of(write.base)):
            return False
        old = whole_of(write.base)
        return all(self._fits(write, result, old, is_last=False) for result in _results(write) or [write.base])

    def _is_made_here(self, base: fx.Node) -> bool:
        """Whether a base has memory of its own; what is written in place has that of what it was written into."""
        write = write_of(base)
        if write is None:
            return owns_memory(base)
        return write not in self.of_input and (
            write in self.chosen or base.target is operator.getitem or owns_memory(base)
        )

    def _fits(self, write: Write, result: fx.Node, old: fx.Node, is_last: bool) -> bool:
        """Whether the base may become the result: same layout, and the old value is read by nothing after the write.

        Where nothing in the graph reads the last value of an input, its strides are no matter. A result that is a view
        of what was written must be to it as the old value is to the base.
        """
        made = whole_of(result)
        is_plain = made is result and old is write.base
        is_read = not (is_last and is_plain) or any(user.op != "output" for user in result.users)
        back, is_all = _ways_back(write, made, old)
        is_undone = is_all and all(_stays(node, value_of(old)) for node in back)
        strides = (is_read and not (back and is_undone)) or write.call.target is MUTATING
        if made is not old and not has_same_layout(value_of(write.base), value_of(made), strides):
            return False
        if made is not result and result not in back:
            return False
        if old is not write.base and any(user.op == "output" for user in made.users):
            return False  # what a graph returns is a view of nothing
        names = names_of(whole_of(write.base))
        if (made is not old and made in names) or not _is_separate(write, names):
            return False
        return all(reader is write.call or self._is_before(reader, write.call) for reader in readers_of(names))

    def _is_before(self, reader: fx.Node, call: fx.Node) -> bool:
        return self.position[reader] < self.position[call]

    # ---- rewriting

    def _replace(self, write: Write) -> None:
        """A call that copies its base, as writes into it."""
        call = write.call
        base, views = chain_of(write.base)
        names = names_of(base)
        places, leaf, absorbed = _unfold(call, names)
        with self.graph.inserting_before(call):
            held = self._held(base, call, absorbed)
            target = self._add(call, private, (held,), value_of(base)) if write in self.of_input else held
            for view, arguments in [*((view.target, view.args[1:]) for view in views), *places]:
                target = self._view(call, view, (target, *arguments))
            done = self._store(call, target, leaf, leaf is call or leaf in absorbed, names)
            self._rename(write, held, done)
        for node in (call, *absorbed):
            self.graph.erase_node(node)

    def _rename(self, write: Write, held: fx.Node, done: fx.Node) -> None:
        """Gives the users of a call the base once it is written, through the views through which the call saw it."""
        call = write.call
        base, views = chain_of(write.base)
        back, _ = _ways_back(write, call, base)
        if back:
            made = self._made(call, held, done, back[0])
            for user in back:
                replace_node(user, made)
            eliminate_unused(call)
        if call.users:
            for view in views:
                held = self._view(call, view.target, (held, *view.args[1:]))
            replace_node(call, self._made(call, held, done, call))

    def _made(self, call: fx.Node, held: fx.Node, done: fx.Node, was: fx.Node | None) -> fx.Node:
        """What was written, in the place of `was`: its views were recorded with the offsets that it had."""
        value = value_of(held)
        if was is not None and has_same_layout(value_of(was), value, strides=True):
            value = value_of(was)
        return self._add(call, after, (held, done), value)

    def _store(self, call: fx.Node, target: fx.Node, leaf: fx.Node, is_call: bool, names: set[fx.Node]) -> fx.Node:
        """Makes the call `leaf` write `target` instead of a copy of it; or copies the value `leaf` there."""
        value = value_of(target)
        if is_call:
            rest = [target if argument is leaf.args[0] else argument for argument in leaf.args[1:]]
            return self._add(call, in_place_form(leaf.target), (target, *rest), value, dict(leaf.kwargs))
        if leaf in names:
            leaf = self._add(call, aten.clone.default, (leaf,), value_of(leaf))
        return self._add(call, aten.copy_.default, (target, leaf), value)

    def _held(self, base: fx.Node, call: fx.Node, absorbed: list[fx.Node]) -> fx.Node:
        """The base, once all that reads its old value has done so."""
        readers = [node for node in readers_of(names_of(base)) if node is not call and node not in absorbed]
        early = {value: None for reader in readers for value in _values(reader) if not _leads_to(value, call)}
        if not early:
            return base
        return self._add(call, after, (base, *sorted(early, key=self.position.__getitem__)), value_of(base))

    def _run_on_arguments(self, call: fx.Node, writes: list[Write]) -> None:
        """A functionalized call of an operator as the call itself, on the bases or on copies of them."""
        target: Any = call.args[0]
        with self.graph.inserting_before(call):
            memory = [self._memory(write) for write in writes]
            before = {write: self._add(call, version, (m,), None) for write, m in self._watched(writes, memory)}
            memory = [
                self._add(call, after, (node, before[write]), value_of(node)) if write in before else node
                for write, node in zip(writes, memory, strict=True)
            ]
            given = [
                self._add(call, private, (node,), value_of(node))
                if write in self.chosen and _is_hidden(write)
                else node
                for write, node in zip(writes, memory, strict=True)
            ]
            positional, named = [], {}
            for argument in target._schema.arguments:
                value = self._argument(call, argument, given)
                if argument.kwarg_only:
                    named[argument.name] = value
                else:
                    positional.append(value)
            done = self._add(call, target, tuple(positional), _value_returned(call), named)
            made = [
                self._made(call, node, done, next(iter(_results(write)), None))
                for node, write in zip(memory, writes, strict=True)
            ]
            for write, node in zip(writes, made, strict=True):
                if write in before:
                    grown = self._add(call, growth, (node, before[write]), None)
                    self.growths.append((self.measured[write], grown, _counted(write)))
            self._unpack(call, done, made)

    def _measure_copies(self) -> None:
        """Notes how often calls wrote the copies that they make: the version of each begins with 0."""
        for write, of in self.copied.items():
            made = _results(write)[0]
            with self.graph.inserting_after(made):
                grown = self._add(write.call, version, (made,), None)
            self.growths.append((of, grown, _counted(write)))

    def _watched(self, writes: list[Write], memory: list[fx.Node]) -> list[tuple[Write, fx.Node]]:
        """The bases whose versions have to be read around a call, since it is not made on the caller's tensor."""
        return [(write, node) for write, node in zip(writes, memory, strict=True) if write in self.measured]

    def _memory(self, write: Write) -> fx.Node:
        if write in self.chosen:
            return self._held(write.base, write.call, [])
        return self._add(write.call, aten.clone.default, (write.base,), value_of(write.base))

    def _given(self, write: Write, memory: fx.Node) -> fx.Node:
        """The memory that a call writes, with a version of its own where the call was recorded to write such."""
        is_hidden = write in self.chosen and _is_hidden(write)
        return self._add(write.call, private, (memory,), value_of(memory)) if is_hidden else memory

    def _argument(self, call: fx.Node, argument: Any, memory: list[fx.Node]) -> Any:
        """One argument of the operator: a value as it was given, or the view of a base that is written."""
        name = argument.name
        if argument.alias_info is None or not argument.alias_info.is_write:
            return call.kwargs[name]
        if f"_{name}_length" not in call.kwargs:
            return self._written(call, f"_{name}", memory)
        length = int_keyword(call, f"_{name}_length")
        return None if length is None else [self._written(call, f"_{name}_{i}", memory) for i in range(length)]

    def _written(self, call: fx.Node, prefix: str, memory: list[fx.Node]) -> fx.Node | None:
        index = int_keyword(call, f"{prefix}_base_index")
        if index is None:
            return None
        base = memory[index]
        if f"{prefix}_slice_dim" in call.kwargs:
            arguments = [call.kwargs[f"{prefix}_slice_{name}"] for name in ("dim", "start", "end")]
            return self._view(call, part, (base, *arguments))
        if f"{prefix}_storage_offset" not in call.kwargs:
            return base
        size, stride, offset = [call.kwargs[f"{prefix}_{name}"] for name in ("size", "stride", "storage_offset")]
        first: Any = self.starts[Write(call, index, base)]
        start = first.storage_offset()
        return self._view(call, window, (base, size, stride, offset - start if start else offset))

    def _unpack(self, call: fx.Node, done: fx.Node, made: list[fx.Node]) -> None:
        """Gives the users of a functionalized call what they take of it."""
        returns = len(schema_of(call.args[0]).returns)
        first = max(returns, 1)
        for user in list(call.users):
            index = user.args[1]
            assert isinstance(index, int)
            if index >= first:
                replace_node(user, made[index - first])
            elif returns == 1:
                replace_node(user, done)
            elif returns > 1:
                replace_node(user, self._add(call, operator.getitem, (done, index), value_of(user)))
            if not user.users:
                self.graph.erase_node(user)
        if not call.users:
            self.graph.erase_node(call)

    def _view(self, call: fx.Node, target: Any, arguments: tuple[Any, ...]) -> fx.Node:
        values = fx.map_arg(arguments, lambda node: node.meta["val"])
        with values[0].fake_mode:
            return self._add(call, target, arguments, target(*values))

    def _add(
        self, call: fx.Node, target: Any, arguments: tuple[Any, ...], value: object, named: dict[str, Any] | None = None
    ) -> fx.Node:
        """A call in the place of `call`."""
        name = target._schema.name.split("::")[1] if isinstance(target, torch._ops.OpOverload) else target.__name__
        node = self.graph.create_node("call_function", target, arguments, named or {}, name)
        node.meta.update({key: call.meta[key] for key in ("stack_trace", "nn_module_stack") if key in call.meta})
        node.meta[IS_PLACED] = True
        node.meta["val"] = value
        self.position[node] = self.position[call]
        return node

    def _finish(self) -> Program:
        """The program without the mutations that the graph makes itself."""
        signature = self.program.signature
        pairs = list(zip(signature.outputs, self.program.returned, strict=True))
        kept = [(role, node) for role, node in pairs if not (isinstance(role, Mutation) and role.of in self.inputs)]
        output = next(iter(reversed(self.graph.nodes)))
        kept += [(Size(node.name), node) for _, node, _ in self.growths]
        output.args = ([node for _, node in kept],)
        eliminate_dead_nodes(self.graph)
        self.program.module.recompile()
        outputs: tuple[OutputRole, ...] = tuple(role for role, _ in kept)
        grown = [Bump(of, Size(node.name), counted) for of, node, counted in self.growths]
        effects: tuple[Effect, ...] = (*signature.effects, *self.inputs.values(), *grown)
        return Program(self.program.module, replace(signature, outputs=outputs, effects=effects))


# ---- what a call writes ----------------------------------------------------------------------------------------------


def writes_of(call: fx.Node) -> list[Write]:
    """The bases of which a call makes written copies, in the order in which it returns them."""
    if call.op != "call_function":
        return []
    if call.target is MUTATING:
        bases: Any = call.kwargs.get("_all_bases", [])
        return [Write(call, slot, base) for slot, base in enumerate(bases)] if _is_runnable(call) else []
    is_place = call.target in PLACES and not call.kwargs
    if not is_place and in_place_form(call.target) is None:
        return []
    return [Write(call, 0, call.args[0])] if call.args and isinstance(call.args[0], fx.Node) else []


def write_of(node: fx.Node) -> Write | None:
    """The write whose result a node is."""
    if node.op != "call_function" or node.target is MUTATING:
        return None
    if node.target is not operator.getitem:
        return next(iter(writes_of(node)), None)
    call, index = node.args
    if not isinstance(call, fx.Node) or call.target is not MUTATING or not isinstance(index, int):
        return None
    writes, slot = writes_of(call), index - _returns(call)
    return writes[slot] if writes and slot >= 0 else None


def copy_of(node: fx.Node) -> Write | None:
    """The write of an operator whose result a node is, where the operator cannot be made on what it is given: torch's
    own call makes the copy."""
    if node.op != "call_function" or node.target is not operator.getitem:
        return None
    call, index = node.args
    if not isinstance(call, fx.Node) or call.target is not MUTATING or not isinstance(index, int) or _is_runnable(call):
        return None
    bases, slot = nodes_keyword(call, "_all_bases"), index - _returns(call)
    return Write(call, slot, bases[slot]) if slot >= 0 and isinstance(bases[slot], fx.Node) else None


def _ways_back(write: Write, made: fx.Node, whole: fx.Node) -> tuple[list[fx.Node], bool]:
    """The views of what was written that are the whole base again, and whether it has no other use."""
    place, old = value_of(write.base), value_of(whole)
    if write.base is whole or not isinstance(place, torch.Tensor) or not isinstance(old, torch.Tensor):
        return [], False
    return ways_back(made, place, old)


def _stays(node: fx.Node, memory: object) -> bool:
    """Whether a value's users can take it in the layout of the memory that it is in."""
    return has_same_layout(value_of(node), memory, strides=True) or all(user.op == "output" for user in node.users)


def _results(write: Write) -> list[fx.Node]:
    if write.call.target is not MUTATING:
        return [write.call]
    return [user for user in write.call.users if user.args[1] == _returns(write.call) + write.slot]


def _returns(call: fx.Node) -> int:
    """How many results of a functionalized call come before its bases: a call that returns nothing gives None."""
    return max(len(schema_of(call.args[0]).returns), 1)


def _value_returned(call: fx.Node) -> object:
    values: Any = value_of(call)
    returns = len(schema_of(call.args[0]).returns)
    return None if returns == 0 else values[0] if returns == 1 else tuple(values[:returns])


def _is_runnable(call: fx.Node) -> bool:
    """Whether a functionalized call can be made on bases that are given.

    The operator must return no alias of them. They must have no gaps, since views of a copy must lie as they do in the
    base.
    """
    target: Any = call.args[0]
    bases: Any = call.kwargs.get("_all_bases", [])
    if not isinstance(target, torch._ops.OpOverload) or not bases or not all(isinstance(b, fx.Node) for b in bases):
        return False
    aliases = any(returned.alias_info is not None for returned in target._schema.returns)
    if aliases and any(int_argument(user, 1) < _returns(call) and user.users for user in call.users):
        return False
    values = [value_of(base) for base in bases]
    if not all(isinstance(value, torch.Tensor) and is_dense(value) for value in values):
        return False
    windows: Any = [offset for name, offset in call.kwargs.items() if name.endswith("_storage_offset")]
    starts: Any = [value.storage_offset() for value in values if isinstance(value, torch.Tensor)]
    is_static = all(isinstance(offset, int) for offset in (*windows, *starts))
    return not windows or is_static or all(isinstance(start, int) and start == 0 for start in starts)


def _others(write: Write) -> list[fx.Node]:
    """The values that a call takes beside the base; the base too where it is given once more."""
    call = write.call
    found: list[fx.Node] = []
    if call.target is MUTATING:
        bases: Any = call.kwargs["_all_bases"]
        given: Any = (
            {k: v for k, v in call.kwargs.items() if k != "_all_bases"},
            [*bases[: write.slot], *bases[write.slot + 1 :]],
        )
    else:
        given = (call.args[1:], call.kwargs)
    fx.map_arg(given, found.append)
    return found


def _is_separate(write: Write, names: set[fx.Node]) -> bool:
    """Whether what a call writes its base from is other memory. A part may be put from the base, through a copy."""
    inside = [other for other in _others(write) if other in names]
    if write.call.target in PLACES:
        inside = [other for other in inside if other is not write.call.args[1]]
    if write.call.target is not MUTATING and not _is_partial(write.call):
        inside = [other for other in inside if other is not write.base]
    return not inside


def _is_partial(call: fx.Node) -> bool:
    return call.target in PLACES or _name(call) in PARTIAL


def _name(call: fx.Node) -> str:
    schema = getattr(call.target, "_schema", None)
    return schema.name.removeprefix("aten::") if schema is not None else ""


def _is_hidden(write: Write) -> bool:
    """Whether an operator writes the memory of an input by a tensor of another version than the input's."""
    return write.slot in write.call.meta.get(HIDDEN, ())


def _counted(write: Write) -> int:
    """By how much recording a call made the version of its base grow; running it makes it grow as eager does."""
    call: Any = write.call
    if not torch._C._dispatch_has_kernel_for_dispatch_key(call.args[0].name(), "ADInplaceOrView"):
        return 0
    slots = [value for name, value in call.kwargs.items() if name.endswith("_base_index")]
    return slots.count(write.slot)


def _is_of_the_program(node: fx.Node) -> bool:
    """Whether a constant may be a tensor that the program got from outside, and so memory of an input."""
    return IS_FOLDED not in node.meta and any(user.target is not aten.lift_fresh_copy.default for user in node.users)


def _unfold(call: fx.Node, names: set[fx.Node]) -> tuple[list[tuple[Any, tuple[Any, ...]]], fx.Node, list[fx.Node]]:
    """A write to a part of a part: the views that lead there, what is put there, and the calls that go.

    What is put there is a value, or a call that would write a copy of what is there.
    """
    places: list[tuple[Any, tuple[Any, ...]]] = []
    absorbed: list[fx.Node] = []
    node = call
    while node.target in PLACES:
        places.append((PLACES[node.target], node.args[2:]))
        value: Any = node.args[1]
        if not _is_written_there(value, node, names):
            return places, value, absorbed
        absorbed.append(value)
        node = value
    return places, node, absorbed


def _is_written_there(value: fx.Node, outer: fx.Node, names: set[fx.Node]) -> bool:
    """Whether a value that is put in a part is the old value of that very part, with something written to it."""
    if value.op != "call_function" or list(value.users) != [outer] or not _is_partial(value):
        return False
    if value.target not in PLACES and in_place_form(value.target) is None:
        return False
    place = value.args[0]
    if not isinstance(place, fx.Node) or place.target is not PLACES[outer.target] or place.kwargs or value.kwargs:
        return False
    others = _others(Write(value, 0, place))
    if value.target in PLACES:
        others = [other for other in others if other is not value.args[1]]
    is_there = place.args[0] is outer.args[0] and place.args[1:] == outer.args[2:]
    return is_there and not any(other in names for other in others)


def _values(reader: fx.Node) -> list[fx.Node]:
    """The values by which a reader is known to have run: of several results each."""
    items = [user for user in reader.users if user.target is operator.getitem]
    return items or [reader]


def _leads_to(node: fx.Node, call: fx.Node) -> bool:
    """Whether a value is read once, by what is read once, and so on to `call`, which so comes after it by itself."""
    for _ in range(LONGEST_CHAIN):
        if len(node.users) != 1:
            return False
        node = next(iter(node.users))
        if node is call:
            return True
    return False


LONGEST_CHAIN = 16
"""How far to look for it."""
