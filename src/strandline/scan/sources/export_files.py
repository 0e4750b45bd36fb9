"""The files of an export: a folder, or a zip that is read in place.

Invariants: nothing is unpacked to disk and no link is followed; a member has at most the size that its header says, and
one beyond a limit, or packed more tightly than text is, is a problem of that item; a folder that cannot be listed, too.
"""

import io
import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self

from strandline.detect.limits import Limits
from strandline.detect.locations import shown
from strandline.scan.sources.errors import InputMissing, InputRefused, InputUnusable, Problem, problem_of
from strandline.scan.sources.files import OPEN_FLAGS
from strandline.scan.sources.source import path_text

MEMBERS_MAX = 4_000_000
SMALL_BYTES = 1 << 20
BROKEN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(RuntimeError, NotImplementedError, EOFError, ValueError, OverflowError, MemoryError),
)
"""What a damaged, encrypted or unknown kind of zip raises; the header of LZMA says how much memory it takes."""


class ExportFiles:
    """The members of a folder or a zip by their paths, without the folder that holds all of them."""

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)
        self._zip: zipfile.ZipFile | None = None
        self._infos: dict[str, zipfile.ZipInfo] = {}
        self.root = ""
        """What stands before the paths of the export's own files, if it lies in a folder of the zip."""
        self.unreadable: dict[str, Problem] = {}
        """The folders that the last call of `names` could not list, with a slash behind each."""

    def __enter__(self) -> Self:
        try:
            mode = os.stat(self.path).st_mode  # noqa: PTH116 - beside the real path
            if not stat.S_ISDIR(mode):  # a pipe would be waited for
                self._zip = zipfile.ZipFile(self.path if stat.S_ISREG(mode) else io.BytesIO())
        except zipfile.BadZipFile as error:
            raise InputUnusable(shown(self.path), "it is neither a folder nor a zip", hint="give the export") from error
        except BROKEN as error:
            raise InputUnusable(shown(self.path), "the zip is damaged", hint="export it again") from error
        except OSError as error:
            if problem_of(error) is Problem.VANISHED:
                raise InputMissing(shown(self.path)) from error
            raise InputRefused(shown(self.path), str(error.strerror), hint="check its permissions") from error
        if self._zip is not None:
            self._infos = {one.filename: one for one in self._zip.infolist() if not one.is_dir()}
        return self

    def __exit__(self, *_: object) -> None:
        if self._zip is not None:
            self._zip.close()

    def names(self) -> list[str]:
        """Return the paths of all members, in order."""
        found = sorted(self._infos) if self._zip is not None else sorted(self._walked())
        if len(found) > MEMBERS_MAX:
            raise InputUnusable(shown(self.path), f"more than {MEMBERS_MAX:,} files", hint="split the export")
        return found

    def size(self, name: str) -> int | None:
        """Return the size of a member as its header says; None if it is gone."""
        if self._zip is not None:
            return self._infos[name].file_size if name in self._infos else None
        try:
            return os.lstat(Path(self.path) / name).st_size
        except OSError:
            return None

    def read(self, name: str, size_max: int) -> bytes:
        """Return a member; `ItemProblem` if it cannot be read, or is too large."""
        with self.open(name) as stream:
            try:
                data = stream.read(size_max + 1)
            except BROKEN as error:
                raise Problem.DAMAGED.error() from error
            except OSError as error:
                raise problem_of(error).error() from error
        if len(data) > size_max:
            raise Problem.TOO_LARGE.error()
        return data

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a member; `ItemProblem` if that cannot be done."""
        try:
            stream = self._opened(name)
        except BROKEN as error:
            raise Problem.DAMAGED.error() from error
        except OSError as error:
            raise problem_of(error).error() from error
        with stream:
            yield stream

    def _opened(self, name: str) -> IO[bytes]:
        if self._zip is None:
            file = os.open(Path(self.path) / name, OPEN_FLAGS)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                os.close(file)
                raise Problem.NOT_A_FILE.error()
            return os.fdopen(file, "rb")
        info = self._infos.get(name)
        if info is None:
            raise Problem.VANISHED.error()
        if info.file_size > SMALL_BYTES + Limits().archive_ratio_max * info.compress_size:
            raise Problem.TOO_LARGE.error()  # no text is packed so tightly
        return self._zip.open(info)

    def _walked(self) -> Iterator[str]:
        begin = len(os.path.join(self.path, ""))  # noqa: PTH118 - a prefix, with its slash
        self.unreadable = {}

        def refused(error: OSError) -> None:
            if error.filename == self.path:
                raise InputRefused(shown(self.path), str(error.strerror), hint="check its permissions") from error
            problem = problem_of(error)
            is_denied = problem is Problem.PERMISSION_DENIED
            name = path_text(os.fsencode(error.filename[begin:])) + "/"
            self.unreadable[name] = Problem.UNREADABLE_FOLDER if is_denied else problem

        for folder, folders, files in os.walk(self.path, onerror=refused):
            folders.sort()
            for name in files:
                whole = os.path.join(folder, name)  # noqa: PTH118 - as `os.walk` gives it
                if not os.path.islink(whole):  # noqa: PTH114 - as above
                    yield path_text(os.fsencode(whole[begin:]))
