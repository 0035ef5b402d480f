"""`lower`: a functional ATen graph as elements of logical tensors, node by node.

A node whose operator has a rule that takes this call becomes `Generated` or `Viewed`; every other is `Called`.
"""

from __future__ import annotations

import functools
import operator
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
import torch.fx
from torch.utils import _pytree as pytree

from assay.compiler.ir.graph.held_functions import IS_COMPILED
from assay.compiler.ir.graph.roles import Program, Saved
from assay.compiler.ir.graph.trace import RECOMPUTED, UNTAGGED, is_effectful, producer
from assay.compiler.ir.loops.index import ZERO, Index, Symbol, as_index, symbols
from assay.compiler.ir.loops.kernel import CallAten, Counts, Expr, Mode, Read, Ref, Source
from assay.compiler.ir.loops.lowered import Called, Definition, Generated, Lowered, Scattered, Sized, Tensor, Viewed
from assay.compiler.ir.loops.rewrite import constant, convert, nodes
from assay.compiler.ir.tensors.in_place import IS_PLACED, after, part, private, window
from assay.compiler.ir.tensors.mutating_operators import MUTATING, starts_of, written_where_they_lie
from assay.compiler.ir.tensors.value_checks import IS_CHECK, MAY_REFUSE, reads
from assay.compiler.ops.complex.numbers import rule_of
from assay.compiler.ops.exact import exact
from assay.compiler.ops.indexing.creation import FILLING
from assay.compiler.ops.often_equal import orders_equals
from assay.compiler.ops.registry import OPERATORS, Declined, Kind, Op, Operation, Result, Rule, Scatter, View
from assay.compiler.ops.sizes import hints_of, index_of, parts_of, shape_of, symbol_name

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
EXACT = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
GENERATED_DTYPES = (*FLOATS, *EXACT, *COMPLEX)
ROUNDING = ("aten._to_copy", "aten.to.dtype", "prims.convert_element_type")
LOOKED_FOR = ("aten.index_select", "aten.embedding", "aten.constant_pad_nd")
"""What raises for a position out of range even where there is nothing to be had, and so is called where nobody reads
the result either."""

LITERALS = (
    *(torch.fx.Node, torch._ops.OpOverload, torch._ops.HigherOrderOperator, types.BuiltinFunctionType, slice),
    *(bool, int, float, complex, str, types.NoneType, torch.SymInt, torch.SymFloat, torch.SymBool),
    *(torch.dtype, torch.layout, torch.memory_format, torch.device),
)
"""What the text of generated code can say; everything else is bound by name."""


@functools.cache
def name_of(target: object) -> str:
    """The name that an operator is recorded and counted under: `aten.relu`, `aten.add.Tensor`."""
    return str(target).removesuffix(".default")


def record_of(target: object) -> Op | None:
    return OPERATORS.get(name_of(target)) if isinstance(target, torch._ops.OpOverload) else None


def has_effect(target: object) -> bool:
    """Whether a call must run even if nothing uses its result, and in the order of the program."""
    found = record_of(target)
    return is_effectful(target) if found is None else found.kind in (Kind.random, Kind.effect)


def kind_of(target: object) -> Kind:
    """What an operator does to elements. One without a record is `effect` if it mutates, a view if its result
    aliases its argument, else composite."""
    found = record_of(target)
    if found is not None:
        return found.kind
    if is_effectful(target):
        return Kind.effect
    returns = target._schema.returns if isinstance(target, torch._ops.OpOverload) else ()
    return Kind.view if any(r.alias_info is not None for r in returns) else Kind.composite


def is_size_operator(node: torch.fx.Node) -> bool:
    """Whether a node computes a number from sizes."""
    return isinstance(node.meta.get("val"), int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool)


SIZES_OF = frozenset("sym_size sym_stride sym_numel sym_storage_offset size stride numel storage_offset".split())


def _reads_data(node: torch.fx.Node) -> bool:
    """Whether a number follows from the elements of a tensor: from one of them, or from how many were chosen. What it
    is thought to be, an assertion has yet to say."""
    tensors = [read for read in node.all_input_nodes if isinstance(read.meta.get("val"), torch.Tensor)]
    target = node.target
    if isinstance(target, torch._ops.OpOverload) and target._schema.name.split("::")[1] in SIZES_OF:
        return any(_has_size_by_data(producer(tensor)[0].target) for tensor in tensors)
    return bool(tensors)


