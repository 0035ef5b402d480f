"""In-place and out= forms, assignments through views, metadata changed in place."""

from __future__ import annotations

from assay.suites.programs.operations.record import Operation, each, fixed
from assay.suites.programs.operations.views import sliced
from assay.suites.programs.pen import (
    Drawn,
    Pen,
    Where,
    has_dims,
    has_fractions,
    is_bool,
    is_number,
    is_ordered,
    is_real,
)


def _written(template: str, pen: Pen, args: tuple[str, ...]) -> Drawn:
    """A write as a statement or, now and then, with its result under a further name."""
    return Drawn(template, args, int(pen.choices.chance(25)))


def _unary(name: str, text: str, where: Where = lambda tensor: True) -> Operation:
    def draw(pen: Pen) -> Drawn:
        return _written(f"{{0}}.{text}", pen, (pen.tensor(where),))

    return Operation(name, draw)


def _binary(name: str, where: Where = lambda tensor: True) -> Operation:
    def draw(pen: Pen) -> Drawn:
        target = pen.tensor(where)
        if name != "copy_" and pen.choices.chance(40):
            return _written(f"{{0}}.{name}({pen.scalar(target)})", pen, (target,))
        dtype = pen[target].dtype
        source = pen.fitting(target, lambda tensor: not tensor.is_complex() or dtype.is_complex)
        return _written(f"{{0}}.{name}({{1}})", pen, (target, source))

    return Operation(name, draw)


def _value(pen: Pen, target: str) -> tuple[str, tuple[str, ...]]:
    """What is assigned: a number, or a tensor without dimensions or with the target's last one."""
    if pen.choices.chance(60):
        return pen.scalar(target), (target,)
    shape = pen[target].shape
    return "{1}", (target, pen.tensor(lambda tensor: tensor.dim() == 0 or tensor.shape == shape[1:]))


def _set_slice(pen: Pen) -> Drawn:
    target = pen.tensor(has_dims(1))
    value, args = _value(pen, target)
    return Drawn(f"{{0}}[{sliced(pen, pen[target].shape[0])}] = {value}", args, 0)


def _set_select(pen: Pen) -> Drawn:
    target = pen.tensor(lambda tensor: tensor.dim() > 0 and tensor.shape[0] > 0)
    value, args = _value(pen, target)
    return Drawn(f"{{0}}[{pen.choices.below(pen[target].shape[0])}] = {value}", args, 0)


def _set_mask(pen: Pen) -> Drawn:
    target = pen.tensor()
    if pen.choices.chance(50) and is_ordered(pen[target]):
        return Drawn(f"{{0}}[{{0}} > 0] = {pen.scalar(target)}", (target,), 0)
    shape = pen[target].shape
    mask = pen.tensor(lambda tensor: is_bool(tensor) and tensor.shape == shape)
    return Drawn(f"{{0}}[{{1}}] = {pen.scalar(target)}", (target, mask), 0)


def _set_index(pen: Pen) -> Drawn:
    target = pen.tensor(lambda tensor: tensor.dim() > 0 and tensor.shape[0] > 0)
    indices = pen.indices(pen[target].shape[0], 3)
    return Drawn(f"{{0}}[{indices}] = {pen.scalar(target)}", (target,), 0)


def _shift(pen: Pen) -> Drawn:
    target = pen.tensor(lambda tensor: tensor.dim() > 0 and tensor.shape[0] > 1)
    return Drawn("{0}[1:] = {0}[:-1].clone()", (target,), 0)


def _augmented(pen: Pen) -> Drawn:
    target = pen.tensor(lambda tensor: tensor.dim() > 0 and is_number(tensor))
    symbol = pen.choices.pick(("+=", "*=", "-="))
    whole = "{0}" if pen.choices.chance(40) else "{0}[" + sliced(pen, pen[target].shape[0]) + "]"
    return Drawn(f"{whole} {symbol} {pen.scalar(target)}", (target,), 0)


def _through_view(pen: Pen) -> Drawn:
    target = pen.tensor(lambda tensor: tensor.dim() > 0 and is_number(tensor))
    view = pen.choices.pick((".view(-1)", "[::2]", ".unsqueeze(0)", ".detach()", ".t()", ".squeeze()", "[-1:]"))
    write = pen.choices.pick((".add_(1)", ".mul_(2)", ".zero_()", ".fill_(3)"))
    return Drawn(f"{{0}}{view}{write}", (target,), 0)


def _masked_fill(pen: Pen) -> Drawn:
    target = pen.tensor(is_ordered)
    return _written(f"{{0}}.masked_fill_({{0}} > 0, {pen.scalar(target)})", pen, (target,))


def _out(name: str, where: Where) -> Operation:
    def draw(pen: Pen) -> Drawn:
        source = pen.tensor(where)
        shape, dtype = pen[source].shape, pen[source].dtype
        if pen.choices.chance(30):
            return Drawn(f"torch.{name}({{0}}, out=torch.empty_like({{0}}))", (source,))
        target = pen.tensor(lambda tensor: tensor.shape == shape and tensor.dtype == dtype)
        return _written(f"torch.{name}({{0}}, out={{1}})", pen, (source, target))

    return Operation(f"{name}_out", draw)


def _add_out(pen: Pen) -> Drawn:
    target = pen.tensor(has_fractions)
    shape, dtype = pen[target].shape, pen[target].dtype
    source = pen.tensor(lambda tensor: tensor.shape == shape and tensor.dtype == dtype)
    return _written(f"torch.add({{1}}, {pen.scalar(target)}, out={{0}})", pen, (target, source))


def _two_dims_in_place(name: str) -> Operation:
    def draw(pen: Pen) -> Drawn:
        target = pen.tensor(has_dims(2))
        return _written(f"{{0}}.{name}({pen.dim(target)}, {pen.dim(target)})", pen, (target,))

    return Operation(name, draw)


def _unsqueeze_(pen: Pen) -> Drawn:
    target = pen.tensor(has_dims(0, 3))
    return _written(f"{{0}}.unsqueeze_({pen.choices.between(0, pen[target].dim())})", pen, (target,))


INPLACE = (
    *(_binary(name) for name in ("add_", "mul_", "copy_") for _ in range(3)),
    _binary("sub_", is_number),
    _binary("div_", has_fractions),
    *(_unary(name, f"{name}()") for name in ("zero_", "zero_")),
    _unary("fill_", "fill_(2)"),
    _unary("clamp_", "clamp_(min=0)", is_ordered),
    *(_unary(name, f"{name}()", is_real) for name in ("relu_", "sin_", "exp_")),
    *(_unary(name, f"{name}()", is_number) for name in ("neg_", "abs_")),
    *(Operation("set_slice", _set_slice) for _ in range(3)),
    *(Operation("set_select", _set_select) for _ in range(2)),
    Operation("set_mask", _set_mask),
    Operation("set_index", _set_index),
    Operation("shift", _shift),
    *(Operation("augmented", _augmented) for _ in range(2)),
    *(Operation("write_through_view", _through_view) for _ in range(4)),
    Operation("masked_fill_", _masked_fill),
    _out("sin", is_real),
    _out("neg", is_number),
    Operation("add_out", _add_out),
    *each("t_", "{0}.NAME()", has_dims(0, 2), 0),
    *each("squeeze_", "{0}.NAME()", has_dims(1), 0),
    _two_dims_in_place("transpose_"),
    Operation("unsqueeze_", _unsqueeze_),
    fixed("detach_", "{0}.detach_()", count=0),
    fixed("set_data", "{0}.data.add_(1)", is_number, 0),
)
