"""Programs that write their inputs, parameters or buffers: every write is where eager's is, and counted as eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from assay.harness.case import Made
from assay.suites.semantics.program import inner, integers, leaf, numbers, program

data = "data-mutation"


@program(data)
def input_mutated_and_returned() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.mul_(2)
        x.add_(w.sum())
        return x

    return f, (inner(3, 4), leaf(4)), {}


@program(data)
def input_without_gradient_mutated_and_returned() -> Made:
    def f(x: Tensor) -> Tensor:
        x.mul_(2)
        return x

    return f, (numbers(3, 4),), {}


@program(data)
def input_mutated_and_nothing_returned() -> Made:
    def f(x: Tensor) -> None:
        x.mul_(2)

    return f, (numbers(3, 4),), {}


@program(data)
def integer_input_mutated() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.add_(1)
        return x * w

    return f, (integers(3), leaf(3)), {}


@program(data)
def bool_input_mutated() -> Made:
    def f(mask: Tensor, w: Tensor) -> Tensor:
        mask.logical_not_()
        return torch.where(mask, w, -w)

    return f, (torch.tensor([True, False, True]), leaf(3)), {}


@program(data)
def complex_input_mutated() -> Made:
    def f(x: Tensor) -> Tensor:
        x.mul_(2j)
        return x.abs()

    return f, (torch.randn(3, dtype=torch.complex64),), {}


@program(data)
def zero_dimensional_input_mutated() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.add_(1)
        return x * w

    return f, (numbers(), leaf(3)), {}


@program(data)
def empty_input_mutated() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.add_(1)
        return x.sum() * w

    return f, (numbers(0, 3), leaf(3)), {}


@program(data)
def transposed_input_mutated() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.add_(1)
        return x * w

    return f, (numbers(4, 3).t(), leaf(3, 4)), {}


@program(data)
def channels_last_input_mutated() -> Made:
    def f(x: Tensor) -> Tensor:
        x.relu_()
        return x * 2

    return f, (numbers(2, 3, 4, 5).to(memory_format=torch.channels_last),), {}


@program(data, "raises")
def expanded_input_mutated_is_refused() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.add_(1)
        return x * w

    return f, (numbers(1, 3).expand(4, 3), leaf(3)), {}


@program(data, "raises")
def input_saved_then_mutated() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        before = x * w
        x.sub_(1)
        return before + x

    return f, (numbers(3, 4), leaf(4)), {}


@program(data)
def input_read_by_what_saves_nothing_then_mutated() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        before = x + w
        x.sub_(1)
        return before * x

    return f, (numbers(3, 4), leaf(4)), {}


@program(data)
def input_mutated_through_a_view() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x[1:].t().mul_(3)
        return x.sum(0) * w

    return f, (numbers(3, 4), leaf(4)), {}


@program(data)
def inner_input_mutated_through_a_view() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x[1:].t().mul_(3)
        return x.sum(0) * w

    return f, (inner(3, 4), leaf(4)), {}


@program(data)
def input_mutated_through_two_views() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x[0].add_(1)
        x[:, 1].mul_(2)
        return x * w

    return f, (numbers(3, 4), leaf(4)), {}


@program(data)
def input_overwritten_unread() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.zero_()
        return w * 2

    return f, (numbers(3), leaf(3)), {}


@program(data)
def input_overwritten_by_another() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.copy_(w)
        return x * 2

    return f, (inner(3), leaf(3)), {}


@program(data)
def input_copied_from_another_dtype() -> Made:
    def f(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        x.copy_(y)
        return x * w

    return f, (numbers(3), integers(3), leaf(3)), {}


@program(data)
def input_copied_from_a_broadcast() -> Made:
    def f(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        x.copy_(y)
        return x * w

    return f, (numbers(4, 3), numbers(3), leaf(3)), {}


@program(data)
def input_mutated_twice() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.add_(1)
        x.mul_(2)
        return x * w

    return f, (numbers(3), leaf(3)), {}


@program(data)
def inner_input_mutated_twice() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.add_(1)
        x.mul_(2)
        return x * w

    return f, (inner(3), leaf(3)), {}


@program(data)
def input_mutated_then_restored() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        kept = x.clone()
        x.mul_(2)
        y = x + w
        x.copy_(kept)
        return y

    return f, (numbers(3), leaf(3)), {}


@program(data)
def two_inputs_exchanged() -> Made:
    def f(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        kept = x.clone()
        x.copy_(y)
        y.copy_(kept)
        return (x - y) * w

    return f, (numbers(3), numbers(3), leaf(3)), {}


@program(data)
def all_of_a_list_of_inputs_mutated() -> Made:
    def f(tensors: list[Tensor], w: Tensor) -> Tensor:
        torch._foreach_add_(tensors, 1.0)
        torch._foreach_mul_(tensors, 2.0)
        return tensors[0] * w

    return f, ([numbers(3), numbers(4)], leaf(3)), {}


@program(data)
def slice_of_an_input_assigned() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x[0] = 0
        x[1:, ::2] = w.detach()[:2]
        return x * w

    return f, (numbers(3, 4), leaf(4)), {}


@program(data)
def slice_of_an_inner_input_assigned() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x[0] = w
        return x * 2

    return f, (inner(3, 4), leaf(4)), {}


@program(data)
def masked_elements_of_an_input_assigned() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x[x > 0] = -1.0
        return x + w

    return f, (numbers(3, 4), leaf(4)), {}


@program(data)
def duplicate_indices_accumulated_into_an_input() -> Made:
    def f(x: Tensor, values: Tensor, w: Tensor) -> Tensor:
        x.index_put_((torch.tensor([0, 2, 0]),), values, accumulate=True)
        return x * w

    return f, (numbers(3), numbers(3), leaf(3)), {}


@program(data)
def scatter_add_into_an_inner_input() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.scatter_add_(0, torch.tensor([[0, 1, 0, 2]]), w)
        return x * 2

    return f, (inner(3, 4), leaf(1, 4)), {}


@program(data)
def input_filled_with_random_numbers() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.normal_()
        return x * w

    return f, (numbers(5), leaf(5)), {}


@program(data)
def inner_input_mutated_before_its_use_outside() -> Made:
    """The gradient of the leaves behind it is that of the new value."""

    def f(x: Tensor, w: Tensor) -> None:
        x.mul_(w)

    return f, (inner(3), leaf(3)), {}


def _use_afterwards(f: Callable[..., Any], x: Tensor, w: Tensor) -> Tensor:
    f(x, w)
    return x.sin()


@program(data, scenario=_use_afterwards)
def what_a_call_wrote_is_differentiated_by_the_caller() -> Made:
    def f(x: Tensor, w: Tensor) -> None:
        x.mul_(w)

    return f, (inner(3), leaf(3)), {}


def _two_calls(f: Callable[..., Any], x: Tensor, w: Tensor) -> Tensor:
    y = x.clone()
    return f(y, w) + f(y, w)


@program(data, "raises", scenario=_two_calls)
def an_input_mutated_by_two_calls_before_backward() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.add_(w)
        return x.sin()

    return f, (inner(3), leaf(3)), {}


@program(data, "raises")
def mutation_of_a_leaf_is_refused() -> Made:
    def f(w: Tensor) -> Tensor:
        w.add_(1)
        return w * 2

    return f, (leaf(3),), {}


@program(data, "raises")
def mutation_of_a_view_of_a_leaf_is_refused() -> Made:
    def f(w: Tensor) -> Tensor:
        w[0].add_(1)
        return w * 2

    return f, (leaf(3),), {}


@program(data)
def out_argument_is_an_input() -> Made:
    def f(x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        torch.add(x, y, out=out)
        return out * 2

    return f, (numbers(3), numbers(3), numbers(3)), {}


@program(data)
def out_argument_is_a_view_of_an_input() -> Made:
    def f(x: Tensor, out: Tensor) -> Tensor:
        torch.mul(x, 2, out=out[1])
        return out * 2

    return f, (numbers(3), numbers(2, 3)), {}


@program(data)
def out_argument_is_returned() -> Made:
    def f(x: Tensor, out: Tensor) -> Tensor:
        return torch.sin(x, out=out)

    return f, (numbers(3), numbers(3)), {}


hidden = "hidden-mutation"


@program(hidden)
def input_mutated_in_no_grad() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        with torch.no_grad():
            x.add_(1)
        return x * w

    return f, (numbers(3), leaf(3)), {}


@program(hidden)
def input_begins_to_require_grad_by_a_view_taken_in_no_grad() -> Made:
    """The view is autograd's of its base: what is written with it requires grad, and no gradient gets to the base."""

    def f(x: Tensor, total: Tensor, last: Tensor) -> Tensor:
        with torch.no_grad():
            row = x[0]
        total.add_(row)
        last.copy_(row)
        return last * 2

    return f, (inner(3, 4), numbers(4), numbers(4)), {}


