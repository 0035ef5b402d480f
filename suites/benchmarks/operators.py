"""Every operator as one call on about 131,072 numbers, and pairs that fuse: `assay bench operators`.

unary and binary functions, reductions     torch's operator database, with tensors of our own shapes
CALLS                                      operators whose shapes matter: a table of calls and what they take
other operators of the database            their own samples with larger sizes, in float32 as they are
pairs                                      one function of another, and a reduction of a function of two
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import make_tensor
from torch.utils import _pytree as pytree

from assay.harness.bench.operators import Made, Program
from assay.suites.ops.database import core, methods, op_db
from assay.suites.ops.layouts import LAYOUTS, laid_out
from assay.suites.ops.operators import name_of

ROWS, WIDTH = 256, 512
SIZE = ROWS * WIDTH
LARGER = {"S": 16, "M": 64, "L": 256}
"""What takes the place of 5, 10 and 20 in the database's samples."""
FIRST = 24
"""How many samples of an operator are looked at for the one whose size is nearest to `SIZE`."""
MOST = 1 << 21
"""Elements of a sample that is still taken."""

Making = Callable[[torch.dtype], Tensor]


def normal(*shape: int) -> Making:
    return lambda dtype: torch.randn(shape).to(dtype)


def uniform(*shape: int) -> Making:
    """Numbers in (0, 1)."""
    return lambda dtype: (torch.rand(shape) * 0.98 + 0.01).to(dtype)


def positions(below: int, *shape: int) -> Making:
    return lambda dtype: torch.randint(below, shape)


def signs(*shape: int) -> Making:
    """-1 and 1."""
    return lambda dtype: (torch.randint(2, shape) * 2 - 1).to(dtype)


def mask(*shape: int) -> Making:
    return lambda dtype: torch.rand(shape) < 0.5


def permutation(size: int) -> Making:
    return lambda dtype: torch.randperm(size)


matrix, column, row = normal(ROWS, WIDTH), normal(ROWS), normal(WIDTH)
rows_256, rows_of_64, table = positions(ROWS, ROWS), normal(ROWS, 64), normal(1024, 64)
cube, signal = normal(16, 64, 128), normal(8, 16, 1024)
image, volume, small_image = normal(8, 16, 32, 32), normal(2, 4, 16, 32, 32), normal(8, 16, 16, 16)
image_weight, places = normal(16, 16, 3, 3), positions(ROWS, ROWS, WIDTH)
classes, chances, ids = positions(WIDTH, ROWS), uniform(ROWS, WIDTH), positions(1024, 256, 8)
flags = mask(ROWS, WIDTH)


def both(name: str, call: Callable[[Tensor, int], object], making: Making = matrix) -> dict[str, tuple[Any, ...]]:
    """A call along the rows and one along the columns."""
    return {
        f"{name}.{side}": (functools.partial(_along, call, dim), making) for side, dim in (("inner", -1), ("outer", 0))
    }


def _along(call: Callable[[Tensor, int], object], dim: int, x: Tensor) -> object:
    return call(x, dim)


