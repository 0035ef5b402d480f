"""Programs that autograd keeps books on: versions, hooks, modes, retained gradients, functions of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.harness.case import Made
from assay.suites.semantics.program import inner, leaf, numbers, program

versions = "versions"
TRAIN = ("train",)


def _write_output_then_backward(f: Callable[..., Any], w: Tensor) -> Tensor:
    y = f(w)
    y.mul_(2)
    return y


@program(versions, "raises", modes=TRAIN, scenario=_write_output_then_backward)
def output_that_backward_reads_written_by_the_caller_is_an_error() -> Made:
    def f(w: Tensor) -> Tensor:
        return w.exp()

    return f, (leaf(3),), {}


@program(versions, modes=TRAIN, scenario=_write_output_then_backward)
def output_that_backward_does_not_read_written_by_the_caller() -> Made:
    def f(w: Tensor) -> Tensor:
        return w.sin()

    return f, (leaf(3),), {}


@program(versions, modes=TRAIN, scenario=_write_output_then_backward)
def copy_of_what_backward_reads_written_by_the_caller() -> Made:
    def f(w: Tensor) -> Tensor:
        return w.exp().clone()

    return f, (leaf(3),), {}


def _write_first_result_then_backward(f: Callable[..., Any], x: Tensor, w: Tensor) -> Tensor:
    y, total = f(x, w)
    with torch.no_grad():
        y.zero_()
    return total  # type: ignore[no-any-return]


@program(versions, modes=TRAIN, scenario=_write_first_result_then_backward)
def product_that_backward_does_not_read_written_by_the_caller() -> Made:
    """What follows from it is wider: it would be cheaper to keep the product and compute that again."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = F.linear(x, w)
        return y, y.float().exp().sum()

    return (
        f,
        (leaf(2, 8, 16).detach().bfloat16().requires_grad_(), leaf(32, 16).detach().bfloat16().requires_grad_()),
        {},
    )


def _write_input_then_backward(f: Callable[..., Any], x: Tensor, w: Tensor) -> Tensor:
    y = f(x, w)
    x.add_(1)
    return y


@program(versions, "raises", modes=TRAIN, scenario=_write_input_then_backward)
def input_that_backward_reads_written_by_the_caller_is_an_error() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return x * w

    return f, (numbers(3), leaf(3)), {}


def _write_weight_then_backward(f: Callable[..., Any], x: Tensor, w: Tensor) -> Tensor:
    y = f(x, w)
    with torch.no_grad():
        w.add_(1)
    return y


@program(versions, "raises", modes=TRAIN, scenario=_write_weight_then_backward)
def weight_of_a_norm_written_by_the_caller_is_an_error() -> Made:
    """Backward reads the weight times the deviation's inverse, which forward has computed."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        return nn.functional.batch_norm(x, None, None, w, training=True)

    return f, (leaf(5, 3), leaf(3)), {}


def _assign_data_then_backward(f: Callable[..., Any], x: Tensor, w: Tensor) -> Tensor:
    y = f(x, w)
    x.data = torch.full_like(x, 7.0)
    return y  # type: ignore[no-any-return]


@program(versions, modes=TRAIN, scenario=_assign_data_then_backward)
def data_of_an_input_whose_view_was_saved_assigned_before_backward() -> Made:
    """The view that was saved keeps the memory that it was of."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        return x[1:] * w

    return f, (numbers(4), leaf(3)), {}


@program(versions, "raises", modes=TRAIN, scenario=_write_weight_then_backward)
def part_of_a_weight_of_a_norm_written_by_the_caller_is_an_error() -> Made:
    """Eager saves the view; our backward reads none of it."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        return nn.functional.batch_norm(x, None, None, w[:3], training=True)

    return f, (leaf(5, 3), leaf(6)), {}


@program(versions, modes=TRAIN, scenario=_write_input_then_backward)
def input_that_backward_does_not_read_written_by_the_caller() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return x + w

    return f, (numbers(3), leaf(3)), {}


def _write_view_of_input_then_backward(f: Callable[..., Any], x: Tensor, w: Tensor) -> Tensor:
    y = f(x, w)
    x[0].zero_()
    return y


@program(versions, "raises", modes=TRAIN, scenario=_write_view_of_input_then_backward)
def view_of_what_backward_reads_written_by_the_caller_is_an_error() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return x * w

    return f, (numbers(3), leaf(3)), {}


def _write_data_of_input_then_backward(f: Callable[..., Any], x: Tensor, w: Tensor) -> Tensor:
    y = f(x, w)
    x.data.add_(1)
    return y


@program(versions, modes=TRAIN, scenario=_write_data_of_input_then_backward)
def data_of_what_backward_reads_written_by_the_caller() -> Made:
    """Eager cannot tell, and takes the new values."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        return x * w

    return f, (numbers(3), leaf(3)), {}