@program(hidden)
def leaf_mutated_in_no_grad() -> Made:
    def f(w: Tensor) -> Tensor:
        with torch.no_grad():
            w.mul_(2)
        return w * 3

    return f, (leaf(3),), {}


@program(hidden)
def inner_input_mutated_in_no_grad() -> Made:
    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            x.mul_(2)
        return x * 3

    return f, (inner(3),), {}


@program(hidden)
def inner_input_mutated_in_no_grad_and_outside() -> Made:
    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            x.mul_(2)
        x.add_(1)
        return x * 3

    return f, (inner(3),), {}


@program(hidden)
def input_mutated_through_data() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.data.add_(1)
        return x * w

    return f, (numbers(3), leaf(3)), {}


@program(hidden)
def leaf_mutated_through_data() -> Made:
    def f(w: Tensor) -> Tensor:
        w.data.mul_(2)
        return w * w

    return f, (leaf(3),), {}


class Experts(nn.Module):
    """Moves each of its parts to the input's device before it is used, where each is already."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for expert in self.experts:
            expert.to(x.device, x.dtype)
            x = expert(x).relu()
        return x


@program(hidden)
def parameters_set_to_themselves() -> Made:
    return Experts(), (leaf(3, 4),), {}


@program(hidden)
def leaf_saved_then_mutated_through_data() -> Made:
    """Eager's backward reads the new value: nothing tells it that the saved one is gone."""

    def f(w: Tensor) -> Tensor:
        y = w * w
        w.data.mul_(2)
        return y

    return f, (leaf(3),), {}


