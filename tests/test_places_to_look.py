"""The report of long modules and functions counts lines as an editor does."""

from tools.places_to_look import places


def function_of(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (lines - 1)


def test_only_what_is_past_the_limits_is_reported() -> None:
    assert list(places("m.py", function_of(70))) == []
    assert list(places("m.py", function_of(71))) == ["m.py: f() has 71 lines"]
    assert list(places("m.py", "x = 1\n" * 400)) == []
    assert list(places("m.py", "x = 1\n" * 401)) == ["m.py: 401 lines"]
