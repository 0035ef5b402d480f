"""A test that uses the plugin for pytest, as a case: what the test hands to `same_as_eager` is the case's call.

    assay repro tests/test_layers.py::test_my_layer --backend mine

The test is run by pytest up to that call, each time that the case is made.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from assay.harness.captor import Captor, test_and_number
from assay.harness.case import Case, Made

PLUGIN = ("-p", "no:assay", "-p", "assay.harness.pytest_plugin", "-p", "no:cacheprovider")
"""The plugin by its module: where the package is installed, its entry point would load it a second time."""


class NotATest(Exception):
    """What is no test that hands something to `same_as_eager`; the message says why."""


def case_of_test(path: Path, name: str) -> Case:
    """The case of a test's call of the fixture: its first one, or that of `NAME (call 2)`. Raises: NotATest."""
    made = made_by_test(path, name)
    return Case(
        f"{path.name}::{name}", lambda: made_by_test(path, name), (mode_of(*made),), (), ("tiny",), f"{path}::{name}"
    )


def made_by_test(path: Path, name: str) -> Made:
    """The callable and the arguments that a test makes. Raises: NotATest."""
    test, number = test_and_number(name)
    captor, said = Captor(number), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        pytest.main([f"{path}::{test}", "-q", *PLUGIN], plugins=[captor])
    if captor.call is None:
        lines = [line for line in said.getvalue().splitlines() if line.strip()]
        raise NotATest(f"{path}::{name} hands nothing to `same_as_eager`: {' '.join(lines[-3:])[-300:]}")
    return captor.call


def mode_of(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Training where the function's parameters or its arguments require gradients."""
    given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    own = list(function.parameters()) if isinstance(function, torch.nn.Module) else []
    return "train" if any(tensor.requires_grad for tensor in (*given, *own)) else "infer"
