"""Runs of a program in float64 on both sides of its kinks.

At a relu, a comparison, a sort or a floor, an operand within rounding of the kink may lie on either side, and two right
programs give different results from there on. Eager's run says how far each operand of such an operator is from the
float64 run's; by the rule of harness/tolerance.py that makes a bound. Then the float64 run is made again, with the
operands moved by their bounds: all up, all down, and at random. An operand that is no nearer to a kink than its bound
stays on its side, so what lies between these runs is what rounding alone may lead to, and nothing else.

The operators are matched by their order. Where eager and the float64 run do not call the same ones, there are no such
runs, and nothing is excused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from harness.tolerance import Precision, bound_of, real

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
RUNS = 4

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


class Moved(TorchDispatchMode):
    """Moves the floating operands of each operator with kinks by their bounds, up or down."""

    def __init__(self, bounds: Sequence[Sequence[Tensor]], which: int) -> None:
        super().__init__()
        self._bounds, self._which, self._next = bounds, which, 0
        self._generator = torch.Generator().manual_seed(which)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not is_kinked(func, args, kwargs) or self._next >= len(self._bounds):
            return func(*args, **kwargs)
        bounds = iter(self._bounds[self._next])
        self._next += 1
        first = True

        def move(operand: Tensor) -> Tensor:
            nonlocal first
            if not _is_real(operand):
                return operand
            bound = next(bounds, None)
            if bound is None or bound.shape != operand.shape:
                return operand
            signs = self._signs(operand, first)
            first = False
            return operand + signs * bound

        if func._schema.is_mutable:
            return self._in_place(func, args, kwargs, move)
        args, kwargs = tree_map_only(Tensor, move, (args, kwargs))
        return func(*args, **kwargs)

    def _in_place(self, func: Any, args: Any, kwargs: Any, move: Callable[[Tensor], Tensor]) -> Any:
        """The tensor that is written is moved where it lies; any other operand is replaced."""
        written = args[0]
        if _is_real(written):
            written.copy_(move(written))
        rest, kwargs = tree_map_only(Tensor, move, (args[1:], kwargs))
        return func(written, *rest, **kwargs)

    def _signs(self, operand: Tensor, is_first: bool) -> Tensor | float:
        """Up in the first run, down in the second, the first operand alone; at random in all further ones."""
        if self._which < 2:
            return (1.0, -1.0)[self._which] if is_first else 0.0
        drawn = torch.randint(0, 2, operand.shape, generator=self._generator)
        return (2 * drawn - 1).to(operand.device, operand.dtype)


def bounds_of(eager: Operands, wide: Operands) -> list[tuple[Tensor, ...]] | None:
    """How far each operand of the float64 run may be off by rounding, as eager's operands show; None where the two
    runs do not call the same operators."""
    if [(name, [one.shape for one in found]) for name, found in eager] != [
        (name, [one.shape for one in found]) for name, found in wide
    ]:
        return None
    return [
        tuple(_bound(one, other) for one, other in zip(narrow, exact, strict=True))
        for (_, narrow), (_, exact) in zip(eager, wide, strict=True)
    ]


def _bound(narrow: Tensor, exact: Tensor) -> Tensor:
    numbers = real(narrow)
    finite = numbers.isfinite() & exact.isfinite()
    centre = torch.where(finite, exact.double(), 0.0)
    error = torch.where(finite, (numbers - centre).abs(), 0.0)
    bound = bound_of(centre, [error], Precision.of(narrow.dtype))
    return torch.where(finite, bound, 0.0).to(exact.dtype)
