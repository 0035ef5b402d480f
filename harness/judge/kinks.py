"""Runs of a program in float64 on both sides of its kinks.

At a relu, a comparison, a sort or a floor, an operand within rounding of the kink may lie on either side. Two right
programs give different results from there on. Eager's run says how far each operand of such an operator is from the
float64 run's. By the rule of harness/judge/tolerance.py that makes a bound. Then the float64 run is made again, with
the operands moved by their bounds where a kink is that near: all up, all down, and at random. Each of these runs is
what a right program may compute, and what lies between them is what rounding alone may lead to.

The operators are matched by their order. Where eager and the float64 run do not call the same ones, there are no such
runs, and nothing is excused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from assay.harness.judge.envelope import Precision, bound_of, real

KINKED = frozenset(
    "relu relu_ threshold threshold_ threshold_backward clamp clamp_ clamp_min clamp_min_ clamp_max clamp_max_ "
    "hardtanh hardtanh_ hardtanh_backward relu6 leaky_relu leaky_relu_ leaky_relu_backward prelu _prelu_kernel "
    "_prelu_kernel_backward hardswish hardswish_ hardswish_backward hardsigmoid hardsigmoid_backward hardshrink "
    "hardshrink_backward softshrink softshrink_backward elu elu_ elu_backward abs abs_ sgn sign sign_ floor "
    "floor_ ceil ceil_ round round_ trunc trunc_ frac frac_ floor_divide remainder fmod lt lt_ le gt gt_ ge eq ne "
    "maximum minimum fmax fmin max min amax amin aminmax argmax argmin topk sort argsort kthvalue median "
    "nanmedian mode cummax cummin max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d "
    "fractional_max_pool2d bucketize searchsorted histc heaviside unique _unique2 unique_dim unique_consecutive "
    "nonzero isclose bernoulli multinomial smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward "
    "logical_not logical_and logical_or logical_xor copysign signbit nextafter".split()
)
"""Operators of ATen that are not smooth, by name."""
DIVISION = "div"
CAST = "_to_copy"
MOST_NUMBERS = 1 << 26
"""Of operands that are recorded: of programs with more, nothing is excused."""
RUNS = 6

Operands = list[tuple[str, tuple[Tensor, ...]]]
Move = Callable[[int, Tensor], Tensor]


class TooMany(Exception):
    """The program has too many operands at kinks to be recorded."""


def is_kinked(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether an operator has a kink or a step somewhere."""
    name = func._schema.name.partition("::")[2]
    if name == CAST:
        dtype = kwargs.get("dtype")
        return dtype is not None and not (dtype.is_floating_point or dtype.is_complex)
    return name in KINKED or (name.startswith(DIVISION) and kwargs.get("rounding_mode") is not None)


def _is_real(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.layout == torch.strided


class Recorded(TorchDispatchMode):
    """Records the floating operands of each operator with kinks. Raises: TooMany."""

    def __init__(self) -> None:
        super().__init__()
        self.operands: Operands = []
        self._count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_kinked(func, args, kwargs):
            found = tuple(leaf.detach().clone() for leaf in tree_leaves((args, kwargs)) if _is_real(leaf))
            self._count += sum(operand.numel() for operand in found)
            if self._count > MOST_NUMBERS:
                raise TooMany
            self.operands.append((func._schema.name, found))
        return func(*args, **kwargs)


class Bounded(TorchDispatchMode):
    """In a float64 run: how far each operand of each operator with kinks may be off, as eager's operands show."""

    def __init__(self, eager: Operands) -> None:
        super().__init__()
        self._eager = eager
        self._bounds: list[tuple[Tensor, ...]] = []
        self._is_same = True
        self._is_near = False

    def bounds(self) -> Sequence[Sequence[Tensor]]:
        """The bounds of each operator. There are none where the two runs do not call the same operators, and none
        where no operand is within its bound of a kink: nothing is moved then."""
        is_whole = self._is_same and len(self._bounds) == len(self._eager)
        return self._bounds if is_whole and self._is_near else ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._is_same and is_kinked(func, args, kwargs):
            leaves = [leaf.detach() for leaf in tree_leaves((args, kwargs)) if _is_real(leaf)]
            self._note(func, (*args, *kwargs.values()), leaves)
        return func(*args, **kwargs)

    def _note(self, func: Any, args: Sequence[Any], leaves: Sequence[Tensor]) -> None:
        name, found = self._eager[len(self._bounds)] if len(self._bounds) < len(self._eager) else ("", ())
        self._is_same = name == func._schema.name and [one.shape for one in found] == [leaf.shape for leaf in leaves]
        if self._is_same:
            bounds = tuple(_bound(narrow, exact) for narrow, exact in zip(found, leaves, strict=True))
            near = nearness(func, args, leaves, bounds)
            self._bounds.append(bounds)
            self._is_near |= any(bool((near[own] & (bounds[own] > 0)).any()) for own in _movable(func, len(leaves)))


def _movable(func: Any, count: int) -> list[int]:
    """Which of an operator's operands may be moved. The first one of a backward is a gradient, which has no kink."""
    return [index for index in range(count) if index > 0 or not func._schema.name.endswith("_backward")]


class Moved(TorchDispatchMode):
    """Moves the floating operands of operators with kinks by their bounds, up or down, where a kink is that near."""

    def __init__(self, bounds: Sequence[Sequence[Tensor]], which: int) -> None:
        super().__init__()
        self._bounds, self._which, self._next = bounds, which, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not is_kinked(func, args, kwargs) or self._next >= len(self._bounds):
            return func(*args, **kwargs)
        bounds = self._bounds[self._next]
        self._next += 1
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if _is_real(leaf)]
        if [leaf.shape for leaf in leaves] != [bound.shape for bound in bounds]:
            return func(*args, **kwargs)
        moves = iter(self._moves(func, args, kwargs, leaves, bounds))

        def move(operand: Tensor) -> Tensor:
            return operand + next(moves) if _is_real(operand) else operand

        if func._schema.is_mutable:
            return self._in_place(func, args, kwargs, move)
        args, kwargs = tree_map_only(Tensor, move, (args, kwargs))
        return func(*args, **kwargs)

    def _moves(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], leaves: Sequence[Tensor], bounds: Sequence[Tensor]
    ) -> list[Tensor | float]:
        """How far each operand is moved."""
        own = _movable(func, len(leaves))
        near = nearness(func, (*args, *kwargs.values()), leaves, bounds)
        return [
            self._signs(leaf, is_first=index == own[0]) * torch.where(near[index], bound, 0.0) if index in own else 0.0
            for index, (leaf, bound) in enumerate(zip(leaves, bounds, strict=True))
        ]

    def _in_place(self, func: Any, args: Any, kwargs: Any, move: Callable[[Tensor], Tensor]) -> Any:
        """The tensor that is written is moved where it lies; any other operand is replaced."""
        written = args[0]
        if _is_real(written):
            written.copy_(move(written))
        rest, kwargs = tree_map_only(Tensor, move, (args[1:], kwargs))
        return func(written, *rest, **kwargs)

    def _signs(self, operand: Tensor, is_first: bool) -> Tensor | float:
        """Up in the first run, down in the second, the first operand alone; at random in all further ones. Operands of
        one shape have the same signs, as one tensor has them in forward and in backward."""
        if self._which < 2:
            return (1.0, -1.0)[self._which] if is_first else 0.0
        generator = torch.Generator().manual_seed(self._which)
        drawn = torch.randint(0, 2, operand.shape, generator=generator)
        return (2 * drawn - 1).to(operand.device, operand.dtype)


