"""What is done with a program: the acts, call after call, and the fresh numbers that each one gets."""
