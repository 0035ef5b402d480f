"""Other numbers of a machine than those that are stated, for one test."""

from __future__ import annotations

import dataclasses

import pytest

from assay.compiler import machine


def state(monkeypatch: pytest.MonkeyPatch, **numbers: int) -> None:
    for name, value in numbers.items():
        monkeypatch.setitem(machine.NUMBERS, name, dataclasses.replace(machine.NUMBERS[name], value=value))
