"""What a program may need beside torch: autograd functions and custom operators, each a text that defines its name."""

from __future__ import annotations

DEFINITIONS = {
    "Square": """class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad""",
    "DoubleInPlace": """class DoubleInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad""",
    "Viewed": """class Viewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return 3 * grad""",
    "Rounded": """class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        rounded = x.round()
        sign = x.sign()
        ctx.mark_non_differentiable(sign)
        return rounded, sign

    @staticmethod
    def backward(ctx, grad, _):
        return grad""",
    "programs.increment": """@torch.library.custom_op("programs::increment", mutates_args=("x",))
def increment(x: torch.Tensor) -> None:
    x.add_(1)


increment.register_fake(lambda x: None)""",
    "programs.swap": """@torch.library.custom_op("programs::swap", mutates_args=("x", "y"))
def swap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)
    return kept - 1


swap.register_fake(lambda x, y: torch.empty_like(x))""",
}
"""A definition is printed before a program whose steps mention its name."""
