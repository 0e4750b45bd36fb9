"""Every version of every path of a history is listed once, however it came in, and read through git alone."""

import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.scan.path_globs import parse_globs
from strandline.scan.sources import (
    GitSource,
    InputMissing,
    InputRefused,
    InputUnusable,
    ItemProblem,
    ItemReader,
    Problem,
    Seen,
    format_seen,
    git_commands,
    git_revisions,
    parse_seen,
)
from strandline.scan.sources.git_commands import Git
from strandline.scan.sources.git_history import Change, changes, tokens
from strandline.scan.sources.git_repository import parse_locator
from strandline.scan.sources.source import Content
from tests.scan.sources.helpers import Repository, left_out, listed, write


def contents(source: GitSource) -> list[bytes]:
    """Return the bytes of all versions that can be read, in the order of the listing."""
    with source.open() as reader:
        rows = [row for row in listed(source) if row["problem"] is None]
        return [part.data for row in rows for part in reader.read(row["locator"], row["extra"]).parts]


def blobs(source: GitSource) -> set[bytes]:
    return set(contents(source))


def seen(source: GitSource) -> dict[tuple[bytes, str], Seen]:
    """Return the versions of paths, by path and blob."""
    found = [(parse_locator(row["locator"]), parse_seen(row["extra"])) for row in listed(source)]
    return {(path, one.blob): one for path, one in found}


def problems(source: GitSource) -> dict[bytes, str]:
    """Return the blobs that cannot be read, and why."""
    rows = [row for row in listed(source) if row["problem"]]
    return {parse_seen(row["extra"]).blob.encode(): row["problem"] for row in rows}


def read(reader: ItemReader, blob: bytes) -> Content:
    return reader.read(b"repository\0path", format_seen(Seen(blob.decode())))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


# What a history holds.


def test_every_version_of_a_path_of_all_branches_is_there_once(repository: Repository) -> None:
    repository.commit({"a": b"one", "d/b": b"two"})
    repository.git("checkout", "-q", "-b", "side")
    repository.commit({"a": b"three", "copy": b"two"}, remove=["d/b"])
    repository.git("checkout", "-q", "main")
    repository.commit({"a": b"four"})
    source = GitSource.at(repository.path)
    assert blobs(source) == {b"one", b"two", b"three", b"four"}
    paths = sorted(parse_locator(row["locator"]) for row in listed(source))
    assert paths == [b"a", b"a", b"a", b"copy", b"d/b"]


def test_rows_have_version_size_and_commits(repository: Repository) -> None:
    first = repository.commit({"a/b.txt": b"content"})
    second = repository.commit({"moved.txt": b"content"}, remove=["a/b.txt"])
    repository.commit({"moved.txt": b"other"})
    last = repository.commit({"moved.txt": b"content"})
    source = GitSource.at(repository.path)
    old, moved, _ = listed(source)
    blob = repository.blob(b"content").decode()
    assert (old["version"], old["size"]) == (moved["version"], 7) == (b"git:" + blob.encode(), 7)
    assert old["locator"] == first.encode() + b"\0a/b.txt", "the root commit is the repository's name"
    assert parse_seen(old["extra"]) == Seen(blob, 1, first, first)
    assert parse_seen(moved["extra"]) == Seen(blob, 2, second, last, at_head=True, leader=b"a/b.txt")
    with source.open() as reader:
        content = reader.read(old["locator"], old["extra"])
    (part,) = content.parts
    assert (part.path, part.commit, content.version) == ("a/b.txt", first, old["version"])
    assert source.display(old["locator"], old["extra"]) == "a/b.txt"


def test_one_blob_is_read_once_for_all_its_paths(repository: Repository) -> None:
    repository.commit({"a": b"same", "b": b"same", "c": b"same", "other": b"between"})
    source = GitSource.at(repository.path)
    rows = [row for row in listed(source) if row["size"] == 4]
    with source.open() as reader:
        (first,), (second,), (third,) = (reader.read(row["locator"], row["extra"]).parts for row in rows)
    assert first.data is second.data is third.data
    assert [first.path, second.path, third.path] == ["a", "b", "c"]


