"""Gives attention that a program writes out by hand to a kernel which never stores all scores.

    s = bmm(q, t(k)) * c + m; p = _softmax(s, -1); o = bmm(p, v)   ->   o, l = attend(q, k, v, m, [m], [], c, ...)

Between the products there may be factors, terms that are added, scores hidden behind a number, views and copies.
In training, what derives `s` and `p` becomes one `attend_backward`. `attend` looks whether the kernel's result is what
is written here (NaN, infinities, rows that are hidden wholly) and runs what is written where it is not; see
`compiler/kernels/attend.py`. Every match is proven on its own nodes: nobody else reads the scores or their
derivatives, the shapes are those of the kernel, all numbers are known.

Only float32, and only where the kernel is faster than the libraries' products around one generated softmax. Their time
over the kernel's, for b x h x s x t scores with depth 64 (the second: 32) on two cores (2 MB and 32 MB of cache):

    scores        4x4x96x96  4x8x36x36  8x4x145x145  8x12x197x197  1x8x512x512  4x8x512x512  1x12x1024x1024
    MB                  0.6        0.2          2.6            14            8           32              48
    inference          1.00       0.82         1.19          1.34         1.25         1.61            1.60
    training           0.75       0.67         0.74          1.01         1.01         1.01            1.05

In training it is ATen's kernel that derives it. (bfloat16, all by ATen's kernel, inference and training: 0.67 and 0.58
at 1x12x1024x1024, 0.90 and 0.79 at 4x12x1024x1024.) Looking at a result costs 15 us and 0.2 % of the kernel.

Rounding: another order of the same sums. Must run before the partition, which else keeps
the probabilities, and after common subexpressions are one, so that forward and backward read the same nodes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from assay.compiler.ir.graph.calls import called
from assay.compiler.ir.graph.replacement import replace_node
from assay.compiler.ir.graph.roles import Program, Tangent
from assay.compiler.ir.graph.trace import eliminate_dead_nodes
from assay.compiler.ir.tensors.layout.strides import hints, is_known
from assay.compiler.ir.typed_nodes import function_of, ints_argument, node_argument, node_arguments, traced_value
from assay.compiler.machine import number
from assay.compiler.ops.calls.attention import FLASH_DEPTHS, is_own_attention_fastest
from assay.compiler.ops.calls.attention import attend as attend_operator
from assay.compiler.ops.calls.attention import attend_backward as attend_backward_operator
from assay.compiler.passes.readers import names_of

aten = torch.ops.aten

LARGEST = 2.0**9
"""Logarithms of sums below this give back the probabilities about as exactly as eager keeps them for backward."""
HIDDEN = -4096.0
"""A score that is replaced by a number up to this has no weight beside others whose sum's logarithm is in `LARGEST`."""
LONGEST = 24
"""Nodes between the products."""

PLAIN = (aten.view.default, aten._unsafe_view.default, aten.clone.default, aten.expand.default)
"""What leaves the last two dimensions as they are."""
TRANSPOSES = (aten.transpose.int, aten.permute.default)
NUMBERS: dict[object, int] = {aten.full.default: 1, aten.full_like.default: 1, aten.scalar_tensor.default: 0}
"""What makes a tensor of one number, and where that stands among its arguments."""
ZEROS = (aten.zeros.default, aten.zeros_like.default)
SIZE = aten.sym_size.int


class _Other(Exception):
    """This is not attention as the library computes it."""


@dataclass(frozen=True, slots=True)
class _Term:
    """What changes scores of `dims` dimensions: `fill` takes the place of those where `value` is `hides`; None: it is
    added."""

    value: fx.Node
    dims: int
    fill: float | None = None
    hides: bool = True


@dataclass(slots=True)
class _Chain:
    """What lies between two products: the nodes, the factor, and the terms that come after it."""

    nodes: list[fx.Node] = field(default_factory=list)
    scale: float = 1.0
    terms: list[_Term] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Forward:
    """`product` = softmax(`scores` * scale, changed by the terms) v, where `scores` = q k^T."""

    scores: fx.Node
    softmax: fx.Node
    product: fx.Node
    chain: _Chain
    lead: tuple[Any, ...] | None
    """The sizes of batch and heads, where any value in between has them apart."""

    @property
    def inner(self) -> set[fx.Node]:
        return {self.scores, *self.chain.nodes}