@program(versions, "raises", modes=TRAIN)
def intermediate_that_backward_reads_written_is_an_error() -> Made:
    def f(w: Tensor) -> Tensor:
        y = w.exp()
        z = y * 2
        y.add_(1)
        return z

    return f, (leaf(3),), {}


@program(versions)
def intermediate_that_backward_does_not_read_written() -> Made:
    def f(w: Tensor) -> Tensor:
        y = w.sin()
        z = y * 2
        y.add_(1)
        return z + y

    return f, (leaf(3),), {}


@program(versions, "raises", modes=TRAIN)
def view_saved_for_backward_whose_base_is_written_is_an_error() -> Made:
    def f(w: Tensor) -> Tensor:
        y = w + 1
        z = y[1:] * w[1:]
        y.mul_(2)
        return z

    return f, (leaf(3),), {}


gradients = "gradients"


@program(gradients)
def leaf_without_use_has_no_gradient() -> Made:
    def f(x: Tensor, used: Tensor, unused: Tensor) -> Tensor:
        return x * used

    return f, (numbers(3), leaf(3), leaf(3)), {}


@program(gradients)
def inner_input_without_use_has_no_gradient() -> Made:
    def f(used: Tensor, unused: Tensor) -> Tensor:
        return used * 2

    return f, (inner(3), inner(3)), {}


def _backward_of_first(f: Callable[..., Any], *args: Tensor) -> Tensor:
    first, *_ = f(*args)
    first.sum().backward()
    return first.detach()


@program(gradients, modes=TRAIN, scenario=_backward_of_first)
def leaf_that_the_used_output_does_not_reach_has_no_gradient() -> Made:
    def f(used: Tensor, unused: Tensor) -> tuple[Tensor, Tensor]:
        return used.sin(), used * unused

    return f, (leaf(3), leaf(3)), {}


def _partial_gradients(f: Callable[..., Any], used: Tensor, unused: Tensor) -> Any:
    first, second = f(used, unused)
    by_first = torch.autograd.grad(first.sum(), (used, unused), retain_graph=True, allow_unused=True)
    return by_first, torch.autograd.grad(second.sum(), (used, unused), allow_unused=True)


@program(gradients, modes=TRAIN, scenario=_partial_gradients)
def gradients_of_one_output_after_the_other() -> Made:
    def f(used: Tensor, unused: Tensor) -> tuple[Tensor, Tensor]:
        return used.sin(), used * unused

    return f, (leaf(3), leaf(3)), {}


def _backward_twice(f: Callable[..., Any], w: Tensor) -> Tensor:
    y = f(w).sum()
    y.backward(retain_graph=True)
    y.backward()
    return y.detach()


@program(gradients, modes=TRAIN, scenario=_backward_twice)
def backward_twice_with_retained_graph() -> Made:
    def f(w: Tensor) -> Tensor:
        return w.exp() * w

    return f, (leaf(3),), {}


def _backward_twice_without_retaining(f: Callable[..., Any], w: Tensor) -> Tensor:
    y = f(w).sum()
    y.backward()
    y.backward()
    return y.detach()


@program(gradients, "raises", modes=TRAIN, scenario=_backward_twice_without_retaining)
def backward_twice_without_retaining_is_an_error() -> Made:
    def f(w: Tensor) -> Tensor:
        return w.exp() * w

    return f, (leaf(3),), {}


def _two_forwards_one_backward(f: Callable[..., Any], w: Tensor) -> Tensor:
    return f(w) * f(w * 2)


@program(gradients, scenario=_two_forwards_one_backward)
def two_calls_before_one_backward() -> Made:
    def f(w: Tensor) -> Tensor:
        return w.exp() * w

    return f, (leaf(3),), {}


