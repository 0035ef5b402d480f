"""Convolutions of large images run with their channels innermost in memory, and so does what lies between them.

    y = convolution(x, w, ...)   ->   c = clone(x, memory_format=channels_last); y = convolution(c, w, ...)

oneDNN reads and writes that layout directly, where it would reorder other images before and after each call. What only
reads elements (pointwise operators, reductions, pooling, other convolutions) follows the layout of what it is given.
Before anything else, and where the program returns a value, eager's layout is restored.

A convolution whose weight has more elements than its images stays as it is, if it is no product of matrices. To
reorder the weight then costs more than to reorder the images. On two cores, milliseconds forward (as it is, channels
last): 64 channels of 56 x 56 3.7 and 2.1, 128 of 28 x 28 2.4 and 2.1, 256 of 14 x 14 2.1 and 2.9, 512 of 7 x 7 2.7 and
6.2.

On a GPU the tensor cores' kernels for halves read images and weights so. cuDNN turns both around each call that is
given others. So there every convolution changes, with its weight, and those of each channel by itself too.

Rounding: other orders of the same sums. Must run before the partition, so that backward knows the layouts it is given.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from assay.compiler.ir.graph.calls import called, written_sizes
from assay.compiler.ir.graph.replacement import derive_anew
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.tensors.layout.strides import hints, is_known, order
from assay.compiler.ir.typed_nodes import fake_value, function_of, node_argument
from assay.compiler.machine import number
from assay.compiler.ops import kind_of
from assay.compiler.ops.registry import Kind
from assay.compiler.passes.products.multiply_pixels import is_product

aten = torch.ops.aten

ELEMENTWISE = (Kind.pointwise, Kind.reduction, Kind.creation)
IMAGES = {aten.convolution.default: 1, aten.convolution_backward.default: 2}
"""How many images, which come first, a convolution takes; its weight is behind them."""
OF_GPU = (torch.float16, torch.bfloat16)
"""What tensor cores read with channels innermost."""
READS_ELEMENTS = frozenset(
    "max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward _adaptive_avg_pool2d "
    "_adaptive_avg_pool2d_backward upsample_nearest2d upsample_nearest2d_backward upsample_bilinear2d "
    "upsample_bilinear2d_backward cat constant_pad_nd permute transpose unsqueeze squeeze expand slice select view "
    "_unsafe_view clone native_layer_norm".split()
)
"""What else computes the same elements whatever the layout of what it is given."""


class _Unsuitable(Exception):
    """The program needs a layout that cannot be restored."""


def convolve_channels_last(program: Program) -> int:
    """Returns the number of convolutions, forward and backward, that changed."""
    graph = program.module.graph
    if sum(_gains(node) for node in graph.nodes if node.target is aten.convolution.default) < number(
        "channels_last_convolutions"
    ):
        return 0
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph, {}))
    try:
        changed = _Layouts(copy).run()
    except _Unsuitable:
        return 0
    program.module.graph = copy
    return changed


def _gains(node: fx.Node) -> bool:
    """Whether a convolution or its backward is faster with its channels innermost."""
    is_forward = node.target is aten.convolution.default
    given: Any = (node, *node.args) if is_forward else node.args
    result, image, weight = (argument.meta["val"] for argument in given[:3])
    transposed = given[7]
    dtypes = {"cpu": (torch.float32, torch.bfloat16), "cuda": OF_GPU}.get(image.device.type, ())
    if image.dim() != 4 or transposed or image.dtype not in dtypes:
        return False
    if not all(map(is_known, (*image.shape, *result.shape))):
        return False
    elements = [torch.Size(hints(value.shape)).numel() for value in (weight, image, result)]
    if _turns_weight(node):
        return 0 not in elements
    return 0 < elements[0] and (is_product(node) or elements[0] <= elements[1] + elements[2])


def _turns_weight(node: fx.Node) -> bool:
    """Whether the weight is wanted in the layout of the images."""
    return fake_value(node_argument(node, 0)).device.type == "cuda"


class _Layouts:
    """One walk over a graph that converts, follows and restores layouts. `original` holds the values that changed."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.original: dict[fx.Node, Any] = {}
        self.restored: dict[fx.Node, fx.Node] = {}
        self.converted: dict[fx.Node, fx.Node] = {}

    def run(self) -> int:
        changed = 0
        for node in list(self.graph.nodes):
            if node.op == "output":
                self._restore(node)
            elif node.target in IMAGES and _gains(node):
                images = node.args[: IMAGES[node.target] + _turns_weight(node)]
                changed += any([self._convert(node, image) or image in self.original for image in images])
                self._follow(node)
            elif any(read in self.original for read in node.all_input_nodes):
                self._read(node)
        return changed

    def _read(self, node: fx.Node) -> None:
        """A node that reads what changed follows it where it may, else reads it as it was."""
        if _reads_elements(node):
            try:
                self._follow(node)
                return
            except (RuntimeError, ValueError):  # a view that this layout has no strides for
                pass
        self._restore(node)

    def _follow(self, node: fx.Node) -> None:
        """The node's value for the layouts that it is given now."""
        before = node.meta["val"]
        arguments = fx.node.map_arg((node.args, node.kwargs), lambda read: read.meta["val"])
        mode = next(value.fake_mode for value in _tensors(before))
        with mode:
            after = function_of(node)(*arguments[0], **arguments[1])
        if any(str(a.stride()) != str(b.stride()) for a, b in zip(_tensors(after), _tensors(before), strict=True)):
            self.original[node] = before
            node.meta["val"] = after
        else:
            derive_anew([node])  # its views lie in other memory, if it is itself a view of what changed

    def _convert(self, node: fx.Node, image: fx.Node) -> bool:
        """Gives the node the image with its channels innermost. False where it is so already."""
        value = image.meta["val"]
        if value.is_contiguous(memory_format=torch.channels_last):
            return False
        made = self.converted.get(image)
        if made is None:
            made = self.converted[image] = self._after(image, aten.clone.default, memory_format=torch.channels_last)
        node.replace_input_with(image, made)
        return True

    def _restore(self, node: fx.Node) -> None:
        """Gives the node what it reads in eager's layout."""
        for read in node.all_input_nodes:
            if read not in self.original:
                continue
            if read not in self.restored:
                self.restored[read] = self._restored(read)
            node.replace_input_with(read, self.restored[read])
            derive_anew([node])

    def _restored(self, read: fx.Node) -> fx.Node:
        """`read` in its original layout: a copy in the order of the dimensions in memory, made right after it."""
        wanted = self.original[read]
        if not isinstance(wanted, torch.Tensor):
            raise _Unsuitable
        made = read if _steps(read.meta["val"]) == _steps(wanted) else self._in_order_of(read, wanted)
        if made.meta["val"].stride() != wanted.stride():
            sizes = written_sizes(self.graph, [*wanted.shape, *wanted.stride()])
            made = self._after(made, aten.as_strided.default, sizes[: wanted.dim()], sizes[wanted.dim() :])
        return made

    def _in_order_of(self, read: fx.Node, wanted: torch.Tensor) -> fx.Node:
        """A copy with its dimensions in memory in the order of another's."""
        plain = {"memory_format": torch.contiguous_format}
        large = order(wanted)
        dims = [dim for dim in range(wanted.dim()) if dim not in large] + large
        if large == sorted(large):
            made = self._after(read, aten.clone.default, **plain)
        else:
            made = self._after(read, aten.permute.default, dims)
            made = self._after(made, aten.clone.default, **plain)
            made = self._after(made, aten.permute.default, [dims.index(dim) for dim in range(len(dims))])
        if _steps(made.meta["val"]) != _steps(wanted):
            raise _Unsuitable
        return made

    def _after(self, node: fx.Node, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        """A call on a value, right after it is made."""
        with self.graph.inserting_after(node):
            return called(target, node, *args, **kwargs)


def _reads_elements(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or not list(_tensors(node.meta.get("val"))):
        return False
    name = node.target._schema.name.removeprefix("aten::")
    return kind_of(node.target) in ELEMENTWISE or name in READS_ELEMENTS


def _tensors(value: object) -> Iterator[Any]:
    for item in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(item, torch.Tensor):
            yield item


def _steps(value: torch.Tensor) -> list[str]:
    """The steps between elements, those of single ones apart, as text: nothing is guarded on."""
    return [str(step) for size, step in zip(value.shape, value.stride(), strict=True) if str(size) != "1"]
