"""From elements of logical tensors to kernels and the order of their launches."""
