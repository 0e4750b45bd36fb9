"""Files are listed in order and whole, and read as they were at one moment."""

import errno
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.scan.path_globs import parse_globs
from strandline.scan.sources import (
    FileSource,
    InputMissing,
    InputRefused,
    ItemFailed,
    ItemProblem,
    ItemSkipped,
    Problem,
    files,
)
from strandline.scan.sources.source import BATCH_ROWS
from tests.scan.sources.helpers import contents, ignore, left_out, listed, locators, problems, write


def read(source: FileSource, locator: bytes) -> bytes:
    with source.open() as reader:
        (part,) = reader.read(locator, None).parts
    return part.data


def problem(source: FileSource, locator: bytes) -> ItemProblem:
    with source.open() as reader, pytest.raises(ItemProblem) as refused:
        reader.read(locator, None)
    return refused.value


# Listing.


def test_paths_are_listed_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    names = ["b", "a/z", "a/b/c", "a.txt", "a-b/x", "a/b.txt", "B", "a/b/d/e", "ab"]
    write(tmp_path, dict.fromkeys(names, b""))
    assert locators(FileSource.at(tmp_path)) == sorted(os.fsencode(name) for name in names)


@given(st.sets(st.lists(st.sampled_from(["a", "b", "a b", "a-", "a.", "é", "0"]), min_size=1, max_size=4).map(tuple)))
def test_any_tree_is_listed_whole_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, trees: set[tuple[str]]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    names = {"/".join(tree) + "/file" for tree in trees}
    write(root, dict.fromkeys(names, b"x"))
    assert locators(FileSource.at(root)) == sorted(os.fsencode(name) for name in names)


def test_rows_carry_size_and_stat_and_no_version(tmp_path: Path) -> None:
    write(tmp_path, {"a": b"12345", "empty": b""})
    first, second = listed(FileSource.at(tmp_path))
    assert (first["size"], second["size"]) == (5, 0)
    assert first["version"] is None
    assert len(first["stat"]) == 40
    assert first["problem"] is None


def test_long_listings_come_in_batches_and_tell_how_far_they_are(tmp_path: Path) -> None:
    for number in range(BATCH_ROWS + 3):
        os.mknod(tmp_path / f"{number:06}")
    told: list[int] = []
    sizes = [batch.num_rows for batch in FileSource.at(tmp_path).list_items(told.append)]
    assert sizes == [BATCH_ROWS, 3]
    assert told == [BATCH_ROWS, BATCH_ROWS + 3]


def test_an_empty_folder_has_an_empty_listing(tmp_path: Path) -> None:
    (batch,) = FileSource.at(tmp_path).list_items(ignore)
    assert batch.num_rows == 0


@pytest.fixture
def deep_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that may become too deep for Python to remove."""
    folder = tmp_path / "deep"
    folder.mkdir()
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)  # noqa: S607


def dig(folder: Path, name: str, depth: int) -> int:
    """Make folders within folders, and return the innermost, open."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    return here


def test_very_deep_folders_are_no_trouble(deep_folder: Path) -> None:
    os.close(dig(deep_folder, "d", 1_500))
    inner = b"d/" * 1_500 + b"file"
    (deep_folder / os.fsdecode(inner)).write_bytes(b"found")
    source = FileSource.at(deep_folder)
    assert locators(source) == [inner]
    assert read(source, inner) == b"found"


def test_a_path_too_long_for_the_system_is_a_row_with_a_problem(deep_folder: Path) -> None:
    os.close(dig(deep_folder, "n" * 200, 25))
    (row,) = listed(FileSource.at(deep_folder))
    assert row["problem"] == Problem.IO_ERROR
    assert row["locator"].endswith(b"/")


def test_names_that_are_not_utf_8_are_listed_read_and_shown(tmp_path: Path) -> None:
    name = b"caf\xe9\n.txt"
    with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:  # noqa: PTH118, PTH123 - bytes
        file.write(b"content")
    source = FileSource.at(tmp_path)
    assert locators(source) == [name]
    assert source.display(name, None) == "caf\udce9\n.txt"
    with source.open() as reader:
        (part,) = reader.read(name, None).parts
    assert part.data == b"content"
    assert part.path.encode(errors="surrogateescape") == name


def test_a_root_whose_name_is_not_utf_8_describes_itself(tmp_path: Path) -> None:
    root = os.path.join(os.fsencode(tmp_path), b"\xff")  # noqa: PTH118 - bytes
    os.mkdir(root)  # noqa: PTH102 - bytes
    plain: Any = FileSource.at(root).plain()
    assert plain["root"].endswith("\\xff")


