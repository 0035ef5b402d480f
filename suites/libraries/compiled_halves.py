"""Packages whose compiled half was built for another torch: their Python half, which the models are, works without.

The wheels of torchvision and torchaudio on the index are built beside the CUDA build of torch. Beside a CPU build
their shared objects do not load.
"""

from __future__ import annotations

import functools
import sys
from importlib.util import find_spec
from pathlib import Path

import torch

SUPPRESSION = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
UNLOADABLE = ("_torchaudio*.so", "libtorchaudio*.so")


@functools.cache
def declare_torchvision() -> torch.library.Library | None:
    """Declares the operators for which torchvision registers fakes on import, where its shared object does not load.

    They have no kernels: a model that calls one fails. The library is kept alive by the cache.
    """
    folder = _folder("torchvision")
    if folder is None or "torchvision" in sys.modules or _loads(folder):
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}{SUPPRESSION}")
    return library


def drop_torchaudio() -> list[Path]:
    """Deletes the shared objects of an installed torchaudio that do not load; without them it imports."""
    folder = _folder("torchaudio")
    if folder is None:
        return []
    found = [path for pattern in UNLOADABLE for path in (folder / "lib").glob(pattern)]
    dropped = [path for path in found if not _is_loadable(path)]
    for path in dropped:
        path.unlink()
    return dropped


def _folder(package: str) -> Path | None:
    spec = find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _loads(folder: Path) -> bool:
    return any(_is_loadable(path) for path in folder.glob("_C*.so"))


def _is_loadable(path: Path) -> bool:
    try:
        torch.ops.load_library(path)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    print(f"without their shared objects: {', '.join(path.name for path in drop_torchaudio()) or 'none'}")
