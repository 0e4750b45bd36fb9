"""The files of a stream's consumers: the record of each, and beside it a folder with its position.

    <stream>/consumers/<consumer>.consumer    creation time, start, configuration; the consumer exists from this file on
    <stream>/consumers/<digest>.long.consumer the same for a name too long for a file: its SHA-256 in hex
    <stream>/consumers/<consumer>/            its position, once it has changed (`strandline.groups`)

    0   8s   magic "STRANDLC"
    8   u16  version, 2
    10  u16  zero
    12  u32  CRC-32C of bytes 0-11, then of byte 16 to the end
    16  i64  created
    24  u64  the start sequence, 0 if unknown (not in version 1)
    32  u64  up to which sequence only the last message of each subject is wanted (not in version 1)
    40       configuration, JSON; after a change of filters, a line feed and JSON: [[through, filters or null], …]

Invariants: the file of a consumer is replaced atomically, and removed before its folder; so a folder without a file is
an orphan.
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
"""The longest name that a folder can have."""
_PLAIN_BYTES_MAX = NAME_BYTES_MAX - len(SUFFIX) - len(TEMP_SUFFIX)
"""A longer name is replaced by its digest, because the suffixes would make it too long."""
VERSION = 2
_MAGIC = b"STRANDLC"
_HEAD = struct.Struct("<8sHH")
_CRC = struct.Struct("<I")
_CREATED = {1: struct.Struct("<q"), VERSION: struct.Struct("<qQQ")}
_LINE = b"\n"  # our JSON contains none
_BODY_AT = _HEAD.size + _CRC.size
_SAFE = "remove its folder and create the consumer again; the messages are in the stream"


class ConsumerRecord(NamedTuple):
    """A consumer as it is stored."""

    created_ns: int
    config: ConsumerConfig
    history: History = ()
    begins: tuple[int, int] = (0, 0)
    """Start sequence, and up to where only the last message of each subject is wanted; 0 if unknown."""


def format_consumer(record: ConsumerRecord) -> bytes:
    """Return the file of a consumer."""
    head = _HEAD.pack(_MAGIC, VERSION, 0)
    body = _CREATED[VERSION].pack(record.created_ns, *record.begins) + to_json(record.config)
    if record.history:
        body += _LINE + write_json(record.history)
    return head + _CRC.pack(crc32c(body, crc32c(head))) + body


def parse_consumer(data: bytes, path: str) -> ConsumerRecord:
    """Return the record in a file; `FormatError` or `Damaged` if it is not an intact one."""
    if not data.startswith(_MAGIC):
        raise FormatError(path, "not a consumer file")
    if len(data) < _BODY_AT + _CREATED[1].size:
        raise Damaged(path, "the file ends too early", safe=_SAFE)
    head, body = data[: _HEAD.size], data[_BODY_AT:]
    _, version, _ = _HEAD.unpack(head)
    if version not in _CREATED:
        raise FormatError(path, f"unknown version {version}", hint="a later release may have written it")
    if _CRC.unpack_from(data, _HEAD.size)[0] != crc32c(body, crc32c(head)):
        raise Damaged(path, "the checksum does not match", safe=_SAFE)
    created = _CREATED[version]
    created_ns, *begins = created.unpack_from(body)
    config, _, before = body[created.size :].partition(_LINE)
    spans = read_json(before) if before else ()
    history = tuple(Span(through, None if filters is None else tuple(filters)) for through, filters in spans)
    position, resume = begins or (0, 0)
    return ConsumerRecord(created_ns, from_json(ConsumerConfig, config), history, (position, resume))


def format_consumer_file(name: str) -> str:
    """Return the file name of a consumer: its name, or the digest of a long one."""
    data = name.encode()
    return name + SUFFIX if len(data) <= _PLAIN_BYTES_MAX else sha256(data).hexdigest() + LONG_SUFFIX


def parse_consumer_file(file_name: str) -> str | None:
    """Return the name of a file's consumer, or the digest of a long one; None for other files."""
    if file_name.endswith(LONG_SUFFIX):
        return file_name.removesuffix(LONG_SUFFIX)
    return file_name.removesuffix(SUFFIX) if file_name.endswith(SUFFIX) else None


