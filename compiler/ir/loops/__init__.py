"""The loop IR: kernels, indices and expressions, with text, rules and rewrites."""
