"""Functionalization that notes what it makes invisible, and refuses the writes that eager refuses."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import PythonKeyTracer, get_proxy_mode
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.writes.repeated_calls import RepeatedCalls
from assay.compiler.ir.graph.writes.storage_offsets import EXACTLY, divisor_of
from assay.compiler.ir.graph.writes.views_beyond import ViewsBeyond, mark_by_strides
from assay.compiler.ir.graph.writes.write_checks import check_dtype, check_memory, check_rows
from assay.compiler.ir.graph.writes.written_layouts import (
    ASKS_LAYOUT,
    KEEP_LAYOUT,
    OF_OTHER_ELEMENTS,
    check_layout,
    check_order,
    is_relaid,
    mark_lazy,
    meta_of,
)
from assay.compiler.ir.tensors import fake_dtypes, mutating_operators
from assay.compiler.ir.tensors.degrees_of_freedom import warn_of_freedom
from assay.compiler.ir.tensors.in_place import version
from assay.compiler.ir.tensors.layout import fake_strides
from assay.compiler.ir.tensors.layout.strides import (
    extent,
    hint,
    is_known,
    overlaps_itself,
    placed,
)
from assay.compiler.ir.tensors.mutating_operators import inner_of, written_by
from assay.compiler.ir.tensors.refusals import check_position, refuse_call
from assay.compiler.ir.tensors.wrappers import has_wrapper
from assay.compiler.torch_compat import Decompositions, has_registered_effect

Recording = Callable[[], AbstractContextManager[None]]
"""What is open while the functions of an operator are recorded, as the branches of `cond`."""
Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""An operator with its positional and its keyword arguments."""
REPLACES = (torch.ops.aten.set_,)
"""Calls that give a tensor other memory: one of an input is refused when storages are compared, and never replayed."""

RESIZE_STORAGE = torch.ops.inductor.resize_storage_bytes_.default
"""`tensor.untyped_storage().resize_(...)` as an operator, as Dynamo has it. A graph has no storages: the call sizes
them."""


@dataclass(frozen=True, slots=True)
class Restrided:
    """One call that changed the shape or strides of a tensor in place, which makes its version grow by one."""

    target: torch._ops.OpOverload
    arguments: tuple[object, ...]


def _restrided(call: Call) -> Restrided:
    """The call, to be made again on the caller's tensor, by numbers alone."""
    func, args, kwargs = call
    if func is torch.ops.aten.resize_as_.default:
        return Restrided(torch.ops.aten.resize_.default, (list(args[1].shape), *args[2:], *kwargs.values()))
    return Restrided(func, (*args[1:], *kwargs.values()))


@dataclass(frozen=True, slots=True)
class Replacement:
    """An input whose storage was replaced: `old` is an alias of what it was, at its `version`; `sizes` are those that
    the old storage was given. `is_data`: the last assignment was one to `data`."""

    old: torch.Tensor
    version: int
    sizes: tuple[int | torch.SymInt, ...]
    is_data: bool


class Tensors(dict[int, torch.Tensor]):
    """A set of tensors by identity, which keeps them alive, so that no other one is taken for one of them."""

    def add(self, value: torch.Tensor) -> None:
        self[id(value)] = value


UNCHECKED = (torch.ops.aten._softmax.default,)
"""Operators over a dimension that nothing looks at before they run, not even their fakes."""


def _has_dimension(value: torch.Tensor, dim: int) -> bool:
    rank = max(value.dim(), 1)
    return -rank <= dim < rank


def _is_bare_zero(value: object) -> bool:
    """Whether a value is one of autograd's zeros without elements, in no recording's own wrapping."""
    return type(value) is torch.Tensor and value._is_zerotensor()


def _has_bare_zero(argument: object) -> bool:
    return any(map(_is_bare_zero, argument)) if isinstance(argument, list | tuple) else _is_bare_zero(argument)


def _is_of_one_form(value: torch.Tensor, source: object = None, *_: object) -> bool:
    return isinstance(source, torch.Tensor) and (value.shape, value.stride()) == (source.shape, source.stride())


