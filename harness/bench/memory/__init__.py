"""Memory of a step: what is live at each moment, and what a budget buys."""
