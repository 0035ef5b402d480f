"""Collections of cycles find what is made after the old objects were set aside, and forget no old ones."""

from __future__ import annotations

import gc
import weakref

import pytest

from assay.harness.calls import cycles


class _Knot:
    """An object that holds itself."""

    def __init__(self) -> None:
        self.itself = self


def test_a_cycle_made_after_the_old_objects_were_set_aside_is_freed() -> None:
    cycles.set_aside()
    seen = weakref.ref(_Knot())
    gc.collect()
    assert seen() is None


def test_a_cycle_that_is_garbage_is_freed_before_what_is_alive_is_set_aside() -> None:
    seen = weakref.ref(_Knot())
    cycles.set_aside()
    assert seen() is None


def test_objects_set_aside_for_a_while_are_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycles, "_FOR_GOOD", [])
    old = _Knot()
    seen = weakref.ref(old)
    with cycles.old_objects_set_aside():
        del old
        gc.collect()
        assert seen() is not None
    gc.collect()
    assert seen() is None and gc.get_freeze_count() == 0


def test_objects_set_aside_for_good_stay_so() -> None:
    cycles.set_aside()
    count = gc.get_freeze_count()
    with cycles.old_objects_set_aside():
        pass
    assert gc.get_freeze_count() >= count > 0
