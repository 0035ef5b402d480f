"""Reads exceptions: what the program raised beneath what Dynamo wrapped around it, and whether a backend refused.

Dynamo raises classes of its own (`torch._dynamo.exc`). Only they are looked through, in three ways:

- The error of a backend that raised while compiling is the `inner_exception` of BackendCompilerFailed.
- An operator that failed on fake tensors names the class in the message, `got ValueError(...)`.
- Anything else is the `__cause__`.

An error that the program itself raised is compared by its class. A subclass of eager's class is the same error.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator

from torch._dynamo import exc

from assay.compiler.errors import Unsupported

GOT = re.compile(r"\bgot (\w+)\(")
ORIGINAL = re.compile(r"^(\w+(?:Error|Exception|Warning|Interrupt|Exit)): ", re.MULTILINE)


def name_of(error: BaseException) -> str:
    """The class of an error as a user would write it, with what is inside a wrapper."""
    inner = [type(found).__name__ for found in unwrapped(error)]
    return type(error).__name__ + (f" ({inner[-1]})" if inner[-1] != type(error).__name__ else "")


def unwrapped(error: BaseException) -> tuple[BaseException, ...]:
    """The error and what it wraps, from the outside in. Errors that Dynamo did not raise are not looked into."""
    chain = [error]
    while (inner := _inner(chain[-1])) is not None and inner not in chain:
        chain.append(inner)
    return tuple(chain)


def is_same_error(eager: BaseException, ours: BaseException) -> bool:
    """Whether the compiled program raised what eager raised: the same class, a subclass, or a wrapper of either."""
    innermost = unwrapped(ours)[-1]
    if isinstance(innermost, type(eager)) and not _is_compilers(ours):
        return True
    return type(eager).__name__ in _named(ours)


def is_refusal(error: BaseException) -> bool:
    """Whether a backend declined the program: `Unsupported`, Dynamo's own, or NotImplementedError while compiling."""
    chain = unwrapped(error)
    if any(isinstance(found, Unsupported | exc.Unsupported) for found in chain):
        return True
    return isinstance(chain[0], exc.BackendCompilerFailed) and isinstance(chain[-1], NotImplementedError)


def let_go(error: BaseException) -> None:
    """Frees what is held by the frames that an error, and those before it, passed through.

    Whoever keeps the error would otherwise keep all tensors of the program. Where it was raised stays known.
    """
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            pending += [one.__cause__, one.__context__, _inner(one)]


def place_of(error: BaseException) -> str:
    """`file:line` of the innermost frame that raised; empty for an error that has no traceback."""
    frames = traceback.extract_tb(unwrapped(error)[-1].__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _is_compilers(error: BaseException) -> bool:
    """Whether the error is about compiling, not about the program: a backend or Dynamo itself failed."""
    return isinstance(error, exc.BackendCompilerFailed | exc.Unsupported | Unsupported)


def _inner(error: BaseException) -> BaseException | None:
    if not type(error).__module__.startswith("torch._dynamo"):
        return None
    inner = getattr(error, "inner_exception", None)
    return inner if isinstance(inner, BaseException) else error.__cause__


def _named(error: BaseException) -> frozenset[str]:
    """Classes that a Dynamo error about the program names in its message."""
    return frozenset(_names(error))


def _names(error: BaseException) -> Iterator[str]:
    if isinstance(error, exc.TorchRuntimeError | exc.InternalTorchDynamoError):
        yield from GOT.findall(str(error))
        yield from ORIGINAL.findall(str(error))
