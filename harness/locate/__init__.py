"""Where a backend goes wrong: the first rung that differs, then the graph, the node, the kernel; a smaller program."""
