"""C++ of our own over tiles (`compiler/kernels/tiles.h`): its sizes, and its functions, compiled when first needed."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import torch

from assay.compiler.errors import BuildError
from assay.compiler.options import Options
from assay.compiler.toolchain.launch import Function, load_text

ROWS, PANEL, SUMMED = 48, 64, 192
"""Rows of a block, columns that lie together, and products that are added up in one chain: a block of a library's."""
_SIZES = f"constexpr i64 ROWS = {ROWS}, PANEL = {PANEL}, SUMMED = {SUMMED};\n"


@functools.cache
def has_wide_vectors() -> bool:
    """Whether the processor has vectors of eight numbers, for which tiles are laid out."""
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


@functools.cache
def _read(name: str) -> str:
    return (Path(__file__).parent / name).read_text()


class Tiled:
    """The Python functions of a file beside `tiles.h`, after definitions of its own and after other files."""

    def __init__(self, file: str, functions: Sequence[Function], head: str = "", after: Sequence[str] = ()) -> None:
        self._file, self._functions, self._head, self._after = file, functions, head, after
        self._lock = threading.Lock()
        self._loaded: list[Callable[..., object]] = []

    def load(self) -> list[Callable[..., object]]:
        """Raises: BuildError where there is no C++ compiler, or it failed."""
        if not self._loaded:
            with self._lock:
                if not self._loaded:
                    files = ("tiles.h", *self._after, self._file)
                    text = _SIZES + self._head + "".join(map(_read, files))
                    self._loaded = load_text(text, self._functions, Options.of(None, None))
        return self._loaded

    def prepare(self) -> None:
        """Compiles them beside what the caller goes on to do."""
        if not self._loaded:
            threading.Thread(target=self._prepare, daemon=True, name=f"assay-{Path(self._file).name}").start()

    def _prepare(self) -> None:
        with suppress(BuildError):  # the first call raises it
            self.load()