def _accumulate(f: Callable[..., Any], w: Tensor) -> Tensor | None:
    for _ in range(2):
        f(w).sum().backward()
    return w.grad


@program(gradients, modes=TRAIN, scenario=_accumulate)
def gradients_of_two_calls_accumulate() -> Made:
    def f(w: Tensor) -> Tensor:
        return w.exp() * w

    return f, (leaf(3),), {}


def _gradient_of_input(f: Callable[..., Any], x: Tensor) -> Tensor | None:
    x.retain_grad()
    f(x).sum().backward()
    return x.grad


@program(gradients, modes=TRAIN, scenario=_gradient_of_input)
def gradient_retained_by_an_inner_input() -> Made:
    def f(x: Tensor) -> Tensor:
        return x.sin()

    return f, (inner(3),), {}


@program(gradients, modes=TRAIN, scenario=_gradient_of_input)
def gradient_retained_by_an_inner_input_that_is_mutated() -> Made:
    def f(x: Tensor) -> Tensor:
        x.mul_(2)
        return x.sin()

    return f, (inner(3),), {}


hooks = "hooks-of-the-user"


def _noting(seen: list[Tensor], factor: float) -> Callable[[Tensor], Tensor]:
    """A hook that notes the gradient and multiplies it."""

    def hook(gradient: Tensor) -> Tensor:
        seen.append(gradient.clone())
        return gradient * factor

    return hook


def _hook_on_output(f: Callable[..., Any], w: Tensor) -> Any:
    seen: list[Tensor] = []
    y = f(w)
    y.register_hook(_noting(seen, 3))
    y.retain_grad()
    y.sin().sum().backward()
    return seen, y.grad, w.grad


@program(hooks, modes=TRAIN, scenario=_hook_on_output)
def hook_and_retained_gradient_on_an_output() -> Made:
    def f(w: Tensor) -> Tensor:
        return w.exp()

    return f, (leaf(3),), {}


@program(hooks, modes=TRAIN, scenario=_hook_on_output)
def hook_and_retained_gradient_on_a_view_of_a_leaf() -> Made:
    def f(w: Tensor) -> Tensor:
        return w[1:]

    return f, (leaf(3),), {}


@program(hooks, modes=TRAIN, scenario=_hook_on_output)
def hook_and_retained_gradient_on_a_view_of_an_intermediate() -> Made:
    def f(w: Tensor) -> Tensor:
        return w.exp()[1:]

    return f, (leaf(3),), {}


def _hook_on_both(f: Callable[..., Any], w: Tensor) -> Any:
    order: list[str] = []
    y, z = f(w)
    y.register_hook(lambda gradient: order.append("y"))
    z.register_hook(lambda gradient: order.append("z"))
    y.retain_grad()
    (y.sum() + z.sin().sum()).backward()
    return sorted(order), y.grad, w.grad


@program(hooks, modes=TRAIN, scenario=_hook_on_both)
def hooks_on_an_output_and_its_view() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w.exp()
        return y, y.t()

    return f, (leaf(3, 4),), {}


def _hook_then_write(f: Callable[..., Any], w: Tensor) -> Any:
    seen: list[Tensor] = []
    y = f(w)
    y.register_hook(lambda gradient: seen.append(gradient.clone()))
    y.mul_(2)
    y.sum().backward()
    return seen, w.grad


@program(hooks, modes=TRAIN, scenario=_hook_then_write)
def hook_on_an_output_that_is_then_written() -> Made:
    def f(w: Tensor) -> Tensor:
        return w.sin()

    return f, (leaf(3),), {}


def _hook_on_leaf(f: Callable[..., Any], w: Tensor) -> Any:
    seen: list[Tensor] = []
    handle = w.register_hook(_noting(seen, 2))
    f(w).sum().backward()
    handle.remove()
    return seen, w.grad


@program(hooks, modes=TRAIN, scenario=_hook_on_leaf)
def hook_on_a_leaf_input() -> Made:
    def f(w: Tensor) -> Tensor:
        return w.sin() * w

    return f, (leaf(3),), {}


@program(hooks, modes=TRAIN)
def hook_registered_inside_on_an_intermediate() -> Made:
    def f(w: Tensor) -> Tensor:
        y = w.sin()
        y.register_hook(lambda gradient: gradient * 2)
        return y * 3

    return f, (leaf(3),), {}


