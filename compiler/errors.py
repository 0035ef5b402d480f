"""Every error that the compiler raises.

AssayError
├── OptionError (also ValueError)        an option or keyword that does not exist, or a value that it does not take
├── Unsupported (also NotImplementedError)   a program that the compiler cannot take; the message says what and why
│   ├── ExportError                      a program that an exported graph cannot say; each ban has its message in BANS
│   └── Unexpected                       no limit declares it: the program's own error, or a bug of the compiler
├── BuildError (also RuntimeError)       the system's C++ compiler failed on generated code
├── InputMismatch (also RuntimeError)    a compiled graph was called with inputs that it was not compiled for
│   ├── WrongCount (also TypeError, ValueError)   more of them than it takes, or fewer
│   └── BrokenAssumption (also AssertionError)   one that it would be compiled again for, did `debug_assert` not ask
├── HookError (also RuntimeError)        a hook on saved tensors that is a graph and does what no such hook may
├── VerifyError (also AssertionError)    an intermediate state broke its own rules: a bug of the compiler
├── CacheError (also RuntimeError)       the cache directory cannot be used
└── Unkeyed (also ValueError)            a compile that the cache cannot tell from all others; it is done afresh
"""

from __future__ import annotations


class AssayError(Exception):
    """Base of all errors that the compiler raises."""


class OptionError(AssayError, ValueError):
    """An option or keyword that does not exist, or a value that it does not take."""

    @staticmethod
    def refused(keyword: str) -> OptionError:
        """The error of a keyword of torch's whose given value cannot be acted on."""
        return OptionError(f"assay: {REFUSED[keyword]}")


REFUSED = {
    "serializable": (
        "serializable=True is not taken: what calls the graphs is a Python function of this process; leave it out"
    ),
    "layout_opt": (
        "layout_opt=True is not taken by compile_fx_inner: a graph's values lie as its nodes say; compile the model "
        "through torch.compile, where layouts are chosen"
    ),
    "cpp_wrapper": "cpp_wrapper=True is not taken: what calls the kernels is a Python function; leave it out",
    "fx_wrapper": "fx_wrapper=True is not taken: what calls the kernels is a Python function, no graph; leave it out",
    "aot_mode": "aot_mode=True is not taken: no graph is packaged for use without Python; leave it out",
    "extern_node_serializer": (
        "extern_node_serializer is not taken: graphs are built for this process alone; leave it out"
    ),
}


class Unsupported(AssayError, NotImplementedError):
    """A program that the compiler cannot take."""


class Unexpected(Unsupported):
    """An error that no limit of the compiler declares. It is the program's own where eager raises too, and else a bug
    of the compiler. `__cause__` is what was raised; `in_backward` says that it was while gradients were recorded."""

    def __init__(self, message: str, in_backward: bool = False) -> None:
        super().__init__(message)
        self.in_backward = in_backward


class ExportError(Unsupported):
    """A program that an exported graph cannot say."""

    @staticmethod
    def because(ban: str, **facts: object) -> ExportError:
        """The error of one ban, its message filled in with the facts of the case."""
        return ExportError(BANS[ban].format(**facts))


