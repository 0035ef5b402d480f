"""A failing case made smaller: a graph of it, or its own text, by workers that a crash does not end."""