modes_changed = "modes"


@program(modes_changed)
def gradients_turned_off_and_left_off() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = x * w
        torch.set_grad_enabled(False)
        return y + w * 2

    return f, (numbers(3), leaf(3)), {}


@program(modes_changed)
def gradients_turned_on_and_left_on() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = x * w
        torch.set_grad_enabled(True)
        return y, x * w

    return f, (numbers(3), leaf(3)), {}


@program(modes_changed)
def gradients_turned_off_then_on() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            y = x * w
        return y, y * w

    return f, (numbers(3), leaf(3)), {}


@program(modes_changed)
def gradients_turned_on_inside_no_grad() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            y = x + w
            with torch.enable_grad():
                z = y * w
        return y, z

    return f, (numbers(3), leaf(3)), {}


@program(modes_changed)
def inference_mode_inside() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        with torch.inference_mode():
            y = x + 1
        return y, x * w

    return f, (numbers(3), leaf(3)), {}


def _in_inference_mode(f: Callable[..., Any], *args: Tensor) -> Any:
    with torch.inference_mode():
        return f(*args)


@program(modes_changed, scenario=_in_inference_mode)
def outputs_under_inference_mode() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return x * w, x[1:], x, (x * 2).t()

    return f, (numbers(3, 4), leaf(4)), {}


@program(modes_changed, scenario=_in_inference_mode)
def input_mutated_under_inference_mode() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.add_(1)
        return x * w

    return f, (numbers(3, 4), leaf(4)), {}


@program(modes_changed, scenario=_in_inference_mode)
def gradients_turned_on_under_inference_mode() -> Made:
    """They stay off."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            y = x * w
        return y, y * w

    return f, (numbers(3), leaf(3)), {}


@program(modes_changed, scenario=_in_inference_mode)
def data_under_inference_mode() -> Made:
    """The data of a tensor that is none of the mode is none either; nor does a write through it make a version grow."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x * w
        y.data.mul_(2)
        x.data.add_(w)
        return x.data, y.data, y

    return f, (numbers(3), leaf(3)), {}


@program(modes_changed, scenario=_in_inference_mode)
def gradients_of_a_function_under_inference_mode() -> Made:
    """What torch.func makes is no inference tensor, and a view of it is one to autograd."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y, pull = torch.func.vjp(torch.tanh, x)[:2]
        slopes = torch.func.vmap(torch.func.grad(lambda row: (row * w).sum()))(x)
        return y, *pull(y), slopes, x * w

    return f, (numbers(3, 4), leaf(4)), {}


@program(modes_changed, scenario=_in_inference_mode)
def views_of_an_intermediate_under_inference_mode() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y, z = x * w, x + w
        z[0].mul_(2)
        return y.view(-1), y.t(), z, z[1:]

    return f, (numbers(3, 4), leaf(4)), {}


@program(modes_changed, scenario=_in_inference_mode)
def strides_changed_under_inference_mode() -> Made:
    """By a composite operator, beside results that are copies and so inference tensors."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        x.swapdims_(0, 1)
        return x.reshape(-1), x.contiguous(), x.to(torch.float64), x[1:], x.t() * w

    return f, (numbers(3, 4), leaf(4)), {}


def _inference_tensors(f: Callable[..., Any], *args: Tensor) -> Any:
    with torch.inference_mode():
        made = [arg.clone() for arg in args]
        return f(*made), made


@program(modes_changed, scenario=_inference_tensors)
def inference_tensors_as_inputs() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        x.add_(1)
        return x * w, x[0]

    return f, (numbers(3, 4), leaf(4)), {}


def _inference_tensors_outside(f: Callable[..., Any], *args: Tensor) -> Any:
    with torch.inference_mode():
        made = [arg.clone() for arg in args]
    return f(*made), made


@program(modes_changed, "raises", scenario=_inference_tensors_outside)
def inference_tensor_mutated_outside_inference_mode() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.add_(1)
        return x * w

    return f, (numbers(3, 4), numbers(4)), {}


def _plain_then_inference_tensors(f: Callable[..., Any], *args: Tensor) -> Any:
    with torch.no_grad():
        f(*[arg.clone() for arg in args])
        return _inference_tensors_outside(f, *args)


