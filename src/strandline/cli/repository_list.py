"""The file of `scan --repos`: a repository a line, with an optional name.

    # a comment
    https://host/org/shop.git
    git@host:org/pay.git  payments      # a name: it stays, whatever address the repository has
    ../checkout "web shop"              # a path is relative to the folder of the file; quote spaces

Invariants: a line is an address or a path, whatever it says, never an option; errors name the line and no login; no
name stands for two repositories.
"""

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from strandline.detect.locations import shown
from strandline.errors import InvalidInput
from strandline.scan.inventory import INVENTORIES_MAX
from strandline.scan.sources.errors import InputMissing
from strandline.scan.sources.git_urls import is_git_url, without_login

STDIN = "-"
LIST_BYTES_MAX = 16 << 20
_WORDS_MAX = 2


@dataclass(frozen=True)
class ListedRepository:
    """A line: the address or the path, and the name that it gives."""

    address: str
    name: str
    line: int

    def __repr__(self) -> str:
        return f"ListedRepository({self.shown!r}, line={self.line})"

    @property
    def shown(self) -> str:
        """Return the name, or the address without a login, for messages."""
        return shown(self.name or without_login(self.address))


def read_list(where: str) -> tuple[ListedRepository, ...]:
    """Read a file, or the standard input for `-`."""
    if where == STDIN:
        data, folder = sys.stdin.buffer.read(LIST_BYTES_MAX + 1), ""
    else:
        path = Path(where)
        try:
            with path.open("rb") as file:
                data = file.read(LIST_BYTES_MAX + 1)
        except FileNotFoundError as error:
            raise InputMissing(f"--repos {shown(where)}", "file") from error
        except OSError as error:
            hint = "--repos takes a file of addresses and paths, one a line"
            raise InvalidInput(f"--repos {shown(where)}: {error.strerror}", hint=hint) from error
        folder = str(path.parent) if path.parent != Path() else ""
    if len(data) > LIST_BYTES_MAX:
        raise InvalidInput(f"--repos {shown(where)}: larger than {LIST_BYTES_MAX >> 20} MiB", hint="split the list")
    return parse_list(data.decode("utf-8-sig", errors="surrogateescape"), shown(where), folder)


def parse_list(text: str, where: str, folder: str = "") -> tuple[ListedRepository, ...]:
    """Return the repositories of a list in its order, one that is there twice once."""
    found: dict[tuple[str, str], ListedRepository] = {}
    names: dict[str, ListedRepository] = {}
    for number, line in enumerate(text.split("\n"), 1):
        words = _words(line, f"--repos {where}, line {number}")
        if not words:
            continue
        name = words[1] if len(words) == _WORDS_MAX else ""
        one = ListedRepository(_in_folder(words[0], folder, f"--repos {where}, line {number}"), name, number)
        known = found.setdefault((one.address, name), one)
        if name and names.setdefault(name, known) is not known:
            raise InvalidInput(
                f"--repos {where}, line {number}: the name {shown(name)!r} is that of line {names[name].line}",
                hint="give each repository a name of its own",
            )
    if not found:
        raise InvalidInput(f"--repos {where}: no repository is in it", hint="write an address or a path a line")
    if len(found) > INVENTORIES_MAX:
        raise InvalidInput(
            f"--repos {where}: {len(found):,} repositories, and a state lists {INVENTORIES_MAX:,}",
            hint="split the list, and give each part a --state",
        )
    return tuple(found.values())


def _words(line: str, where: str) -> list[str]:
    lexer = shlex.shlex(_without_comment(line.rstrip("\r")), posix=True)
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise InvalidInput(f"{where}: a quotation mark is not closed", hint="quote a whole path or name") from error
    if len(words) > _WORDS_MAX:
        raise InvalidInput(f"{where}: more than an address and a name", hint='quote a path with spaces: "my shop"')
    if words and (not words[0] or words[0] == STDIN or "\0" in line):
        raise InvalidInput(f"{where}: not a repository", hint="write an address or a path")
    return words


def _without_comment(line: str) -> str:
    """Return a line without its comment: a `#` at its beginning, or after a space outside quotation marks."""
    quote = ""
    for at, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at]
    return line


def _in_folder(address: str, folder: str, where: str) -> str:
    """Return a path below the folder of the list; an address as it is."""
    if "://" in address or is_git_url(address):
        return address
    try:
        path = Path(address).expanduser()
    except RuntimeError as error:
        raise InvalidInput(f"{where}: {shown(address)}: no such user", hint="write the path without ~") from error
    return os.path.join(folder, path)  # noqa: PTH118 - a path that is absolute stays as it is