class ConsumerFiles:
    """The consumer files of one stream."""

    def __init__(self, disk: Disk, stream_folder: Path) -> None:
        self._disk = disk
        self._folder = stream_folder / CONSUMERS_FOLDER

    def folder_of(self, name: str) -> Path:
        """Return the folder of a consumer's position."""
        return self._folder / name

    def prepare(self, name: str) -> Path:
        """Return an empty folder for the position of a new consumer."""
        folder = self.folder_of(name)
        with storage_errors(folder):
            self._disk.make_folder(self._folder)
            with contextlib.suppress(FileNotFoundError):
                if self._disk.names(folder):
                    self._disk.sync_folder(self._folder)  # an earlier removal may not be durable
                    self._clear(folder)
                self._disk.sync_folder(folder)  # no removed file may come back
        return folder

    def write(self, name: str, record: ConsumerRecord) -> None:
        """Write the record of a consumer."""
        path = self._folder / format_consumer_file(name)
        with storage_errors(path):
            replace_file(self._disk, path, format_consumer(record))

    def read_all(self) -> dict[str, ConsumerRecord | StrandlineError]:
        """Return every consumer, or the error of reading it; folders of deleted consumers are removed."""
        with storage_errors(self._folder):
            names = self._names(self._folder)
            found = dict(self._named(name, file) for file in names if (name := parse_consumer_file(file)) is not None)
            if names:
                self._disk.sync_folder(self._folder)  # earlier writes and removals may not be durable
            for left in names:
                if "." not in left and format_consumer_file(left) not in names:
                    self._clear(self.folder_of(left))
                    _remove_folder(self._disk, self.folder_of(left))
            return found

    def read(self, name: str) -> ConsumerRecord | StrandlineError | None:
        """Return one consumer, or the error of reading it; None if it is durably gone."""
        try:
            with storage_errors(self._folder):
                self._disk.sync_folder(self._folder)
                if format_consumer_file(name) not in self._disk.names(self._folder):
                    return None
        except StrandlineError as error:
            return error
        return self._read(format_consumer_file(name))

    def _named(self, name: str, file: str) -> tuple[str, ConsumerRecord | StrandlineError]:
        """Return a consumer with its name; a long name is read from the file."""
        record = self._read(file)
        if file.endswith(LONG_SUFFIX) and not isinstance(record, StrandlineError):
            name = record.config.name
        return name, record

    def _read(self, file: str) -> ConsumerRecord | StrandlineError:
        path = self._folder / file
        try:
            return parse_consumer(read_file(self._disk, path) or b"", str(path))
        except StrandlineError as error:
            return error

    def remove(self, name: str) -> None:
        """Remove a closed consumer: first its record, then its folder."""
        with storage_errors(self._folder):
            remove_if_there(self._disk, self._folder / format_consumer_file(name))
            self._disk.sync_folder(self._folder)
            self._clear(self.folder_of(name))
            _remove_folder(self._disk, self.folder_of(name))

    def remove_all(self) -> None:
        """Remove all consumers durably: no crash brings one back."""
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
                    self._clear(self.folder_of(name))
                    _remove_folder(self._disk, self.folder_of(name))
            _remove_folder(self._disk, self._folder)
            _remove_folder(self._disk, self._folder.parent)  # if the stream is removed already

    def _names(self, folder: Path) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return self._disk.names(folder)
        return []

    def _clear(self, folder: Path) -> None:
        for name in self._names(folder):
            remove_if_there(self._disk, folder / name)


def _remove_folder(disk: Disk, folder: Path) -> None:
    """Remove an empty folder; a leftover is harmless."""
    with contextlib.suppress(OSError):
        disk.remove_folder(folder)
