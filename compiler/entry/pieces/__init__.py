"""A graph in pieces: what the compiler cannot take runs in eager, and what stands before and after it is compiled."""