def test_a_blob_that_only_a_merge_brings_is_there(repository: Repository) -> None:
    repository.commit({"a": b"base", "untouched": b"same"})
    repository.git("checkout", "-q", "-b", "side")
    repository.commit({"a": b"theirs"})
    repository.git("checkout", "-q", "main")
    repository.commit({"a": b"ours"})
    repository.git("merge", "-q", "--no-commit", "-s", "ours", "side")
    merge = repository.commit({"a": b"only in the merge", "new": b"new in the merge"})
    source = GitSource.at(repository.path)
    assert {b"only in the merge", b"new in the merge"} <= blobs(source)
    assert {path for (path, _), one in seen(source).items() if one.first == merge} == {b"a", b"new"}
    assert sum(one.total for one in seen(source).values()) == 6


def test_an_octopus_merge_is_read(repository: Repository) -> None:
    repository.commit({"a": b"base"})
    for number in range(3):
        repository.git("checkout", "-q", "-b", f"side{number}", "main~0")
        repository.commit({f"f{number}": b"side %d" % number})
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--no-commit", "side0", "side1", "side2")
    repository.commit({"a": b"octopus"})
    assert blobs(GitSource.at(repository.path)) == {b"base", b"side 0", b"side 1", b"side 2", b"octopus"}


def test_several_roots_are_read(repository: Repository) -> None:
    repository.commit({"a": b"first root"})
    repository.git("checkout", "-q", "--orphan", "other")
    repository.commit({"b": b"second root"})
    assert blobs(GitSource.at(repository.path)) == {b"first root", b"second root"}


def test_submodules_are_passed_over_and_links_are_blobs(repository: Repository) -> None:
    commit = repository.commit({"a": b"file"})
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
    (repository.path / "link").symlink_to("where/it/points")
    repository.git("add", "link")
    repository.git("commit", "-q", "-m", "a submodule")
    assert blobs(GitSource.at(repository.path)) == {b"file", b"where/it/points"}


def test_tags_of_blobs_and_trees_are_read(repository: Repository) -> None:
    repository.commit({"a": b"file"})
    repository.git("tag", "of-a-blob", repository.blob(b"tagged").decode())
    repository.git("tag", "-a", "-m", "m", "annotated", repository.blob(b"annotated").decode())
    repository.git("tag", "-a", "-m", "m", "twice", "annotated")
    inner = repository.blob(b"in a tree").decode()
    tree = repository.git("mktree", stdin=f"100644 blob {inner}\tinner.txt\n".encode())
    repository.git("tag", "of-a-tree", tree)
    source = GitSource.at(repository.path)
    assert blobs(source) == {b"file", b"tagged", b"annotated", b"in a tree"}
    assert {b"refs/tags/of-a-blob", b"inner.txt"} <= {path for (path, _), one in seen(source).items() if not one.first}


def test_stashes_and_detached_heads_are_part_of_the_history(repository: Repository) -> None:
    repository.commit({"a": b"one"})
    write(repository.path, {"a": b"stashed"})
    repository.git("stash", "-q")
    repository.git("checkout", "-q", "--detach")
    repository.commit({"a": b"detached"})
    assert blobs(GitSource.at(repository.path)) == {b"one", b"stashed", b"detached"}


def test_names_of_any_kind_come_through(repository: Repository) -> None:
    names = {"with space": b"1", ":colon": b"2", "new\nline": b"3", "-dash": b"4", "ünï": b"5", "tab\t": b"6"}
    repository.commit(names)
    bad = os.path.join(os.fsencode(repository.path), b"bytes\xff")  # noqa: PTH118 - bytes
    with open(bad, "wb") as file:  # noqa: PTH123 - bytes
        file.write(b"7")
    repository.commit({})
    paths = {path for path, _ in seen(GitSource.at(repository.path))}
    assert paths == {os.fsencode(name) for name in names} | {b"bytes\xff"}
    assert blobs(GitSource.at(repository.path)) == {b"1", b"2", b"3", b"4", b"5", b"6", b"7"}


