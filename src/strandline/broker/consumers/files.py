"""The files of a stream's consumers: what each one is, and beside that, in a folder of its own, where it is.

    <stream>/consumers/<consumer>.consumer    when it was made, where it begins, what it is; it exists from this file on
    <stream>/consumers/<digest>.long.consumer the same for a name that would be too long: its SHA-256 in hex
    <stream>/consumers/<consumer>/            its position, once it is another (`strandline.groups`)

    0   8s   magic "STRANDLC"
    8   u16  version, 2
    10  u16  zero
    12  u32  CRC-32C of bytes 0-11, then of byte 16 to the end
    16  i64  created
    24  u64  the sequence at which it begins, 0 if that is not known (not in version 1)
    32  u64  the sequence up to which it then wants only the last message of each subject (not in version 1)
    40       configuration, JSON; if it had other filters, a line feed and those, JSON: [[through, filters or null], …]

Invariants: the file of a consumer is replaced as a whole, and removed before anything else of it; so a folder without
one is left over and nobody's.
"""

import contextlib
import struct
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from strandline.broker.api.consumer_config import ConsumerConfig
from strandline.broker.api.json_text import read_json, write_json
from strandline.broker.api.schema import from_json, to_json
from strandline.broker.consumers.filter_history import History, Span
from strandline.broker.streams.files import CONSUMERS_FOLDER
from strandline.checksums import crc32c
from strandline.errors import Damaged, FormatError, StrandlineError
from strandline.files import TEMP_SUFFIX, Disk, read_file, remove_if_there, replace_file, storage_errors

SUFFIX = ".consumer"
LONG_SUFFIX = ".long.consumer"
NAME_BYTES_MAX = 255
"""Longer names cannot be folders."""
_PLAIN_BYTES_MAX = NAME_BYTES_MAX - len(SUFFIX) - len(TEMP_SUFFIX)
"""The file of a longer name is called by its digest: with the suffixes, the name itself would be too long."""
VERSION = 2
_MAGIC = b"STRANDLC"
_HEAD = struct.Struct("<8sHH")
_CRC = struct.Struct("<I")
_CREATED = {1: struct.Struct("<q"), VERSION: struct.Struct("<qQQ")}
_LINE = b"\n"  # no JSON of ours holds one
_BODY_AT = _HEAD.size + _CRC.size
_SAFE = "remove its folder and make the consumer anew; the messages are in the stream"


class Kept(NamedTuple):
    """A consumer as it is kept."""

    created_ns: int
    config: ConsumerConfig
    history: History = ()
    begins: tuple[int, int] = (0, 0)
    """Where it begins, and up to where it then wants only the last message of each subject; 0 if not known."""


def format_consumer(kept: Kept) -> bytes:
    """Return the file."""
    head = _HEAD.pack(_MAGIC, VERSION, 0)
    body = _CREATED[VERSION].pack(kept.created_ns, *kept.begins) + to_json(kept.config)
    if kept.history:
        body += _LINE + write_json(kept.history)
    return head + _CRC.pack(crc32c(body, crc32c(head))) + body


def parse_consumer(data: bytes, path: str) -> Kept:
    """Return what a file says; `FormatError` or `Damaged` if it is not a whole one of ours."""
    if not data.startswith(_MAGIC):
        raise FormatError(path, "not a consumer")
    if len(data) < _BODY_AT + _CREATED[1].size:
        raise Damaged(path, "the file ends too early", safe=_SAFE)
    head, body = data[: _HEAD.size], data[_BODY_AT:]
    _, version, _ = _HEAD.unpack(head)
    if version not in _CREATED:
        raise FormatError(path, f"version {version} is not known", hint="was it written by a later one?")
    if _CRC.unpack_from(data, _HEAD.size)[0] != crc32c(body, crc32c(head)):
        raise Damaged(path, "the checksum does not match", safe=_SAFE)
    created = _CREATED[version]
    created_ns, *begins = created.unpack_from(body)
    config, _, before = body[created.size :].partition(_LINE)
    spans = read_json(before) if before else ()
    history = tuple(Span(through, None if filters is None else tuple(filters)) for through, filters in spans)
    position, resume = begins or (0, 0)
    return Kept(created_ns, from_json(ConsumerConfig, config), history, (position, resume))


def format_consumer_file(name: str) -> str:
    """Return what the file of a consumer is called: by its name, or by the digest of a long one."""
    data = name.encode()
    return name + SUFFIX if len(data) <= _PLAIN_BYTES_MAX else sha256(data).hexdigest() + LONG_SUFFIX