AT_ZERO = frozenset("relu leaky_relu prelu _prelu_kernel elu abs sgn sign signbit heaviside".split())
AT_THREE = frozenset("hardswish hardsigmoid".split())
AT_NUMBERS = frozenset("threshold clamp clamp_min clamp_max hardtanh lt le gt ge eq ne".split())
"""Kinks at the Python numbers among the arguments."""
AT_LAMBDA = frozenset("hardshrink softshrink".split())
AT_WHOLE = frozenset("floor ceil trunc frac".split())
BETWEEN = frozenset("lt le gt ge eq ne maximum minimum fmax fmin clamp clamp_min clamp_max".split())
"""Where the first operand equals another one, of those that are tensors."""


def nearness(func: Any, args: Sequence[Any], leaves: Sequence[Tensor], bounds: Sequence[Tensor]) -> list[Tensor]:
    """Where each operand is within its bound of a kink; everywhere, for operators whose kinks are not known here."""
    name = func._schema.name.partition("::")[2].removesuffix("_")
    is_backward, name = name.endswith("_backward"), name.removesuffix("_backward")
    if name in BETWEEN and len(leaves) > 1:
        first, *others = zip(leaves, bounds, strict=True)
        near = [(first[0] - other).abs() <= first[1] + bound for other, bound in others]
        anywhere = functools.reduce(torch.logical_or, near)
        return [_along(anywhere, first[0]), *(_along(each, leaf) for each, (leaf, _) in zip(near, others, strict=True))]
    numbers = [float(arg) for arg in args if isinstance(arg, int | float) and not isinstance(arg, bool)]
    places: Sequence[float] | None = None
    if name in AT_ZERO:
        places = (0.0,)
    elif name in AT_THREE:
        places = (-3.0, 3.0)
    elif name in AT_LAMBDA:
        places = [sign * number for number in numbers or [0.5] for sign in (1, -1)]
    elif name in AT_NUMBERS and len(leaves) == 1 + is_backward:
        places = numbers or ((-1.0, 1.0) if name == "hardtanh" else None)
    if places is not None:
        return [_is_near(leaf, bound, places) for leaf, bound in zip(leaves, bounds, strict=True)]
    if name in AT_WHOLE:
        return [(leaf - leaf.round()).abs() <= bound for leaf, bound in zip(leaves, bounds, strict=True)]
    return [torch.ones_like(leaf, dtype=torch.bool) for leaf in leaves]


def _is_near(operand: Tensor, bound: Tensor, places: Sequence[float]) -> Tensor:
    found = torch.zeros_like(operand, dtype=torch.bool)
    for place in places:
        found |= (operand - place).abs() <= bound
    return found


def _along(near: Tensor, operand: Tensor) -> Tensor:
    """Where an operand that was broadcast is near for one of the elements that it meets."""
    extra = near.dim() - operand.dim()
    if extra > 0:
        near = near.flatten(0, extra - 1).any(0)
    spread = [dim for dim in range(operand.dim()) if operand.shape[dim] == 1 and near.shape[dim] != 1]
    return near.any(dim=tuple(spread), keepdim=True) if spread else near


def _bound(narrow: Tensor, exact: Tensor) -> Tensor:
    """How far an operand of the float64 run may be off by rounding."""
    numbers = real(narrow)
    finite = numbers.isfinite() & exact.isfinite()
    centre = torch.where(finite, exact.double(), 0.0)
    error = torch.where(finite, (numbers - centre).abs(), 0.0)
    bound = bound_of(centre, [error], Precision.of(narrow.dtype))
    return torch.where(finite, bound, 0.0).to(exact.dtype)