def test_the_order_is_that_of_history(repository: Repository) -> None:
    data = [b"%d" % number for number in range(20)]
    for one in data:
        repository.commit({"a": one})
    assert contents(GitSource.at(repository.path)) == data


SKEWED = b"""\
commit refs/heads/main
mark :1
committer A <a@example.org> 1600000100 +0000
data 1
1
M 100644 inline original
data 4
same

commit refs/heads/main
committer A <a@example.org> 1600000010 +0000
data 1
2
from :1
M 100644 inline copy
data 4
same

commit refs/heads/side
committer A <a@example.org> 1600000050 +0000
data 1
3
from :1
M 100644 inline other
data 5
other
"""


def test_the_first_place_is_the_oldest_whatever_clocks_said(repository: Repository) -> None:
    repository.git("fast-import", "--quiet", stdin=SKEWED)
    same = repository.blob(b"same").decode()
    paths = [path for path, blob in seen(GitSource.at(repository.path)) if blob == same]
    assert paths == [b"original", b"copy"]


def test_excluded_paths_do_not_hide_a_blob_that_has_others(repository: Repository) -> None:
    first = repository.commit({"vendor/a": b"both", "vendor/b": b"vendor only"})
    repository.commit({"src/a": b"both"})
    source = GitSource.at(repository.path, excludes=parse_globs("vendor/"))
    assert blobs(source) == {b"both"}
    assert left_out(source) == {"excluded": 2}
    assert first not in {one.first for one in seen(source).values()}


def test_an_empty_repository_has_an_empty_listing(repository: Repository) -> None:
    assert listed(GitSource.at(repository.path)) == []


@pytest.mark.parametrize("option", ["--bare", "--mirror"])
def test_bare_repositories_are_read(repository: Repository, tmp_path: Path, option: str) -> None:
    repository.commit({"a": b"one"})
    repository.git("clone", "-q", option, ".", str(tmp_path / "bare.git"))
    assert blobs(GitSource.at(tmp_path / "bare.git")) == {b"one"}


def test_shallow_repositories_are_read_as_far_as_they_go(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"old": b"gone before the cut"}, remove=[])
    repository.commit({"kept": b"kept"}, remove=["old"])
    repository.commit({"a": b"last"})
    repository.git("clone", "-q", "--depth=2", f"file://{repository.path}", str(tmp_path / "shallow"))
    assert blobs(GitSource.at(tmp_path / "shallow")) == {b"kept", b"last"}


def test_repositories_of_sha_256_are_read(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repo", "--object-format=sha256")
    commit = repository.commit({"a": b"one", "b": b"two"})
    source = GitSource.at(repository.path)
    assert blobs(source) == {b"one", b"two"}
    assert {(len(blob), one.first) for (_, blob), one in seen(source).items()} == {(64, commit)}
    repository.commit({"a": b"three"})
    assert blobs(GitSource.at(repository.path, since="HEAD~1")) == {b"three"}


def test_a_worktree_is_the_same_repository(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"a": b"one"})
    repository.git("worktree", "add", "-q", str(tmp_path / "tree"))
    assert GitSource.at(tmp_path / "tree").instance == GitSource.at(repository.path).instance
    (repository.path / "folder").mkdir()
    assert GitSource.at(repository.path / "folder").instance == GitSource.at(repository.path).instance


def test_replaced_objects_are_read_as_they_were_written(repository: Repository) -> None:
    repository.commit({"a": b"true"})
    repository.git("replace", repository.blob(b"true").decode(), repository.blob(b"false").decode())
    assert b"true" in blobs(GitSource.at(repository.path))


# Parts of a history.