@dataclass(frozen=True, slots=True)
class _Backward:
    """The derivatives with respect to the operands of the products; None for one that nobody wants."""

    first: fx.Node
    inner: list[fx.Node]
    gradient: fx.Node
    of_q: fx.Node | None
    of_k: fx.Node | None
    of_v: fx.Node | None


def attend(program: Program) -> int:
    """Returns the number of attentions that the library computes."""
    products = [node for node in program.module.graph.nodes if node.target is aten.bmm.default]
    is_training = any(isinstance(role, Tangent) for role in program.signature.inputs)
    rewrite = _Rewrite(program.module.graph, is_training)
    changed = sum([rewrite.run(node) for node in products])
    if products:
        eliminate_dead_nodes(program.module.graph)
    for node, name in rewrite.names:
        node.name = name
    return changed


# ---- the match


def _match(product: fx.Node) -> _Forward:
    chain = _Chain()
    node = _operand(product, 0)
    while node.target is not aten._softmax.default:
        node = _through(node, chain)
    softmax = node
    _, dim, half_to_float = softmax.args
    if half_to_float or dim not in (-1, traced_value(softmax).dim() - 1):
        raise _Other
    chain.nodes.append(softmax)
    node = node_argument(softmax, 0)
    while node.target is not aten.bmm.default:
        node = _before(node, chain)
    chain.terms.reverse()
    found = _Forward(node, softmax, product, chain, _lead(chain.nodes))
    _check(found)
    return found


def _before(node: fx.Node, chain: _Chain) -> fx.Node:
    """One step from the softmax towards the scores."""
    read = _read(node, chain)
    if isinstance(read, fx.Node):
        return read
    source, term = read
    if chain.scale != 1.0:
        raise _Other  # a factor of what is added, too
    chain.terms.append(term)
    chain.nodes.append(node)
    return source


def _read(node: fx.Node, chain: _Chain) -> fx.Node | tuple[fx.Node, _Term]:
    if len(chain.nodes) > LONGEST:
        raise _Other
    if node.target in (aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar):
        return _scaled(node, chain)
    if node.target is aten.add.Tensor and not node.kwargs:
        return _added(node)
    if node.target in (aten.masked_fill.Scalar, aten.masked_fill.Tensor):
        return _filled(node)
    if node.target is aten.where.self:
        return _chosen(node)
    return _through(node, chain)


def _through(node: fx.Node, chain: _Chain) -> fx.Node:
    """What a view or a copy of matrices reads."""
    if len(chain.nodes) > LONGEST or not _is_plain(node):
        raise _Other
    chain.nodes.append(node)
    return _operand(node, 0)


def _is_plain(node: fx.Node) -> bool:
    """Whether a node is the same matrices, perhaps with their leading dimensions as one or apart."""
    if node.target not in PLAIN:
        return False
    before, after = traced_value(node.args[0]), traced_value(node)
    if node.target is aten.expand.default:
        return _text(before.shape) == _text(after.shape)
    return before.dim() >= 2 and _text(before.shape[-2:]) == _text(after.shape[-2:])


def _scaled(node: fx.Node, chain: _Chain) -> fx.Node:
    x, by = node.args
    is_product = node.target in (aten.mul.Tensor, aten.mul.Scalar)
    if is_product and isinstance(x, fx.Node) and traced_value(x).dim() == 0:
        x, by = by, x
    number = _number(by)
    if (
        not isinstance(x, fx.Node)
        or traced_value(x).dim() < 3
        or number is None
        or not math.isfinite(number)
        or number == 0
    ):
        raise _Other
    chain.scale = chain.scale * number if is_product else chain.scale / number
    chain.nodes.append(node)
    return x


def _added(node: fx.Node) -> tuple[fx.Node, _Term]:
    shape = _text(traced_value(node).shape)
    sides = [side for side in node.args if isinstance(side, fx.Node)]
    if len(sides) != 2:
        raise _Other
    scores = [side for side in sides if _text(traced_value(side).shape) == shape]
    source = next((side for side in scores if _leads_to_product(side)), None)
    if source is None:
        raise _Other
    term = sides[1] if source is sides[0] else sides[0]
    return source, _Term(term, traced_value(node).dim())


