"""Where the elements of tensors lie: strides, alignment, overlap."""
