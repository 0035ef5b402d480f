"""FX graphs with roles: their inputs and outputs, how they are recorded, and how nodes are replaced."""