def _leads_to_product(node: fx.Node) -> bool:
    """Whether first arguments lead from a value to a product of matrices."""
    for _ in range(LONGEST):
        if node.target is aten.bmm.default:
            return True
        sources = [read for read in node.args if isinstance(read, fx.Node) and _dims(read) >= 3]
        if node.op != "call_function" or not sources:
            return False
        node = sources[1] if node.target is aten.where.self and len(sources) > 1 else sources[0]
    return False


def _filled(node: fx.Node) -> tuple[fx.Node, _Term]:
    source, hidden = node_argument(node, 0), node_argument(node, 1)
    return _with_fill(node, source, _Term(hidden, _dims(node), _number(node.args[2])))


def _chosen(node: fx.Node) -> tuple[fx.Node, _Term]:
    condition, shown, other = node_arguments(node)
    if (fill := _number(other)) is not None:
        return _with_fill(node, shown, _Term(condition, _dims(node), fill, hides=False))
    return _with_fill(node, other, _Term(condition, _dims(node), _number(shown)))


def _with_fill(node: fx.Node, source: Any, term: _Term) -> tuple[fx.Node, _Term]:
    if (
        term.fill is None
        or not isinstance(source, fx.Node)
        or _text(traced_value(source).shape) != _text(traced_value(node).shape)
    ):
        raise _Other
    return source, term


def _number(argument: object) -> float | None:
    """The number that an argument is, or that all elements of a tensor are."""
    if isinstance(argument, int | float) and not isinstance(argument, bool):
        return float(argument)
    if not isinstance(argument, fx.Node):
        return None
    if argument.target in ZEROS:
        return 0.0
    place = NUMBERS.get(function_of(argument))
    if place is None or len(argument.args) <= place or not traced_value(argument).dtype.is_floating_point:
        return None
    return _number(argument.args[place])


def _lead(nodes: Iterable[fx.Node]) -> tuple[Any, ...] | None:
    leads = {}
    for node in nodes:
        value = traced_value(node)
        if value.dim() not in (3, 4):
            raise _Other
        if value.dim() == 4:
            leads[_text(value.shape[:2])] = tuple(value.shape[:2])
    if len(leads) > 1:
        raise _Other
    return next(iter(leads.values()), None)


def _check(found: _Forward) -> None:
    """Raises where the library's kernel computes something else."""
    q, v = traced_value(found.scores.args[0]), traced_value(found.product.args[1])
    scores = traced_value(found.scores)
    sizes = (*scores.shape, q.shape[2], v.shape[2])
    if q.device.type != "cpu" or not all(map(is_known, sizes)) or _text((q.shape[2],)) != _text((v.shape[2],)):
        raise _Other
    fills = [term.fill for term in found.chain.terms if term.fill is not None]
    if any(not fill <= HIDDEN for fill in fills) or not math.isfinite(found.chain.scale):
        raise _Other
    _check_dtypes(found.chain)


def _least_bytes(found: _Forward) -> int:
    depth = traced_value(found.scores.args[0]).shape[2]
    is_own = isinstance(depth, int) and depth in FLASH_DEPTHS and is_own_attention_fastest()
    return number("attention_bytes" if is_own else "library_attention_bytes")


def _check_size(found: _Forward, least_bytes: int) -> None:
    scores = traced_value(found.scores)
    if math.prod(hints(scores.shape)) * scores.element_size() < least_bytes:
        raise _Other


def _check_dtypes(chain: _Chain) -> None:
    wanted = {node: torch.float32 for node in chain.nodes}
    wanted |= {term.value: torch.float32 if term.fill is None else torch.bool for term in chain.terms}
    if any(
        traced_value(node).dtype is not dtype or traced_value(node).device.type != "cpu"
        for node, dtype in wanted.items()
    ):
        raise _Other


# ---- the match of its derivative


def _match_backward(found: _Forward) -> _Backward | None:
    """What derives the attention; None where nothing does. Raises where anybody else reads what lies inside."""
    inner = found.inner
    outside = {user: node for node in inner for user in _readers(node) if user not in inner | {found.product}}
    if not outside:
        return None
    (derived,) = _only(user for user in outside if user.target is aten._softmax_backward_data.default)
    if derived.args[1:3] != (found.softmax, found.softmax.args[1]):
        raise _Other
    chain = _Chain()
    of_weights = _climb(derived.args[0], chain)
    gradient, values = of_weights.args
    if not _is_transpose(values, found.product.args[1]):
        raise _Other
    of_v = [_derivative_of_v(user, outside[user], gradient) for user in outside if user is not derived]
    if len(of_v) > 1:
        raise _Other
    of_q, of_k = _derivatives_of_scores(found, derived, chain)
    _check_dtypes(chain)
    first = min([of_weights, *of_v])
    return _Backward(first, [*chain.nodes, *outside], gradient, of_q, of_k, of_v[0] if of_v else None)  # type: ignore[arg-type]


