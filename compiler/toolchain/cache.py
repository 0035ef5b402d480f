"""Shared objects on disk by the content of what they were made from; and compiled calls, by what they depend on.

    key = sha256(sources, flags, compiler version, machine features)        <cache>/<key>.so
    key = fingerprint of the graph, its inputs and all around them          <cache>/<key>.call
    key = sha256(the machine code of a GPU's kernel)                         <cache>/<key>.cubin

A file is written under another name in the same directory and renamed, so that any number of processes may fill one
cache. Each carries the digest of its content at its end: a truncated or altered one is never loaded, but built again.
A directory that cannot be used costs one warning and a temporary directory, never an answer.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from assay.compiler.errors import CacheError

DIGEST_BYTES = 32


@functools.cache
def machine_features() -> str:
    """What `-march=native` depends on: the architecture and the processor's model and features."""
    wanted = ("flags", "model name", "Features", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    kept = {line for line in lines if line.split("\t")[0].split(":")[0].strip() in wanted}
    return "\n".join([platform.machine(), platform.processor(), *sorted(kept)])


def device_features(device: int) -> str:
    """What code for a GPU and the library's choices for it depend on."""
    found = torch.cuda.get_device_properties(device)
    return f"{found.name} {found.major}.{found.minor} {found.multi_processor_count} {found.total_memory}"


def key_of(sources: Sequence[str], *facts: str) -> str:
    """The name of what is built from `sources` under `facts` (flags, compiler version) on this machine."""
    digest = hashlib.sha256()
    for part in (machine_features(), *facts, *sources):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:40]


def fetch(directory: str, key: str, make: Callable[[Path], object], kind: str = "so") -> Path:
    """The file of `key`, of a kind: from the cache if it is there and whole, else made by `make(path)` and kept.

    Raises: what `make` raises.
    """
    try:
        return _fetch(_usable(directory), f"{key}.{kind}", make)
    except CacheError as error:
        _warn_once(f"{error}; kernels are compiled in a temporary directory and not kept")
        return _fetch(_temporary(), f"{key}.{kind}", make)


def _fetch(folder: Path, name: str, make: Callable[[Path], object]) -> Path:
    path = folder / name
    return path if _is_whole(path) else _fill(folder, path, make)


def _usable(directory: str) -> Path:
    """The directory, made if need be.

    Raises: CacheError where files cannot be made in it.
    """
    folder = Path(directory)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, probe = tempfile.mkstemp(prefix="probe-", dir=folder)
        os.close(handle)
        os.unlink(probe)
    except OSError as error:
        raise CacheError(f"assay: the cache directory {directory!r} cannot be used ({error})") from error
    return folder


@functools.cache
def _warn_once(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)


@functools.cache
def _temporary() -> Path:
    holder = tempfile.TemporaryDirectory(prefix="assay-")
    _HOLDERS.append(holder)
    return Path(holder.name)


_HOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def find(directory: str, key: str) -> Path | None:
    """The shared object of `key`, if the cache holds it whole."""
    path = Path(directory) / f"{key}.so"
    return path if _is_whole(path) else None


def read(directory: str, key: str, kind: str = "call") -> bytes | None:
    """What was kept of a kind under `key`; None where nothing was, or it is damaged."""
    return _whole(Path(directory) / f"{key}.{kind}")


def keep(directory: str, key: str, data: bytes) -> None:
    """Keeps the call of `key`, in place of an earlier one. A directory that cannot be used costs one warning."""
    try:
        folder = _usable(directory)
        _fill(folder, folder / f"{key}.call", lambda path: path.write_bytes(data))
    except CacheError as error:
        _warn_once(f"{error}; compiled calls are not kept")


def _is_whole(path: Path) -> bool:
    return _whole(path) is not None


def _whole(path: Path) -> bytes | None:
    """The content of a file that ends with the digest of what is before; warns of one that does not."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        _warn_once(f"assay: the cache entry {path} cannot be read ({error}); it is compiled again")
        return None
    content = data[:-DIGEST_BYTES]
    if content and hashlib.sha256(content).digest() == data[-DIGEST_BYTES:]:
        return content
    _warn_once(f"assay: the cache entry {path} is damaged; it is compiled again")
    return None


def _fill(folder: Path, path: Path, make: Callable[[Path], object]) -> Path:
    handle, name = tempfile.mkstemp(prefix="new-", suffix=path.suffix, dir=folder)
    os.close(handle)
    fresh = Path(name)
    try:
        make(fresh)
        data = fresh.read_bytes()
        fresh.write_bytes(data + hashlib.sha256(data).digest())
        fresh.chmod(0o700)
        os.replace(fresh, path)
    except BaseException as error:
        fresh.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise CacheError(f"assay: the cache entry {str(path)!r} cannot be written ({error})") from error
        raise
    return path
