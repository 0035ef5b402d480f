"""How a program out of another package becomes a case.

A row imports its package inside its function, so that the suite can be listed where none of them is installed. Making
a row whose package is missing fails by name; the harness reports it as `no-oracle`, never as a pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.util import find_spec

from assay.harness.case import MODES, Case, Made, case
from assay.suites.libraries.compiled_halves import declare_torchvision

Make = Callable[[], Made]


class MissingPackage(ModuleNotFoundError):
    """A package of `suites/libraries/requirements.txt` that is not installed."""


def library(package: str, *, modes: tuple[str, ...] = MODES, tags: tuple[str, ...] = ()) -> Callable[[Make], Case]:
    """Declares a row: a function that makes `(callable, args, kwargs)` with the import name `package`.

    The case is named `PACKAGE_FUNCTION`, and its package is its first tag.
    """

    def declare(make: Make) -> Case:
        return row(package, make.__name__, make, modes=modes, tags=tags)

    return declare


def row(package: str, model: str, make: Make, *, modes: tuple[str, ...] = MODES, tags: tuple[str, ...] = ()) -> Case:
    """The case `PACKAGE_MODEL`, for rows that are made out of a table."""

    @functools.wraps(make)
    def checked() -> Made:
        require(package)
        declare_torchvision()
        return make()

    return case(name=f"{package}_{model}", modes=modes, tags=(package, *tags))(checked)


def require(package: str) -> None:
    """Raises: MissingPackage where `package` is not installed; the message says how to get it."""
    if find_spec(package) is None:
        raise MissingPackage(f"this row needs the package {package}; `tox -e libraries` installs it")
