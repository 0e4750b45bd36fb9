"""File names of groups: one name, one file name, and back."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.groups import format_group_file, parse_group_file
from strandline.groups.names import Kind

kinds: st.SearchStrategy[Kind] = st.sampled_from(["snapshot", "delta"])
SAFE = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.%")


@given(st.text(min_size=1, max_size=60), kinds)
def test_every_name_comes_back_from_its_file_name(name: str, kind: Kind) -> None:
    try:
        file_name = format_group_file(name, kind)
    except InvalidInput:
        assume(condition=False)
    assert set(file_name) <= SAFE
    assert not file_name.startswith(".")
    assert len(file_name) <= 251
    assert parse_group_file(file_name) == (name, kind)


@given(st.one_of(st.text(), st.from_regex(r"[\w%./-]{1,20}\.(snapshot|delta)", fullmatch=True)))
def test_a_file_name_is_a_groups_only_if_a_group_would_have_it(file_name: str) -> None:
    parsed = parse_group_file(file_name)
    assert parsed is None or format_group_file(*parsed) == file_name


@pytest.mark.parametrize(
    ("name", "file_name"),
    [
        ("workers", "workers.delta"),
        ("orders.eu-1_a", "orders.eu-1_a.delta"),
        ("a/b", "a%2Fb.delta"),
        ("..", "%2E..delta"),
        ("100%", "100%25.delta"),
        ("größe", "gr%C3%B6%C3%9Fe.delta"),
        ("a.snapshot", "a.snapshot.delta"),
    ],
)
def test_names_read_as_people_would_expect(name: str, file_name: str) -> None:
    assert format_group_file(name, "delta") == file_name


def test_a_name_of_two_hundred_bytes_is_taken() -> None:
    assert parse_group_file(format_group_file("x" * 200, "snapshot")) == ("x" * 200, "snapshot")


@pytest.mark.parametrize("name", ["", "x" * 201, "é" * 101, "/" * 100, "\ud800"])
def test_what_no_file_could_be_called_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        format_group_file(name, "snapshot")


@pytest.mark.parametrize(
    "file_name", ["workers", "a%2f.delta", "%41.delta", ".delta", ".x.delta", "a.delta.tmp", "%FF.delta"]
)
def test_other_files_are_nobodys(file_name: str) -> None:
    assert parse_group_file(file_name) is None
