"""Views of every kind, and operations that are sometimes one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.suites.programs.operations.record import Operation, each, fixed
from assay.suites.programs.pen import Drawn, NoOperand, Pen, has_dims, has_elements, is_integer

SAME_SIZE = {1: ("int8", "uint8", "bool"), 2: ("int16", "float16", "bfloat16"), 4: ("int32", "float32"), 8: ("int64",)}


def _shapes(count: int) -> list[tuple[int, ...]]:
    """Some shapes of that many elements."""
    pairs = [(a, count // a) for a in (1, 2, 3, 5, 7, 8) if count and count % a == 0]
    deep = [(a, 2, b // 2) for a, b in pairs if b % 2 == 0]
    return [(count,), *pairs, *deep] if count else [(0,), (0, 3), (2, 0)]


def _reshaped(method: str) -> Operation:
    def draw(pen: Pen) -> Drawn:
        source = pen.tensor(lambda tensor: method != "view" or tensor.is_contiguous() or tensor.dim() < 3)
        shape = pen.choices.pick(_shapes(pen[source].numel()))
        text = ", ".join(map(str, shape)) if pen[source].numel() == 0 or pen.choices.chance(70) else "-1"
        return Drawn(f"{{0}}.{method}({text})", (source,))

    return Operation(method, draw)


def _slice(pen: Pen) -> Drawn:
    source = pen.tensor(has_dims(1))
    dim = pen.choices.below(pen[source].dim())
    return Drawn("{0}[" + ":, " * dim + sliced(pen, pen[source].shape[dim]) + "]", (source,))


def sliced(pen: Pen, size: int) -> str:
    """A slice of a dimension of that size, as text."""
    start, stop = pen.choices.between(0, size), pen.choices.between(0, size)
    step = pen.choices.pick(("", "", ":2", ":3"))
    return f"{min(start, stop) or ''}:{max(start, stop)}{step}"


def _select(pen: Pen) -> Drawn:
    source = pen.tensor(has_dims(1))
    dim = pen.dim(source, least=1)
    index = pen.choices.below(pen[source].shape[dim])
    if dim == 0:
        return Drawn(f"{{0}}[{index}]", (source,))
    return Drawn(f"{{0}}.select({dim}, {index})", (source,))


def _narrow(pen: Pen) -> Drawn:
    source = pen.tensor(has_dims(1))
    dim = pen.dim(source)
    size = pen[source].shape[dim]
    start = pen.choices.between(0, size)
    return Drawn(f"{{0}}.narrow({dim}, {start}, {pen.choices.between(0, size - start)})", (source,))


def _permute(pen: Pen) -> Drawn:
    source = pen.tensor(has_dims(2))
    left, order = list(range(pen[source].dim())), []
    while left:
        order.append(left.pop(pen.choices.below(len(left))))
    return Drawn(f"{{0}}.permute({', '.join(map(str, order))})", (source,))


def _two_dims(method: str) -> Operation:
    def draw(pen: Pen) -> Drawn:
        source = pen.tensor(has_dims(2))
        return Drawn(f"{{0}}.{method}({pen.dim(source)}, {pen.dim(source)})", (source,))

    return Operation(method, draw)


def _diagonal(pen: Pen) -> Drawn:
    return Drawn(f"{{0}}.diagonal({pen.choices.pick((0, 1, -1))})", (pen.tensor(has_dims(2)),))


def _expand(pen: Pen) -> Drawn:
    source = pen.tensor(lambda tensor: tensor.dim() < 4)
    sizes = ["-1" if size != 1 else pen.choices.pick(("-1", "3")) for size in pen[source].shape]
    return Drawn(f"{{0}}.expand({', '.join([pen.choices.pick(('2', '1', '3')), *sizes])})", (source,))


def _unsqueeze(pen: Pen) -> Drawn:
    source = pen.tensor(has_dims(0, 4))
    return Drawn(f"{{0}}.unsqueeze({pen.choices.between(-1, pen[source].dim())})", (source,))


def _squeeze(pen: Pen) -> Drawn:
    source = pen.tensor(lambda tensor: 1 in tensor.shape or tensor.dim() > 0)
    dim = "" if pen.choices.chance(40) else str(pen.dim(source))
    return Drawn(f"{{0}}.squeeze({dim})", (source,))


def _unfold(pen: Pen) -> Drawn:
    source = pen.tensor(has_dims(1, 3))
    dim = pen.dim(source, least=2)
    size = pen.choices.between(1, min(3, pen[source].shape[dim]))
    return Drawn(f"{{0}}.unfold({dim}, {size}, {pen.choices.between(1, 2)})", (source,))


def strided(pen: Pen, length: int) -> str:
    """Size, stride and offset of a view of memory of that many elements, often over itself or with gaps."""
    if length < 1:
        raise NoOperand
    offset = pen.choices.below(min(length, 4))
    room, size, stride = length - offset - 1, [], []
    for _ in range(pen.choices.between(1, 2)):
        step = pen.choices.pick((1, 2, 3, 0, 4))
        count = pen.choices.between(1, min(4, room // step + 1) if step else 2)
        room -= step * (count - 1)
        size.append(count)
        stride.append(step)
    return f"{tuple(size)}, {tuple(stride)}, {offset}"


def _as_strided(pen: Pen) -> Drawn:
    source = pen.tensor(has_elements)
    length = pen[source].untyped_storage().nbytes() // pen[source].element_size()
    return Drawn(f"{{0}}.as_strided({strided(pen, length)})", (source,))


def _pieces(name: str, template: str) -> Operation:
    """A view with several results, of which one or the first two are taken."""

    def draw(pen: Pen) -> Drawn:
        source = pen.tensor(has_dims(1))
        dim = pen.dim(source, least=2)
        count = math.ceil(pen[source].shape[dim] / 2) if name == "split" else 2
        count = pen[source].shape[dim] if name == "unbind" else count
        text = template.replace("DIM", str(dim))
        if pen.choices.chance(50) and count >= 2:
            return Drawn(text if count == 2 else f"{text}[:2]", (source,), 2)
        return Drawn(f"{text}[{pen.choices.below(count)}]", (source,))

    return Operation(name, draw)


def _view_dtype(pen: Pen) -> Drawn:
    """Of what has the same bits whoever computes it: integers, and inputs that nothing has written."""

    def has_sure_bits(tensor: Tensor) -> bool:
        is_given = tensor._version == 0 and any(tensor is pen[name] for name in pen.inputs)
        return (is_integer(tensor) or is_given) and tensor.element_size() in SAME_SIZE and tensor.dtype != torch.bool

    source = pen.tensor(has_sure_bits)
    dtype = pen.choices.pick(SAME_SIZE[pen[source].element_size()])
    return Drawn(f"{{0}}.view(torch.{dtype})", (source,))


def _is_complex(tensor: Tensor) -> bool:
    return tensor.is_complex()


def _is_pairs(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.float32, torch.float64) and tensor.dim() > 0 and tensor.shape[-1] == 2


def _view_as(pen: Pen) -> Drawn:
    source = pen.tensor()
    count = pen[source].numel()
    return Drawn("{0}.view_as({1})", (source, pen.tensor(lambda tensor: tensor.numel() == count)))


VIEWS = (
    *(_reshaped(method) for method in ("view", "reshape", "view", "reshape")),
    *(Operation("slice", _slice) for _ in range(4)),
    *(Operation("select", _select) for _ in range(2)),
    Operation("narrow", _narrow),
    Operation("permute", _permute),
    _two_dims("transpose"),
    _two_dims("movedim"),
    *each("t", "{0}.NAME()", has_dims(0, 2)),
    fixed("mT", "{0}.mT", has_dims(2)),
    Operation("diagonal", _diagonal),
    *(Operation("expand", _expand) for _ in range(2)),
    Operation("unsqueeze", _unsqueeze),
    Operation("squeeze", _squeeze),
    Operation("unfold", _unfold),
    *(Operation("as_strided", _as_strided) for _ in range(2)),
    _pieces("split", "{0}.split(2, DIM)"),
    _pieces("chunk", "{0}.chunk(2, DIM)"),
    _pieces("unbind", "{0}.unbind(DIM)"),
    Operation("view_dtype", _view_dtype),
    fixed("view_as_real", "torch.view_as_real({0})", lambda tensor: tensor.is_complex() and not tensor.is_conj()),
    fixed("view_as_complex", "torch.view_as_complex({0})", _is_pairs),
    *each("conj", "{0}.NAME()"),
    *each("real imag", "{0}.NAME", _is_complex),
    *(operation for _ in range(2) for operation in each("detach", "{0}.NAME()")),
    *each("flatten ravel", "{0}.NAME()"),
    Operation("view_as", _view_as),
    fixed("data", "{0}.data"),
)