def _is_same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same elements of one storage, read alike. Of a tensor that was given other memory the
    functional one inside alone has it."""
    with torch._C.DisableTorchFunction():
        storages = {mutating_operators.functional_elem(value).untyped_storage()._cdata for value in (one, other)}
        are_read_alike = (one.is_conj(), one.is_neg()) == (other.is_conj(), other.is_neg())
        return len(storages) == 1 and are_read_alike and placed(one) == placed(other)


def _can_take_form(value: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether a tensor that stands for one of the program's can be given the form of another: the memory that it was
    made with holds as much."""
    if _is_of_one_form(value, source):
        return True
    with torch._C.DisableTorchFunction():
        end = (source.storage_offset() + extent(source.shape, source.stride())) * source.element_size()
        size = value.untyped_storage().nbytes()
    return is_known(end) and is_known(size) and bool(end <= size)


def _take_form(value: torch.Tensor, source: torch.Tensor) -> None:
    """Gives a tensor that was set to another the form of that. Torch does so for the functional tensor inside alone."""
    if not _is_of_one_form(value, source):
        with no_dispatch():
            value.as_strided_(source.shape, source.stride(), source.storage_offset())


def _is_functional(value: object) -> bool:
    return isinstance(value, FunctionalTensor)


@contextmanager
def _mode_of(func: torch._ops.OpOverload, values: Sequence[object]) -> Iterator[None]:
    """Outside of inference mode where ordinary tensors are viewed or written: both leave ordinary tensors there too.

    A composite operator comes back as its parts, and autograd would refuse to resize what requires grad.
    """
    if not torch.is_inference_mode_enabled() or func in RESIZES:
        yield
        return
    are_ordinary = any(isinstance(value, torch.Tensor) and not value.is_inference() for value in values)
    if not are_ordinary or torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


RESIZES = (torch.ops.aten.resize_.default, torch.ops.aten.resize_as_.default)


def _returns_nothing_new(func: torch._ops.OpOverload) -> bool:
    return all(result.alias_info is not None for result in func._schema.returns)


def _note_base(func: torch._ops.OpOverload, value: torch.Tensor, views: object) -> None:
    """Notes of what the views are views, which autograd does not know in inference mode. Torch notes it itself, but not
    of ordinary tensors, and only as long as somebody holds the storage. An alias is a view of nothing."""
    if _is_functional(value) and func is not torch.ops.aten.detach.default:
        base = getattr(value, "_inference_mode_base", None)
        for view in filter(_is_functional, pytree.tree_leaves(views)):
            view._inference_mode_base = value if base is None else base


