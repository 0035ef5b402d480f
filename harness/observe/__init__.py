"""What a program shows while the acts are done: results, gradients, hooks, memory, global settings, leaks."""