def test_since_a_revision_is_what_head_has_beyond_it(repository: Repository) -> None:
    repository.commit({"a": b"old"})
    repository.git("tag", "v1")
    repository.git("checkout", "-q", "-b", "elsewhere")
    repository.commit({"b": b"of another branch"})
    repository.git("checkout", "-q", "main")
    repository.commit({"a": b"new"})
    assert blobs(GitSource.at(repository.path, since="v1")) == {b"new"}
    assert blobs(GitSource.at(repository.path, since="HEAD")) == set()


@pytest.mark.parametrize("since", ["2020-01-01", "3 years ago", "2.years.ago", "2019-06-01 12:00:00", "last year"])
def test_since_a_date_is_what_is_younger(repository: Repository, since: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.scan.sources.helpers.NAME", ("-c", "user.name=A", "-c", "user.email=a@example.org"))
    old = "2001-01-01T00:00:00Z"
    write(repository.path, {"a": b"old"})
    repository.git("add", "-A")
    tree = repository.git("write-tree")
    environment = os.environ | {"GIT_COMMITTER_DATE": old, "GIT_AUTHOR_DATE": old}
    names = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-C", str(repository.path), "commit-tree", "-m", "old", tree]
    commit = subprocess.run(command, env=environment | names, capture_output=True, check=True, text=True).stdout.strip()
    repository.git("reset", "-q", "--hard", commit)
    repository.commit({"a": b"new"})
    assert blobs(GitSource.at(repository.path, since=since)) == {b"new"}


@pytest.mark.parametrize(
    "since", ["maim", "v1.2.3", "5", "now", "today", "", "--all", "-1", "2999-01-01", "2090-01-01", "no/such/branch"]
)
def test_since_neither_a_revision_nor_a_past_date_is_refused(repository: Repository, since: str) -> None:
    repository.commit({"a": b"one"})
    with pytest.raises(InvalidInput, match="neither a revision nor a date") as refused:
        GitSource.at(repository.path, since=since)
    assert refused.value.hint


def test_staged_is_the_index_against_head(repository: Repository) -> None:
    repository.commit({"a": b"committed", "b": b"untouched", "gone": b"removed"})
    write(repository.path, {"a": b"staged", "new": b"also staged"})
    repository.git("add", "-A")
    repository.git("rm", "-q", "gone")
    write(repository.path, {"a": b"not staged"})
    source = GitSource.at(repository.path, staged=True)
    assert blobs(source) == {b"staged", b"also staged"}
    blob = repository.blob(b"staged").decode()
    assert seen(source)[b"a", blob] == Seen(blob, added=((0, 6),))


def test_staged_works_before_the_first_commit(repository: Repository) -> None:
    write(repository.path, {"a": b"staged"})
    repository.git("add", "-A")
    assert blobs(GitSource.at(repository.path, staged=True)) == {b"staged"}
    assert blobs(GitSource.at(repository.path)) == set()


def test_staged_and_since_together_are_refused(repository: Repository) -> None:
    with pytest.raises(InvalidInput):
        GitSource.at(repository.path, since="HEAD", staged=True)


HOOK = """#!{python}
import os
from strandline.scan.sources import GitSource
source = GitSource.at(".", staged=True)
rows = [row for batch in source.list_items(lambda _: None) for row in batch.to_pylist()]
with source.open() as reader:
    found = [part.data for row in rows for part in reader.read(row["locator"], row["extra"]).parts]
open({out!r}, "w").write(repr((sorted(found), "GIT_INDEX_FILE" in os.environ)))
"""


def test_a_hook_sees_what_its_commit_takes_and_no_more(repository: Repository, tmp_path: Path) -> None:
    """`git commit FILE` makes a commit from an index of its own, which only the hook is told of."""
    repository.commit({"a": b"1", "b": b"1"})
    hook = repository.path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK.format(python=sys.executable, out=str(tmp_path / "out")))
    hook.chmod(0o755)
    write(repository.path, {"a": b"taken", "b": b"left"})
    repository.git("add", "b")
    repository.git("commit", "-q", "-m", "only a", "a")
    assert (tmp_path / "out").read_text() == repr(([b"taken"], True))