class Watching(FunctionalTensorMode):
    """Functionalization that notes what it makes invisible: in-place changes of metadata, and writes by owner.

    `inputs` are the program's. `own` says of a tensor whose memory it is a view of;
    the writes through it and its views are counted for that owner. `divisors` says, by the storages of inputs, what
    the program relies on of where they begin (`ir/graph/writes/storage_offsets.py`). `holds_functions` is open while
    functions of operators are recorded; None where no call of such an operator is.
    """

    supports_higher_order_operators = True  # which are refused, by name

    def __init__(
        self,
        tracer: PythonKeyTracer,
        decompositions: Decompositions,
        pre_dispatch: bool = False,
        holds_functions: Recording | None = None,
    ) -> None:
        super().__init__(pre_dispatch=pre_dispatch, export=pre_dispatch)
        self._tracer = tracer
        self._repeated = RepeatedCalls(tracer, decompositions)
        self.holds_functions = holds_functions
        self.inputs: list[torch.Tensor] = []
        self.writes: Counter[object] = Counter()
        self.divisors: dict[int, set[int]] = {}
        self._restrided: dict[int, list[Restrided]] = {}
        self._replaced: dict[int, Replacement] = {}
        self._storage_sizes: dict[int, list[int | torch.SymInt]] = {}
        self._owners: dict[int, object] = {}
        self._followed = Tensors()
        self._detached = Tensors()
        self._expanded = Tensors()
        self._moved: set[int] = set()
        self._hidden = Tensors()
        self._beyond = ViewsBeyond()
        self._relaid = Tensors()
        self._as_eager: dict[int, torch.Tensor] = {}
        self._seed = _random_seed()

    @property
    def tracer(self) -> PythonKeyTracer:
        """What calls are recorded into now: while a function is recorded that an operator is given, the graph of it."""
        inner = get_proxy_mode() if self.holds_functions is not None else None
        return self._tracer if inner is None else cast(PythonKeyTracer, inner.tracer)

    def take(self, argument: torch.Tensor) -> None:
        """From here on, `argument` is known to be what the program is given."""
        self.inputs.append(argument)
        self.divisors.setdefault(argument.untyped_storage()._cdata, set())

    def note_offset(self, value: torch.Tensor, divisor: int = EXACTLY) -> None:
        """The program relies on where a tensor begins, which matters if its memory is an input's."""
        if value.layout is torch.strided and (known := self.divisors.get(value.untyped_storage()._cdata)) is not None:
            known.add(divisor)

    def refuse_storage(self, value: torch.Tensor) -> None:
        """Raises: Unsupported for the storage of an input, of which a recording does not know the size."""
        if self._is_of_input(value):
            raise Unsupported("the program asks for the storage of an input")

    def _is_of_input(self, value: torch.Tensor) -> bool:
        with torch._C.DisableTorchFunction():
            return value.layout is torch.strided and value.untyped_storage()._cdata in self.divisors

    def own(self, value: torch.Tensor, owner: object) -> None:
        self._owners[id(value)] = owner
        self._followed.add(value)

    def owner_of(self, value: object) -> object | None:
        return self._owners.get(id(value))

    def storage_sizes_of(self, value: torch.Tensor) -> tuple[int | torch.SymInt, ...]:
        """The sizes in bytes that the storage of an input was given, one after the other."""
        return tuple(self._storage_sizes.get(value.untyped_storage()._cdata, ()))

    def _note_storage_size(self, value: torch.Tensor, size: int | torch.SymInt) -> None:
        with torch._C.DisableTorchFunction():
            self._storage_sizes.setdefault(value.untyped_storage()._cdata, []).append(size)

    def replacement_of(self, value: torch.Tensor) -> Replacement | None:
        """What became of an input's own storage, if it was replaced."""
        return self._replaced.get(id(value))

    def assign_data(self, value: torch.Tensor, new: torch.Tensor) -> bool:
        """`value.data = new`, of an input and another tensor of this recording. Returns: whether they are such."""
        if not (_is_functional(value) and _is_functional(new) and any(value is one for one in self.inputs)):
            return False
        if _is_same_memory(value, new):  # `module.to(device)` assigns each parameter to itself
            return True
        before = version(value)
        with torch.no_grad():
            value.set_(new.detach())  # type: ignore[call-overload]
        self._replaced[id(value)] = replace(self._replaced[id(value)], is_data=True)
        torch._C._autograd._unsafe_set_version_counter((value,), (before,))
        return True

    def _note_replacement(self, value: torch.Tensor) -> None:
        """Keeps what an input is until now, in front of the first call that replaces its storage."""
        if value.is_inference() or id(value) in self._owners:
            raise Unsupported("the program replaces the storage of an input (set_, .data = ...)")
        known = self._replaced.get(id(value))
        if known is None:
            with self, torch.no_grad():  # outside of the mode a detached tensor is the tensor itself
                old = value.detach()
            with torch._C.DisableTorchFunction():
                sizes = tuple(self._storage_sizes.pop(value.untyped_storage()._cdata, ()))
            known = Replacement(old, version(value), sizes, is_data=False)
            self._followed.add(value)
        self._replaced[id(value)] = replace(known, is_data=False)

    def as_eager(self, value: torch.Tensor) -> torch.Tensor:
        """A tensor without elements that lies as eager's does, for what lies otherwise; else the tensor itself."""
        return self._as_eager.get(id(value), value) if id(value) in self._relaid else value

    def restrides_of(self, value: torch.Tensor) -> tuple[Restrided, ...]:
        """The calls that changed the shape or strides of this very tensor in place."""
        return tuple(self._restrided.get(id(value), ()))

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if has_wrapper(types):  # whose own class calls again, with its inner tensors
            return NotImplemented
        if func is torch.ops.prim.device.default and type(args[0]) is FakeTensor:
            return args[0].device  # which the modes below would each say
        call = self._repeated.find(func, args, kwargs or {}) if self._may_copy() else None
        if call is None:
            return self._recorded(func, types, args, kwargs or {})
        if (copied := self._repeated.copied(call, self)) is not None:
            return copied
        before = next(iter(reversed(self._tracer.graph.nodes)))
        result = self._recorded(func, types, args, kwargs or {})
        self._repeated.learn(call, before, result)
        return result

    def _may_copy(self) -> bool:
        """Whether a call may be copied from one like it: nothing is known of tensors but what they look like, and calls
        are recorded into the graph of the program itself."""
        if self.pre_dispatch or self._relaid or self._hidden:
            return False
        recording = get_proxy_mode()
        return recording is not None and recording.tracer is self._tracer

    def _recorded(self, func: Any, types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(func, torch._ops.HigherOrderOperator):
            said = "a higher-order operator, whose functions no graph holds"
            raise Unsupported(f"the program calls {func._name}, {said}")
        if any(map(_has_bare_zero, args)):
            args = pytree.tree_map_only(torch.Tensor, self._own_zero, args)
        taken = args[:1]
        args, kwargs = self._of_its_base(func, args, kwargs or {})
        call = (func, args, kwargs)
        if func is torch.ops.aten.set_.source_Tensor and _is_same_memory(*args):
            return args[0]  # `module.to(device)` sets each parameter to itself
        if func is RESIZE_STORAGE and self._is_of_input(args[0]):
            return self._note_storage_size(*args)
        self._refuse_change_of_storage(func, args)
        if not isinstance(func, torch._ops.OpOverload):
            return super().__torch_dispatch__(func, types, args, kwargs)
        if func is torch.ops.aten.as_strided_copy.default:  # what a write makes of an input begins somewhere else
            with self:
                return torch.as_strided(*args, **call[2]).clone(memory_format=torch.contiguous_format)
        with torch._C.DisableTorchFunction():  # what is asked in here is not the program's doing
            self._check(call)
            is_beyond = func is torch.ops.aten.as_strided.default and self._leaves(*args, **call[2])
        refuse_call(*call)
        check_position(func, args)
        warn_of_freedom(*call)
        if (divisor := divisor_of(*call)) is not None:
            self.note_offset(args[0], divisor)
        if has_registered_effect(func):
            return self.recorded_as_it_is(call)
        if not func._schema.is_mutable:
            with _mode_of(func, args[:1] if func.is_view else ()):
                result = super().__torch_dispatch__(func, types, args, kwargs)
            if func.is_view and torch.is_inference_mode_enabled():
                _note_base(func, args[0], result)
            if func is torch.ops.aten.as_strided.default:
                mark_by_strides(result, args[0], taken[0], is_beyond, self.tracer)
            if not any(map(_is_functional, pytree.arg_tree_leaves(*args, **call[2]))):
                result = pytree.tree_map_only(FakeTensor, self._wrapped, result)  # made of numbers alone
            if func.is_view:
                self._follow(args[0], result, call)
            if func in fake_dtypes.WRONG:
                result = fake_dtypes.with_dtypes(func, args, result, self.tracer, self)
            if func in fake_strides.WRONG:
                result = fake_strides.with_strides(func, args, result, self.tracer, self)
            as_run = fake_strides.as_run
            return result if func.is_view else as_run(func, args, call[2], result, self.tracer, self)
        seen = mutating_operators.seen_before(*call, self.inputs, self.tracer.graph)
        shape = args[0].shape if func is torch.ops.aten.resize_.default else None
        is_inference = torch.is_inference_mode_enabled() and _returns_nothing_new(func)
        with _mode_of(func, written_by(*call) if is_inference else ()):
            result = super().__torch_dispatch__(func, types, args, kwargs)
        if shape is None or shape != args[0].shape:  # to the size that it has, resize_ does nothing
            self._note_write(call)
        if func in fake_dtypes.WRONG:
            result = fake_dtypes.with_dtypes(func, args, result, self.tracer, self)
        if seen is not None:
            mutating_operators.correct(seen, self.tracer.graph)
        mark_lazy(*call)
        check_order(*call)  # which may record views of what was written
        return result

    def _refuse_change_of_storage(self, func: Any, args: tuple[Any, ...]) -> None:
        """Notes that an input is set to another tensor. Raises: Unsupported where a view of one is, or where the new
        storage is that of no tensor; and for another size of the storage of an intermediate."""
        is_set = getattr(func, "overloadpacket", None) is torch.ops.aten.set_
        if is_set and self._is_of_input(args[0]):
            is_whole = func is torch.ops.aten.set_.source_Tensor and any(args[0] is one for one in self.inputs)
            is_reshaped = is_whole and not _is_of_one_form(*args) and args[1]._base is not None
            if (
                not is_whole or is_reshaped or not _can_take_form(*args)
            ):  # torch would make the view of the old shape again
                raise Unsupported("the program replaces the storage of an input (set_, .data = ...)")
            self._note_replacement(args[0])
        if "resize_storage" in getattr(func, "__name__", ""):
            raise Unsupported(f"the program changes the size of an intermediate's storage, by {func}")

    def _wrapped(self, value: torch.Tensor) -> torch.Tensor:
        """A functional tensor over a recorded one."""
        with self:
            return FunctionalTensor.to_functional(value)

    def recorded_as_it_is(self, call: Call) -> object:
        """Records a call with an effect beside its result on plain tensors; the graph keeps their order."""
        func, args, kwargs = pytree.tree_map_only(FunctionalTensor, inner_of, call)
        return pytree.tree_map_only(torch.Tensor, self._wrapped, func(*args, **kwargs))

    def _own_zero(self, value: torch.Tensor) -> torch.Tensor:
        """A zero of this recording in the place of one that autograd has made behind its back."""
        if not _is_bare_zero(value):
            return value
        func, layout = torch.ops.aten._efficientzerotensor.default, {"dtype": value.dtype, "device": value.device}
        return super().__torch_dispatch__(func, (), (list(value.shape),), layout)

    def _check(self, call: Call) -> None:
        """Raises: Unsupported where the call would be recorded as another than eager's; eager's error where eager
        refuses the memory of its arguments.
        """
        func, args, _ = call
        if func in UNCHECKED and not _has_dimension(*args[:2]):
            raise Unsupported(f"the program asks {func} for a dimension that there is not")
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._check_random_state()
        if self._hidden and torch.is_grad_enabled():
            self._check_hidden(call)
        if self._relaid and func is torch.ops.aten.copy_.default and self._stays(*args[:2]):
            return
        if self._relaid and (func._schema.is_mutable or func in ASKS_LAYOUT):
            self._check_relaid(call)
        if func._schema.is_mutable:
            check_dtype(*call)
            check_memory(*call)
            check_rows(*call)
            self._check_expanded(call)
            self._beyond.check_writes(written_by(*call))
        elif func in KEEP_LAYOUT or func is torch.ops.aten.native_dropout.default:
            check_layout(func, args[0])
        elif func in OF_OTHER_ELEMENTS and is_relaid(args[0]):
            func(meta_of(args[0]), *args[1:])

    def _of_its_base(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The arguments of a call: of `as_strided` those for the tensor that its argument is a view of, where that is a
        recorded one, all of its storage."""
        if func is not torch.ops.aten.as_strided.default:
            return args, kwargs
        with torch._C.DisableTorchFunction():
            made = self._beyond.of_its_base(*args, **kwargs)
            is_known = not self._is_of_input(args[0]) or any(made[0] is one for one in self.inputs)
        return (made, {}) if is_known and _is_functional(made[0]) else (args, kwargs)

    def _leaves(
        self, value: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
    ) -> bool:
        """Whether `as_strided` with these arguments gives a view that leaves its tensor. Raises: as `ViewsBeyond`."""
        is_input = value.untyped_storage()._cdata in self.divisors
        return self._beyond.is_taken_by(value, (size, stride, storage_offset), is_input)

    def _check_random_state(self) -> None:
        """Raises: Unsupported for a draw after the program set the random state: a seed leaves no call.

        A recorded draw takes no number. So that a program which sets the state that it had earlier is seen to, as a
        checkpoint's backward does, the seed is another after each draw. Other threads may draw meanwhile.
        """
        if _random_seed() != self._seed:
            raise Unsupported("the program draws after it set the state of the random number generator")
        self._seed = _seeded_anew()

    @contextmanager
    def random_state_kept(self) -> Iterator[None]:
        """Afterwards the random state is what it was before. Raises: Unsupported where the program has set it."""
        with _disable_current_modes():
            before = torch.get_rng_state()
        self._seed = _seeded_anew()
        try:
            yield
            if _random_seed() != self._seed:
                raise Unsupported("the program sets the state of the random number generator")
        finally:
            with _disable_current_modes():
                torch.set_rng_state(before)

    def _note_write(self, call: Call) -> None:
        func, args, _ = call
        if func is torch.ops.aten.set_.source_Tensor:
            _take_form(*args)
        if torch.Tag.inplace_view in func.tags and not _is_composite(func) and func.overloadpacket not in REPLACES:
            self._restrided.setdefault(id(args[0]), []).append(_restrided(call))
            self._followed.add(args[0])
            is_input = any(value is args[0] for value in self.inputs)
            if is_input and args[0].requires_grad and not torch.is_grad_enabled():
                self._hidden.add(args[0])
        self._check_moved(call)
        for value in written_by(*call):
            if id(value) in self._detached:
                raise Unsupported(
                    f"the program writes an input that overlaps others through a detached view, by {func}"
                )
            if id(value) in self._owners:
                self.writes[self._owners[id(value)]] += 1
            if is_relaid(value) and id(value) not in self._relaid:
                self._relaid.add(value)
                self._as_eager[id(value)] = meta_of(value)

    def _check_hidden(self, call: Call) -> None:
        """Raises: Unsupported for an input that autograd knows in another shape than it has. Eager makes the history of
        one anew that is a view.
        """
        func, args, kwargs = call
        if any(id(value) in self._hidden for value in pytree.arg_tree_leaves(*args, **kwargs)):
            raise Unsupported(f"the program calls {func} on an input whose shape it changed while gradients were off")

    def _check_moved(self, call: Call) -> None:
        """Notes the memory of a view whose shape or strides the call changes in place. Raises: Unsupported for a write
        to such memory that autograd records: it takes the view again as it was first made.

        Source: suites/upstream_bugs/gradient_of_a_view_transposed_in_place.py
        """
        func, args, kwargs = call
        if torch.Tag.inplace_view in func.tags:
            if args[0]._base is not None:
                self._moved.add(args[0].untyped_storage()._cdata)
            return
        if not self._moved or not torch.is_grad_enabled():
            return
        leaves = pytree.arg_tree_leaves(*args, **kwargs)
        is_recorded = any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)
        if is_recorded and any(value.untyped_storage()._cdata in self._moved for value in written_by(*call)):
            raise Unsupported(f"the program writes, by {func}, memory of a view whose strides it changed in place")

    def _follow(self, source: object, result: object, call: Call) -> None:
        """Carries what is known of a tensor over to a view of it. Of views that leave elements out between windows
        functionalization knows no inverse either.
        """
        func = call[0]
        places = self._view_as_eager(source, call)
        for place, made in enumerate(result if isinstance(result, (list, tuple)) else (result,)):
            if id(source) in self._owners:
                self.own(made, self._owners[id(source)])
                if func is torch.ops.aten.detach.default or id(source) in self._detached:
                    self._detached.add(made)
            if places:
                self._relaid.add(made)
                self._as_eager[id(made)] = places[place]
            if func in IRREVERSIBLE or id(source) in self._expanded or overlaps_itself(made):
                self._expanded.add(made)

    def _view_as_eager(self, source: object, call: Call) -> Sequence[torch.Tensor]:
        """How eager's results of a view lie, for a view of what lies otherwise than eager's; else none.

        Raises: Unsupported where eager could take no such view, and so made a copy.
        """
        if self._relaid and isinstance(source, torch.Tensor) and id(source) not in self._relaid and is_relaid(source):
            self._relaid.add(source)  # a view of it was written, and it has been made anew of that
            self._as_eager[id(source)] = meta_of(source)
        if id(source) not in self._relaid:
            return ()
        func, args, kwargs = call
        given, named = pytree.tree_map_only(torch.SymInt, hint, (args[1:], kwargs))
        with _disable_current_modes():
            try:
                found = func(self._as_eager[id(source)], *given, **named)
            except (RuntimeError, ValueError) as error:
                raise Unsupported(f"the program copies, by {func}, a part of what was written in place") from error
        return found if isinstance(found, list | tuple) else (found,)

    def _check_relaid(self, call: Call) -> None:
        """Raises: Unsupported where a call asks how tensors lie that were written in place, and views of them: what is
        recorded in their place was made anew, and lies otherwise.
        """
        func, args, kwargs = call
        tensors = Tensors()
        for value in pytree.arg_tree_leaves(*args, **kwargs):
            if isinstance(value, torch.Tensor):
                tensors.add(value)
        if not self._relaid.keys() & tensors.keys():
            return
        storages = [value.untyped_storage()._cdata for value in tensors.values()]
        if func in ASKS_LAYOUT or (func.namespace == "aten" and len(set(storages)) < len(storages)):
            raise Unsupported(f"the program calls {func}, which asks how a tensor lies that was written in place")

    def _stays(self, target: torch.Tensor, source: torch.Tensor) -> bool:
        """Whether a copy goes to where its source is already, as that does in which `x[:2] += 1` ends."""
        return self._place(target) == self._place(source) and not overlaps_itself(target)

    def _place(self, value: torch.Tensor) -> tuple[object, ...]:
        """Which memory a tensor is in eager, read how."""
        lies = placed(self._as_eager.get(id(value), value))
        return value.untyped_storage()._cdata, value.is_conj(), value.is_neg(), *lies

    def _check_expanded(self, call: Call) -> None:
        """Raises: Unsupported for a write through what is a view of memory that overlaps itself, by a call that eager
        allows: functionalization knows no inverse of such views.
        """
        func = call[0]
        if self._expanded and torch.Tag.inplace_view not in func.tags:
            if any(id(value) in self._expanded for value in written_by(*call)):
                raise Unsupported(f"the program writes memory that overlaps itself, by {func}")


_seeds = itertools.count(0x5EED_0000_0000_0000)  # which no program counts up to


def _seeded_anew() -> int:
    """Gives the random state a seed that it has at no other moment, and says which."""
    with _disable_current_modes():
        torch.default_generator.manual_seed(next(_seeds))
    return _random_seed()


def _random_seed() -> int:
    """The seed from which the random state follows, however many numbers were drawn since."""
    return torch.default_generator.initial_seed()


def _is_composite(func: torch._ops.OpOverload) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


IRREVERSIBLE = (torch.ops.aten.unfold.default, torch.ops.aten.expand.default)
"""Views whose inverse in functionalization is a sum, or loses what lies between windows."""
