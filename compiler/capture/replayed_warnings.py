"""What a program warns of while it is recorded, so that each call can warn of it again, as eager does.

A function of torch that a graph keeps whole (`dropout2d` of a batch without channels, `upsample_nearest`) warns from
Python: its recording would warn once, and the calls never. What operators warn of from C++, and what compiling itself
warns of, is given as it comes. Each call says that a variance has no degrees of freedom
(`ir/tensors/degrees_of_freedom.py`).
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.fx import traceback

from assay.compiler import FOLDER
from assay.compiler.ir.graph.roles import Warned

TORCH = Path(torch.__file__).parent
BETWEEN = (f"{TORCH}{os.sep}", f"{FOLDER}{os.sep}", warnings.__file__)
"""Whose frames stand between a warning and the user."""
MODULES = f"{TORCH / 'nn' / 'modules'}{os.sep}"
"""Whose frames are the callers that eager names, but for the one of the call itself."""
PUBLIC = ("nn", "optim", "functional.py", "_tensor.py", "_linalg_utils.py", "_lobpcg.py", "distributions", "signal")
"""Where in torch functions are that a program calls, and that warn of what it did."""
INTERPRETER = ("fx", "interpreter.py")
"""Who seems to have called a node of a graph."""
FROM_C = "(Triggered internally at"
LINE = re.compile(r'File "([^"]+)", line (\d+)')


@contextmanager
def warned() -> Iterator[list[Warned]]:
    """What is warned of inside, in order, each once; it is not shown."""
    found: dict[Warned, None] = {}
    listed: list[Warned] = []
    with warnings.catch_warnings():
        show = warnings.showwarning
        warnings.simplefilter("always", UserWarning)

        def note(message: Any, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
            if _is_of_program(str(message), category, Path(filename)):
                found[Warned(str(message), category, *_place(filename, lineno))] = None
            elif not any(str(message).startswith(one.message) for one in found):  # which the call will say
                show(message, category, filename, lineno, *rest)

        warnings.showwarning = note  # type: ignore[assignment]
        yield listed
    listed += found


def _is_of_program(message: str, category: type[Warning], place: Path) -> bool:
    if not issubclass(category, UserWarning) or FROM_C in message:
        return False
    if not place.is_relative_to(TORCH):
        return True
    parts = place.relative_to(TORCH).parts
    return parts[0] in PUBLIC or parts == INTERPRETER


def _place(filename: str, lineno: int) -> tuple[str, int]:
    """The line of the user's that the node being recorded came from; where none is known, the last one being run."""
    if lines := LINE.findall(traceback.get_current_meta().get("stack_trace") or ""):
        return lines[-1][0], int(lines[-1][1])
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and _is_between(frame.f_code.co_filename):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else (filename, lineno)


def _is_between(filename: str) -> bool:
    return filename.startswith(BETWEEN) and (not filename.startswith(MODULES) or filename == f"{MODULES}module.py")
