"""Contractions: products summed over a shared dimension. ATen's libraries run them."""

from assay.compiler.ops.registry import Kind, record

MATRIX = "mm bmm addmm baddbmm addbmm addmv mv dot vdot matmul linear einsum addr ger outer _addmm_activation"
ONEDNN = "mkldnn._linear_pointwise"
CONVOLUTION = (
    "convolution convolution_backward _convolution convolution_overrideable conv1d conv2d conv3d"
    " mkldnn_convolution mkldnn_rnn_layer lstm.input gru.input _thnn_fused_lstm_cell"
)
ATTENTION = (
    "scaled_dot_product_attention _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu"
    " _scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention_backward"
    " _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward"
    " _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward"
    " _scaled_dot_product_attention_math _scaled_dot_product_fused_attention_overrideable _flash_attention_forward"
    " _efficient_attention_forward"
)
record(
    Kind.contraction,
    None,
    *f"{MATRIX} {ONEDNN} {CONVOLUTION} {ATTENTION} _grouped_mm _scaled_mm _cdist_forward".split(),
)