ALONG: dict[str, Callable[[Tensor, int], object]] = {
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "softmin": F.softmin,
    "logsumexp": torch.logsumexp,
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "cummax": torch.cummax,
    "cummin": torch.cummin,
    "logcumsumexp": torch.logcumsumexp,
    "sort": torch.sort,
    "argsort": torch.argsort,
    "topk": lambda x, d: torch.topk(x, 5, d),
    "kthvalue": lambda x, d: torch.kthvalue(x, 5, d),
    "median": torch.median,
    "mode": torch.mode,
    "max_and_where": torch.max,
    "min_and_where": torch.min,
    "aminmax": lambda x, d: torch.aminmax(x, dim=d),
    "var_mean": lambda x, d: torch.var_mean(x, d),
    "std_mean": lambda x, d: torch.std_mean(x, d),
    "norm_1": lambda x, d: torch.norm(x, 1, d),
    "norm_2": lambda x, d: torch.norm(x, 2, d),
    "norm_3": lambda x, d: torch.norm(x, 3, d),
    "norm_inf": lambda x, d: torch.norm(x, math.inf, d),
    "normalize": lambda x, d: F.normalize(x, dim=d),
    "renorm": lambda x, d: torch.renorm(x, 2, d, 1.0),
    "diff": lambda x, d: torch.diff(x, dim=d),
    "gradient": lambda x, d: torch.gradient(x, dim=d),
    "trapezoid": lambda x, d: torch.trapezoid(x, dim=d),
    "cumulative_trapezoid": lambda x, d: torch.cumulative_trapezoid(x, dim=d),
    "quantile": lambda x, d: torch.quantile(x, 0.3, d),
    "flip": lambda x, d: torch.flip(x, (d,)),
    "roll": lambda x, d: torch.roll(x, 3, d),
    "cat": lambda x, d: torch.cat((x, x), d),
    "stack": lambda x, d: torch.stack((x, x), d),
    "repeat_interleave": lambda x, d: torch.repeat_interleave(x, 2, d),
    "glu": F.glu,
}
CALLS: dict[str, tuple[Any, ...]] = {
    **{key: entry for name, call in ALONG.items() for key, entry in both(name, call).items()},
    # ---- norms and distances
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b), matrix, row, row),
    "rms_norm": (lambda x, w: F.rms_norm(x, (WIDTH,), w), matrix, row),
    "group_norm": (lambda x: F.group_norm(x, 4), image),
    "instance_norm": (F.instance_norm, image),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), image),
    "batch_norm_inference": (F.batch_norm, image, uniform(16), uniform(16)),
    "local_response_norm": (lambda x: F.local_response_norm(x, 3), image),
    "cosine_similarity": (F.cosine_similarity, matrix, matrix),
    "pairwise_distance": (F.pairwise_distance, matrix, matrix),
    "cdist": (torch.cdist, rows_of_64, rows_of_64),
    "cdist_1": (lambda x, y: torch.cdist(x, y, 1.0), rows_of_64, rows_of_64),
    "cdist_3": (lambda x, y: torch.cdist(x, y, 3.0), rows_of_64, rows_of_64),
    "cdist_inf": (lambda x, y: torch.cdist(x, y, math.inf), rows_of_64, rows_of_64),
    "pdist": (F.pdist, rows_of_64),
    "cov": (torch.cov, rows_of_64),
    "corrcoef": (torch.corrcoef, rows_of_64),
    "cross": (lambda x, y: torch.linalg.cross(x, y), normal(SIZE // 3, 3), normal(SIZE // 3, 3)),
    "vecdot": (torch.linalg.vecdot, matrix, matrix),
    "dist": (torch.dist, matrix, matrix),
    "var_mean": (torch.var_mean, matrix),
    "aminmax": (torch.aminmax, matrix),
    "allclose": (lambda x: torch.isclose(x, x).all(), matrix),
    "trace": (torch.trace, normal(WIDTH, WIDTH)),
    # ---- windows
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2), signal),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2), image),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), volume),
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2), signal),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), image),
    "max_pool2d_and_where": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), image),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), volume),
    "lp_pool2d": (lambda x: F.lp_pool2d(x, 2.0, 2), image),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 7), image),
    "adaptive_avg_pool_to_one": (lambda x: F.adaptive_avg_pool2d(x, 1), image),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 7), image),
    "unfold": (lambda x: F.unfold(x, 3), small_image),
    "fold": (lambda x: F.fold(x, (16, 16), 3, padding=1), normal(8, 144, 256)),
    "tensor_unfold": (lambda x: x.unfold(-1, 4, 2).contiguous(), matrix),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2.0), small_image),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), small_image),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bicubic"), small_image),
    "area": (lambda x: F.interpolate(x, scale_factor=0.5, mode="area"), image),
    "antialiased": (lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True), image),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), small_image, normal(8, 16, 16, 2)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), image),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), image),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 4), image),
    **{
        f"pad_{mode}": (functools.partial(F.pad, pad=(2, 2, 2, 2), mode=mode), image)
        for mode in ("constant", "reflect", "replicate", "circular")
    },
    "conv1d": (F.conv1d, signal, normal(16, 16, 3)),
    "conv2d": (F.conv2d, image, image_weight),
    "conv2d_depthwise": (lambda x, w: F.conv2d(x, w, groups=16), image, normal(16, 1, 3, 3)),
    "conv_transpose2d": (F.conv_transpose2d, small_image, image_weight),
    # ---- lookups and scatters
    "embedding": (F.embedding, ids, table),
    "embedding_then_sum": (lambda i, t: F.embedding(i, t).sum(1), ids, table),
    "embedding_then_mean": (lambda i, t: F.embedding(i, t).mean(1), ids, table),
    **{
        f"embedding_bag_{mode}": (functools.partial(F.embedding_bag, mode=mode), ids, table)
        for mode in ("sum", "mean", "max")
    },
    "gather.outer": (lambda x, i: x.gather(0, i), matrix, places),
    "gather.inner": (lambda x, i: x.gather(1, i), matrix, places),
    "scatter": (lambda x, i: x.scatter(0, i, x), matrix, places),
    "scatter_number": (lambda x, i: x.scatter(1, i, 0.5), matrix, places),
    "scatter_add": (lambda x, i: x.scatter_add(0, i, x), matrix, places),
    **{
        f"scatter_reduce_{how}": (lambda x, i, how=how: x.scatter_reduce(0, i, x, how), matrix, places)
        for how in ("sum", "prod", "mean", "amax", "amin")
    },
    "index_select": (lambda x, i: x.index_select(0, i), matrix, rows_256),
    "index_select.inner": (lambda x, i: x.index_select(1, i), matrix, rows_256),
    "index_add": (lambda x, i: x.index_add(0, i, x), matrix, rows_256),
    "index_copy": (lambda x, i: x.index_copy(0, i, x), matrix, permutation(ROWS)),
    "index_fill": (lambda x, i: x.index_fill(0, i, 1.0), matrix, rows_256),
    "index_reduce": (lambda x, i: x.index_reduce(0, i, x, "amax"), matrix, rows_256),
    "getitem": (lambda x, i: x[i], matrix, rows_256),
    "getitem_pairs": (lambda x, i, j: x[i, j], matrix, places, places),
    "index_put": (lambda x, i: x.index_put((i,), x), matrix, permutation(ROWS)),
    "index_put_accumulate": (lambda x, i: x.index_put((i,), x, accumulate=True), matrix, rows_256),
    "take": (torch.take, matrix, places),
    "put": (lambda x, i: x.put(i, x, accumulate=True), matrix, places),
    "take_along_dim": (lambda x, i: torch.take_along_dim(x, i, 0), matrix, places),
    "masked_fill": (lambda x, m: x.masked_fill(m, 0.5), matrix, flags),
    "masked_select": (torch.masked_select, matrix, flags),
    "masked_scatter": (lambda x, m: x.masked_scatter(m, x), matrix, flags),
    "where": (torch.where, flags, matrix, matrix),
    "searchsorted": (lambda x, y: torch.searchsorted(x, y), lambda dtype: torch.linspace(-3, 3, 512).to(dtype), matrix),
    "bucketize": (lambda x, y: torch.bucketize(y, x), lambda dtype: torch.linspace(-3, 3, 512).to(dtype), matrix),
    "one_hot": (lambda i: F.one_hot(i, WIDTH), classes),
    "bincount": (torch.bincount, positions(100, SIZE)),
    "histc": (lambda x: torch.histc(x, 50, -3, 3), matrix),
    "isin": (torch.isin, positions(1000, SIZE), positions(1000, 50)),
    "unique": (torch.unique, positions(100, SIZE)),
    "nonzero": (torch.nonzero, flags),
    # ---- losses
    **{name: (getattr(F, name), matrix, matrix) for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")},
    "binary_cross_entropy": (F.binary_cross_entropy, chances, chances),
    "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, matrix, chances),
    "kl_div": (lambda x, y: F.kl_div(x, y, reduction="batchmean"), matrix, chances),
    "nll_loss": (F.nll_loss, matrix, classes),
    "cross_entropy": (F.cross_entropy, matrix, classes),
    "cross_entropy_smooth": (lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), matrix, classes),
    "cross_entropy_of_chances": (F.cross_entropy, matrix, chances),
    "poisson_nll_loss": (F.poisson_nll_loss, matrix, chances),
    "gaussian_nll_loss": (F.gaussian_nll_loss, matrix, matrix, chances),
    "hinge_embedding_loss": (F.hinge_embedding_loss, matrix, signs(ROWS, WIDTH)),
    "soft_margin_loss": (F.soft_margin_loss, matrix, signs(ROWS, WIDTH)),
    "margin_ranking_loss": (F.margin_ranking_loss, matrix, matrix, signs(ROWS, WIDTH)),
    "multi_margin_loss": (F.multi_margin_loss, matrix, classes),
    "multilabel_soft_margin_loss": (F.multilabel_soft_margin_loss, matrix, chances),
    "triplet_margin_loss": (F.triplet_margin_loss, matrix, matrix, matrix),
    "cosine_embedding_loss": (F.cosine_embedding_loss, matrix, matrix, signs(ROWS)),
    # ---- activations and functions of three
    "gelu": (F.gelu, matrix),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), matrix),
    "hardswish": (F.hardswish, matrix),
    "leaky_relu": (F.leaky_relu, matrix),
    "prelu": (F.prelu, matrix, uniform(1)),
    "lerp": (torch.lerp, matrix, matrix, matrix),
    "addcmul": (torch.addcmul, matrix, matrix, matrix),
    "addcdiv": (torch.addcdiv, matrix, matrix, chances),
    "clamp": (lambda x: torch.clamp(x, -0.5, 0.5), matrix),
    "clamp_tensors": (torch.clamp, matrix, matrix, matrix),
    "floor_divide": (torch.floor_divide, matrix, matrix),
    "div_trunc": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), matrix, matrix),
    "pow_number": (lambda x: torch.pow(x, 2.5), chances),
    "number_pow": (lambda x: torch.pow(2.5, x), matrix),
    "nan_to_num": (torch.nan_to_num, matrix),
    "polar": (torch.polar, chances, matrix),
    "dropout": (lambda x: F.dropout(x, 0.3), matrix),
    "bernoulli": (torch.bernoulli, chances),
    "randn_like": (torch.randn_like, matrix),
    "rand_like": (torch.rand_like, matrix),
    # ---- products
    "mm": (torch.mm, normal(128, 128), normal(128, 128)),
    "bmm": (torch.bmm, normal(16, 64, 64), normal(16, 64, 64)),
    "mv": (torch.mv, matrix, row),
    "dot": (torch.dot, normal(SIZE), normal(SIZE)),
    "outer": (torch.outer, column, row),
    "addmm": (torch.addmm, normal(128), normal(128, 128), normal(128, 128)),
    "addmv": (torch.addmv, column, matrix, row),
    "addr": (torch.addr, matrix, column, row),
    "baddbmm": (torch.baddbmm, normal(16, 64, 64), normal(16, 64, 64), normal(16, 64, 64)),
    "linear": (F.linear, matrix, normal(64, WIDTH), normal(64)),
    "bilinear_layer": (F.bilinear, rows_of_64, rows_of_64, normal(8, 64, 64)),
    "kron": (torch.kron, normal(16, 16), normal(16, 32)),
    "attention": (F.scaled_dot_product_attention, *3 * (normal(2, 4, 128, 32),)),
    # ---- layouts
    "contiguous_of_transposed": (lambda x: x.t().contiguous(), matrix),
    "contiguous_of_permuted": (lambda x: x.permute(2, 0, 1).contiguous(), cube),
    "channels_last": (lambda x: x.contiguous(memory_format=torch.channels_last), image),
    "rot90": (torch.rot90, matrix),
    "tile": (lambda x: x.repeat(2, 2), normal(128, 256)),
    "tril": (torch.tril, matrix),
    "triu": (torch.triu, matrix),
    "diag_embed": (torch.diag_embed, normal(32, 64)),
    "to_bfloat16": (lambda x: x.to(torch.bfloat16), matrix),
    "to_float32": (lambda x: x.to(torch.float32), matrix),
    "to_int64": (lambda x: x.to(torch.int64), matrix),
    "mean_of_middle": (lambda x: x.mean(1), cube),
    "mean_of_outer_two": (lambda x: x.mean((0, 1)), cube),
    "mean_of_outer_and_inner": (lambda x: x.mean((0, 2)), cube),
    "sum_of_image_channels": (lambda x: x.sum((0, 2, 3)), image),
}