@program(hidden, "raises")
def leaf_saved_then_mutated_in_no_grad() -> Made:
    def f(w: Tensor) -> Tensor:
        y = w * w
        with torch.no_grad():
            w.mul_(2)
        return y

    return f, (leaf(3),), {}


@program(hidden)
def leaf_mutated_through_detach() -> Made:
    def f(w: Tensor) -> Tensor:
        w.detach().mul_(2)
        return w * 3

    return f, (leaf(3),), {}


@program(hidden)
def input_mutated_in_inference_mode() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        with torch.inference_mode():
            x.add_(1)
        return x + w

    return f, (numbers(3), leaf(3)), {}


def _once_in_inference_mode(f: Callable[..., Any], x: Tensor) -> Tensor:
    with torch.inference_mode():
        y = f(x)
    with torch.no_grad():
        return f(y)  # type: ignore[no-any-return]


@program(hidden, "raises", scenario=_once_in_inference_mode)
def inference_tensor_mutated_outside_by_what_was_compiled_within() -> Made:
    """No guard of the front end tells the two calls apart; eager refuses the second."""

    def f(x: Tensor) -> Tensor:
        x[1:].add_(1)
        return x * 2

    return f, (numbers(3),), {}


@program(hidden)
def leaf_mutated_in_inference_mode() -> Made:
    def f(w: Tensor) -> Tensor:
        with torch.inference_mode():
            w.mul_(2)
        return w + 1

    return f, (leaf(3),), {}


@program(data)
def batch_norm_updates_its_buffers() -> Made:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU())
    return model, (numbers(8, 4),), {}


class Counter(nn.Module):
    """Counts its calls in a buffer that it writes, and sums its inputs in one that it replaces."""

    calls: Tensor
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros(3))
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.total = self.total + x.detach().sum(0)
        return x * self.weight * self.calls


@program(data)
def buffer_counts_calls_and_another_is_replaced() -> Made:
    return Counter(), (numbers(2, 3),), {}


class Memory(nn.Module):
    """Replaces its buffers: by a view of its result, by one that is longer each time, and by one with a history."""

    last: Tensor
    seen: Tensor
    sums: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(2, 3))
        self.register_buffer("seen", torch.zeros(1, 3))
        self.register_buffer("sums", None)
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.weight + self.last[0]
        self.sums = y.sum() * 2
        self.seen = torch.cat([self.seen[-2:], y.detach()[:1]])
        self.last = y.detach()
        return y


