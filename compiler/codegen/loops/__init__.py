"""Kernels as loop nests, for both code generators."""