# What is left out, and what cannot be read.


def test_git_folders_are_left_out_and_counted(tmp_path: Path) -> None:
    write(tmp_path, {"a": b"", ".git/config": b"", "sub/.git/HEAD": b"", "sub/b": b"", "work/.git": b"gitdir: x"})
    source = FileSource.at(tmp_path)
    assert locators(source) == [b"a", b"sub/b", b"work/.git"]
    assert left_out(source) == {"git folder": 2}


def test_the_state_folder_is_left_out_and_counted(tmp_path: Path) -> None:
    write(tmp_path, {"a": b"", "d/.strandline/pipeline.db": b"", "d/.strandline2": b""})
    (tmp_path / "link").symlink_to(tmp_path / "d")
    source = FileSource.at(tmp_path, leave_out=(tmp_path / "link" / ".strandline",))
    assert set(locators(source)) == {b"a", b"d/.strandline2", b"link"}
    assert left_out(source) == {"state": 1}


@pytest.mark.parametrize("inside", ["", "deeper"])
def test_the_state_folder_itself_is_not_input(tmp_path: Path, inside: str) -> None:
    state = tmp_path / "state"
    (state / "deeper").mkdir(parents=True)
    with pytest.raises(InvalidInput, match="holds the results of scans"):
        FileSource.at(state / inside, leave_out=(state,))


def test_excluded_files_and_folders_are_counted_and_not_walked(tmp_path: Path) -> None:
    write(tmp_path, {"a.pem": b"", "b.txt": b"", "vendor/x/y": b"", "vendor/z": b"", "docs/k.key": b"", "docs/k": b""})
    source = FileSource.at(tmp_path, excludes=parse_globs("*.pem\nvendor/\ndocs/*.key\n"))
    assert locators(source) == [b"b.txt", b"docs/k"]
    assert left_out(source) == {"excluded": 3}


def test_a_file_in_an_excluded_folder_can_be_put_in_again(tmp_path: Path) -> None:
    write(tmp_path, {"vendor/x": b"", "vendor/deep/keep": b"", "vendor/deep/not": b""})
    source = FileSource.at(tmp_path, excludes=parse_globs("vendor/\n!keep\n"))
    assert locators(source) == [b"vendor/deep/keep"]


@given(
    st.lists(st.sampled_from(["a", "a/", "/a", "*.x", "a/*", "a/**", "**/b", "b/", "a/b", "*", "a*", "?"]), max_size=4),
    st.sets(st.lists(st.sampled_from(["a", "b", "a.x", "ab"]), min_size=1, max_size=3).map("/".join), max_size=8),
)
def test_leaving_folders_out_changes_no_decision(
    tmp_path_factory: pytest.TempPathFactory, patterns: list[str], names: set[str]
) -> None:
    root = tmp_path_factory.mktemp("globs")
    names = {f"{name}/f.x" for name in names}
    write(root, dict.fromkeys(names, b""))
    globs = parse_globs("\n".join(patterns))
    wanted = sorted(os.fsencode(name) for name in names if globs.leaving_out(name) is None)
    assert locators(FileSource.at(root, excludes=globs)) == wanted


def test_links_are_rows_with_a_problem_and_loops_end(tmp_path: Path) -> None:
    write(tmp_path, {"d/file": b"x"})
    (tmp_path / "d" / "loop").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "to-file").symlink_to("d/file")
    source = FileSource.at(tmp_path)
    assert problems(source) == dict.fromkeys([b"d/loop", b"self", b"dangling", b"to-file"], Problem.SYMLINK)
    assert contents(source) == {b"d/file": [b"x"]}


