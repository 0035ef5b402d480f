"""How tensors are aligned that generated kernels read. Processes that compile kernels read this file without torch."""

ALIGNED_BYTES = 16
"""What a generated kernel for a GPU may read at once."""