def _climb(node: Any, chain: _Chain) -> fx.Node:
    """The product behind views and copies that nobody else reads."""
    while node.target is not aten.bmm.default:
        _only(_readers(node))
        node = _through(node, chain)
    _only(_readers(node))
    chain.nodes.append(node)
    return node


def _derivative_of_v(transposed: fx.Node, weights: fx.Node, gradient: object) -> fx.Node:
    """`bmm(t(p), g)`, the one reader of `t(p)`."""
    (product,) = _only(_readers(transposed))
    if not _is_transpose(transposed, weights) or product.target is not aten.bmm.default:
        raise _Other
    if product.args[0] is not transposed or product.args[1] is not gradient:
        raise _Other
    return product


def _derivatives_of_scores(found: _Forward, node: fx.Node, chain: _Chain) -> tuple[fx.Node | None, fx.Node | None]:
    """The derivatives of q and of k^T: products with the derivative of the scores, which nobody else reads."""
    while not all(user.target is aten.bmm.default for user in _readers(node)):
        (user,) = _only(_readers(node))
        read = _read(user, chain)
        if not isinstance(read, fx.Node):
            chain.terms.append(read[1])
            chain.nodes.append(user)
            read = read[0]
        if read is not node:
            raise _Other
        node = user
    hidden = [(term.value, term.hides) for term in found.chain.terms if term.fill is not None]
    if sorted(hidden, key=str) != sorted([(term.value, term.hides) for term in chain.terms], key=str):
        raise _Other
    if any(term.fill != 0 for term in chain.terms) or not math.isclose(chain.scale, found.chain.scale, rel_tol=1e-9):
        raise _Other
    return _derivatives_of_operands(found, node)


def _derivatives_of_operands(found: _Forward, scores: fx.Node) -> tuple[fx.Node | None, fx.Node | None]:
    of_q = of_k = None
    for user in _readers(scores):
        left, right = user.args
        if left is scores and right is not scores and _is_transpose(right, found.scores.args[1]):
            of_q = user
        elif right is scores and left is not scores and _is_transpose(left, found.scores.args[0]):
            of_k = user
        else:
            raise _Other
    if len(_readers(scores)) != (of_q is not None) + (of_k is not None):
        raise _Other
    return of_q, of_k


def _readers(node: fx.Node) -> list[fx.Node]:
    """Who reads more of a value than its sizes."""
    return [user for user in node.users if user.target is not SIZE]


def _only(nodes: Iterable[fx.Node]) -> tuple[fx.Node]:
    """The one node there is."""
    found = tuple(nodes)
    if len(found) != 1:
        raise _Other
    return found


def _is_transpose(one: Any, other: Any) -> bool:
    """Whether one is the other with the last two dimensions swapped."""
    return any(a.target in TRANSPOSES and a.args[0] is b and _swaps_last(a) for a, b in ((one, other), (other, one)))


def _swaps_last(node: fx.Node) -> bool:
    dims = traced_value(node).dim()
    if node.target is aten.permute.default:
        return [dim % dims for dim in ints_argument(node, 1)] == [*range(dims - 2), dims - 1, dims - 2]
    return {dim % dims for dim in node.args[1:]} == {dims - 1, dims - 2}


# ---- the rewrite