@program(modes_changed, "raises", scenario=_plain_then_inference_tensors)
def inference_tensor_mutated_by_a_call_that_was_compiled_for_a_plain_one() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.add_(1)
        return x * w

    return f, (numbers(3, 4), numbers(4)), {}


@program(modes_changed, scenario=_inference_tensors_outside)
def inference_tensors_read_outside_inference_mode() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x * w, x[0]

    return f, (numbers(3, 4), numbers(4)), {}


def _cache_of_the_callers(f: Callable[..., Any], x: Tensor) -> Any:
    """A cache that is made where it is written, and one that is made before."""
    before = torch.zeros(4, 3)
    with torch.inference_mode():
        caches = [torch.zeros(4, 3), before]
        return [f(cache, x, place) for cache in caches for place in range(3)], caches


@program(modes_changed, scenario=_cache_of_the_callers, modes=("infer",))
def cache_written_under_inference_mode() -> Made:
    def f(cache: Tensor, x: Tensor, place: int) -> tuple[Tensor, Tensor]:
        cache[place] = x
        return cache.sum(0), cache[: place + 1]

    return f, (numbers(3),), {}


class _Cached(nn.Module):
    """Makes its cache when it is first called."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: Tensor | None = None
        self.length = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.cache is None:
            self.cache = torch.zeros(2, 3)
        self.cache[self.length] = x
        self.length = (self.length + 1) % 2
        return self.cache.sum(0)


def _three_times_under_inference_mode(f: Callable[..., Any], x: Tensor) -> Any:
    with torch.inference_mode():
        return [f(x * place) for place in range(3)]


@program(modes_changed, scenario=_three_times_under_inference_mode, modes=("infer",))
def cache_made_and_written_by_a_module_under_inference_mode() -> Made:
    return _Cached(), (numbers(3),), {}


class _Buffered(nn.Module):
    """A cache that is a buffer, made under inference mode."""

    cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        with torch.inference_mode():
            self.register_buffer("cache", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.cache.add_(x)
        return self.cache * 2


@program(modes_changed, scenario=_three_times_under_inference_mode, modes=("infer",))
def inference_buffer_written_under_inference_mode() -> Made:
    return _Buffered(), (numbers(3),), {}


@program(modes_changed, "raises", modes=("infer",))
def inference_buffer_written_outside_inference_mode() -> Made:
    return _Buffered(), (numbers(3),), {}


def _modes_in_turn(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    with torch.no_grad():
        one = f(x, w)
    with torch.inference_mode():
        two = f(x, w)
    with torch.autocast("cpu", torch.bfloat16):
        three = f(x, w)
    return one, two, three, f(x, w)


@program(modes_changed, scenario=_modes_in_turn)
def one_callable_under_every_mode() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = x @ w
        return y, y[0]

    return f, (numbers(3, 4), leaf(4, 4)), {}


@program(modes_changed, modes=("infer",))
def pseudoinverse_under_autocast() -> Made:
    """Eager's kernel calls a product, which autocast has in halves."""

    def f(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return torch.linalg.pinv(x)

    return f, (numbers(3, 3) + 3 * torch.eye(3),), {}


@program(modes_changed)
def inputs_flag_set_inside_on_an_intermediate() -> Made:
    def f(x: Tensor) -> Tensor:
        y = (x * 2).requires_grad_()
        return y * 3

    return f, (numbers(3),), {}


@program(modes_changed)
def intermediate_detached_in_place() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = x * w
        y.detach_()
        return y, y * w

    return f, (numbers(3), leaf(3)), {}


functions = "custom-function"


class Doubled(torch.autograd.Function):
    """Writes its argument and says so."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 2


@program(functions)
def custom_function_marks_its_input_dirty() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = Doubled.apply(x)
        return y, x * w

    return f, (inner(3), leaf(3)), {}


@program(functions)
def custom_function_marks_an_intermediate_dirty() -> Made:
    def f(w: Tensor) -> Tensor:
        y = w + 1
        Doubled.apply(y)
        return y * 3

    return f, (leaf(3),), {}


class Largest(torch.autograd.Function):
    """Returns an output that is not differentiable beside one that is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = x.max(0)
        floats = indices.to(x.dtype)
        ctx.mark_non_differentiable(floats)
        ctx.save_for_backward(indices)
        ctx.shape = x.shape
        return values, floats

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Tensor:
        (indices,) = ctx.saved_tensors
        return given[0].new_zeros(ctx.shape).scatter(0, indices[None], given[0][None])


@program(functions)
def custom_function_marks_an_output_non_differentiable() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        return Largest.apply(w)

    return f, (leaf(3, 4),), {}


class SavesBoth(torch.autograd.Function):
    """Saves an input and an output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        return given[0] * y + x * 0


@program(functions)
def custom_function_saves_inputs_and_outputs() -> Made:
    def f(w: Tensor) -> Tensor:
        return SavesBoth.apply(w) * 2

    return f, (leaf(3),), {}


@program(functions, "raises", modes=TRAIN, scenario=_write_output_then_backward)
def output_saved_by_a_custom_function_written_by_the_caller_is_an_error() -> Made:
    def f(w: Tensor) -> Tensor:
        return SavesBoth.apply(w)

    return f, (leaf(3),), {}


class Product(torch.autograd.Function):
    """Takes two tensors, which may be one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return given[0] * y, given[0] * x * 3


@program(functions)
def custom_function_takes_one_tensor_twice() -> Made:
    def f(w: Tensor) -> Tensor:
        return Product.apply(w, w)

    return f, (leaf(3),), {}


class Mixed(torch.autograd.Function):
    """Returns what is no tensor beside what is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float, name: str | None) -> tuple[Tensor, int, None]:
        ctx.scale = scale
        return x * scale, x.shape[0], None

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        return given[0] * ctx.scale, None, None


@program(functions)
def custom_function_returns_what_is_no_tensor() -> Made:
    def f(w: Tensor) -> tuple[Tensor, int, None]:
        return Mixed.apply(w, 2.0, None)

    return f, (leaf(3),), {}


class Sparing(torch.autograd.Function):
    """Gives gradients only where they are asked for, and takes None for what nothing flowed to."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        x, y = ctx.saved_tensors
        first = given[0]
        if first is None:
            return None, None
        return first * y if ctx.needs_input_grad[0] else None, first * x if ctx.needs_input_grad[1] else None


@program(functions)
def custom_function_leaves_gradients_out() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return Sparing.apply(x, w)[0]

    return f, (numbers(3), leaf(3)), {}


class Straight(torch.autograd.Function):
    """Rounds, and lets the gradient pass; written in the form with `setup_context`."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.count = len(inputs)

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Tensor:
        return given[0] * ctx.count


@program(functions)
def custom_function_with_setup_context() -> Made:
    def f(w: Tensor) -> Tensor:
        return Straight.apply(w * 3) * w

    return f, (leaf(3),), {}


@program(functions, modes=TRAIN)
def checkpointed_region() -> Made:
    layer = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.GELU())

    def f(x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)

    return f, (numbers(4, 3),), {}


def _backward_of_the_second(f: Callable[..., Any], *args: Tensor) -> Any:
    first, second = f(*args)
    second.sum().backward()
    return first.detach()


@program(gradients, modes=TRAIN, scenario=_backward_of_the_second)
def gradient_beside_an_infinity_that_nothing_flows_through() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x * w, x * 2 + x[:1]

    return f, (leaf(3), torch.tensor([1.0, float("inf"), float("nan")])), {}


@program(gradients, modes=TRAIN, scenario=_backward_of_the_second)
def gradient_through_a_joined_result_of_which_one_part_flows() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = x.exp()
        return torch.cat([y, w.log()]), (y * 3).softmax(0)

    return f, (leaf(3), leaf(3)), {}


def _write_and_backward_of_the_second(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    first, second = f(x, w)
    with torch.no_grad():
        x.add_(1)
    second.sum().backward()
    return first.detach()


@program(gradients, modes=TRAIN, scenario=_write_and_backward_of_the_second)
def written_input_that_only_an_unused_gradient_needs() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin(), w.cos()

    return f, (leaf(3), leaf(3)), {}


def _with_a_spoilt_history(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    spoilt = x.rsqrt()
    with torch.no_grad():
        spoilt.mul_(2)
    first, second = f(spoilt, w)
    second.sum().backward()
    return first


@program(gradients, modes=TRAIN, scenario=_with_a_spoilt_history)
def history_of_an_input_that_gets_no_gradient_is_not_visited() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x.detach() * 2, w * 3

    return f, (torch.rand(3, requires_grad=True), leaf(3)), {}