def parse_consumer_file(file_name: str) -> str | None:
    """Return whose file it is, or the digest of a long name, which the file itself tells; None if it is none."""
    if file_name.endswith(LONG_SUFFIX):
        return file_name.removesuffix(LONG_SUFFIX)
    return file_name.removesuffix(SUFFIX) if file_name.endswith(SUFFIX) else None


class ConsumerFiles:
    """Reads and writes the consumers of one stream."""

    def __init__(self, disk: Disk, stream_folder: Path) -> None:
        self._disk = disk
        self._folder = stream_folder / CONSUMERS_FOLDER

    def place(self, name: str) -> Path:
        """Return the folder of a consumer's position."""
        return self._folder / name

    def prepare(self, name: str) -> Path:
        """Return the folder for the position of a new consumer; nothing is in it."""
        place = self.place(name)
        with storage_errors(place):
            self._disk.make_folder(self._folder)
            with contextlib.suppress(FileNotFoundError):
                if self._disk.names(place):
                    self._disk.sync_folder(self._folder)  # whoever removed the consumer may have failed to do so
                    self._clear(place)
                self._disk.sync_folder(place)  # nothing that was removed there comes back to the new one
        return place

    def write(self, name: str, kept: Kept) -> None:
        """Say what a consumer is."""
        path = self._folder / format_consumer_file(name)
        with storage_errors(path):
            replace_file(self._disk, path, format_consumer(kept))

    def read_all(self) -> dict[str, Kept | StrandlineError]:
        """Return every consumer, or why it cannot be read; what was removed by halves goes."""
        with storage_errors(self._folder):
            names = self._names(self._folder)
            found = dict(self._named(name, file) for file in names if (name := parse_consumer_file(file)) is not None)
            if names:
                self._disk.sync_folder(self._folder)  # whoever wrote or removed them may have died before it did
            for left in names:
                if "." not in left and format_consumer_file(left) not in names:
                    self._clear(self.place(left))
                    _remove_folder(self._disk, self.place(left))
            return found

    def read(self, name: str) -> Kept | StrandlineError | None:
        """Return a consumer whose files failed, or why it cannot be read; None if it is gone, and stays so."""
        try:
            with storage_errors(self._folder):
                self._disk.sync_folder(self._folder)
                if format_consumer_file(name) not in self._disk.names(self._folder):
                    return None
        except StrandlineError as error:
            return error
        return self._read(format_consumer_file(name))

    def _named(self, name: str, file: str) -> tuple[str, Kept | StrandlineError]:
        """Return a consumer with its name, which is in the file if it is a long one."""
        kept = self._read(file)
        if file.endswith(LONG_SUFFIX) and not isinstance(kept, StrandlineError):
            name = kept.config.name
        return name, kept

    def _read(self, file: str) -> Kept | StrandlineError:
        path = self._folder / file
        try:
            return parse_consumer(read_file(self._disk, path) or b"", str(path))
        except StrandlineError as error:
            return error

    def remove(self, name: str) -> None:
        """Remove a consumer that is closed: first what makes it one, then the rest."""
        with storage_errors(self._folder):
            remove_if_there(self._disk, self._folder / format_consumer_file(name))
            self._disk.sync_folder(self._folder)
            self._clear(self.place(name))
            _remove_folder(self._disk, self.place(name))

    def remove_all(self) -> None:
        """Remove whatever there is; no crash brings a consumer back, nor one that somebody else has removed."""
        with storage_errors(self._folder):
            names = self._names(self._folder)
            for name in names:
                if "." in name:
                    remove_if_there(self._disk, self._folder / name)
            for folder in (self._folder, self._folder.parent):
                with contextlib.suppress(FileNotFoundError):
                    self._disk.sync_folder(folder)
            for name in names:
                if "." not in name:
                    self._clear(self.place(name))
                    _remove_folder(self._disk, self.place(name))
            _remove_folder(self._disk, self._folder)
            _remove_folder(self._disk, self._folder.parent)  # if the stream is gone already

    def _names(self, folder: Path) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return self._disk.names(folder)
        return []

    def _clear(self, folder: Path) -> None:
        for name in self._names(folder):
            remove_if_there(self._disk, folder / name)


def _remove_folder(disk: Disk, folder: Path) -> None:
    """Remove an empty folder; one that stays is harmless."""
    with contextlib.suppress(OSError):
        disk.remove_folder(folder)
