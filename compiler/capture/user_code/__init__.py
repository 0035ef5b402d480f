"""What a program brings along: its own Triton kernels, custom backwards, checkpoints and masks."""
