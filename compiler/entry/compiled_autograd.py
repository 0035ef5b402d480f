"""Front door for backwards: `with compiled_autograd(options): loss.backward()`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from assay.compiler.assembly.whole_backward import compiling
from assay.compiler.entry.dynamo import own_compilers
from assay.compiler.options import Options


@contextmanager
def compiled_autograd(options: Mapping[str, object] | None = None) -> Iterator[None]:
    """While it is entered, each backward is recorded as the engine would run it, compiled, kept and run.

    It nests. What cannot be recorded runs in eager, which is counted and said once.

    Raises: OptionError for an option that does not exist.
    """
    with compiling(Options.of(options, None), own_compilers):
        yield
