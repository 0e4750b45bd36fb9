"""The state of scans: stores, tenant and key, opened together from a folder, a PostgreSQL address or a lake.

    .strandline/pipeline.db                  the stores; `strandline scan` creates them
    .strandline/tenant-<name>.key            the tenant's key, readable by its owner alone
    .strandline/.gitignore                   keeps the state out of git

A `postgresql://…` address and a lake (`s3://…`, `file:///…`) need a key file: many machines share that state, and each
needs the same key.

Invariants: opening a state for reading creates nothing; no message and no `repr` shows an address with its password.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from strandline.errors import InvalidInput
from strandline.files import OsDisk, storage_errors
from strandline.pipeline.coordination.coordinator import LEASE_TTL_NS
from strandline.pipeline.identity import TenantId, TenantSecretKey
from strandline.pipeline.key_files import tenant_key
from strandline.pipeline.stores import LAKES, Stores, is_like_server, open_stores
from strandline.pipeline.text_fields import check_text
from strandline.protocol.canonical import derive, prefixed

DEFAULT_STATE = ".strandline"
DEFAULT_TENANT = "default"
TENANT_NAME_BYTES_MAX = 256
_SERVERS = ("postgresql://", "postgres://", *LAKES)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class StateMissing(InvalidInput):
    """The folder holds no state of scans."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder}: no scan has stored results in this folder",
            hint="run `strandline scan` first, or give the state folder that it used with --state",
        )
        self.folder = folder


@dataclass(frozen=True)
class State:
    """Open stores with their tenant and its key; workers open them again by `address` and `coordination`."""

    stores: Stores
    address: str = field(repr=False)
    coordination: str | None = field(repr=False)
    tenant: TenantId
    name: str
    key: TenantSecretKey
    folder: Path | None


@contextmanager
def open_state(
    where: str = DEFAULT_STATE,
    *,
    tenant: str = DEFAULT_TENANT,
    key_file: Path | None = None,
    coordination: str | None = None,
    create: bool = False,
    lease_ttl_ns: int = LEASE_TTL_NS,
) -> Iterator[State]:
    """Open the state for the block; `create` makes missing stores and migrates old ones.

    Without `create`, a folder without stores is `StateMissing`.
    """
    if not _NAME.fullmatch(tenant):
        raise InvalidInput(
            f"{tenant!r} cannot name a tenant",
            hint="a name has up to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit",
        )
    folder = state_folder(where)
    if folder is not None:
        _prepare(folder, create=create)
    elif key_file is None:
        raise InvalidInput(
            "a state on a server or in a bucket needs --key-file: every machine must hash secrets with the same key",
            hint="make one with `openssl rand -hex 32 > tenant.key && chmod 600 tenant.key`, and keep a copy",
        )
    address = where if folder is None else str(folder / "pipeline.db")
    with open_stores(address, coordination=coordination, lease_ttl_ns=lease_ttl_ns, migrate=create) as stores:
        owner = tenant_named(tenant)
        path = key_file or (folder or Path()) / f"tenant-{tenant}.key"
        key = tenant_key(stores.state, owner, tenant, path, create=create, is_ours=key_file is None)
        yield State(stores, address, coordination, owner, tenant, key, folder)


def state_folder(where: str) -> Path | None:
    """Return the absolute path of the state folder, which may not exist; None for the address of a server or lake."""
    if where.startswith(_SERVERS):
        return None
    folder = Path(where).absolute()
    if is_like_server(where) or is_like_server(str(folder)):
        raise InvalidInput(
            "--state is neither a folder nor the address of a database or a store of objects",
            hint="give a folder without `://` and `password=` in its path, postgresql://user@host/database, "
            "s3://bucket/prefix or file:///folder",
        )
    return folder


def folder_of_state(where: str) -> Path | None:
    """Return the folder that holds a state on this machine, which no scan should read; None for one elsewhere."""
    if where.startswith("file://"):
        return Path(unquote(urlsplit(where).path))
    return state_folder(where)


def tenant_named(name: str) -> TenantId:
    """Return the id of the tenant of a name; equal names are one tenant, on every machine."""
    check_text(name, "a tenant's name", TENANT_NAME_BYTES_MAX)
    return TenantId(derive("strandline/tenant/v1", prefixed(name.encode())))


def _not_a_folder(path: Path) -> InvalidInput:
    return InvalidInput(f"--state {path}: not a folder", hint="give a folder; `strandline scan` creates it")


def _prepare(folder: Path, *, create: bool) -> None:
    """Create the state folder, or without `create` check that it holds stores."""
    if not create:
        if folder.is_file():
            raise _not_a_folder(folder)
        if not (folder / "pipeline.db").exists():
            raise StateMissing(folder)
        return
    if folder.exists() and not folder.is_dir():
        raise _not_a_folder(folder)
    with storage_errors(folder):
        if not folder.is_dir():
            OsDisk().make_folder(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
            (folder / ".gitignore").write_text("*\n")
            OsDisk().sync_folder(folder.parent)