class _Rewrite:
    """The rewrites of one graph. New nodes are made first and uses replaced last, so that one may be given up."""

    def __init__(self, graph: fx.Graph, is_training: bool) -> None:
        self.graph = graph
        self.is_training = is_training
        self.masks: dict[tuple[_Term, ...], tuple[fx.Node | None, list[fx.Node]]] = {}
        self.names: list[tuple[fx.Node, str]] = []

    def run(self, product: fx.Node) -> bool:
        """Whether the product was one of attention, and is replaced."""
        try:
            found = _match(product)
            backward = _match_backward(found)
            _check_size(found, _least_bytes(found) if backward is None else number("trained_attention_bytes"))
            self._replace(found, backward)
        except _Other:
            return False
        return True

    def _replace(self, found: _Forward, backward: _Backward | None) -> None:
        with self.graph.inserting_before(found.product):
            q = self._rows(found, found.scores.args[0])
            k = self._rows(found, found.scores.args[1], is_transposed=True)
            v = self._rows(found, found.product.args[1])
            mask, terms = self._terms(found)
            fills = [term.fill for term in found.chain.terms if term.fill is not None]
            is_bounded = backward is not None or bool(fills)
            given = (mask, terms, fills, found.chain.scale)
            made = called(attend_operator, q, k, v, *given, LARGEST if is_bounded else math.inf)
            out, logs = (called(operator.getitem, made, position) for position in range(2))
            results = [self._results(found, found.product, out)]
        results += [self._sizes(found, [*found.inner, *(backward.inner if backward else ())])]
        if backward is not None:
            with self.graph.inserting_before(backward.first):
                gradient = self._rows(found, backward.gradient)
                made = called(attend_backward_operator, gradient, q, k, v, out, logs, *given)
                of_q, of_k, of_v = (called(operator.getitem, made, position) for position in range(3))
                of_k = called(aten.transpose.int, of_k, 2, 3)
                pairs = ((backward.of_q, of_q), (backward.of_k, of_k), (backward.of_v, of_v))
                results += [self._results(found, node, value) for node, value in pairs if node is not None]
            results += [self._sizes(found, [node for node, _ in pairs if node is not None])]
        for result in results:
            for node, value in result:
                self.names.append((value, node.name))
                value.meta.update({key: each for key, each in node.meta.items() if key != "val"})
                replace_node(node, value)

    # ---- operands

    def _rows(self, found: _Forward, node: Any, is_transposed: bool = False) -> fx.Node:
        """An operand as the kernel takes it: four dimensions, the last without gaps."""
        made = self._apart(found, node)
        if is_transposed:
            made = _transposed(made)
        if str(traced_value(made).stride(3)) != "1":
            made = called(aten.clone.default, made, memory_format=torch.contiguous_format)
        return made

    def _apart(self, found: _Forward, node: fx.Node) -> fx.Node:
        """An operand with batch and heads apart: what it was before `matmul` made one dimension of them, if it was."""
        if found.lead is None:
            return called(aten.unsqueeze.default, node, 1)
        best, source = None, node
        while True:
            if _dims(source) == 4 and _text(traced_value(source).shape[:2]) == _text(found.lead):
                best = source
            if not _is_plain(source) or _dims(source.args[0]) not in (3, 4) or not self._may_read_before(source):
                break
            source = node_argument(source, 0)
        return best or _viewed(node, (*found.lead, *traced_value(node).shape[1:]))

    def _may_read_before(self, node: fx.Node) -> bool:
        """Whether backward may keep what a copy was made of. Not what the user has, and may change, unlike the copy."""
        if node.target is not aten.clone.default or not self.is_training:
            return True
        root = node
        while root.op == "call_function" and root.target in (*PLAIN, *TRANSPOSES, operator.getitem, aten.split.Tensor):
            root = node_argument(root, 0)
        return root.op != "placeholder" and not any(_is_returned(name) for name in names_of(root))

    def _terms(self, found: _Forward) -> tuple[fx.Node | None, list[fx.Node]]:
        """All terms as one mask for the kernel, and one by one with four dimensions. Layers share them."""
        key = tuple(found.chain.terms)
        if key not in self.masks:
            terms = [_four(found, term) for term in key]
            mask = None
            for term, value in zip(key, terms, strict=True):
                part = value if term.fill is None else _hidden(value)
                mask = part if mask is None else called(aten.add.Tensor, mask, part)
            self.masks[key] = (None if mask is None else _without_gaps(mask)), terms
        return self.masks[key]

    # ---- results

    def _results(self, found: _Forward, node: fx.Node, value: fx.Node) -> list[tuple[fx.Node, fx.Node]]:
        """What takes whose place: for all readers of a product the value, in the layout that products have."""
        if found.lead is None:
            value = called(aten.squeeze.dim, value, 1)
        plain = called(aten.clone.default, value, memory_format=torch.contiguous_format)
        if found.lead is None:
            return [(node, plain)]
        shape = _text(traced_value(plain).shape)
        views = [user for user in node.users if _is_plain(user) and _text(traced_value(user).shape) == shape]
        views = [view for view in views if view.target is not aten.clone.default]
        results = [(view, plain) for view in views]
        if len(views) < len(_readers(node)):
            sizes = [size if isinstance(size, int) else called(SIZE, plain, dim) for dim, size in _last_two(plain)]
            results.append((node, called(aten.view.default, plain, [-1, *sizes])))
        return results

    def _sizes(self, found: _Forward, nodes: list[fx.Node]) -> list[tuple[fx.Node, fx.Node]]:
        """Sizes that are read off values that go, read off the operands."""
        users = [(node, user) for node in nodes for user in node.users if user.target is SIZE]
        if not users:
            return []
        q, k = (node if found.lead is None else self._apart(found, node) for node in node_arguments(found.scores))
        places = {size: [(node, dim)] for node in (k, q) for dim, size in enumerate(_text(traced_value(node).shape))}
        if found.lead is not None:
            places.setdefault(str(traced_value(found.scores).shape[0]), [(q, 0), (q, 1)])
        results = []
        for node, user in users:
            size = str(traced_value(node).shape[user.args[1]])
            if size not in places:
                raise _Other
            with self.graph.inserting_before(user):
                factors = [called(SIZE, *place) for place in places[size]]
                results.append((user, factors[0] if len(factors) == 1 else called(operator.mul, *factors)))
        return results


