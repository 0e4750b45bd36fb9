"""Rules for named files: one look at many paths names at least the files that each look alone would."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.detect.matching import named_files
from strandline.detect.matching.named_files import NamedFiles

REGEXES = (r"(?:^|/)\.netrc$", r"\.(?:csv|tsv)(?:\.\w{1,8})?$", r"^a\b[^/]*x")
PATHS = st.text(st.sampled_from("/.netrcsvax\n-\udcff"), max_size=12) | st.sampled_from(
    [".netrc", "a/.netrc", "b.csv.1"]
)
NAMED = NamedFiles(REGEXES)


def numbers_by_re(path: str) -> set[int]:
    text = path.encode(errors="surrogateescape")
    return {number for number, regex in enumerate(REGEXES) if re.search(regex.encode(), text)}


@given(st.lists(PATHS, max_size=20))
@example(["", ".netrc", "", "a/.netrc", "x.csv", "a-x"])
@example([".net\nrc", "a\n.netrc", "a", "x"])
def test_every_file_that_a_rule_is_for_is_named(paths: list[str]) -> None:
    for path in paths:
        assert numbers_by_re(path) <= set(NAMED.numbers(path))
    positions = NAMED.positions(paths)
    assert {at for at, path in enumerate(paths) if numbers_by_re(path)} <= set(positions)
    assert list(positions) == sorted(set(positions) & set(range(len(paths))))


def test_other_files_are_not_named() -> None:
    paths = ["src/a.py", ".netrc", "src/netrc.py", "table.csv", "README.md"]
    assert NAMED.positions(paths) == [1, 3]
    assert [list(NAMED.numbers(path)) for path in paths] == [[], [0], [], [1], []]


def test_a_saved_database_is_as_good_as_a_compiled_one() -> None:
    loaded = NamedFiles(REGEXES, NAMED.dumped())
    assert loaded.is_from_saved
    assert loaded.positions([".netrc", "x", "b.csv"]) == [0, 2]


def test_without_a_database_every_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_files, "SIZE_MAX", 0)
    named = NamedFiles(REGEXES)
    assert list(named.positions(["x", "y"])) == [0, 1]
    assert list(named.numbers("x")) == [0, 1, 2]
    assert list(NamedFiles(()).positions(["x"])) == []