def test_sockets_and_pipes_are_rows_with_a_problem(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        assert problems(FileSource.at(tmp_path)) == dict.fromkeys([b"pipe", b"s"], Problem.NOT_A_FILE)


def test_large_files_are_rows_with_a_problem(tmp_path: Path) -> None:
    write(tmp_path, {"large": b"123456", "small": b"12345"})
    large, small = listed(FileSource.at(tmp_path, size_max=5))
    assert (large["problem"], large["size"]) == (Problem.TOO_LARGE, 6)
    assert large["version"] == b"stat:" + large["stat"]
    assert small["problem"] is None


AS_NOBODY = """
import os, sys, json
from strandline.scan.sources import FileSource, ItemProblem
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
source = FileSource.at(sys.argv[1])
rows = [row for batch in source.list_items(lambda _: None) for row in batch.to_pylist()]
found = {row["locator"].decode(): row["problem"] for row in rows}
with source.open() as reader:
    for row in rows:
        if row["problem"] is None:
            try:
                reader.read(row["locator"], None)
            except ItemProblem as error:
                found[row["locator"].decode()] = "read: " + error.code
print(json.dumps(found))
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that any user can come to; pytest's own are closed."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def as_a_user_without_rights(root: Path) -> "subprocess.CompletedProcess[bytes]":
    """List and read a tree as a user whom permissions stop, as they do not stop root."""
    return subprocess.run([sys.executable, "-c", AS_NOBODY, root], capture_output=True, check=False)


def test_what_this_user_may_not_read_is_a_problem_and_the_rest_goes_on(public_folder: Path) -> None:
    write(public_folder, {"open/a": b"x", "closed/b": b"x", "secret": b"x"})
    (public_folder / "closed").chmod(0)
    (public_folder / "secret").chmod(0)
    done = as_a_user_without_rights(public_folder)
    (public_folder / "closed").chmod(0o700)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == {
        "closed/": "UNREADABLE_FOLDER",
        "open/a": None,
        "secret": "read: PERMISSION_DENIED",
    }


def test_a_root_that_this_user_may_not_list_is_an_error_with_a_hint(public_folder: Path) -> None:
    root = public_folder / "root"
    root.mkdir(mode=0)
    done = as_a_user_without_rights(root)
    assert done.returncode != 0
    assert b"InputRefused" in done.stderr


def test_a_file_that_vanishes_while_it_is_listed_is_a_row_with_a_problem(tmp_path: Path) -> None:
    write(tmp_path, {"a": b"", "d/e": b"", "f": b"", "g": b""})
    rows = FileSource.at(tmp_path).rows(Counter())
    assert [row[0] for row in next(rows)] == [b"a"]
    (tmp_path / "f").unlink()
    shutil.rmtree(tmp_path / "d")
    found = {row[0]: row[5] for some in rows for row in some}
    assert found == {b"d/": Problem.VANISHED, b"f": Problem.VANISHED, b"g": None}


# Roots.


def test_one_file_is_the_same_item_as_in_its_folder(tmp_path: Path) -> None:
    write(tmp_path, {"a": b"x", "b": b"y"})
    whole, one = FileSource.at(tmp_path), FileSource.at(tmp_path / "b")
    assert listed(one) == listed(whole)[1:]
    assert one.instance == whole.instance
    assert contents(one) == {b"b": [b"y"]}


def test_one_file_that_is_gone_by_now_is_a_row_with_a_problem(tmp_path: Path) -> None:
    write(tmp_path, {"a": b"x"})
    source = FileSource.at(tmp_path / "a")
    (tmp_path / "a").unlink()
    assert problems(source) == {b"a": Problem.VANISHED}


def test_a_link_that_is_named_is_followed_to_what_it_names(tmp_path: Path) -> None:
    write(tmp_path, {"real/a": b"x"})
    (tmp_path / "link").symlink_to("real")
    assert FileSource.at(tmp_path / "link") == replace(FileSource.at(tmp_path / "real"))
    assert contents(FileSource.at(tmp_path / "link")) == {b"a": [b"x"]}


def test_a_relative_path_is_the_same_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert FileSource.at(".") == FileSource.at(tmp_path)


def test_the_root_of_all_has_relative_locators() -> None:
    rows = chain.from_iterable(FileSource.at("/", leave_out=("/nothing",)).rows(Counter()))
    locator, *_ = next(rows)
    assert not locator.startswith(b"/")


def test_a_name_makes_the_instance(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    here, there = FileSource.at(tmp_path, name="code"), FileSource.at(tmp_path / "elsewhere", name="code")
    assert here.instance == there.instance != FileSource.at(tmp_path).instance
    assert here.name == "code"


@pytest.mark.parametrize("path", ["missing", "file/below"])
def test_a_path_that_does_not_exist_is_an_error_with_a_hint(tmp_path: Path, path: str) -> None:
    write(tmp_path, {"file": b""})
    with pytest.raises(InputMissing, match=path) as refused:
        FileSource.at(tmp_path / path)
    assert refused.value.hint
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)  # noqa: S301


def test_a_loop_that_is_named_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputRefused) as refused:
        FileSource.at(tmp_path / "loop")
    assert refused.value.hint


# Reading.


def test_a_version_is_the_hash_of_the_bytes(tmp_path: Path) -> None:
    write(tmp_path, {"a": b"content"})
    with FileSource.at(tmp_path).open() as reader:
        content = reader.read(b"a", None)
    assert content.version == b"blake3:" + blake3(b"content").digest()
    assert content.size == 7


def test_a_file_that_vanished_is_a_failure(tmp_path: Path) -> None:
    assert problem(FileSource.at(tmp_path), b"gone").code is Problem.VANISHED
    assert problem(FileSource.at(tmp_path), b"gone/deeper").code is Problem.VANISHED


def test_a_file_that_became_something_else_is_left_alone_at_once(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    source = FileSource.at(tmp_path)
    codes = {name: problem(source, name) for name in (b"link", b"pipe", b"folder")}
    assert [error.code for error in codes.values()] == [Problem.SYMLINK, Problem.NOT_A_FILE, Problem.NOT_A_FILE]
    assert all(isinstance(error, ItemSkipped) for error in codes.values())


def test_a_file_that_grew_past_the_limit_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, {"a": b"123456"})
    error = problem(FileSource.at(tmp_path, size_max=5), b"a")
    assert error.code is Problem.TOO_LARGE
    assert error.version.startswith(b"stat:")
    assert read(FileSource.at(tmp_path, size_max=6), b"a") == b"123456"


def while_read(monkeypatch: pytest.MonkeyPatch, *actions: Callable[[], object]) -> None:
    """Let something happen after the bytes of each try are read, and before the file is looked at again."""
    left = list(actions)
    read_all = files._read_all  # noqa: SLF001 - the moment that matters is inside

    def reads(file: int, size: int, size_max: int) -> bytes:
        data = read_all(file, size, size_max)
        if left:
            left.pop(0)()
        return data

    monkeypatch.setattr(files, "_read_all", reads)


def test_not_a_byte_of_a_file_past_the_limit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a": b"123456"})
    while_read(monkeypatch, lambda: pytest.fail("it was read"))
    assert problem(FileSource.at(tmp_path, size_max=5), b"a").code is Problem.TOO_LARGE


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before")
    while_read(monkeypatch, lambda: path.write_bytes(b"after!"))
    assert read(FileSource.at(tmp_path), b"a") == b"after!"


def test_a_file_that_keeps_changing_fails_for_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0")
    while_read(monkeypatch, lambda: path.write_bytes(b"01"), lambda: path.write_bytes(b"012"))
    error = problem(FileSource.at(tmp_path), b"a")
    assert isinstance(error, ItemFailed)
    assert (error.code, error.retryable) == (Problem.CHANGED_WHILE_READ, True)


def test_a_file_that_vanishes_between_two_tries_has_vanished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0")

    def change() -> None:
        path.write_bytes(b"01")
        path.unlink()

    while_read(monkeypatch, change)
    assert problem(FileSource.at(tmp_path), b"a").code is Problem.VANISHED


def test_a_file_that_is_truncated_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100_000)
    while_read(monkeypatch, lambda: os.truncate(path, 10))
    assert read(FileSource.at(tmp_path), b"a") == b"x" * 10


def test_a_disk_that_fails_is_a_failure_for_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a": b"x"})

    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    while_read(monkeypatch, fail)
    error = problem(FileSource.at(tmp_path), b"a")
    assert (error.code, error.retryable) == (Problem.IO_ERROR, True)


def test_files_of_the_kernel_are_read_whole_though_they_say_they_are_empty() -> None:
    source = FileSource.at("/proc/self/status")
    with source.open() as reader:
        content = reader.read(b"status", None)
    (part,) = content.parts
    assert b"Threads:" in part.data
    assert content.stat is None


def test_files_of_the_kernel_keep_to_the_limit() -> None:
    assert problem(FileSource.at("/proc/self/status", size_max=5), b"status").code is Problem.TOO_LARGE


def test_no_handle_stays_open(tmp_path: Path) -> None:
    write(tmp_path, {"a": b"x", "big": b"123456"})
    os.mkfifo(tmp_path / "pipe")
    source = FileSource.at(tmp_path, size_max=5)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted as it is
    for name in (b"a", b"big", b"pipe", b"gone") * 3:
        with source.open() as reader, suppress(ItemProblem):
            reader.read(name, None)
    listed(source)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - the same


@pytest.mark.parametrize("code", Problem)
def test_problems_pickle_and_say_what_to_expect(code: Problem) -> None:
    error = code.error(b"stat:1")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (copy.code, copy.version, copy.retryable) == (code, b"stat:1", code.is_retryable)
    assert isinstance(copy, ItemSkipped) == code.is_skipped
