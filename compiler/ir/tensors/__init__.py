"""Facts about tensors: strides, overlap, devices, writes, and what eager refuses."""