def _has_size_by_data(target: object) -> bool:
    is_tagged = isinstance(target, torch._ops.OpOverload) and torch.Tag.dynamic_output_shape in target.tags
    return is_tagged or target in UNTAGGED


UNREFUSED = "mul div add sub eq ne lt le gt ge".split()
UNREFUSED_NUMBERS: Mapping[str, tuple[str, ...]] = {
    f"aten.{name}.{form}": ("other",) for name in UNREFUSED for form in ("Tensor", "Scalar")
}
"""The arguments for which eager takes every number. Elsewhere, as in `masked_fill`, eager refuses a number that the
dtype does not hold, and no kernel would."""
SOME_FLOAT = 0.5
"""Stands for a number that is known when the graph runs."""
NAMES_ONLY = (operator.getitem, after, private, part, window)
"""Calls that give a value, or a part of it, another name."""


def is_compute(node: torch.fx.Node) -> bool:
    """Whether a node counts as work that could be generated: no view, contraction, allocation, getitem or size.

    A loop over steps that are compiled counts with its steps.
    """
    if node.op != "call_function" or node.target in NAMES_ONLY or is_size_operator(node) or IS_COMPILED in node.meta:
        return False
    return kind_of(node.target) not in (Kind.view, Kind.contraction) and not is_allocation(node.target)


def is_allocation(target: object) -> bool:
    """Whether an operator gives memory as it is."""
    found = record_of(target)
    return found is not None and found.kind is Kind.creation and found.rule is None


def _is_symbolic(argument: object) -> bool:
    return isinstance(argument, torch.fx.Node) and isinstance(argument.meta.get("val"), torch.SymInt)


def _is_filled(argument: object) -> bool:
    """Whether an argument is a tensor that the program itself fills with a number."""
    found = record_of(argument.target) if isinstance(argument, torch.fx.Node) else None
    return found is not None and found.rule in FILLING


def has_text_for_all(update: Mode | None, dtype: torch.dtype, found: Sequence[Expr]) -> bool:
    """The target of C++: whatever a rule makes."""
    return True


Target = Callable[[Mode | None, torch.dtype, Sequence[Expr]], bool]
"""Whether kernels can be made of these expressions, for a tensor of the dtype, which the mode updates, if it is any."""
ON_CPU: Mapping[str, Target] = {"cpu": has_text_for_all}


def lower(program: Program, targets: Mapping[str, Target] = ON_CPU, is_exact: bool = False) -> Lowered:
    """The graph of a program, lowered. `targets` are the types of devices that kernels are made for, each with what it
    takes; without any every operator is a call to ATen. With `is_exact` those are that kernels would compute with other
    bits than eager.

    Cost: linear in nodes.
    """
    lowered = _Lowering(program.module, targets, is_exact).run()
    roles = zip(program.signature.outputs, lowered.outputs, strict=True)
    return replace(lowered, saved=frozenset(one.name for role, one in roles if isinstance(role, Saved)))