BANS = {
    "unsupported": "{reason}, at {place}: no exported graph can say this",
    "metadata": (
        "{input} has its {what} changed in place ({old} to {new}): an exported graph returns new data of an input, "
        "not new metadata; change a view or a copy of it instead, as in x = x.view(...) or x = x.clone()"
    ),
    "storage": (
        "{input} has its memory replaced (as by set_ or .data = ...): an exported graph returns new data of an input, "
        "not new memory; write it with copy_ instead"
    ),
    "written_gradient": (
        "{input} requires grad and is written in place: the gradients of a joint graph are of the inputs as they "
        "were given; write to a copy, or detach the input before the call"
    ),
    "duplicate": (
        "{input} is written and is the same tensor as {other}: in the exported graph they are two inputs, and the "
        "write would reach only one; pass a copy for one of them"
    ),
    "overlap": (
        "{input} is written and shares memory with {other}: in the exported graph they are two inputs, and the "
        "write would not reach the other; pass a copy of one of them"
    ),
    "grad_mode": (
        "the forward leaves gradients switched {state}: an exported graph changes no mode; switch them with a context "
        "manager, which puts them back"
    ),
    "attribute": (
        "the forward assigns tensors to {names}: nothing outside of the module learns of it; register each as a "
        "buffer, which an exported graph returns, or return the tensor"
    ),
    "number": (
        "the forward assigns a number, a flag or a text to {names}: nothing outside of the module learns of it, and "
        "a recording knows one value alone; keep it in a buffer"
    ),
    "registered": "the forward adds or removes the parameter or buffer {name!r}: do that before the export",
    "parameter_assigned": (
        "the forward assigns the parameter {name!r}: an exported graph returns new values of buffers only; make it a "
        "buffer, or write it in place under no_grad with trace_joint=False"
    ),
    "buffer_assigned": (
        "the forward replaces the buffer {name!r} by a tensor with another {what} ({old}, then {new}): its new value "
        "cannot be written into it; register the buffer with the {what} that it is to have"
    ),
    "no_loss_index": (
        "trace_joint=True needs a loss: say with output_loss_index which of the module's {count} outputs it is"
    ),
    "loss_index": "output_loss_index={index} is none of the module's outputs, of which there are {count}",
    "loss_not_tensor": "the loss, output {index}, is a {found}: it must be a tensor of one element",
    "loss_not_scalar": (
        "the loss, output {index}, has shape {shape}: it must have one element; reduce it in the module, with sum() or "
        "mean()"
    ),
    "loss_without_gradient": (
        "the loss, output {index}, does not require grad: nothing that it is computed from does, or it was detached"
    ),
    "other_gradient": (
        "output {index} requires grad and is not the loss (output {loss}): the joint graph differentiates only the "
        "loss; return output {index} detached"
    ),
    "no_gradient": (
        "{input} requires grad and the loss does not depend on it, so it has no gradient to return; use it, or "
        "call requires_grad_(False) on it"
    ),
    "pre_dispatch": (
        "pre_dispatch=True takes no trace_joint=True: gradients are recorded below autograd, where composite operators "
        "are taken apart already; export with one of the two"
    ),
    "effect_inside": (
        "a function given to {operator} has an effect, as a print: the tokens of an exported graph order only effects "
        "of the graph itself; call it outside of the function"
    ),
    "nested_inputs": (
        "{what} is a {found}: aot_export_joint_simple takes one flat tuple or list of arguments, none inside another"
    ),
    "nested_results": (
        "the function returns {found}: aot_export_joint_simple takes functions that return one flat tuple or list"
    ),
    "written": "{input} is written in place: aot_export_joint_simple takes functions that write no argument; clone it",
    "aliased_result": (
        "output {index} shares memory with {input}: aot_export_joint_simple takes functions whose results are their "
        "own; return a clone"
    ),
}


class BuildError(AssayError, RuntimeError):
    """The system's C++ compiler failed on generated code."""


class InputMismatch(AssayError, RuntimeError):
    """A compiled graph was called with inputs that it was not compiled for."""


class WrongCount(InputMismatch, TypeError, ValueError):
    """More inputs than a graph takes, or fewer. Torch's own doors raise a TypeError or a ValueError."""


class BrokenAssumption(InputMismatch, AssertionError):
    """A call that the graph would be compiled again for, where torch's `debug_assert` asks for an error instead."""


class HookError(AssayError, RuntimeError):
    """A hook on saved tensors that is a graph, and that writes what it is given or gives back something else."""


class WrapperPacked(HookError, NotImplementedError):
    """A packing hook that is a graph, and that returns a tensor of a class with inner tensors."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"a packing hook that is a graph returns a {kind}, whose inner tensors no graph keeps as one value; return "
            "the inner tensors as a tuple and put them together in the unpacking hook, or give hooks that are plain "
            "functions, which run around the call"
        )


class VerifyError(AssayError, AssertionError):
    """An intermediate state broke its own rules: a bug of the compiler, never of the user's program."""


class CacheError(AssayError, RuntimeError):
    """The cache directory cannot be used."""


class Unkeyed(AssayError, ValueError):
    """A compile that depends on something with no text, or whose result has none: the cache takes no part in it."""
