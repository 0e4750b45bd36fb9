r"""The identity of a repository: its first root commit, or a given name, the same in every clone and every folder.

    item        repository \0 path, below the top of the work tree
    version     git:<id of the blob>; a file of a work tree has the id that git would give it

The oldest root of all references counts: branches of another origin, which come later, change nothing. A shallow clone
does not know its roots, so the address of its remote counts, without a login. A repository without commits has only its
path.

Invariants: a repository and its items have the same names in every clone; the root is looked for once, and then
remembered under the cache folder, where it is checked before it is taken.
"""
# ruff: noqa: PTH118, PTH120 (names are bytes, which pathlib does not take)

import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from strandline.cache import cache_folder
from strandline.pipeline.identity import ConnectorInstanceId, connector_instance_id
from strandline.scan.sources.errors import InputRefused, InputUnusable
from strandline.scan.sources.git_commands import Git, repository_at
from strandline.scan.sources.git_urls import without_login

TAG = "git"
TREE, HISTORY = "tree", "history"
"""The two views of a repository: its work tree, and its commits."""
_ROOT = re.compile(rb"[0-9a-f]{40}|[0-9a-f]{64}")
_SHA1_DIGITS = 40


@dataclass(frozen=True)
class Repository:
    """A repository: its identity, the top of its work tree (empty if it has none), and its kind of hashes."""

    identity: bytes
    top: bytes
    hash_name: str

    @property
    def instance(self) -> ConnectorInstanceId:
        """Return the instance that its items belong to."""
        return connector_instance_id(b"git\0" + self.identity)

    def version_of(self, data: bytes) -> bytes:
        """Return the version that a file of the work tree is."""
        digest = hashlib.new(self.hash_name, b"blob %d\0" % len(data), usedforsecurity=False)
        digest.update(data)
        return blob_version(digest.hexdigest())


def format_locator(identity: bytes, path: bytes) -> bytes:
    """Return the locator of a path in a repository."""
    return identity + b"\0" + path


def parse_locator(locator: bytes) -> bytes:
    """Return the path of a locator."""
    return locator.partition(b"\0")[2]


def blob_version(blob: str) -> bytes:
    """Return the version of a path that has a blob."""
    return b"git:" + blob.encode()


def repository_of(git: Git, name: str = "") -> Repository:
    """Return the identity of a repository; a given name counts instead of its commits."""
    said = git.run("rev-parse", "--is-shallow-repository", "--show-object-format", "--git-common-dir").split(b"\n")
    is_shallow, kind, common = said[0] == b"true", said[1].decode(), os.path.join(git.repo, said[2])
    top = (git.ask("rev-parse", "--show-toplevel") or b"").removesuffix(b"\n")
    identity = name.encode() or _identity(git, os.path.realpath(common), is_shallow=is_shallow)
    return Repository(identity, top and os.path.realpath(top), kind)


def enclosing_repository(folder: bytes, name: str = "") -> Repository | None:
    """Return the repository in whose work tree a folder is; None if there is none that git reads."""
    at = folder
    while not os.path.lexists(os.path.join(at, b".git")):
        if at in {b"/", b""}:
            return None
        at = os.path.dirname(at)
    try:
        found = repository_of(repository_at(at), name)
    except (InputRefused, InputUnusable):  # git is missing, or does not trust the folder: then its files are files
        return None
    return found if found.top and (folder + b"/").startswith(found.top.rstrip(b"/") + b"/") else None


def _identity(git: Git, common: bytes, *, is_shallow: bool) -> bytes:
    if is_shallow:
        remote = (git.ask("config", "--get", "remote.origin.url") or b"").strip()
        if remote:
            return without_login(os.fsdecode(remote)).encode(errors="surrogateescape")
    return _cached_root(git, common) or b"unborn:" + blake3(common).hexdigest()[:_SHA1_DIGITS].encode()


def _cached_root(git: Git, common: bytes) -> bytes:
    path = cache_folder() / "repositories" / blake3(common).hexdigest()
    known = b""
    with suppress(OSError):
        known = path.read_bytes()
    if _ROOT.fullmatch(known) and git.ask("rev-list", "--max-parents=0", "--max-count=1", known, "--") == known + b"\n":
        return known
    found = _oldest_root(git)
    if found:
        _remember(path, found)
    return found


def _oldest_root(git: Git) -> bytes:
    roots = git.run("rev-list", "--max-parents=0", "--timestamp", "--all").split(b"\n")
    if roots == [b""]:  # a commit that no branch names
        roots = (git.ask("rev-list", "--max-parents=0", "--timestamp", "HEAD", "--") or b"").split(b"\n")
    dated = [line.split(b" ") for line in roots if line]
    return min(((int(when), root) for when, root in dated), default=(0, b""))[1]


def _remember(path: Path, root: bytes) -> None:
    with suppress(OSError):  # it costs time and nothing else
        path.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(root)
        fresh.replace(path)
