"""From kernels and a schedule to text: C++, Triton, the host function and the call around it."""
