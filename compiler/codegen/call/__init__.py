"""The calling convention around the graphs of a compile."""
