"""What stages tell each other of gradients: orders of derivation, the engine's steps, packed values."""
