"""The keys of a store that encrypts its objects: a file of named keys, of which the first encrypts what is new.

    # comment
    2026-11 = 32 bytes in base64        the key of new objects
    2026-05 = 32 bytes in base64        older objects are still read

Invariants: a key is never part of a message, a repr or an error. A name stands for one key for good: a key that is
replaced gets a new name, first in the file, and the old one stays as long as objects need it.
"""

import base64
import binascii
import hashlib
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from strandline.objects.errors import KeyFileRefused

KEY_BYTES = 32
CHECK_BYTES = 8
NAME_BYTES_MAX = 32
VARIABLE = "STRANDLINE_ENCRYPTION_KEYS"
"""The variable that names the file of keys."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")


class ObjectKey(NamedTuple):
    """A key and its name."""

    name: str
    secret: bytes

    def __repr__(self) -> str:
        """Name the key without its bytes."""
        return f"ObjectKey({self.name!r})"

    @property
    def check(self) -> bytes:
        """Return what tells this key from another one of its name, and nothing else about it."""
        return hashlib.blake2b(
            self.name.encode(), digest_size=CHECK_BYTES, key=self.secret, person=b"strandline-key"
        ).digest()


class KeyRing:
    """Keys by name; `current` encrypts new objects."""

    def __init__(self, keys: Mapping[str, bytes], *, source: str = "the keys") -> None:
        if not keys:
            raise KeyFileRefused(source, "it has no key")
        for name, secret in keys.items():
            if not _NAME.fullmatch(name):
                raise KeyFileRefused(
                    source, "a key's name is not lower-case letters, digits, '.', '_' and '-', up to 32"
                )
            if len(secret) != KEY_BYTES:
                raise KeyFileRefused(source, f"key {name} has {len(secret)} bytes, not {KEY_BYTES}")
        self.source = source
        self._keys = {name: ObjectKey(name, secret) for name, secret in keys.items()}
        self.current = next(iter(self._keys.values()))

    def __repr__(self) -> str:
        """Name the keys without their bytes."""
        return f"KeyRing({', '.join(self._keys)})"

    def find(self, name: str) -> ObjectKey | None:
        """Return a key by its name; None where it is not there."""
        return self._keys.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the keys, the current one first."""
        return tuple(self._keys)


def read_key_file(path: Path) -> KeyRing:
    """Return the keys of a file; `KeyFileRefused` where it cannot be read, or others may read it."""
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="ascii")
    except (OSError, UnicodeError) as error:
        reason = error.strerror or "it cannot be read" if isinstance(error, OSError) else "it is not text"
        raise KeyFileRefused(str(path), reason) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileRefused(str(path), "others than its owner may read or write it", hint=f"chmod 600 {path}")
    return parse_keys(text, str(path))


def parse_keys(text: str, source: str) -> KeyRing:
    """Return the keys of a text, in its order."""
    keys = dict[str, bytes]()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, encoded = (part.strip() for part in line.partition("="))
        try:
            secret = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            secret = b""
        if not equals or not secret:
            raise KeyFileRefused(source, f"line {number} is not a name, '=' and a key in base64")
        if name in keys:
            raise KeyFileRefused(source, f"line {number} names key {name} again")
        keys[name] = secret
    return KeyRing(keys, source=source)


def ring_of(environ: Mapping[str, str]) -> KeyRing | None:
    """Return the keys that the environment names; None where it names none."""
    path = environ.get(VARIABLE)
    return read_key_file(Path(path)) if path else None
