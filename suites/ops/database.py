"""The databases that ship in torch. They import a package for the name of one class, in tests that nobody runs here.
Where it is not installed, an empty one stands in for it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def load(module: str) -> Any:
    """A module of `torch.testing._internal`."""
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    with warnings.catch_warnings(), _kept_settings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"torch.testing._internal.{module}")


@contextmanager
def _kept_settings() -> Iterator[None]:
    """Importing torch's tests loads a profile of Hypothesis for all that runs after it, which this undoes."""
    if importlib.util.find_spec("hypothesis") is None:
        yield
        return
    settings = importlib.import_module("hypothesis").settings
    profile = settings.get_current_profile_name()
    yield
    settings.load_profile(profile)


def _unseeded(operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return operator(*args, **kwargs)


methods = load("common_methods_invocations")
sets_seed = methods.wrapper_set_seed
methods.wrapper_set_seed = _unseeded
"""Operators that draw set a seed of their own, which no graph can hold. Here a run is seeded before it begins, so that
what they draw, and the state that they leave, can be held against eager's."""

core = load("opinfo.core")
op_db = methods.op_db
module_db = load("common_modules").module_db
optim_db = load("common_optimizers").optim_db
configurations = load("common_optimizers")._get_optim_inputs_including_global_cliquey_kwargs
autograd_function_db = load("autograd_function_db").autograd_function_db