OUTER = ("sqrt", "exp", "log1p", "tanh", "sigmoid", "sin", "erf", "relu", "abs", "neg", "floor", "lgamma")
INNER = (*OUTER, "exp2", "expm1", "log", "log2", "log10", "rsqrt", "cos", "asinh", "atan", "square", "isnan", "sign")
TWO = ("add", "mul", "sub", "div", "maximum", "pow", "atan2", "remainder", "logaddexp", "lt")
REDUCED = ("sum", "mean", "amax", "amin", "var", "prod", "argmax", "norm", "logsumexp")
RANDOM = ("multinomial", "normal", "cauchy", "exponential", "geometric", "log_normal", "uniform")


def programs() -> Iterator[Program]:
    """Every program; those of the database in its order, then the table's, then the pairs."""
    names: set[str] = set()
    for program in itertools.chain(from_database(), map(from_table, CALLS), pairs()):
        if program.name not in names:
            names.add(program.name)
            yield program


def from_database() -> Iterator[Program]:
    """Functions of one and of two tensors and reductions, with our shapes; of the rest a larger sample each."""
    for op in op_db:
        name = name_of(op)
        if isinstance(op, core.ReductionOpInfo):
            yield from reductions(op)
        elif isinstance(op, core.UnaryUfuncInfo | core.BinaryUfuncInfo):
            yield Program(name, functools.partial(elementwise, op))
        elif op.name.rpartition(".")[2] not in CALLS and f"{op.name}.inner" not in CALLS and op.name not in RANDOM:
            yield Program(f"database.{name}", functools.partial(grown, op), ("float32",), ("contiguous",))


