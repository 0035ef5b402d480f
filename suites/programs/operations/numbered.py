"""Operations that take one of the program's Python numbers: positions, sizes, factors, bounds, flags.

A template names what a number is used for: `<position>`, `<size>`, `<factor>`, `<whole>`, `<flag>`; `<other>` is a
second factor, `<dim>` a dimension of the first tensor. The same word stands for the same text all over a template.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from assay.suites.programs.operations.record import Operation
from assay.suites.programs.pen import (
    Drawn,
    Pen,
    Where,
    has_dims,
    has_elements,
    has_fractions,
    is_bool,
    is_integer,
    is_number,
    is_ordered,
    is_real,
)

WORD = re.compile(r"<(\w+)>")


def _rows(tensor: Tensor) -> bool:
    return 1 <= tensor.dim() <= 4


def _real_rows(tensor: Tensor) -> bool:
    return _rows(tensor) and is_real(tensor)


def _matrices(tensor: Tensor) -> bool:
    return 2 <= tensor.dim() <= 4


def _ordered_rows(tensor: Tensor) -> bool:
    return _rows(tensor) and is_ordered(tensor) and has_elements(tensor)


def _number_rows(tensor: Tensor) -> bool:
    return _rows(tensor) and is_number(tensor)


def _small(tensor: Tensor) -> bool:
    return _rows(tensor) and tensor.numel() <= 64


def _real_matrix(tensor: Tensor) -> bool:
    return tensor.dim() == 2 and is_real(tensor)


def _any(tensor: Tensor) -> bool:
    return True


_AT = "torch.tensor([0, 1], device={0}.device) + <position>"
_POSITIONS: tuple[tuple[Where, str], ...] = (
    (_rows, "{0}[<position>]"),
    (_rows, "{0}[<position>:]"),
    (_rows, "{0}[:<position>]"),
    (_rows, "{0}[<position>:<position> + 2]"),
    (_rows, "{0}[<position>::2]"),
    (_matrices, "{0}[:, <position>]"),
    (_matrices, "{0}[:, <position>:]"),
    (_matrices, "{0}[<position>, <position>]"),
    (_rows, "{0}[..., <position>]"),
    (_rows, "{0}[..., :<position>]"),
    (_rows, "{0}.shape[0] * {0}[<position>]"),
    (_rows, "{0}[{0}.shape[0] - <position>:]"),
    (_rows, "{0}[[<position>, 0]]"),
    (_rows, f"{{0}}[{_AT}]"),
    (_rows, "{0}.select(<dim>, <position>)"),
    (_rows, "{0}.narrow(<dim>, <position>, 1)"),
    (_rows, "{0}.roll(<position>, <dim>)"),
    (_rows, "{0}.roll(<position>)"),
    (_rows, "{0}.flip(<position>)"),
    (_rows, "{0}.movedim(0, <position>)"),
    (_rows, "{0}.transpose(0, <position>)"),
    (_rows, "{0}.unsqueeze(<position>)"),
    (_rows, "{0}.squeeze(<position>)"),
    (_rows, "{0}.unbind(0)[<position>]"),
    (_matrices, "{0}.diagonal(<position>)"),
    (_matrices, "{0}.tril(<position>)"),
    (_matrices, "{0}.triu(<position>)"),
    (_matrices, "{0}.rot90(<position>)"),
    (has_elements, "{0}.as_strided((2,), (1,), <position>)"),
    (_rows, "{0}.select_scatter({0}.select(<dim>, <position>) + 1, <dim>, <position>)"),
    (_rows, "{0}.slice_scatter({0}[<position>:] + 1, 0, <position>)"),
    (_rows, "{0}.slice_scatter({0}[:<position>] + 1, 0, 0, <position>)"),
    (_matrices, "{0}.diagonal_scatter({0}.diagonal(<position>) + 1, <position>)"),
    (_rows, f"{{0}}.index_select(<dim>, {_AT})"),
    (_rows, "{0}.gather(<dim>, torch.full([1] * {0}.dim(), <position>))"),
    (_rows, "{0}.take(torch.full((2,), <position>))"),
    (_number_rows, "{0}.scatter(<dim>, torch.full([1] * {0}.dim(), <position>), 1)"),
    (_number_rows, f"{{0}}.index_add(<dim>, {_AT}, {{0}}.narrow(<dim>, 0, 2))"),
    (_number_rows, "{0}.sum(<position>)"),
    (_number_rows, "{0}.cumsum(<position>)"),
    (_real_rows, "{0}.softmax(<position>)"),
    (_ordered_rows, "{0}.amax(<position>, keepdim=True)"),
    (_rows, "torch.cat([{0}, {0}], <position>)"),
    (_rows, "torch.stack([{0}, {0}], <position>)"),
    (_number_rows, "{0} * {0}.shape[<position>]"),
    (_rows, "torch.where(torch.arange({0}.shape[-1]) < <position>, {0}, 0)"),
    (_number_rows, "torch.arange({0}.shape[-1]) + <position> + {0}"),
    (_real_matrix, "torch.nn.functional.embedding(torch.tensor([<position>, 0]), {0})"),
    (_rows, "torch.nn.functional.one_hot(torch.tensor([<position>, 0]), 4) + {0}.shape[0]"),
)  # fmt: skip
_POSITION_WRITES: tuple[tuple[Where, str], ...] = (
    (_rows, "{0}[<position>] = 3"),
    (_rows, "{0}[<position>:] = 2"),
    (_number_rows, "{0}[:<position>] += 1"),
    (_number_rows, "{0}[<position>:<position> + 2] *= 2"),
    (_matrices, "{0}[:, <position>] = 1"),
    (_matrices, "{0}[<position>, <position>] = 0"),
    (_rows, "{0}[<position>].zero_()"),
    (_number_rows, "{0}.select(<dim>, <position>).add_(1)"),
    (_number_rows, "{0}.narrow(<dim>, <position>, 1).mul_(2)"),
    (_rows, "{0}.index_fill_(<dim>, torch.tensor([0]) + <position>, 1)"),
    (_rows, f"{{0}}[{_AT}] = 1"),
    (_matrices, "{0}.tril_(<position>)"),
)  # fmt: skip
_SIZES: tuple[tuple[Where, str], ...] = (
    (_small, "{0}.repeat(<size>, *[1] * ({0}.dim() - 1))"),
    (_small, "{0}.tile(<size>)"),
    (_small, "{0}.unsqueeze(0).expand(<size>, *{0}.shape)"),
    (_small, "{0}.repeat_interleave(<size>, <dim>)"),
    (has_dims(0), "{0}.reshape(<size>, -1)"),
    (has_dims(0), "{0}.reshape(-1, <size>)"),
    (_rows, "{0}.view(-1, <size>)"),
    (_rows, "{0}.unflatten(<dim>, (<size>, -1))"),
    (_rows, "{0}.unflatten(<dim>, (-1, <size>))"),
    (_small, "torch.nn.functional.pad({0}, (<size>, 1))"),
    (_small, "torch.nn.functional.pad({0}, (1, <size>), value=2)"),
    (_small, "torch.nn.functional.pad({0}, (-1, <size>))"),
    (lambda t: _small(t) and t.dim() == 2, "torch.nn.functional.pad({0}, (<size>, 1), mode='reflect')"),
    (lambda t: _small(t) and t.dim() == 2, "torch.nn.functional.pad({0}, (1, <size>), mode='replicate')"),
    (lambda t: _small(t) and t.dim() == 2, "torch.nn.functional.pad({0}, (<size>, 0), mode='circular')"),
    (_rows, "{0}.unfold(<dim>, <size>, 1)"),
    (_rows, "{0}.unfold(<dim>, 1, <size>)"),
    (_rows, "{0}[::<size>]"),
    (_rows, "{0}.narrow(<dim>, 0, <size>)"),
    (_rows, "{0}.split(<size>, <dim>)[0]"),
    (_rows, "{0}.split(<size>)[-1]"),
    (_rows, "{0}.chunk(<size>, <dim>)[-1]"),
    (_rows, "{0}.tensor_split(<size>, <dim>)[0]"),
    (_rows, "{0}.tensor_split([<size>], <dim>)[1]"),
    (_rows, "torch.cat([part + 1 for part in {0}.chunk(<size>)])"),
    (_small, "{0}.diag_embed(<size>)"),
    (has_dims(0), "{0}.new_zeros(<size>, 2)"),
    (has_dims(0), "{0}.new_ones(<size>) + {0}.sum()"),
    (has_dims(0), "torch.arange(<size>, device={0}.device) + {0}.sum()"),
    (has_dims(0), "torch.arange(<size>, 6) * {0}.sum()"),
    (has_dims(0), "torch.eye(<size>, 3) + {0}.sum()"),
    (has_dims(0), "torch.linspace(0, 1, <size>) + {0}.sum()"),
    (has_dims(0), "torch.rand(<size>)"),
    (_ordered_rows, "{0}.topk(<size>).values"),
    (_ordered_rows, "{0}.kthvalue(<size>).values"),
    (_real_rows, "{0}.var(<dim>, correction=<size>)"),
    (lambda t: _real_rows(t) and 2 <= t.dim() <= 3, "torch.nn.functional.avg_pool1d({0}, <size>)"),
    (lambda t: _real_rows(t) and 2 <= t.dim() <= 3, "torch.nn.functional.max_pool1d({0}, 2, <size>)"),
    (lambda t: _real_rows(t) and t.dim() == 3, "torch.nn.functional.interpolate({0}, size=<size>)"),
    (lambda t: _real_rows(t) and 2 <= t.dim() <= 3, "torch.nn.functional.adaptive_avg_pool1d({0}, <size>)"),
    (is_integer, "{0} << <size>"),
    (is_integer, "{0} >> <size>"),
    (_real_rows, "{0}.clone().uniform_(0, 1)[:<size>]"),
)  # fmt: skip
_FACTORS: tuple[tuple[Where, str], ...] = (
    *((_any, text) for text in ("{0} * <factor>", "<factor> * {0}", "{0} + <factor>")),
    *((is_number, text) for text in ("{0} - <factor>", "<factor> - {0}", "{0} / <factor>", "<factor> / {0}")),
    *((is_number, text) for text in ("{0} ** <factor>", "<factor> ** {0}", "{0}.add(<factor>)", "{0}.mul(<factor>)")),
    (is_ordered, "{0} // <factor>"),
    (is_ordered, "{0} % <factor>"),
    (is_ordered, "<factor> % {0}"),
    (is_ordered, "<factor> // {0}"),
    (is_ordered, "{0}.fmod(<factor>)"),
    (is_ordered, "{0} < <factor>"),
    (is_ordered, "{0} >= <factor>"),
    (_any, "{0} == <factor>"),
    (is_number, "torch.add({0}, {1}, alpha=<factor>)"),
    (is_number, "torch.sub({0}, {1}, alpha=<factor>)"),
    (is_number, "torch.rsub({0}, {1}, alpha=<factor>)"),
    (is_ordered, "{0}.clamp(<factor>)"),
    (is_ordered, "{0}.clamp(max=<factor>)"),
    (is_ordered, "{0}.clamp(<factor>, <other>)"),
    (is_ordered, "torch.where({0} > <factor>, {0}, <other>)"),
    (_any, "torch.where({0} != 0, <factor>, {0})"),
    (is_ordered, "torch.where({0} > 0, <factor>, <other>)"),
    (_any, "{0}.masked_fill({0} != 0, <factor>)"),
    (_any, "torch.full_like({0}, <factor>)"),
    (has_dims(0), "{0}.new_full((2, 3), <factor>)"),
    (has_dims(0), "torch.full((3,), <factor>) + {0}.sum()"),
    (_any, "{0} + torch.tensor(<factor>)"),
    (_any, "torch.tensor([<factor>, <other>]) * {0}.sum()"),
    (_any, "torch.scalar_tensor(<factor>) * {0}"),
    (is_real, "{0}.lerp({1}, <factor>)"),
    (is_real, "torch.addcmul({0}, {1}, {0}, value=<factor>)"),
    (is_real, "torch.addcdiv({0}, {1}, {0}, value=<factor>)"),
    (_real_matrix, "torch.addmm({0}, {0}, {0}.t() @ {0}, beta=<factor>, alpha=<other>)"),
    (is_real, "torch.nn.functional.leaky_relu({0}, <factor>)"),
    (is_real, "torch.nn.functional.elu({0}, <factor>)"),
    (is_real, "torch.nn.functional.celu({0}, <factor>)"),
    (is_real, "torch.nn.functional.softplus({0}, <factor>)"),
    (is_real, "torch.nn.functional.hardtanh({0}, <factor>, <other>)"),
    (is_real, "torch.nn.functional.threshold({0}, <factor>, <other>)"),
    (is_real, "torch.nn.functional.hardshrink({0}, <factor>)"),
    (is_real, "torch.nn.functional.softshrink({0}, <factor>)"),
    (is_real, "torch.nn.functional.huber_loss({0}, {1}, delta=<factor>)"),
    (is_real, "torch.nn.functional.smooth_l1_loss({0}, {1}, beta=<factor>)"),
    (_real_rows, "torch.nn.functional.layer_norm({0}, {0}.shape[-1:], eps=<factor>)"),
    (_real_rows, "torch.nn.functional.normalize({0}, dim=<dim>, eps=<factor>)"),
    (is_real, "{0}.nan_to_num(<factor>)"),
    (is_real, "{0}.nan_to_num(posinf=<factor>, neginf=<other>)"),
    (is_real, "{0}.logit(<factor>)"),
    (is_real, "{0}.xlogy(<factor>)"),
    (is_real, "torch.atan2({0}, torch.full_like({0}, <factor>))"),
    (is_real, "{0}.norm(<factor>)"),
    (_real_rows, "torch.linalg.vector_norm({0}, <factor>, <dim>)"),
    (is_real, "torch.isclose({0}, {0} + <factor>)"),
    (is_real, "torch.heaviside({0}, torch.full_like({0}, <factor>))"),
    (is_ordered, "torch.maximum({0}, torch.full_like({0}, <factor>))"),
    (has_fractions, "{0}.exp() * <factor> + <other>"),
    (has_fractions, "({0} * <factor>).sin()"),
    (is_number, "{0} * <factor> - {1} / <other>"),
    (is_number, "{0} + (<factor> if <factor> > 1 else 1)"),
    (is_number, "{0} * max(<factor>, <other>)"),
    (is_number, "{0} * int(<factor>)"),
    (is_real, "torch.nn.functional.dropout({0}, <factor>)"),
    (is_real, "{0}.clone().uniform_(0, <factor>)"),
    (is_real, "{0}.clone().normal_(<factor>, 1)"),
    (is_real, "torch.empty_like({0}).bernoulli_(<factor>)"),
    (_real_rows, "{0}.quantile(<factor>)"),
    (_real_rows, "{0}.renorm(2, <dim>, <factor>)"),
    (is_integer, "{0} & <whole>"),
    (is_integer, "{0} | <whole>"),
    (is_integer, "{0} ^ <whole>"),
    (is_number, "{0} * <whole>"),
    (is_number, "{0} + <whole>"),
    (is_ordered, "{0} // <whole>"),
    (is_ordered, "{0} % <whole>"),
    (has_fractions, "{0} ** <whole>"),
    (is_real, "torch.ldexp({0}, torch.tensor(<whole>))"),
)  # fmt: skip
_FACTOR_WRITES: tuple[tuple[Where, str], ...] = (
    (_any, "{0}.fill_(<flag>)"),
    (_any, "{0}.mul_(<factor>)"),
    (_any, "{0}.add_(<factor>)"),
    (is_number, "{0}.sub_(<factor>)"),
    (has_fractions, "{0}.div_(<factor>)"),
    (is_number, "{0}.add_({1}, alpha=<factor>)"),
    (_any, "{0}.fill_(<factor>)"),
    (is_ordered, "{0}.clamp_(<factor>)"),
    (is_ordered, "{0}.clamp_(max=<factor>)"),
    (is_ordered, "{0}.masked_fill_({0} > 0, <factor>)"),
    (is_ordered, "{0}[{0} > <factor>] = <other>"),
    (_rows, "{0}[1:] = <factor>"),
    (_rows, "{0}[0] = <factor>"),
    (_rows, "{0}[torch.tensor([0, 0])] = <factor>"),
    (_number_rows, "{0}[0] *= <factor>"),
    (is_number, "{0} += <factor>"),
    (is_number, "{0} -= <factor>"),
    (is_number, "{0} *= <factor>"),
    (is_number, "{0}.pow_(<factor>)"),
    (is_ordered, "{0}.remainder_(<factor>)"),
    (is_real, "{0}.lerp_({1}, <factor>)"),
    (is_real, "{0}.addcmul_({1}, {0}, value=<factor>)"),
    (_number_rows, "{0}.index_add_(0, torch.tensor([0]), {0}[:1].clone(), alpha=<factor>)"),
    (_rows, "{0}.index_fill_(0, torch.tensor([0]), <factor>)"),
    (_number_rows, "{0}.scatter_(<dim>, torch.zeros([1] * {0}.dim(), dtype=torch.int64), <factor>)"),
)  # fmt: skip
_FLAGS: tuple[tuple[Where, str], ...] = (
    (_any, "{0} * <flag>"),
    (_number_rows, "{0}.sum(<dim>, keepdim=<flag>)"),
    (_any, "{0} + 1 if <flag> else {0} * 2"),
    (lambda t: is_ordered(t) and t.dim() > 0, "{0}.sort(dim=<dim>, descending=<flag>, stable=True).values"),
    (is_real, "torch.nn.functional.dropout({0}, 0.5, <flag>)"),
    (is_bool, "{0} & <flag>"),
    (is_integer, "{0} | <flag>"),
    (lambda t: _real_rows(t), "{0}.var(<dim>, unbiased=<flag>)"),
    (is_real, "torch.isclose({0}, {0} * 2, equal_nan=<flag>)"),
)  # fmt: skip


def _filled(pen: Pen, word: str, target: str) -> str:
    if word == "dim":
        return str(pen.dim(target))
    return pen.number("factor" if word == "other" else word)


def _operation(name: str, where: Where, template: str, count: int) -> Operation:
    def draw(pen: Pen) -> Drawn:
        target = pen.tensor(where)
        dtype: torch.dtype = pen[target].dtype
        args = [target]
        if "{1}" in template:
            args.append(pen.fitting(target, lambda tensor: tensor.dtype == dtype))
        words = {word: _filled(pen, word, target) for word in dict.fromkeys(WORD.findall(template))}
        return Drawn(WORD.sub(lambda found: words[found.group(1)], template), tuple(args), count)

    return Operation(name, draw)


def _family(kind: str, rows: tuple[tuple[Where, str], ...], count: int = 1) -> tuple[Operation, ...]:
    """One operation a row, which binds `count` names; it is called by its template."""
    return tuple(_operation(f"{kind}: {text}", where, text, count) for where, text in rows)


NUMBERED: tuple[tuple[int, tuple[Operation, ...]], ...] = (
    (26, _family("position", _POSITIONS)),
    (8, _family("position", _POSITION_WRITES, 0)),
    (26, _family("size", _SIZES)),
    (28, _family("factor", _FACTORS)),
    (12, _family("factor", _FACTOR_WRITES, 0)),
    (6, _family("flag", _FLAGS)),
)
"""The tables, each with how often a step with a number comes from it."""
