"""Path globs: git's way, in the subset that is documented."""

import time

import pathspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.scan.path_globs import clean_path, parse_globs


def leaves_out(text: str, path: str) -> bool:
    return parse_globs(text).leaving_out(path) is not None


@pytest.mark.parametrize(
    ("text", "path", "left_out"),
    [
        ("*.pem", "a.pem", True),
        ("*.pem", "x/y/a.pem", True),
        ("*.pem", "a.pem.txt", False),
        ("/build", "build/a/b", True),
        ("/build", "x/build", False),
        ("docs/*.key", "docs/a.key", True),
        ("docs/*.key", "docs/x/a.key", False),
        ("docs/*.key", "x/docs/a.key", False),
        ("vendor/", "vendor/a", True),
        ("vendor/", "x/vendor/a/b", True),
        ("vendor/", "vendor", False),
        ("vendor", "x/vendor/a", True),
        ("**/test/*.env", "a/b/test/x.env", True),
        ("**/test/*.env", "test/x.env", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**", "a/x", True),
        ("a/**", "a", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[a-c]x", "bx", True),
        ("[!a-c]x", "bx", False),
        ("[!a-c]x", "dx", True),
        ("a[!x]b", "a/b", False),
        (r"\#x", "#x", True),
        (r"\!x", "!x", True),
        (r"a\*b", "a*b", True),
        (r"a\*b", "axb", False),
        ("# comment\n\n   \n", "comment", False),
        ("*.zip", "a/b.zip!inner/c.txt", True),
        ("*.env   ", "x.env", True),
        ("./x", "x", False),
        ("x", "./x", True),
        ("x/y", "x\\y", True),
    ],
)
def test_a_pattern_leaves_out_what_it_says(text: str, path: str, left_out: bool) -> None:
    assert leaves_out(text, path) is left_out


def test_the_last_pattern_that_fits_decides() -> None:
    text = "*.pem\n!keep.pem\nsecret/\n"
    assert not leaves_out(text, "keep.pem")
    assert leaves_out(text, "other.pem")
    assert leaves_out(text, "secret/keep.pem")
    assert not leaves_out(text + "!secret/keep.pem", "secret/keep.pem")


def test_the_pattern_that_decided_is_named_with_its_line() -> None:
    glob = parse_globs("# one\n*.pem\n").leaving_out("x/a.pem")
    assert glob is not None
    assert (glob.line, glob.text) == (2, "*.pem")


@pytest.mark.parametrize(("text", "problem"), [("/", "slashes"), ("a\n[b", "line 2: a class"), ("[z-a]", "backwards")])
def test_what_cannot_be_read_is_refused_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        parse_globs(text, "x")


def test_all_folders_below_one_are_left_out_and_its_own_files_are_not() -> None:
    assert not leaves_out("a/**/", "a/a")
    assert leaves_out("a/**/", "a/d/x")


def test_a_path_is_cleaned() -> None:
    assert clean_path(".\\a\\b") == "a/b"
    assert clean_path("././/a") == "a"


def test_many_wildcards_do_not_multiply_the_time() -> None:
    begin = time.process_time()
    assert not leaves_out("**/a/" * 25 + "c", "a/" * 40 + "b")
    assert not leaves_out("a*" * 30 + "b", "a" * 4_000)
    assert time.process_time() - begin < 10, "an expression that goes back would take years"


NAMES = st.sampled_from(["a", "b", "ab", "a.b", "build", "x-y"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
PARTS = st.sampled_from(["a", "b", "*", "?", "a*", "*b", "**", "[ab]", "[!a]", "build", "*.b"])
PATTERNS = st.builds(
    lambda root, parts, end: root + "/".join(parts) + end,
    st.sampled_from(["", "/"]),
    st.lists(PARTS, min_size=1, max_size=3),
    st.sampled_from(["", "/"]),
)


@given(pattern=PATTERNS, path=PATHS)
def test_one_pattern_decides_as_git_does(pattern: str, path: str) -> None:
    if pattern.strip("/") in {"", "**"} or pattern.endswith("/**/"):  # the peer takes files for folders in the latter
        return
    git = pathspec.GitIgnoreSpec.from_lines([pattern])
    assert leaves_out(pattern, path) is git.match_file(path)