class _Lowering:
    """The state of one walk over a graph."""

    def __init__(self, module: torch.fx.GraphModule, targets: Mapping[str, Target], is_exact: bool) -> None:
        self.module = module
        self.targets = targets
        self.is_exact = is_exact
        self.tensors: dict[str, Tensor] = {}
        self.definitions: list[Definition] = []
        self.inputs: list[str] = []
        self.sources: dict[str, Source] = {}
        self.constants: dict[str, Any] = {}
        self.hints: dict[str, int] = {}
        self.outputs: tuple[Any, ...] = ()
        self.compute = self.generated = 0
        self.fallbacks: dict[str, int] = {}
        self.unpacked: set[str] = set()
        self.names = {node.name for node in module.graph.nodes}
        self.numbers: dict[tuple[str, torch.device], Tensor] = {}
        self.for_nothing = read_for_nothing(module.graph)
        self.is_ordered = not targets or self._needs_order()
        self.generate = not self.is_ordered

    def _needs_order(self) -> bool:
        """Whether the graph writes by calls that no pass has placed: then it runs as it is written.

        Writes that were placed are in order by what they take. So are calls that read data as numbers or sizes: what
        takes these waits for them, and all else is free.
        """
        for node in self.module.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                if node.target._schema.is_mutable and IS_PLACED not in node.meta:
                    return True
        return False

    def run(self) -> Lowered:
        visit: dict[str, Callable[[torch.fx.Node], None]] = {
            "placeholder": self._placeholder,
            "get_attr": self._constant,
            "call_function": self._call,
            "output": self._output,
        }
        for node in self.module.graph.nodes:
            visit[node.op](node)
        counts = Counts(self.compute, self.generated, self.fallbacks)
        return Lowered(
            tuple(self.inputs),
            self.tensors,
            self.sources,
            tuple(self.definitions),
            self.outputs,
            self.constants,
            counts,
            self.hints,
            self.is_ordered,
        )

    # ---- inputs and constants

    def _placeholder(self, node: torch.fx.Node) -> None:
        self.inputs.append(node.name)
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            self._bind(value, Source(node.name, Read.itself))
        if isinstance(value, torch.Tensor):
            self._bind_layout(value, node.name)
            self._add_tensor(node.name, value)

    def _bind_layout(self, value: torch.Tensor, name: str) -> None:
        for dim, size in enumerate(value.shape):
            self._bind(size, Source(name, Read.size, dim))
        for dim, step in enumerate(value.stride() if value.layout is torch.strided else ()):
            self._bind(step, Source(name, Read.stride, dim))
        if value.layout is torch.strided:
            self._bind(value.storage_offset(), Source(name, Read.offset))

    def _bind(self, number: int | torch.SymInt, source: Source) -> None:
        """Remembers where the number behind a symbol can be read."""
        if isinstance(number, int) or not number.node.expr.is_Symbol:
            return
        self.hints.update(hints_of(number))
        symbol = number.node.expr
        for share in parts_of(symbol, number.node.shape_env):
            name = symbol_name(symbol, share)
            if name not in self.sources or source.read < self.sources[name].read:
                self.sources[name] = replace(source, part=share)

    def _constant(self, node: torch.fx.Node) -> None:
        value = self.module
        for attribute in str(node.target).split("."):
            value = getattr(value, attribute)
        self.constants[node.name] = value
        if isinstance(value, torch.Tensor):
            self._add_tensor(node.name, node.meta.get("val", value))

    def _add_tensor(self, name: str, value: Any) -> Tensor | None:
        """Records what is known of a strided tensor that holds its own elements; None for anything else."""
        tensor = None if is_conjugate(value) else tensor_of(name, value)
        if tensor is not None:
            self.tensors[name] = tensor
        return tensor

    def _is_generated(self, tensor: Tensor) -> bool:
        """Whether kernels are made for tensors of this device and dtype."""
        return tensor.device.type in self.targets and tensor.dtype in GENERATED_DTYPES

    # ---- operators

    def _call(self, node: torch.fx.Node) -> None:
        if node.target is operator.getitem and node.name in self.unpacked:
            return
        if is_size_operator(node) and not _reads_data(node) and self._size(node):
            return
        is_counted = is_compute(node)
        self.compute += is_counted
        results = self._results(node) if self.generate else None
        if results is None:
            self._called(node, is_counted)
            return
        self.generated += is_counted
        for tensor, result in results:
            self._define(node, tensor, result)

    def _size(self, node: torch.fx.Node) -> bool:
        """Computes an integer from the sizes of the inputs. False where it needs more than they tell."""
        value = node.meta["val"]
        if isinstance(value, bool) or not isinstance(value, int | torch.SymInt):
            return False
        try:
            index = index_of(value)
        except Declined:
            return False
        if not symbols(index) <= self.sources.keys():
            return False
        self.hints.update(hints_of(value))
        self.definitions.append(Sized(node.name, index))
        return True

    def _called(self, node: torch.fx.Node, is_counted: bool) -> None:
        if is_counted:
            name = name_of(node.target)
            self.fallbacks[name] = self.fallbacks.get(name, 0) + 1
        call = self._call_of(node)
        tensor = self._add_tensor(node.name, node.meta.get("val"))
        looks = name_of(node.target) in LOOKED_FOR or MAY_REFUSE in node.meta
        is_empty = looks and tensor is not None and has_no_elements(tensor)
        effect = has_effect(node.target) or IS_CHECK in node.meta or is_empty or node in self.for_nothing
        self.definitions.append(Called(node.name, tensor, call, effect))

    def _call_of(self, node: torch.fx.Node) -> CallAten:
        target, args, kwargs = node.target, self._named(node.args), dict(self._named(node.kwargs))
        if target is MUTATING and (starts := starts_of(node)):
            target, kwargs["_starts"] = written_where_they_lie, starts
        self._bind_objects((target, node.args, node.kwargs))
        return CallAten(node.name, target, tuple(args), kwargs)

    def _bind_objects(self, value: Any) -> None:
        """Gives a name to every object in a call that no text can stand for."""
        for leaf in pytree.tree_leaves(value, is_leaf=lambda item: isinstance(item, slice)):
            if not isinstance(leaf, LITERALS) and all(leaf is not known for known in self.constants.values()):
                name = re.sub(r"\W", "_", str(getattr(leaf, "__name__", type(leaf).__name__)))
                while name in self.constants or name in self.names:
                    name += "_"
                self.constants[name] = leaf

    def _define(self, node: torch.fx.Node, tensor: Tensor, result: Any) -> None:
        self.tensors[tensor.name] = tensor
        if isinstance(result, View):
            call = result.call or self._call_of(node)
            self.definitions.append(Viewed(tensor, result.base.name, result.at, call, result.is_conjugate))
        elif isinstance(result, Scatter):
            self._scatter(node, tensor, result)
        else:
            is_rounding = name_of(node.target) in ROUNDING or RECOMPUTED in node.meta
            self.definitions.append(Generated(tensor, result, node.name, is_rounding))

    def _scatter(self, node: torch.fx.Node, tensor: Tensor, result: Scatter) -> None:
        """The tensor as it is before the updates, under a name of its own, and the updates."""
        name = self._own_name(f"{tensor.name}_before")
        self._define(node, replace(tensor, name=name), result.initial)
        scattered = Scattered(tensor, name, result.over, result.at, result.update, result.mode, node.name)
        self.definitions.append(scattered)

    def _results(self, node: torch.fx.Node) -> list[tuple[Tensor, Any]] | None:
        """Each used output of a node with its elements or view, or None where ATen must run it."""
        found = record_of(node.target)
        if found is None or IS_CHECK in node.meta or node in self.for_nothing:
            return None
        try:
            operation, aliases = self._operation(node, found.kind)
            may_refuse = found.kind is Kind.view or (found.kind is Kind.random and found.rule is None)
            may_refuse |= found.target in LOOKED_FOR or MAY_REFUSE in node.meta
            is_nothing = not may_refuse and all(has_no_elements(o) for o in operation.outputs if o)
            result = nothing(operation) if is_nothing else rule_for(found, operation)(operation)
            if self.is_exact:
                result = exact(result, found.target, operation.is_complex, operation.output.device.type)
            self._check_target(operation, result)
        except Declined:
            return None
        self.unpacked.update(user.name for user in node.users if user.target is operator.getitem)
        pairs = [(t, r) for t, r in zip(operation.outputs, result, strict=True) if t is not None and r is not None]
        return pairs + [(alias, _same_as(original)) for alias, original in aliases]

    def _operation(self, node: torch.fx.Node, kind: Kind) -> tuple[Operation, list[tuple[Tensor, Tensor]]]:
        value = node.meta.get("val")
        outputs, aliases = self._outputs_of(node, value, kind)
        device = next((output.device for output in outputs if output), torch.device("cpu"))
        takes = UNREFUSED_NUMBERS.get(name_of(node.target), ())
        arguments = {
            name: self._argument(argument, device if name in takes else None)
            for name, argument in arguments_of(node).items()
        }
        used = [t for t in pytree.tree_leaves(arguments) if isinstance(t, Tensor)]
        touched = [*used, *(output for output in outputs if output)]
        if not any(outputs) or not all(map(self._is_generated, touched)) or len({t.device for t in touched}) > 1:
            raise Declined("a device or dtype that is not generated")
        if not _sizes_of(touched) <= self.sources.keys():
            raise Declined("a size that depends on data")
        if kind is not Kind.view and not all(is_dense(output) for output in outputs if output):
            raise Declined("strides that overlap")
        if kind is not Kind.view and any(map(is_conjugate, pytree.tree_leaves(value))):
            raise Declined("a result that is marked as conjugate")
        fakes = tuple(_mapped(node.args, _as_traced))
        filled = frozenset(name for name, argument in arguments_of(node).items() if _is_filled(argument))
        symbolic = {
            name: argument.meta["val"] for name, argument in arguments_of(node).items() if _is_symbolic(argument)
        }
        equals = orders_equals(node)
        return Operation(node.name, arguments, tuple(outputs), fakes, filled, symbolic, equals), aliases

    def _check_target(self, operation: Operation, result: Result) -> None:
        """Raises: Declined for what the target of the outputs' device cannot compute."""
        for output, made in zip(operation.outputs, result, strict=True):
            if output is None or made is None or isinstance(made, View):
                continue
            takes = self.targets[output.device.type]
            while isinstance(made, Scatter):
                if not takes(made.mode, output.dtype, nodes(made.update)):
                    raise Declined("an update that the target has no text for")
                made = made.initial
            if made.dtype is not output.dtype and not output.dtype.is_complex:  # whose parts are numbers of their own
                raise Declined(f"a result in {made.dtype} where it is stored in {output.dtype}")
            if not takes(None, output.dtype, nodes(made)):
                raise Declined("an operator that the target has no text for")

    def _outputs_of(
        self, node: torch.fx.Node, value: Any, kind: Kind
    ) -> tuple[list[Tensor | None], list[tuple[Tensor, Tensor]]]:
        """The outputs that are used, by position; and further names for the same outputs."""
        if isinstance(value, torch.Tensor):
            return [tensor_of(node.name, value)], []
        if not isinstance(value, list | tuple) or any(user.target is not operator.getitem for user in node.users):
            raise Declined("a result that is used whole")
        outputs: list[Tensor | None] = [None] * len(value)
        if kind is Kind.view:
            outputs = [tensor_of(f"{node.name}_{i}", piece) for i, piece in enumerate(value)]
        named: dict[int, Tensor] = {}
        aliases = []
        for user in node.users:
            position = cast(int, user.args[1]) % len(value)
            if value[position] is None and not user.users:
                continue
            tensor = tensor_of(user.name, value[position])
            if tensor is None:
                raise Declined("a result that is not a strided tensor")
            if position in named:
                aliases.append((tensor, named[position]))
            else:
                outputs[position] = named[position] = tensor
        return outputs, aliases

    def _argument(self, argument: Any, device: torch.device | None) -> Any:
        """An argument of an operator: tensors by what is known of them, sizes as indices. A number that changes from
        call to call is read from memory on the device. Raises: Declined for such a number without a device."""
        if isinstance(argument, torch.fx.Node):
            if argument.name in self.tensors:
                return self.tensors[argument.name]
            value = argument.meta.get("val")
            if isinstance(value, int | torch.SymInt) and not isinstance(value, bool):
                return self._known_size(value)
            if isinstance(value, torch.SymFloat) and device is not None:
                return self._number(argument, device)
            raise Declined(f"operand {argument}")
        if isinstance(argument, torch.SymInt):
            return self._known_size(argument)
        if isinstance(argument, list | tuple):
            return type(argument)(self._argument(item, device) for item in argument)
        return argument

    def _number(self, node: torch.fx.Node, device: torch.device) -> Tensor:
        """A tensor of one element that holds a number which is known when the graph runs."""
        if (node.name, device) not in self.numbers:
            name = self._own_name(f"{node.name}_number")
            tensor = Tensor(name, (), (), ZERO, torch.float64, device)
            call = CallAten(name, torch.scalar_tensor, (Ref(node.name),), {"dtype": tensor.dtype, "device": device})
            self.tensors[name] = self.numbers[node.name, device] = tensor
            self.definitions.append(Called(name, tensor, call, False))
        return self.numbers[node.name, device]

    def _own_name(self, name: str) -> str:
        """The name, or one like it that no node has."""
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name

    def _named(self, arguments: Any) -> Any:
        """Arguments of a call with nodes by their names, and sizes that a pass wrote down as what they are made of."""
        named = _mapped(arguments, lambda argument: Ref(argument.name))
        return pytree.tree_map_only(torch.SymInt, self._size_or_itself, named)

    def _size_or_itself(self, value: torch.SymInt) -> Index | int | torch.SymInt:
        try:
            return self._known_size(value)
        except Declined:
            return value

    def _known_size(self, value: int | torch.SymInt) -> Index | int:
        index = index_of(value)
        if not symbols(index) <= self.sources.keys():
            raise Declined("a size that depends on data")
        return index if isinstance(value, torch.SymInt) else value

    def _output(self, node: torch.fx.Node) -> None:
        flat = _mapped(node.args[0], lambda argument: Ref(argument.name))
        self.outputs = tuple(flat) if isinstance(flat, list | tuple) else (flat,)


