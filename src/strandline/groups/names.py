"""File names of groups: the name of a group, encoded for every file system.

Letters, digits, "-", "_" and inner dots stand for themselves; every other byte of the UTF-8 form is "%" and two hex
digits.

Invariants: one name, one file name, and back; a file name that this module would not have written is not a group's.
"""

import re
from typing import Literal, get_args

from strandline.errors import InvalidInput
from strandline.files import TEMP_SUFFIX

Kind = Literal["snapshot", "delta"]

NAME_BYTES_MAX = 200
_FILE_NAME_BYTES_MAX = 255 - len(TEMP_SUFFIX)
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_FILE_NAME = re.compile(r"((?:[\w.-]|%[0-9A-F]{2})+)\.(" + "|".join(get_args(Kind)) + ")", re.ASCII)


def format_group_file(name: str, kind: Kind) -> str:
    """Return the file name of a group's snapshot or delta; `InvalidInput` for an invalid name."""
    data = _utf8(name)
    escaped = [chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in data]
    if escaped[0] == ".":
        escaped[0] = "%2E"
    file_name = "".join(escaped) + f".{kind}"
    if len(file_name) > _FILE_NAME_BYTES_MAX:
        hint = "shorten it; what is not a letter, a digit, '-', '_' or '.' takes three characters per byte"
        raise InvalidInput(f"the file name of group {name!r} would be longer than {_FILE_NAME_BYTES_MAX}", hint=hint)
    return file_name


def parse_group_file(file_name: str) -> tuple[str, Kind] | None:
    """Return the group and the kind in a file name, or None for another file."""
    match = _FILE_NAME.fullmatch(file_name)
    if match is None:
        return None
    kind: Kind = "snapshot" if match[2] == "snapshot" else "delta"
    try:
        name = _unescape(match[1]).decode()
        canonical = format_group_file(name, kind) == file_name
    except (UnicodeDecodeError, InvalidInput):
        return None
    return (name, kind) if canonical else None


def _unescape(text: str) -> bytes:
    return re.sub(rb"%([0-9A-F]{2})", lambda found: bytes.fromhex(found[1].decode()), text.encode())


def _utf8(name: str) -> bytes:
    try:
        data = name.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"group name {name!r} is not valid Unicode") from error
    if not 1 <= len(data) <= NAME_BYTES_MAX:
        raise InvalidInput(f"a group name has 1 to {NAME_BYTES_MAX} bytes, not {len(data)}")
    return data
