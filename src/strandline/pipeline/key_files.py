"""The tenant's key: its file, and the check value by which a store recognizes it.

A key file has 64 hexadecimal digits and a line end, or the 32 bytes as they are; a key that was rotated has a line for
each epoch, oldest first. One that we make is readable by its owner alone, and is whole or not there; only a rotation
replaces one, by another that begins with it.

Invariants: no byte of a key is in a message; results under one key never mix with those under another, since the store
keeps a hash that only the right key gives.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from strandline.errors import Conflict, InvalidInput
from strandline.files import OsDisk, storage_errors
from strandline.pipeline.identity import DIGEST_BYTES, TenantId, TenantSecretKey
from strandline.pipeline.state import ScannerState
from strandline.pipeline.tenant_keys import CHECK_KEY, ROTATION_KEY, KeyRotating, check_value

_OTHERS = 0o007
_FILE_BYTES_MAX = 64 * 1024
_MAKE_ONE = "a key file has 64 hexadecimal digits; make one with `openssl rand -hex 32 > FILE && chmod 600 FILE`"


class KeyMissing(InvalidInput):
    """Stored results need a key that is missing."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path}: the key of this tenant's results is missing",
            hint="put the file back from a copy; with a new key start with a new --state",
        )
        self.path = path


class KeyRefused(Conflict):
    """The key is not the key of the tenant's results."""

    def __init__(self, path: Path, tenant: str) -> None:
        super().__init__(
            f"{path}: this is not the key of the results of tenant {tenant!r}",
            hint="give the file with the tenant's key (--key-file), or name another tenant (--tenant)",
        )
        self.path = path
        self.tenant = tenant


class TenantUnknown(InvalidInput):
    """The store has no results of the tenant."""

    def __init__(self, tenant: str) -> None:
        super().__init__(
            f"tenant {tenant!r} has no results here",
            hint="run `strandline scan` for it first, or name another tenant with --tenant",
        )
        self.tenant = tenant


class KeyFileInvalid(InvalidInput):
    """The file holds no key, or other users may read it."""

    def __init__(self, path: Path, problem: str, hint: str) -> None:
        super().__init__(f"{path}: {problem}", hint=hint)
        self.path = path
        self.problem = problem


def format_key(key: TenantSecretKey) -> bytes:
    """Return a key as its file holds it."""
    return b"".join(bytes.hex(epoch).encode() + b"\n" for epoch in key.epochs)


def parse_key(data: bytes) -> TenantSecretKey | None:
    """Return the key in a file's bytes, or None if they are not a key."""
    if len(data) == DIGEST_BYTES:
        return TenantSecretKey(data)
    with suppress(ValueError):
        lines = data.decode("ascii").split()
        if all(len(line) == 2 * DIGEST_BYTES for line in lines):
            return TenantSecretKey(bytes.fromhex("".join(lines)))
    return None


def read_key(path: Path) -> TenantSecretKey | None:
    """Return the key in a file, or None if the file is missing."""
    with storage_errors(path):
        try:
            with path.open("rb") as file:
                mode, data = os.fstat(file.fileno()).st_mode, file.read(_FILE_BYTES_MAX)
        except FileNotFoundError:
            return None
    if mode & _OTHERS:
        raise KeyFileInvalid(path, "other users of this machine may read or change the key", f"chmod 600 {path}")
    key = parse_key(data)
    if key is None:
        raise KeyFileInvalid(path, "it holds no key", _MAKE_ONE)
    return key


def make_key(path: Path, before: bytes = b"") -> TenantSecretKey:
    """Create a key file and return its key; if another process created one at the same time, return that key.

    It is a new key, or, after the key `before`, that key with one more epoch.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    with storage_errors(path):
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:  # noqa: PTH123
                file.write(format_key(TenantSecretKey(before + secrets.token_bytes(DIGEST_BYTES))))
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                path.hardlink_to(temporary)  # unlike a rename, it never replaces a key
        finally:
            temporary.unlink(missing_ok=True)
        OsDisk().sync_folder(path.parent)
    key = read_key(path)
    if key is None:
        raise KeyMissing(path)
    return key


def next_key_path(path: Path) -> Path:
    """Return the path of the new key during a rotation."""
    return path.with_name(f"{path.name}.next")


def tenant_key(
    state: ScannerState, tenant: TenantId, name: str, path: Path, *, create: bool, is_ours: bool
) -> TenantSecretKey:
    """Return the tenant's key from its file; a key of other results is refused.

    With `create` the store remembers the key of a new tenant, and a file that `is_ours` is made if it is missing.
    Without it, a tenant that the store does not know is `TenantUnknown`.
    """
    known, rotation = state.multi_get(tenant, [CHECK_KEY, ROTATION_KEY])
    if rotation is not None:
        raise KeyRotating(name)
    if known is None and not create:
        raise TenantUnknown(name)
    key = read_key(path)
    if key is None:
        if known is not None:
            raise KeyMissing(path)
        if not is_ours:
            raise KeyFileInvalid(path, "there is no such file", _MAKE_ONE)
        key = make_key(path)
    check = check_value(key)
    if known is None:
        known = state.put_first(tenant, CHECK_KEY, check)  # of two machines with two keys, one is the first
    if known != check and next_key_path(path).exists():
        raise KeyRotating(name)  # the store has the new key, and the file was not replaced yet
    if known != check:
        raise KeyRefused(path, name)
    return key