@program(data)
def buffers_replaced_by_a_view_a_longer_one_and_one_with_a_history() -> Made:
    return Memory(), (numbers(2, 3),), {}


class Counting(nn.Module):
    """Counts its calls in a plain number."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.weight * (self.calls % 2 + 1)


@program(data)
def module_counts_its_calls_in_a_number() -> Made:
    return Counting(), (numbers(2, 3),), {}


class Descent(nn.Module):
    """Moves its own parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.sub_(x.mean(0), alpha=0.1)
        return x * self.weight


@program(hidden)
def parameter_updated_in_forward() -> Made:
    return Descent(), (numbers(2, 3),), {}


@program(hidden)
def optimizer_step_on_parameters_and_state() -> Made:
    """Adam by hand: every tensor is written, none is returned."""

    def f(parameter: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, count: Tensor) -> None:
        with torch.no_grad():
            count.add_(1)
            mean.lerp_(gradient, 0.1)
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            parameter.addcdiv_(mean, square.sqrt().add_(1e-8), value=-0.01)

    return f, (leaf(3), numbers(3), torch.zeros(3), torch.ones(3), torch.zeros(())), {}


class WritesInBackward(torch.autograd.Function):
    """Counts its backwards in one of its inputs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, counter: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.counter = counter
        return x.sin()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        ctx.counter.add_(1)
        return gradients[0] * x.cos(), None


@program("backward-mutation", modes=("train",))
def input_mutated_in_backward() -> Made:
    def f(w: Tensor, counter: Tensor) -> Tensor:
        return WritesInBackward.apply(w, counter)

    return f, (leaf(3), torch.zeros(())), {}


class WritesWhatItSaved(torch.autograd.Function):
    """Overwrites its own saved output in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y.clone())
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        y.mul_(gradients[0])
        return y


@program("backward-mutation", modes=("train",))
def saved_tensor_mutated_in_backward() -> Made:
    def f(w: Tensor) -> Tensor:
        return WritesWhatItSaved.apply(w)

    return f, (leaf(3),), {}


class WritesItsGradient(torch.autograd.Function):
    """Doubles the incoming gradient in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].mul_(2)


@program("backward-mutation", modes=("train",))
def incoming_gradient_mutated_in_backward() -> Made:
    def f(w: Tensor) -> Tensor:
        return WritesItsGradient.apply(w).sin()

    return f, (leaf(3),), {}


def _with_gradients_of_the_callers(f: Callable[..., Any], *args: Tensor) -> Any:
    """The gradients that the caller gives, whole and by columns, as they are after backward."""
    results = [y for y in pytree.tree_leaves(f(*args)) if y.requires_grad]
    whole = [torch.full(y.shape, 3.0) for y in results]
    lying = [torch.full(y.shape[::-1], 2.0).permute(*reversed(range(y.dim()))) for y in results]
    made = [torch.autograd.grad(results, args, given, retain_graph=True) for given in (whole, lying)]
    return whole, lying, [each._version for each in (*whole, *lying)], made


@program("backward-mutation", modes=("train",), scenario=_with_gradients_of_the_callers)
def gradient_of_the_callers_mutated_in_backward() -> Made:
    return lambda w: WritesItsGradient.apply(w), (leaf(3, 2),), {}


@program("backward-mutation", modes=("train",), scenario=_with_gradients_of_the_callers)
def gradient_of_the_callers_mutated_through_views() -> Made:
    return lambda w: WritesItsGradient.apply(w.t()).t()[1:], (leaf(3, 2),), {}


@program("backward-mutation", modes=("train",), scenario=_with_gradients_of_the_callers)
def gradients_of_the_callers_of_which_one_is_mutated() -> Made:
    return lambda w, v: (WritesItsGradient.apply(w), (w * v).sin()), (leaf(3, 2), leaf(3, 2)), {}


@program("backward-mutation", modes=("train",), scenario=_with_gradients_of_the_callers)
def gradient_of_the_callers_mutated_after_it_was_handed_on() -> Made:
    """The sum gives both of its operands the very gradient that it is given."""
    return lambda w: WritesItsGradient.apply(w) + w.detach(), (leaf(3, 2),), {}


@program(data, modes=("train",))
def every_other_element_mutated_that_backward_reads() -> Made:
    def f(x: Tensor) -> Tensor:
        x.abs_()
        return x * 2

    return f, (inner(9)[::2],), {}


@program(data, modes=("train",))
def column_of_an_inner_input_mutated_that_backward_reads() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.mul_(w)
        return x

    return f, (inner(5, 4)[:, 1], leaf(5)), {}


@program(data, "raises")
def bool_mutated_by_a_number_that_it_cannot_hold() -> Made:
    def f(x: Tensor) -> Tensor:
        (x > 0).mul_(-1)
        return x * 2

    return f, (numbers(3),), {}


def _with_gaps() -> Tensor:
    return numbers(8, 6)[:, 1:]


@program(data)
def part_of_a_written_input_with_gaps_flattened() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        x.mul_(x)
        return x[:4].flatten(), x.chunk(2)[1].reshape(2, 10), x.t().reshape(-1)

    return f, (_with_gaps(),), {}


@program(data)
def views_of_a_written_input_with_gaps() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        x.mul_(x)
        return x[0].view(-1), x.view(2, 4, 5), x.unsqueeze(0).view(1, 8, 5), x.unfold(0, 2, 2)

    return f, (_with_gaps(),), {}


@program(data)
def parts_of_a_view_incremented() -> Made:
    """Each increment ends in a copy of a part to where it is. The view begins behind its storage."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        x[1:4] += 1
        x[::2] *= 2
        return x * w

    return f, (inner(12)[2:9], leaf(7)), {}