def _is_returned(node: fx.Node) -> bool:
    return any(user.op == "output" for user in node.users)


def _transposed(node: fx.Node) -> fx.Node:
    """The matrices transposed: what they are the transposes of, if they are."""
    if node.target in TRANSPOSES and _swaps_last(node):
        return node_argument(node, 0)
    copied: Any = node.args[0] if node.target is aten.clone.default else None
    if copied is not None and copied.target in TRANSPOSES and _swaps_last(copied):
        return called(aten.clone.default, copied.args[0], memory_format=torch.contiguous_format)
    return called(aten.transpose.int, node, 2, 3)


def _four(found: _Forward, term: _Term) -> fx.Node:
    """A term with four dimensions; where it hides, true where it does."""
    node = term.value
    for _ in range(term.dims - _dims(node)):
        node = called(aten.unsqueeze.default, node, 0)
    if term.dims == 3:
        if found.lead is not None and str(traced_value(node).shape[0]) != "1":
            raise _Other
        node = called(aten.unsqueeze.default, node, 1)
    if _dims(node) != 4:
        raise _Other
    return node if term.hides else called(aten.logical_not.default, node)


def _hidden(value: fx.Node) -> fx.Node:
    """0, and -inf where scores are hidden."""
    shown, hidden = (
        value.graph.call_function(aten.scalar_tensor.default, (number,), {"dtype": torch.float32})
        for number in (0.0, -math.inf)
    )
    with traced_value(value).fake_mode:
        for node in (shown, hidden):
            node.meta["val"] = aten.scalar_tensor.default(*node.args, **node.kwargs)
    return called(aten.where.self, value, hidden, shown)


def _without_gaps(mask: fx.Node) -> fx.Node:
    value = traced_value(mask)
    if "1" in (str(value.stride(3)), str(value.shape[3])):
        return mask
    return called(aten.clone.default, mask, memory_format=torch.contiguous_format)


def _last_two(node: fx.Node) -> list[tuple[int, Any]]:
    return list(enumerate(traced_value(node).shape))[-2:]


def _viewed(node: fx.Node, shape: tuple[Any, ...]) -> fx.Node:
    if not all(isinstance(size, int) for size in shape):
        raise _Other
    return called(aten.view.default, node, list(shape))


def _operand(node: fx.Node, position: int) -> fx.Node:
    read = node.args[position]
    if not isinstance(read, fx.Node):
        raise _Other
    return read


def _dims(node: Any) -> int:
    value = node.meta.get("val")
    return value.dim() if isinstance(value, torch.Tensor) else 0


def _text(sizes: Iterable[Any]) -> tuple[str, ...]:
    """Sizes to be compared with nothing guarded on."""
    return tuple(str(size) for size in sizes)
