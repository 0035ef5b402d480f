"""Programs that are small and easy to get wrong: mutation, aliasing, layout, ambient modes, gradients that are None."""