def supported(op: Any, dtype: torch.dtype) -> None:
    """Raises: TypeError where the operator has no such dtype."""
    if dtype not in op.supported_dtypes("cpu"):
        raise TypeError(f"{op.name} has no {dtype}")


def elementwise(op: Any, dtype: torch.dtype, layout: str) -> Made:
    """A function of one or two tensors on a matrix within its domain."""
    supported(op, dtype)
    make = functools.partial(make_tensor, (ROWS, WIDTH), device="cpu", dtype=dtype)
    if isinstance(op, core.UnaryUfuncInfo):
        low, high = op.domain
        inputs: tuple[Tensor, ...] = (make(low=low, high=high),)
    else:
        inputs = (make(**op.lhs_make_tensor_kwargs), make(exclude_zero=True, **op.rhs_make_tensor_kwargs))
    named = op.sample_kwargs("cpu", dtype, inputs[0])[0]
    return arranged(op.op, inputs, named, layout)


def reductions(op: Any) -> Iterator[Program]:
    for side, dims in (("inner", {"dim": -1}), ("outer", {"dim": 0}), ("all", {})):
        yield Program(f"{name_of(op)}.{side}", functools.partial(reduction, op, dims))


def reduction(op: Any, dims: dict[str, int], dtype: torch.dtype, layout: str) -> Made:
    supported(op, dtype)
    return arranged(op.op, (make_tensor((ROWS, WIDTH), device="cpu", dtype=dtype, low=-2, high=2),), dims, layout)


