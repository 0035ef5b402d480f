"""The passes, in their order, with one reason a line.

A pass is `exact` (it changes no bit of any result) or `rounding` (it may, within the bound that its docstring states).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from assay.compiler.ir.graph.roles import Program
from assay.compiler.passes.attention.attend import attend
from assay.compiler.passes.attention.use_flash_attention import use_flash_attention
from assay.compiler.passes.cast_before_views import cast_before_views
from assay.compiler.passes.eliminate_common_subexpressions import eliminate_common_subexpressions
from assay.compiler.passes.eliminate_dead_code import eliminate_dead_code
from assay.compiler.passes.fill_literals import fill_literals
from assay.compiler.passes.fold_constants import fold_constants
from assay.compiler.passes.products.add_biases import add_biases
from assay.compiler.passes.products.convolve_channels_last import convolve_channels_last
from assay.compiler.passes.products.multiply_matrices import multiply_matrices
from assay.compiler.passes.products.multiply_pixels import multiply_pixels
from assay.compiler.passes.products.multiply_vectors import multiply_vectors
from assay.compiler.passes.products.pad_products import pad_products
from assay.compiler.passes.products.sum_depthwise import sum_depthwise
from assay.compiler.passes.products.use_onednn import use_onednn
from assay.compiler.passes.random.functionalize_rng import functionalize_rng
from assay.compiler.passes.random.split_dropout import split_dropout
from assay.compiler.passes.remove_no_ops import remove_no_ops, remove_saved_aliases
from assay.compiler.passes.split_log_softmax import split_log_softmax


@dataclass(frozen=True, slots=True)
class Pass:
    """A named rewrite of a program's graph, in place; it returns how many nodes it changed."""

    run: Callable[[Program], int]
    kind: Literal["exact", "rounding"]

    @property
    def name(self) -> str:
        return self.run.__name__


MERGED = Pass(eliminate_common_subexpressions, "exact")  # forward and its derivative formulas compute the same values

PASSES: tuple[Pass, ...] = (
    Pass(remove_no_ops, "exact"),  # autograd detaches what it saves; no later stage should see that
    MERGED,
    Pass(eliminate_dead_code, "exact"),  # the passes above leave nodes that nobody reads
)

AS_RECORDED: tuple[Pass, ...] = (
    Pass(remove_saved_aliases, "exact"),  # autograd detaches what it saves, and backward would read two values for one
    Pass(eliminate_dead_code, "exact"),  # of the calls that autograd recorded some are for gradients that nobody wants
)
"""Those for graphs that a caller's own compilers are handed, which find there what the program calls."""

FUNCTIONAL = Pass(functionalize_rng, "exact")  # for those who ask for other random numbers than eager's

DRAWN: tuple[Pass, ...] = (
    Pass(split_dropout, "exact"),  # the mask is a byte an element, and all that has to be kept
)
"""In what form random numbers are kept for backward; gradients of gradients read them in the same."""

CHOICES: tuple[Pass, ...] = (
    *DRAWN,
    Pass(fill_literals, "exact"),  # a GPU waits for what is copied from the host
    Pass(attend, "rounding"),  # the library's kernel stores no scores, and reads heads where they lie
    Pass(use_flash_attention, "rounding"),  # a kernel for heads of known depth keeps its blocks in registers
    Pass(split_log_softmax, "rounding"),  # a loss reads one element of each row: the others are never stored
    Pass(convolve_channels_last, "rounding"),  # oneDNN reads large images so without reordering them
    Pass(add_biases, "rounding"),  # cuDNN adds none: ATen reads and writes each image again
    Pass(sum_depthwise, "rounding"),  # the library takes memory for all pairs of channels to sum a few products
    Pass(multiply_pixels, "rounding"),  # a convolution by single pixels is dearer than the product that it is
    Pass(multiply_vectors, "rounding"),  # the library starts a product for each of a batch of vectors
    Pass(multiply_matrices, "rounding"),  # our own products of matrices are nearest to the machine's peak
    Pass(use_onednn, "rounding"),  # where ours are not made for the machine, its are nearer than those of MKL
    Pass(pad_products, "rounding"),  # a GPU's tensor cores read rows that begin at multiples of 16 bytes
    Pass(cast_before_views, "exact"),  # over the loops of what it casts, a cast is no kernel of its own
    Pass(fold_constants, "exact"),  # tables of positions and angles are the same numbers at every call
)
"""How a call is written, what of it is computed when compiling, and which library and layout it gets, for programs that
this compiler builds itself. Those that are `rounding` run where rounding may differ."""
