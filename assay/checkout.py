"""One module under two names: in a checkout, `import compiler.options` gives `assay.compiler.options`.

Python puts the current folder on the path, so that a checkout's four folders can be imported by their own names. Two
copies of a module would hold two caches, and two classes of one error.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType


class _Same(MetaPathFinder, Loader):
    """Finds `PACKAGE.x.y` as `assay.PACKAGE.x.y`."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{self.package}."):
            return None
        own = importlib.util.find_spec(f"assay.{fullname}")
        if own is None:
            return None
        self.specs[fullname] = own
        spec = ModuleSpec(fullname, self, origin=own.origin, is_package=own.submodule_search_locations is not None)
        spec.has_location = own.has_location
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(f"assay.{spec.name}")

    def exec_module(self, module: ModuleType) -> None:
        """The module has run under its own name. The import system has set its spec to that of the other name."""
        module.__spec__ = self.specs[module.__name__.removeprefix("assay.")]

    def get_code(self, fullname: str) -> CodeType | None:
        """What `python -m PACKAGE.x` runs."""
        own = importlib.util.find_spec(f"assay.{fullname}")
        loader = own.loader if own is not None else None
        return loader.get_code(f"assay.{fullname}") if isinstance(loader, InspectLoader) else None


def same_as_own(package: str) -> None:
    """Makes a package of a checkout, which is being imported by its own name, the one that lies under `assay`."""
    sys.meta_path.insert(0, _Same(package))
    sys.modules[package] = importlib.import_module(f"assay.{package}")
