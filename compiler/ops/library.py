"""Operators that ATen always runs, each group with the reason. Times are of one thread, ATen's own being 1."""

from __future__ import annotations

from assay.compiler.ops.registry import Kind, record


def left(*targets: str) -> None:
    """Records operators whose calls are kept."""
    record(Kind.composite, None, *" ".join(targets).split())


left("kthvalue mode median median.dim nanmedian nanmedian.dim histc unique_dim")
"""They order or count data: the steps depend on it, and ATen's are those of a sorting library."""

left(
    "_fft_c2c _fft_r2c _fft_c2r",
    "linalg_qr linalg_lu_factor_ex linalg_lu_solve linalg_lu linalg_solve_triangular linalg_inv_ex linalg_cholesky_ex",
    "linalg_eig linalg_householder_product linalg_matrix_exp linalg_pinv.atol_rtol_tensor lu_unpack",
    "_linalg_svd _linalg_eigh _linalg_det _linalg_slogdet _linalg_solve_ex",
    "cholesky cholesky_solve cholesky_inverse triangular_solve geqrf ormqr",
)
"""Transforms and factorisations are a library's."""

left(
    "grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward",
    "upsample_linear1d upsample_linear1d_backward upsample_trilinear3d upsample_trilinear3d_backward",
    "upsample_bicubic2d_backward _upsample_bilinear2d_aa _upsample_bicubic2d_aa",
)
"""ATen finds the place and the weights of a sample once for all channels, or of a row once for all rows. Computed at
each element they take 1.4 (64 channels) to 3.7 (3 channels) for a grid, 1.6 to 2 for lines."""

left("_cdist_backward _euclidean_dist")
"""ATen runs along the coordinates of a pair of rows. A sum over rows for each coordinate takes 5 to 7."""

left("fractional_max_pool2d fractional_max_pool3d")
"""The place of a window is computed in the precision of the samples, once for each row of windows."""

left("segment_reduce _segment_reduce_backward masked_scatter_backward _ctc_loss _ctc_loss_backward nonzero_static")
"""Where an element goes depends on the ones before it."""

left("igamma igammac special_airy_ai special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1")
left("special_chebyshev_polynomial_t special_hermite_polynomial_h special_laguerre_polynomial_l")
"""Series and recurrences whose length depends on the data."""

left("as_strided_scatter as_strided_copy")
"""Elements by the strides of memory, which a logical tensor does not have."""