def from_table(name: str) -> Program:
    return Program(name, functools.partial(listed, name))


def listed(name: str, dtype: torch.dtype, layout: str) -> Made:
    function, *makings = CALLS[name]
    return arranged(function, tuple(making(dtype) for making in makings), {}, layout)


def grown(op: Any, dtype: torch.dtype, layout: str) -> Made:
    """The operator's sample whose size is nearest to `SIZE`, where the database's sizes are larger."""
    supported(op, dtype)
    kept = {(module, name): getattr(module, name) for module in (core, methods) for name in LARGER}
    try:
        for module, name in kept:
            setattr(module, name, LARGER[name])
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype), FIRST))
    finally:
        for (module, name), value in kept.items():
            setattr(module, name, value)
    sample = min(samples, key=lambda one: abs(math.log2(SIZE / max(elements(one), 1))))
    if elements(sample) > MOST:
        raise ValueError(f"the smallest sample of {op.name} has {elements(sample)} elements")
    return arranged(op.op, (sample.input, *sample.args), sample.kwargs, layout)


def elements(sample: Any) -> int:
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, Tensor))


def arranged(function: Callable[..., object], args: tuple[Any, ...], named: dict[str, Any], layout: str) -> Made:
    """The call as a function of its tensors, laid out. Raises: ValueError where the layout changes none of them."""
    value: Any = (args, named)
    if layout != "contiguous":
        value = laid_out(value, LAYOUTS[layout])
        if value is None:
            raise ValueError(f"nothing here can be {layout}")
        args, named = value
    if all(isinstance(arg, Tensor) for arg in args):
        return lambda *tensors: function(*tensors, **named), args
    return nested(function, args, named)


