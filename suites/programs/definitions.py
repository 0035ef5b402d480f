"""What a program may need beside torch: autograd functions and custom operators, each a text that defines its name; and
what a caller does with its gradients, each a text that defines `scenario(program, *inputs)`."""

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

_HELPERS = """def leaves_behind(tensors):
    tensors = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor) and tensor.requires_grad]
    pending, found = [tensor.grad_fn or tensor for tensor in tensors], []
    while pending:
        node = pending.pop()
        leaf = node if isinstance(node, torch.Tensor) else getattr(node, "variable", None)
        if leaf is None:
            pending.extend(following for following, _ in node.next_functions if following is not None)
        elif not any(leaf is other for other in found):
            found.append(leaf)
    return found


def ends_of(result):
    leaves = torch.utils._pytree.tree_leaves(result)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


"""
SCENARIOS = {
    "once": "",
    "twice": _HELPERS
    + """def scenario(program, *inputs):
    result = program(*inputs)
    if torch.is_grad_enabled() and (ends := ends_of(result)):
        torch.autograd.backward(ends, [torch.ones_like(end) for end in ends], retain_graph=True)
    return result""",
    "alone": _HELPERS
    + """def scenario(program, *inputs):
    leaves = leaves_behind(inputs) if torch.is_grad_enabled() else []
    result = program(*inputs)
    if not leaves:
        return result
    slopes = []
    for end in ends_of(result):
        ones = torch.ones_like(end)
        slopes += torch.autograd.grad(end, leaves, ones, retain_graph=True, allow_unused=True)
    return result, slopes""",
    "rest": _HELPERS
    + """def scenario(program, *inputs):
    leaves = leaves_behind(inputs) if torch.is_grad_enabled() else []
    result = program(*inputs)
    ends = ends_of(result)[1:]
    if not leaves or not ends:
        return result
    ones = [torch.ones_like(end) for end in ends]
    return result, torch.autograd.grad(ends, leaves, ones, retain_graph=True, allow_unused=True)""",
    "again": _HELPERS
    + """def scenario(program, *inputs):
    leaves = leaves_behind(inputs) if torch.is_grad_enabled() else []
    result = program(*inputs)
    ends = ends_of(result)
    if not leaves or not ends:
        return result
    ones = [torch.ones_like(end) for end in ends]
    slopes = torch.autograd.grad(ends, leaves, ones, create_graph=True, allow_unused=True)
    return result, [None if slope is None else slope.contiguous() for slope in slopes]""",
    "watched": _HELPERS
    + """def scenario(program, *inputs):
    leaves, log = leaves_behind(inputs) if torch.is_grad_enabled() else [], []
    handles = [leaf.register_hook(lambda grad: grad * 2) for leaf in leaves]
    handles += [leaf.register_post_accumulate_grad_hook(lambda leaf: log.append(leaf.shape)) for leaf in leaves]
    result = program(*inputs)
    ends = ends_of(result)
    if leaves and len(ends) == 1 and not ends[0].is_leaf:
        ends[0].retain_grad()
        ends[0].register_hook(lambda grad: grad * 3)
    if leaves and ends:
        torch.autograd.backward(ends, [torch.ones_like(end) for end in ends], retain_graph=True)
    for handle in handles:
        handle.remove()
    return result, sorted(log)""",
}
"""What the caller does before the backward that follows in training. In this order:

- nothing
- a backward that keeps the graph
- a backward from each result alone
- a backward from all results but the first
- the gradients of the leaves behind the inputs, which are then differentiated too
- hooks that watch and replace gradients
"""
