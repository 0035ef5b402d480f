"""Shared objects on disk by the content of what they were made from.

    key = sha256(sources, flags, compiler version, machine features)        <cache>/<key>.so

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

from compiler.errors import CacheError

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


def key_of(sources: Sequence[str], *facts: str) -> str:
    """The name of what is built from `sources` under `facts` (flags, compiler version) on this machine."""
    digest = hashlib.sha256()
    for part in (machine_features(), *facts, *sources):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:40]


def fetch(directory: str, key: str, make: Callable[[Path], object]) -> Path:
    """The file of `key`: from the cache if it is there and whole, else made by `make(path)` and kept.

    Raises: what `make` raises.
    """
    try:
        folder = _usable(directory)
    except CacheError as error:
        _warn_once(f"{error}; kernels are compiled in a temporary directory and not kept")
        folder = _temporary()
    path = folder / f"{key}.so"
    if _is_whole(path):
        return path
    return _fill(folder, path, make)


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


def _is_whole(path: Path) -> bool:
    """Whether the file is there and ends with the digest of what is before. One that is not whole is worth a warning."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    except OSError as error:
        _warn_once(f"assay: the cache entry {path} cannot be read ({error}); it is compiled again")
        return False
    if len(data) > DIGEST_BYTES and hashlib.sha256(data[:-DIGEST_BYTES]).digest() == data[-DIGEST_BYTES:]:
        return True
    _warn_once(f"assay: the cache entry {path} is damaged; it is compiled again")
    return False


def _fill(folder: Path, path: Path, make: Callable[[Path], object]) -> Path:
    handle, name = tempfile.mkstemp(prefix="new-", suffix=".so", dir=folder)
    os.close(handle)
    fresh = Path(name)
    try:
        make(fresh)
        data = fresh.read_bytes()
        fresh.write_bytes(data + hashlib.sha256(data).digest())
        fresh.chmod(0o700)
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    return path
