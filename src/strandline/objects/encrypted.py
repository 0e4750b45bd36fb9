"""A store whose objects are encrypted before they leave the process, and decrypted when they come back.

    header, 64 bytes   SLE1 | 4 zero bytes | nonce, 16 random bytes | name of the key, 32 bytes, zeros behind it |
                       check of the key, 8 bytes
    frame*             32 KiB of the object, encrypted, and a tag of 16 bytes; the last one may be shorter

Each frame is sealed by XChaCha20-Poly1305. Its nonce is that of the object and its number; the last frame's number has
the top bit set. Header and key of the object are authenticated with every frame.

Invariants: an object is handed out only as it was written, under the key it was written to, to the end that it had:
altered, moved and cut objects are `ObjectAltered`. A range reads and checks the frames that it touches and no others.
Sizes are those of the content. A store with keys never hands out an object that is not encrypted.

Not hidden: keys (names) of objects, their sizes, times, and metadata. Not prevented: an older version of an object put
back under its own key.
"""

import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from secrets import token_bytes
from typing import NamedTuple

from strandline.extras import needs
from strandline.objects.contracts import Buffer, Object, ObjectInfo, ObjectStore, check_range, check_write
from strandline.objects.errors import (
    KeyMissing,
    NotEncrypted,
    ObjectAltered,
    ObjectConflict,
    StoreUnavailable,
    WrongKey,
)
from strandline.objects.key_ring import CHECK_BYTES, NAME_BYTES_MAX, KeyRing, ObjectKey
from strandline.objects.keys import validate_key

with needs("encryption"):
    from nacl.bindings import (
        crypto_aead_xchacha20poly1305_ietf_decrypt as _open,
    )
    from nacl.bindings import (
        crypto_aead_xchacha20poly1305_ietf_encrypt as _seal,
    )
    from nacl.exceptions import CryptoError

FRAME_BYTES = 32 << 10
TAG_BYTES = 16
HEADER_BYTES = 64
REWRITE_BYTES_MAX = 64 << 20
"""Larger objects are encrypted anew as streams, without a condition."""
_SEALED_BYTES = FRAME_BYTES + TAG_BYTES
_MAGIC = b"SLE1"
_NONCE_BYTES = 16
_HEADER = struct.Struct(f">4s4s{_NONCE_BYTES}s{NAME_BYTES_MAX}s{CHECK_BYTES}s")
_LAST = 1 << 63
_HEADERS_MAX = 4096
_ATTEMPTS = 5


class Header(NamedTuple):
    """What an encrypted object says of itself; `data` are its bytes."""

    nonce: bytes
    key_name: str
    check: bytes
    data: bytes


def format_header(nonce: bytes, key: ObjectKey) -> bytes:
    """Return the bytes of a header."""
    return _HEADER.pack(_MAGIC, bytes(4), nonce, key.name.encode(), key.check)


def parse_header(data: bytes, name: str) -> Header:
    """Return the header of the object `name`; `NotEncrypted` where it has none."""
    if len(data) < HEADER_BYTES or data[:4] != _MAGIC:
        raise NotEncrypted(name)
    _, reserved, nonce, key_name, check = _HEADER.unpack_from(data)
    if reserved != bytes(4) or not key_name.rstrip(b"\0").isascii():
        raise ObjectAltered(name, "its header is not as it was written, or of a later Strandline")
    return Header(nonce, key_name.rstrip(b"\0").decode(), check, data[:HEADER_BYTES])


