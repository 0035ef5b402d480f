"""The front doors: `torch.compile`, ahead-of-time compiles, export. They turn a user's call into a compile and back."""
