"""Waiting ends with the event, and with an error that names what did not come."""

import pytest

from tests import waiting
from tests.waiting import eventually


def test_what_a_condition_gives_is_returned_as_soon_as_it_is_true() -> None:
    answers = iter([0, "", None, "there"])
    assert eventually(lambda: next(answers)) == "there"


def test_what_never_comes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.02)
    with pytest.raises(AssertionError, match="the moon is full"):
        eventually(lambda: False, "the moon is full")
