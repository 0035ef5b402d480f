"""Compiled autograd: the whole backward of a program, recorded as the engine runs it."""
