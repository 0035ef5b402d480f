"""What the ahead-of-time front doors are given and give: graph compilers, partition functions, names of graphs."""
