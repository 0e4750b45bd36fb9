"""Queries of a repository beside its history: the first revision, objects of tags, missing objects and sizes.

Invariants: `since` is a revision or a date that git understands, or an error; nothing is fetched.
"""

import re
import time
from binascii import unhexlify
from collections.abc import Iterator, Sequence
from datetime import date
from functools import partial
from tempfile import TemporaryFile
from typing import IO, NamedTuple, cast

from strandline.errors import InvalidInput
from strandline.scan.sources.errors import Problem
from strandline.scan.sources.git_commands import PIECE_BYTES, Git
from strandline.scan.sources.git_history import Change, tokens

_DATE_WORD = re.compile(
    r"""\d+ | \d{4}-\d\d-\d\d(T[\d:]+Z?)? | \d\d:\d\d(:\d\d)? | [+-]\d{4} | \d+(am|pm) | @\d+ | ago | last | noon
    | midnight | today | yesterday | one | two | three | four | five | six | seven | eight | nine | ten
    | (second|minute|hour|day|week|month|year)s?
    | (mon|tues|wednes|thurs|fri|satur|sun)day
    | jan(uary)? | feb(ruary)? | mar(ch)? | apr(il)? | may | june? | july? | aug(ust)? | sep(tember)? | oct(ober)?
    | nov(ember)? | dec(ember)?""",
    re.VERBOSE | re.IGNORECASE,
)
_AUTHOR = re.compile(rb"^author (.*?) ?<(.*)> (\d{1,15}) [+-]\d{4}$", re.MULTILINE)
_ENCODING = re.compile(rb"^encoding (.+)$", re.MULTILINE)
_DATE_LENGTH = len("2026-01-31")
_A_DAY_S = 86_400


def since_arguments(git: Git, since: str) -> tuple[str, ...]:
    """Return the arguments of `rev-list` for `since`; reject text that is neither a revision nor a date.

    Git parses any text as a date, and unknown text as now: a misspelt branch would be an empty history.
    """
    if not since.startswith("-"):
        found = git.ask("rev-parse", "--verify", "--quiet", "--end-of-options", since + "^{commit}")
        if found:
            return "HEAD", "^" + found.strip().decode()
    words = re.split(r"[\s.,]+", since.strip())
    if all(map(_DATE_WORD.fullmatch, words)) and not all(word.isdecimal() for word in words):
        age = int(git.run("rev-parse", f"--since={since}").removeprefix(b"--max-age="))
        if age < int(time.time()) - 1 and not any(map(_is_ahead, words)):
            return f"--since={since}", "HEAD"
    hint = "name a branch, tag or commit, or a date such as 2026-01-31, yesterday or '2 weeks ago'"
    raise InvalidInput(f"--since {since!r} is neither a revision nor a date in the past", hint=hint)


def _is_ahead(word: str) -> bool:
    """Return whether the text is a date in the future; git misreads dates beyond this century."""
    try:
        return date.fromisoformat(word[:_DATE_LENGTH]) > date.fromtimestamp(time.time() + _A_DAY_S)  # noqa: DTZ012
    except ValueError:
        return False


def tagged(git: Git) -> Iterator[Change]:
    """Yield blobs that references name without a commit."""
    names = git.run("for-each-ref", "--format=%(objecttype) %(refname)").splitlines()
    peeled = [name for kind, _, name in (line.partition(b" ") for line in names) if kind != b"commit"]
    with TemporaryFile() as asked:
        asked.writelines(name + b"^{}\n" for name in peeled)
        asked.seek(0)
        with git.stream("cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=asked) as out:
            answers = out.read().split(b"\n")
    for name, answer in zip(peeled, answers, strict=False):
        kind, _, found = answer.partition(b" ")
        if kind == b"blob":
            yield Change(b"", name, unhexlify(found))
        elif kind == b"tree":
            yield from _tree(git, found)


def _tree(git: Git, tree: bytes) -> Iterator[Change]:
    with git.stream("ls-tree", "-r", "-z", "--full-tree", tree) as out:
        for line in tokens(iter(partial(out.read, PIECE_BYTES), b"")):
            about, _, path = line.partition(b"\t")
            _, kind, found = about.split(b" ")
            if kind == b"blob":
                yield Change(b"", path, unhexlify(found))


def head_files(git: Git) -> frozenset[tuple[bytes, bytes]]:
    """Return the paths of HEAD, each with its blob; none if there is no commit."""
    if not git.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}"):
        return frozenset()
    return frozenset((change.path, change.blob) for change in _tree(git, b"HEAD"))


class Author(NamedTuple):
    """The author of a commit, and the date in seconds since 1970."""

    commit: str
    name: str
    email: str
    when_s: int


def authors(git: Git, commits: Sequence[str]) -> Iterator[Author]:
    """Yield the authors of commits, as the commits have them; those that git does not find are left out."""
    with TemporaryFile() as asked:
        asked.writelines(commit.encode() + b"\n" for commit in commits)
        asked.seek(0)
        with git.stream("cat-file", "--batch", stdin=asked) as out:
            for commit in commits:
                match out.readline().split():
                    case [_, b"commit", size]:
                        found = _author(commit, out.read(int(size) + 1))
                        if found is not None:
                            yield found
                    case _:
                        pass


def _author(commit: str, data: bytes) -> Author | None:
    head = data.partition(b"\n\n")[0]
    line = _AUTHOR.search(head)
    if line is None:
        return None
    said = _ENCODING.search(head)
    name, email = (
        _decoded(text, said[1].decode("ascii", "replace") if said else "utf-8") for text in line.groups()[:2]
    )
    return Author(commit, name, email, int(line[3]))


def _decoded(text: bytes, encoding: str) -> str:
    try:
        return text.decode(encoding)
    except (LookupError, UnicodeDecodeError):
        return text.decode(errors="replace")


def absent(git: Git) -> frozenset[bytes]:
    """Return the ids of objects that a partial clone has not fetched."""
    if not git.ask("config", "--get-regexp", r"^(extensions\.partialclone|remote\..*\.promisor)$"):
        return frozenset()
    with git.stream("rev-list", "--all", "--objects", "--missing=print") as out:
        return frozenset(unhexlify(line[1:].strip()) for line in out if line.startswith(b"?"))


def blob_sizes(git: Git, blobs: Sequence[bytes]) -> Iterator[int | Problem]:
    """Yield the sizes of blobs, or that a blob is damaged: git reports it, or dies twice."""
    at, died_at = 0, -1
    while at < len(blobs):
        for answer in _asked_sizes(git, blobs[at:]):
            yield int(answer) if answer.isdigit() else Problem.DAMAGED
            at += 1
        if at < len(blobs) and at == died_at:
            yield Problem.DAMAGED
            at += 1
        died_at = at


def _asked_sizes(git: Git, blobs: Sequence[bytes]) -> Iterator[bytes]:
    with TemporaryFile() as asked:
        asked.writelines(blob.hex().encode() + b"\n" for blob in blobs)
        asked.seek(0)
        with git.start(("cat-file", "--batch-check=%(objectsize)", "--buffer"), stdin=asked) as process:
            try:
                yield from (line.rstrip() for line in cast("IO[bytes]", process.stdout))
            finally:
                process.kill()