def content_size(size: int) -> int | None:
    """Return how long the content of an encrypted object of a size is; None where there is no such object."""
    body = size - HEADER_BYTES
    frames = -(-body // _SEALED_BYTES)
    last = body - (frames - 1) * _SEALED_BYTES
    if body < TAG_BYTES or last < TAG_BYTES or (last == TAG_BYTES and frames > 1):
        return None
    return body - frames * TAG_BYTES


def seal(content: Iterable[Buffer], name: str, key: ObjectKey) -> Iterator[bytes]:
    """Yield an encrypted object, piece by piece, from the pieces of its content."""
    nonce = token_bytes(_NONCE_BYTES)
    header = format_header(nonce, key)
    bound = header + name.encode()
    yield header
    held, number = bytearray(), 0
    for piece in content:
        held += piece
        frames = max(0, (len(held) - 1) // FRAME_BYTES)  # the last one is held back until it is known to be the last
        if frames:
            yield b"".join(
                _seal(
                    bytes(held[at * FRAME_BYTES : (at + 1) * FRAME_BYTES]),
                    bound,
                    _nonce(nonce, number + at),
                    key.secret,
                )
                for at in range(frames)
            )
            del held[: frames * FRAME_BYTES]
            number += frames
    yield _seal(bytes(held), bound, _nonce(nonce, number | _LAST), key.secret)


def unseal(header: Header, name: str, key: ObjectKey, body: bytes, first: int, frames: int) -> bytes:
    """Return the content of the frames from `first` on that `body` consists of; the object has `frames` of them."""
    bound, content = header.data + name.encode(), list[bytes]()
    for at in range(0, len(body), _SEALED_BYTES):
        number = first + at // _SEALED_BYTES
        counted = number | _LAST if number == frames - 1 else number
        try:
            content.append(_open(body[at : at + _SEALED_BYTES], bound, _nonce(header.nonce, counted), key.secret))
        except (CryptoError, ValueError):
            raise ObjectAltered(name, f"frame {number} is not as it was written") from None
    return b"".join(content)


def _nonce(nonce: bytes, number: int) -> bytes:
    return nonce + number.to_bytes(8, "big")


class EncryptedObjects:
    """Another store, whose objects are encrypted."""

    def __init__(self, store: ObjectStore, ring: KeyRing) -> None:
        self._store = store
        self._ring = ring
        self._headers: OrderedDict[tuple[str, str], Header] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """Where the objects are."""
        return self._store.address

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        """Return an object, or its bytes [start, stop); None where there is no such object."""
        validate_key(key)
        check_range(start, stop)
        first = start // FRAME_BYTES
        begin = HEADER_BYTES + first * _SEALED_BYTES if first else 0
        last = None if stop is None else max(stop - 1, start) // FRAME_BYTES
        end = None if last is None else HEADER_BYTES + (last + 1) * _SEALED_BYTES
        for _ in range(_ATTEMPTS):
            found = self._store.get(key, start=begin, stop=end)
            if found is None:
                return None
            header = self._header(key, found, is_here=begin == 0)
            if header is not None:
                break
        else:
            raise StoreUnavailable(self.address, f"{key} is written again and again while it is read")
        size = content_size(found.info.size)
        if size is None:
            raise ObjectAltered(key, "it is cut off")
        body = found.body if begin else found.body[HEADER_BYTES:]
        frames = max(1, -(-size // FRAME_BYTES))
        content = unseal(header, key, self._key(key, header), body, first, frames)
        begun = first * FRAME_BYTES
        return Object(self._info(found.info), content[start - begun : None if stop is None else stop - begun])

    def _header(self, key: str, found: Object, *, is_here: bool) -> Header | None:
        """Return the header of the object that a range is of; None where it was written anew meanwhile."""
        known = key, found.info.etag
        with self._lock:
            if known in self._headers:
                self._headers.move_to_end(known)
                return self._headers[known]
        head = found if is_here else self._store.get(key, stop=HEADER_BYTES)
        if head is None or head.info.etag != found.info.etag:
            return None
        header = parse_header(head.body, key)
        with self._lock:
            self._headers[known] = header
            if len(self._headers) > _HEADERS_MAX:
                self._headers.popitem(last=False)
        return header

    def _key(self, name: str, header: Header) -> ObjectKey:
        key = self._ring.find(header.key_name)
        if key is None:
            raise KeyMissing(name, header.key_name, self._ring.source)
        if key.check != header.check:
            raise WrongKey(name, header.key_name, self._ring.source)
        return key

    def head(self, key: str) -> ObjectInfo | None:
        """Return what the store says of an object; None where there is no such object."""
        found = self._store.head(key)
        return None if found is None else self._info(found)

    def put(
        self,
        key: str,
        body: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write a whole object: always, only where there is none, or only over the one with this ETag."""
        validate_key(key)
        check_write(if_absent, if_match, metadata)
        sealed = b"".join(seal([body], key, self._ring.current))
        return self._store.put(key, sealed, if_absent=if_absent, if_match=if_match, metadata=metadata)

    def put_stream(self, key: str, parts: Iterable[Buffer], *, metadata: Mapping[str, str] | None = None) -> str:
        """Write a large object from parts as they come, in bounded memory; return its ETag."""
        validate_key(key)
        return self._store.put_stream(key, seal(parts, key, self._ring.current), metadata=metadata)

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine."""
        self._store.delete(key)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix, with the sizes of their contents."""
        return (self._info(info) for info in self._store.list(prefix, start_after=start_after))

    def close(self) -> None:
        """Let go of connections and files."""
        self._store.close()

    def reencrypt(self, key: str) -> bool:
        """Encrypt an object under the current key; return False where it is, or is gone. Its content stays.

        An object that is written by another meanwhile keeps what that one wrote.
        """
        head = self._store.get(key, stop=HEADER_BYTES)
        if head is None or parse_header(head.body, key).key_name == self._ring.current.name:
            return False
        if head.info.size > REWRITE_BYTES_MAX:
            self.put_stream(key, self._pieces(key, head.info), metadata=head.info.metadata)
            return True
        found = self.get(key)
        if found is None:
            return False
        try:
            self.put(key, found.body, if_match=found.info.etag, metadata=found.info.metadata)
        except ObjectConflict:
            return False
        return True

    def _pieces(self, key: str, info: ObjectInfo) -> Iterator[bytes]:
        """Yield the content of an object in pieces, which must all be of one version."""
        step = 256 * FRAME_BYTES
        for start in range(0, content_size(info.size) or 0, step):
            found = self.get(key, start=start, stop=start + step)
            if found is None or found.info.etag != info.etag:
                raise ObjectConflict(key, "it was written by another while it was encrypted anew")
            yield found.body

    @staticmethod
    def _info(info: ObjectInfo) -> ObjectInfo:
        size = content_size(info.size)
        return info if size is None else replace(info, size=size)


def rotate(
    store: EncryptedObjects, prefix: str = "", tell: Callable[[str, bool], None] = lambda _, __: None
) -> tuple[int, int]:
    """Encrypt all objects below a prefix under the current key; return how many there were, and how many changed."""
    seen = changed = 0
    for info in list(store.list(prefix)):
        is_changed = store.reencrypt(info.key)
        seen, changed = seen + 1, changed + is_changed
        tell(info.key, is_changed)
    return seen, changed
