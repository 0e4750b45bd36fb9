"""An object as a file that is read in ranges, so that of a table only some columns are fetched."""

import io

from strandline.objects.contracts import ObjectStore

AHEAD_BYTES = 64 * 1024


class ObjectFile(io.RawIOBase):
    """A readable, seekable file over an object of a known size; small reads next to each other share a request."""

    def __init__(self, objects: ObjectStore, key: str, size: int) -> None:
        super().__init__()
        self._objects = objects
        self._key = key
        self._size = size
        self._at = 0
        self._kept = b""
        self._kept_at = 0

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be sought in."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, fewer at the end; a missing object is `FileNotFoundError`."""
        stop = self._size if size < 0 else min(self._size, self._at + size)
        if stop <= self._at:
            return b""
        if not self._kept_at <= self._at <= stop <= self._kept_at + len(self._kept):
            found = self._objects.get(
                self._key, start=self._at, stop=min(self._size, max(stop, self._at + AHEAD_BYTES))
            )
            if found is None:
                raise FileNotFoundError(self._key)
            self._kept, self._kept_at = found.body, self._at
        data = self._kept[self._at - self._kept_at : stop - self._kept_at]
        self._at += len(data)
        return data