def test_variables_of_another_repository_do_not_lead_astray(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Repository(tmp_path / "other")
    other.commit({"x": b"of the other"})
    repository.commit({"a": b"mine"})
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.path))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.path / ".git" / "index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other.path / ".git" / "objects"))
    assert blobs(GitSource.at(repository.path)) == {b"mine"}


# Reading.


def test_blobs_of_any_bytes_are_read(repository: Repository) -> None:
    data = {b"", b"\n", b"\0" * 10, b"x" * 100_000, b"blob 5\n", bytes(range(256))}
    repository.commit({f"f{number}": one for number, one in enumerate(sorted(data))})
    repository.git("gc", "-q")
    assert blobs(GitSource.at(repository.path)) == data


def test_a_large_blob_is_a_row_with_a_problem_and_is_not_read(repository: Repository) -> None:
    repository.commit({"large": b"x" * 200_000, "small": b"small"})
    source = GitSource.at(repository.path, size_max=1_000)
    large = repository.blob(b"x" * 200_000)
    assert problems(source) == {large: Problem.TOO_LARGE}
    with source.open() as reader:
        with pytest.raises(ItemProblem) as refused:
            read(reader, large)
        assert refused.value.code is Problem.TOO_LARGE
        assert list(read(reader, repository.blob(b"small")).parts)[0].data == b"small"  # noqa: RUF015


def test_a_blob_that_is_gone_is_a_failure_and_the_reader_goes_on(repository: Repository) -> None:
    repository.commit({"a": b"one"})
    with GitSource.at(repository.path).open() as reader:
        with pytest.raises(ItemProblem) as refused:
            read(reader, b"0" * 40)
        assert refused.value.code is Problem.VANISHED
        assert read(reader, repository.blob(b"one")).size == 3


