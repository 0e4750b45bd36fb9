"""Git's plumbing commands, run independently of the user's environment and configuration; git's errors as ours.

Invariants: no pager, no prompt, no hook, no program that a repository's configuration names, no fetch from a network;
replaced objects are read as they were written; variables that hooks set are dropped, but for the index that a commit
is being made from. A refusal is an error of ours, with a hint where one is known.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, NoReturn, cast

from strandline.detect.locations import shown
from strandline.scan.sources.errors import InputMissing, InputRefused, InputUnusable
from strandline.scan.sources.source import path_text

PIECE_BYTES = 1 << 20
_STDERR_BYTES = 4096
_SETTINGS = {
    "core.fsmonitor": "false",  # a program of the repository's choice
    "core.hooksPath": os.devnull,
    "core.pager": "cat",
}
_GIT = ("git", "--no-pager", *(part for pair in _SETTINGS.items() for part in ("-c", "=".join(pair))))
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # older versions of git have no other way to prevent fetches of a partial clone
}


@dataclass(frozen=True)
class Git:
    """A repository, by a path inside it; `index` is the one to use instead of its own."""

    repo: bytes
    index: bytes | None = None

    def run(self, *arguments: str | bytes) -> bytes:
        """Return the output of a command."""
        with self.stream(*arguments) as out:
            return out.read()

    @contextmanager
    def stream(self, *arguments: str | bytes, stdin: int | IO[bytes] = subprocess.DEVNULL) -> Iterator[IO[bytes]]:
        """Give a command's output to the block; leaving it early ends the command, and a failure of it is raised."""
        with TemporaryFile() as said, self.start(arguments, stdin=stdin, stderr=said) as process:
            out = cast("IO[bytes]", process.stdout)
            try:
                yield out
                is_read = not out.read(1)
            except BaseException:
                process.kill()
                raise
            if not is_read:
                process.kill()
            elif process.wait():
                said.seek(0)
                self.refuse(said.read(_STDERR_BYTES))

    def ask(self, *arguments: str | bytes) -> bytes | None:
        """Return the output of a command, or None if it fails."""
        with self.start(arguments, stdin=subprocess.DEVNULL) as process:
            said, _ = process.communicate()
        return None if process.returncode else said

    def start(
        self,
        arguments: Sequence[str | bytes],
        *,
        stdin: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Start a command."""
        command = [*_GIT, "-C", self.repo, *arguments]
        try:
            return subprocess.Popen(  # noqa: S603 - fixed words, and names after `--end-of-options`
                command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, env=_environment(self.index)
            )
        except FileNotFoundError as error:
            hint = "install git 2.31 or newer, and check it with `git --version`"
            raise InputUnusable(self._shown, "git is not installed", hint=hint) from error

    def refuse(self, said: bytes) -> NoReturn:
        """Raise git's error."""
        text = path_text(said).strip()
        if "dubious ownership" in text:
            hint = f"if you trust it: git config --global --add safe.directory {self._shown}"
            raise InputRefused(
                self._shown, "the repository belongs to another user, so git does not read it", hint=hint
            )
        if "not a git repository" in text:
            hint = "name a folder of one; files are scanned without --git, --staged and --since"
            raise InputUnusable(self._shown, "this is not a git repository", hint=hint)
        if "promisor" in text or re.search(r"transport '.*' not allowed", text):
            hint = "fetch what is missing (git fetch --refetch), or clone without --filter=tree"
            raise InputRefused(self._shown, "the clone is partial, and folders of its history are missing", hint=hint)
        first = shown(text.partition("\n")[0].removeprefix("fatal: "))
        raise InputRefused(self._shown, f"git: {first or 'it failed without a message'}", hint="try `git fsck`")

    @property
    def _shown(self) -> str:
        return shown(path_text(self.repo))


def repository_at(path: str | bytes | os.PathLike[str], index: bytes | None = None) -> Git:
    """Return the repository of a path; `InputMissing` if the path does not exist."""
    real = os.path.realpath(os.fsencode(path))
    if not os.path.isdir(real):  # noqa: PTH112 - pathlib does not take bytes
        raise InputMissing(shown(path_text(os.fsencode(path))), "folder")
    return Git(real, index)


def _environment(index: bytes | None) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith("GIT_CONFIG_") or name == "GIT_EXEC_PATH"
    }
    own = {} if index is None else {"GIT_INDEX_FILE": os.fsdecode(index)}
    return kept | _ENVIRONMENT | own
