"""The files of a stream's consumers: what each one is, and beside that, in a folder of its own, where it is.

    <stream>/consumers/<consumer>.consumer    when it was made, and its configuration; it exists from this file on
    <stream>/consumers/<consumer>/            its position (`strandline.groups`)

    0   8s   magic "STRANDLC"
    8   u16  version, 1
    10  u16  zero
    12  u32  CRC-32C of bytes 0-11, then of byte 16 to the end
    16  i64  created
    24       configuration, JSON; if it had other filters, a line feed and those, JSON: [[through, filters or null], …]

Invariants: the file of a consumer is written when its position is on stable storage, replaced as a whole, and removed
before anything else of it; so a folder without one is left over and nobody's.
"""

import contextlib
import struct
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from strandline.broker.api.consumer_config import ConsumerConfig
from strandline.broker.api.json_text import read_json, write_json
from strandline.broker.api.schema import from_json, to_json
from strandline.broker.consumers.history import History, Span
from strandline.broker.streams.files import CONSUMERS_FOLDER
from strandline.errors import Damaged, FormatError, StrandlineError
from strandline.files import TEMP_SUFFIX, Disk, OsDisk, read_file, remove_if_there, replace_file, storage_errors

SUFFIX = ".consumer"
NAME_BYTES_MAX = 255 - len(SUFFIX) - len(TEMP_SUFFIX)
"""Longer names cannot be files."""
VERSION = 1
_MAGIC = b"STRANDLC"
_HEAD = struct.Struct("<8sHH")
_CRC = struct.Struct("<I")
_CREATED = struct.Struct("<q")
_LINE = b"\n"  # no JSON of ours holds one
_BODY_AT = _HEAD.size + _CRC.size
_SAFE = "remove its folder and make the consumer anew; the messages are in the stream"


class Kept(NamedTuple):
    """A consumer as it is kept."""

    created_ns: int
    config: ConsumerConfig
    history: History = ()


def format_consumer(kept: Kept) -> bytes:
    """Return the file."""
    head = _HEAD.pack(_MAGIC, VERSION, 0)
    body = _CREATED.pack(kept.created_ns) + to_json(kept.config)
    if kept.history:
        body += _LINE + write_json(kept.history)
    return head + _CRC.pack(crc32c(body, crc32c(head))) + body


def parse_consumer(data: bytes, path: str) -> Kept:
    """Return what a file says; `FormatError` or `Damaged` if it is not a whole one of ours."""
    if not data.startswith(_MAGIC):
        raise FormatError(path, "not a consumer")
    if len(data) < _BODY_AT + _CREATED.size:
        raise Damaged(path, "the file ends too early", safe=_SAFE)
    head, body = data[: _HEAD.size], data[_BODY_AT:]
    _, version, _ = _HEAD.unpack(head)
    if version != VERSION:
        raise FormatError(path, f"version {version} is not known", hint="was it written by a later one?")
    if _CRC.unpack_from(data, _HEAD.size)[0] != crc32c(body, crc32c(head)):
        raise Damaged(path, "the checksum does not match", safe=_SAFE)
    config, _, before = body[_CREATED.size :].partition(_LINE)
    spans = read_json(before) if before else ()
    history = tuple(Span(through, None if filters is None else tuple(filters)) for through, filters in spans)
    return Kept(_CREATED.unpack_from(body)[0], from_json(ConsumerConfig, config), history)


def format_consumer_file(name: str) -> str:
    """Return what the file of a consumer is called."""
    return name + SUFFIX


def parse_consumer_file(file_name: str) -> str | None:
    """Return whose file it is, None if it is none."""
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
        """Return an empty folder for the position of a new consumer."""
        place = self.place(name)
        with storage_errors(place):
            self._disk.make_folder(self._folder)
            self._disk.make_folder(place)
            if self._clear(place):
                self._disk.sync_folder(place)
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
            found = {name: self._read(name) for file in names if (name := parse_consumer_file(file)) is not None}
            if found:
                self._disk.sync_folder(self._folder)  # whoever wrote them may have died before it did
            for left in names:
                if "." not in left and left not in found:
                    self._clear(self.place(left))
                    _remove_folder(self._disk, self.place(left))
            return found

    def _read(self, name: str) -> Kept | StrandlineError:
        path = self._folder / format_consumer_file(name)
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

    def _clear(self, folder: Path) -> bool:
        names = self._names(folder)
        for name in names:
            remove_if_there(self._disk, folder / name)
        return bool(names)


def _remove_folder(disk: Disk, folder: Path) -> None:
    """Remove an empty folder where there are folders; one that stays is harmless."""
    if isinstance(disk, OsDisk):
        with contextlib.suppress(OSError):
            folder.rmdir()