def test_a_damaged_blob_is_a_failure_and_the_reader_goes_on(repository: Repository) -> None:
    repository.commit({"a": b"one" * 1000, "b": b"two"})
    bad = repository.blob(b"one" * 1000).decode()
    path = repository.path / ".git" / "objects" / bad[:2] / bad[2:]
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = b"\xff" * (len(data) - len(data) // 2)
    path.write_bytes(bytes(data))
    with GitSource.at(repository.path).open() as reader:
        for _ in range(2):
            with pytest.raises(ItemProblem) as refused:
                read(reader, bad.encode())
            assert refused.value.code is Problem.DAMAGED
        assert read(reader, repository.blob(b"two")).size == 3


def test_a_blob_whose_file_is_lost_is_a_row_with_a_problem(repository: Repository) -> None:
    repository.commit({"a": b"lost", "b": b"kept"})
    bad = repository.blob(b"lost").decode()
    (repository.path / ".git" / "objects" / bad[:2] / bad[2:]).unlink()
    source = GitSource.at(repository.path)
    assert problems(source) == {bad.encode(): Problem.DAMAGED}
    assert blobs(source) == {b"kept"}


def test_a_command_that_dies_while_sizes_are_asked_costs_one_blob_at_most(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({f"f{number}": b"%d" % number for number in range(6)})
    bad = repository.blob(b"3")
    asked_sizes = git_revisions._asked_sizes  # noqa: SLF001 - the command is inside
    rounds: list[int] = []

    def dies(git: Git, blobs: Sequence[bytes]) -> Iterator[bytes]:
        rounds.append(len(blobs))
        for blob, size in zip(blobs, asked_sizes(git, blobs), strict=True):
            if blob.hex().encode() == bad or (len(rounds) == 1 and blob is blobs[1]):
                return
            yield size

    monkeypatch.setattr(git_revisions, "_asked_sizes", dies)
    assert problems(GitSource.at(repository.path)) == {bad: Problem.DAMAGED}
    assert len(rounds) > 2


def test_a_killed_command_is_started_again(repository: Repository) -> None:
    repository.commit({"a": b"one"})
    source = GitSource.at(repository.path)
    with source.open() as reader:
        read(reader, repository.blob(b"one"))
        process = reader._process  # type: ignore[attr-defined]  # noqa: SLF001 - to kill it
        process.kill()
        process.wait()
        assert read(reader, repository.blob(b"one")).size == 3


def test_no_command_and_no_handle_stays(repository: Repository) -> None:
    repository.commit({"a": b"one", "b": b"two" * 1000})
    source = GitSource.at(repository.path, size_max=10)
    contents(source)
    own = Path("/proc/self/task") / str(os.getpid()) / "children"
    children, handles = own.read_text(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted as it is
    for _ in range(3):
        contents(source)
        next(source.list_items(lambda _: None))
    assert len(os.listdir("/proc/self/fd")) <= handles  # noqa: PTH208 - the same
    assert own.read_text() == children


@pytest.mark.parametrize("unknown", ["GIT_NO_LAZY_FETCH", "GIT_ALLOW_PROTOCOL"])
def test_a_partial_clone_is_not_completed_from_the_network(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unknown: str
) -> None:
    """Old gits know only one of the two ways to be told, new ones both."""
    monkeypatch.delitem(git_commands._ENVIRONMENT, unknown)  # noqa: SLF001 - as if git did not know it
    repository.git("config", "uploadpack.allowFilter", "true")
    repository.git("config", "uploadpack.allowAnySHA1InWant", "true")
    repository.commit({"old": b"not fetched"})
    repository.commit({"a": b"checked out"}, remove=["old"])
    partial = tmp_path / "partial"
    repository.git("clone", "-q", "--filter=blob:none", f"file://{repository.path}", str(partial))
    source = GitSource.at(partial)
    missing = repository.blob(b"not fetched")
    assert problems(source) == {missing: Problem.NOT_FETCHED}
    assert blobs(source) == {b"checked out"}
    with source.open() as reader, pytest.raises(ItemProblem):
        read(reader, missing)
    assert problems(source) == {missing: Problem.NOT_FETCHED}


def test_a_clone_without_trees_is_an_error_with_a_hint(repository: Repository, tmp_path: Path) -> None:
    repository.git("config", "uploadpack.allowFilter", "true")
    repository.commit({"d/old": b"one"})
    repository.commit({"d/old": b"two"})
    partial = tmp_path / "partial"
    repository.git("clone", "-q", "--filter=tree:0", f"file://{repository.path}", str(partial))
    with pytest.raises(InputRefused, match="partial") as refused:
        listed(GitSource.at(partial))
    assert refused.value.hint


# Errors.


def test_a_folder_that_is_no_repository_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputUnusable, match="not a git repository") as refused:
        GitSource.at(tmp_path)
    assert refused.value.hint
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)  # noqa: S301


def test_a_path_that_does_not_exist_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputMissing) as refused:
        GitSource.at(tmp_path / "missing")
    assert refused.value.hint


def test_a_missing_git_is_an_error_with_a_hint(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputUnusable, match="git is not installed") as refused:
        GitSource.at(repository.path)
    assert refused.value.hint


