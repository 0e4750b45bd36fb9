"""Samples of `make test` are a part of what `make test-long` does, and the profile multiplies numbers of examples."""

import pytest
from hypothesis import settings

from tests.effort import DEFAULT_EXAMPLES, Part, examples, parts


def test_a_number_of_examples_grows_with_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    now = settings().max_examples
    assert examples(30).max_examples == 30 * now // DEFAULT_EXAMPLES
    settings.register_profile("of this test", max_examples=20 * DEFAULT_EXAMPLES)
    with monkeypatch.context() as patch:
        patch.setattr("tests.effort.settings", lambda **more: settings(settings.get_profile("of this test"), **more))
        assert examples(30).max_examples == 600


def test_each_case_is_in_one_part_and_all_but_the_first_are_long() -> None:
    (given,) = parts(3).args[1:]
    marks = [[mark.name for mark in getattr(each, "marks", ())] for each in given]
    assert marks == [[], ["long"], ["long"]]
    cut = [Part(number, 3) for number in range(3)]
    assert sorted(case for part in cut for case in part.of(range(10))) == list(range(10))
    assert [[part.has(case) for part in cut].count(True) for case in range(10)] == [1] * 10
