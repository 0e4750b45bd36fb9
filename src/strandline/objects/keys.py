"""Names of objects: what every store takes, checked before anything is sent.

A key is names joined by "/". A prefix is empty, or a key followed by "/": stores of files and of flat keys then agree
about what is below it. Keys sort by their UTF-8 bytes.
"""

import re

from strandline.objects.errors import InvalidObjectKey

KEY_BYTES_MAX = 1024
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
NAME_BYTES_MAX = 255
RESERVED_NAME = ".strandline"
"""The folder in which a local store keeps its own files."""


def validate_key(key: str) -> str:
    """Return the key, or raise `InvalidObjectKey`."""
    if not key:
        raise InvalidObjectKey(key, "it is empty")
    try:
        encoded = key.encode()
    except UnicodeEncodeError:
        raise InvalidObjectKey(key, "it is not valid UTF-8") from None
    if len(encoded) > KEY_BYTES_MAX:
        raise InvalidObjectKey(key[:80] + "…", f"it has {len(encoded):,} bytes, and {KEY_BYTES_MAX:,} are allowed")
    if _CONTROL.search(key):
        raise InvalidObjectKey(key, "it has a control character")
    names = key.split("/")
    for name in names:
        if name in ("", ".", ".."):
            raise InvalidObjectKey(key, f"it has the name {name!r}" if name else "it has an empty name")
        if len(name.encode()) > NAME_BYTES_MAX:
            raise InvalidObjectKey(key[:80] + "…", f"one of its names is longer than {NAME_BYTES_MAX} bytes")
    if names[0] == RESERVED_NAME:
        raise InvalidObjectKey(key, f"{RESERVED_NAME!r} is reserved for the store itself")
    return key


def is_key(key: str) -> bool:
    """Whether a store takes the key."""
    try:
        validate_key(key)
    except InvalidObjectKey:
        return False
    return True


def validate_prefix(prefix: str) -> str:
    """Return the prefix, or raise `InvalidObjectKey`; the empty one stands for everything."""
    if prefix:
        if not prefix.endswith("/"):
            raise InvalidObjectKey(prefix, "a prefix ends with '/'")
        validate_key(prefix[:-1])
    return prefix