def test_a_repository_of_another_user_is_an_error_with_a_hint(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"a": b"one"})
    monkeypatch.setitem(git_commands._ENVIRONMENT, "GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # noqa: SLF001
    with pytest.raises(InputRefused, match="belongs to another user") as refused:
        GitSource.at(repository.path)
    assert "safe.directory" in (refused.value.hint or "")


def test_a_reader_that_may_not_read_the_repository_does_not_blame_the_blobs(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"a": b"one"})
    source = GitSource.at(repository.path)
    monkeypatch.setitem(git_commands._ENVIRONMENT, "GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # noqa: SLF001
    with source.open() as reader, pytest.raises(InputRefused, match="belongs to another user"):
        read(reader, repository.blob(b"one"))


def test_no_program_that_a_repository_names_is_run(repository: Repository, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    evil.chmod(0o755)
    repository.commit({"a": b"one", ".gitattributes": b"* diff=evil filter=evil\n"})
    repository.commit({"a": b"two"})
    write(repository.path, {"a": b"staged"})
    repository.git("add", "a")
    for name in ("core.fsmonitor", "core.pager", "diff.external", "diff.evil.textconv", "diff.evil.command"):
        repository.git("config", name, str(evil))
    for name in ("filter.evil.smudge", "gpg.program", "core.sshCommand", "core.editor", "core.gitProxy"):
        repository.git("config", name, str(evil))
    repository.git("config", "log.showSignature", "true")
    source = GitSource.at(repository.path)
    assert b"one" in blobs(source)
    assert blobs(GitSource.at(repository.path, staged=True)) == {b"staged"}
    assert blobs(GitSource.at(repository.path, since="HEAD~1")) == {b"two"}
    assert not (tmp_path / "ran").exists()


def test_settings_of_the_user_do_not_change_what_is_listed(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"a": b"one", "d/b": b"two"})
    repository.commit({"c": b"one"}, remove=["a"])
    before = listed(GitSource.at(repository.path))
    settings = tmp_path / "settings"
    text = "[diff]\nrenames = copies\nrelative = true\nnoprefix = true\nmnemonicPrefix = true\n"
    settings.write_text(text + "[log]\nshowRoot = false\nfollow = true\n[core]\nquotePath = true\nabbrev = 4\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert listed(GitSource.at(repository.path / "d")) == before


# The pure part.

IDS = st.sampled_from([20, 32]).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size).map(bytes.hex), min_size=3, max_size=3)
)
RANGES = st.none() | st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), max_size=4).map(tuple)


@given(IDS, st.integers(0, 2**32 - 1), st.booleans(), st.booleans(), st.binary(), RANGES)
def test_what_is_known_of_a_version_is_read_back(
    ids: list[str],
    total: int,
    has_commit: bool,
    at_head: bool,
    leader: bytes,
    added: tuple[tuple[int, int], ...] | None,
) -> None:
    blob, first, last = ids if has_commit else (ids[0], "", "")
    one = Seen(blob, total, first, last, at_head, leader, added)
    assert parse_seen(format_seen(one)) == one


def test_what_older_versions_stored_of_a_blob_is_read() -> None:
    """They stored the number of places, and of the first ones the commit and the path."""
    places = [("ab" * 20, b"old/app.py"), ("", b"staged"), ("cd" * 20, b"new.py")]
    data = struct.pack("<I", 9)
    for commit, path in places:
        data += bytes([len(commit) // 2]) + bytes.fromhex(commit) + struct.pack("<I", len(path)) + path
    assert parse_seen(data) == Seen("", 9, "ab" * 20, "cd" * 20)


@given(st.lists(st.binary().filter(lambda word: b"\0" not in word)), st.integers(1, 10))
def test_words_come_whole_whatever_the_pieces(words: list[bytes], size: int) -> None:
    data = b"".join(word + b"\0" for word in words)
    assert list(tokens(data[at : at + size] for at in range(0, len(data), size))) == words


def test_lines_of_any_number_of_parents_are_read() -> None:
    commit, one, two, none = (digit * 40 for digit in (b"a", b"1", b"2", b"0"))
    words = [
        commit,
        b":000000 100644 " + none + b" " + one + b" A",
        b"a",
        b":100644 000000 " + one + b" " + none + b" D",
        b":removed",
        b":::100644 100644 100644 100755 " + b" ".join([one, one, one, two]) + b" MMM",
        b"merged",
        b"::160000 160000 160000 " + b" ".join([one, one, two]) + b" MM",
        b"submodule",
    ]
    found = list(changes(iter(words)))
    assert found == [Change(b"\xaa" * 20, b"a", b"\x11" * 20), Change(b"\xaa" * 20, b"merged", b"\x22" * 20)]