def nested(function: Callable[..., object], args: tuple[Any, ...], named: dict[str, Any]) -> Made:
    """The same where some tensors are in lists, or other arguments stand between them."""
    leaves, spec = pytree.tree_flatten((args, named))
    where = [position for position, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def call(*tensors: Tensor) -> object:
        given = list(leaves)
        for position, tensor in zip(where, tensors, strict=True):
            given[position] = tensor
        args, named = pytree.tree_unflatten(given, spec)
        return function(*args, **named)

    return call, tuple(leaves[position] for position in where)


def pairs() -> Iterator[Program]:
    """Functions of functions, and reductions of functions of two tensors along rows and columns."""
    for outer, inner in itertools.product(OUTER, INNER):
        yield Program(f"{outer}_of_{inner}", functools.partial(pair, outer, inner), layouts=("contiguous",))
    for reduced, two, (side, dim) in itertools.product(REDUCED, TWO, (("inner", -1), ("outer", 0))):
        make = functools.partial(reduced_pair, reduced, two, dim)
        yield Program(f"{reduced}_of_{two}.{side}", make, layouts=("contiguous", "transposed"))


def pair(outer: str, inner: str, dtype: torch.dtype, layout: str) -> Made:
    first, second = getattr(torch, inner), getattr(torch, outer)
    return arranged(lambda x: second(first(x)), (uniform(ROWS, WIDTH)(dtype),), {}, layout)


def reduced_pair(reduced: str, two: str, dim: int, dtype: torch.dtype, layout: str) -> Made:
    joined, total = getattr(torch, two), getattr(torch, reduced)
    inputs = (uniform(ROWS, WIDTH)(dtype), uniform(ROWS, WIDTH)(dtype))
    return arranged(lambda x, y: total(joined(x, y), dim=dim), inputs, {}, layout)