def _sizes_of(tensors: Sequence[Tensor]) -> frozenset[str]:
    """The symbols that the layouts of tensors mention."""
    indices = (index for one in tensors for index in (*one.shape, *one.stride, one.offset))
    return frozenset().union(*map(symbols, indices))


def _as_traced(argument: torch.fx.Node) -> object:
    """What an argument was when it was traced; of a number that changes the kind is all that matters."""
    value = argument.meta.get("val")
    return SOME_FLOAT if isinstance(value, torch.SymFloat) else value


def _mapped(arguments: Any, function: Callable[[torch.fx.Node], Any]) -> Any:
    """Arguments of a node with the nodes in them replaced."""
    return torch.fx.node.map_arg(arguments, function)


def _same_as(original: Tensor) -> View:
    from_own = tuple(Symbol(f"d{i}") for i in range(len(original.shape)))
    return View(original, from_own, CallAten(original.name, torch.ops.aten.alias.default, (Ref(original.name),), {}))


def tensor_of(name: str, value: Any) -> Tensor | None:
    """What is known of a traced tensor; None where it is not one strided tensor with sizes that can be written."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_neg():
        return None
    try:
        shape, stride = shape_of(tuple(value.shape)), shape_of(tuple(value.stride()))
        return Tensor(name, shape, stride, index_of(value.storage_offset()), value.dtype, value.device)
    except Declined:
        return None


def is_conjugate(value: object) -> bool:
    """Whether a tensor is marked as the conjugate of what its memory holds."""
    return isinstance(value, torch.Tensor) and value.is_conj()


def has_no_elements(tensor: Tensor) -> bool:
    return ZERO in tensor.shape


def read_for_nothing(graph: torch.fx.Graph) -> frozenset[torch.fx.Node]:
    """The calls that eager may refuse and that no kernel computes. Only tensors without elements follow from them, or
    what is written over. Of several results the first one counts: elements are looked at for that."""
    read: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if node in read or not node.users or has_effect(node.target):
            value = node.meta.get("val")
            sizes = value.shape if isinstance(value, torch.Tensor) else ()
            if not any(isinstance(size, int) and size == 0 for size in sizes):
                read.update(given for given in node.all_input_nodes if reads(node, given))
    return frozenset(node for node in graph.nodes if MAY_REFUSE in node.meta and not _first_of(node) & read)


def _first_of(node: torch.fx.Node) -> set[torch.fx.Node]:
    """What takes the first result of a call of several, or the call."""
    parts = [user for user in node.users if user.target is operator.getitem]
    return {user for user in parts if user.args[1] == 0} if parts else {node}


def nothing(operation: Operation) -> Result:
    """The elements of outputs that have none."""
    dtypes = [None if output is None else output.dtype.to_real() for output in operation.outputs]
    return tuple(None if dtype is None else convert(constant(0, dtype), dtype) for dtype in dtypes)


def rule_for(found: Op, operation: Operation) -> Rule:
    """The rule for a call by its dtypes. Raises: Declined where there is none."""
    rule = rule_of(found) if operation.is_complex else found.rule
    if rule is None:
        raise Declined("no rule for these dtypes")
    return rule


def is_dense(tensor: Tensor) -> bool:
    """Whether no two elements share memory, as far as strides of 0 tell."""
    pairs = zip(tensor.shape, tensor.stride, strict=True)
    return all(stride is not as_index(0) or extent in (as_index(0), as_index(1)) for extent, stride in pairs)


def arguments_of(node: torch.fx.Node) -> dict[str, Any]:
    """The arguments of a call by their names in the operator's schema, defaults filled in."""
    assert isinstance(node.target, torch._ops.OpOverload)
    named = {}
    for position, argument in enumerate(node.target._schema.arguments):
        if position < len(node.args):
            named[argument.name] = node.args[position]
        elif argument.name in node.kwargs:
            named[argument.name] = node.kwargs[argument.name]
        else:
            named[argument.name] = argument.default_value
    return named