disjoint = "disjoint"


@program(disjoint)
def column_mutated_by_its_neighbour() -> Made:
    def f(v: Tensor) -> Tensor:
        v[:, :, 1].mul_(v[:, :, 0])
        return v + 1

    return f, (numbers(2, 3, 4),), {}


@program(disjoint)
def even_columns_mutated_by_the_odd_ones() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = x * w
        y[:, ::2].add_(y[:, 1::2])
        return y

    return f, (numbers(3, 6), leaf(6)), {}


@program(disjoint)
def half_copied_onto_the_other() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x[:, :3].copy_(x[:, 3:])
        return x * w

    return f, (numbers(3, 6), leaf(6)), {}


@program(disjoint)
def column_mutated_by_two_others() -> Made:
    def f(v: Tensor) -> Tensor:
        v[:, 1].addcmul_(v[:, 0], v[:, 2])
        return v * 2

    return f, (integers(3, 4),), {}


@program(disjoint)
def rows_mutated_by_their_neighbours() -> Made:
    """The sizes are symbols where shapes are dynamic, and so are the strides and the distance of the parts."""

    def f(v: Tensor) -> Tensor:
        v[0].mul_(v[1])
        v[1, :, 1].add_(v[0, :, 1])
        return v * 2

    return f, (numbers(2, 3, 4),), {}


@program(disjoint)
def rows_mutated_by_rows_that_they_overlap() -> Made:
    """Element by element, in an order that is the kernel's own."""

    def f(x: Tensor) -> Tensor:
        x[:, 2:].copy_(x[:, :-2].clone())
        return x + 1

    return f, (numbers(3, 6),), {}


def _with_sizes_of_the_data(f: Callable[..., Any], *args: Tensor) -> Any:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        return f(*args)


@program("sizes-of-the-data", scenario=_with_sizes_of_the_data)
def elements_found_by_argwhere_mutated() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        found = torch.argwhere(x > 0)
        y[found[:, 0], found[:, 1]] = 1.0
        return y * 2

    return f, (numbers(3, 4), numbers(3, 4)), {}


@program("sizes-of-the-data", scenario=_with_sizes_of_the_data)
def elements_found_by_argwhere_added_to() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        rows, columns = torch.argwhere(x > 0).unbind(1)
        y = x * w
        y[rows, columns] += 1.0
        return y

    return f, (numbers(3, 4), leaf(4)), {}


@program("sizes-of-the-data", scenario=_with_sizes_of_the_data)
def column_found_by_argwhere_mutated_by_the_other() -> Made:
    def f(x: Tensor) -> Tensor:
        found = torch.argwhere(x > 0)
        found[:, 0].mul_(4).add_(found[:, 1])
        return found

    return f, (numbers(3, 4),), {}
