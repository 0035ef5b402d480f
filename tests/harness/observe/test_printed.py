"""What a program prints is kept, and what other threads print is let through."""

from __future__ import annotations

import threading

import pytest

from assay.harness.observe.printed import heard


def test_printed_text_is_of_one_thread(capsys: pytest.CaptureFixture[str]) -> None:
    with heard() as texts:
        print("ours", end="")
        other = threading.Thread(target=print, args=("another's",))
        other.start()
        other.join()
    print("after")
    assert "".join(texts) == "ours"
    assert capsys.readouterr().out == "another's\nafter\n"
