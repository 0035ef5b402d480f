"""What compiling costs: with the number of nodes, for the cut of a joint graph, and with full caches."""
