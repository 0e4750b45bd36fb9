"""The keys in etcd: names of runs, shards and owners, and two indexes of active runs and shards.

    {prefix}/tenants/{tenant}/runs/{run}                            the run's record
    {prefix}/tenants/{tenant}/runs/{run}/shards/{shard}             the shard's record
    {prefix}/tenants/{tenant}/runs/{run}/shards/{shard}/owner       its holder, on an etcd lease
    {prefix}/tenants/{tenant}/runs/{run}/shards_active/{shard}      there while the shard is active
    {prefix}/tenants/{tenant}/runs_active/{run}                     there while the run is not over

Invariants: a tenant is 64 hexadecimal digits, a run or a shard the 16 of its bit pattern, lowercase, so each thing has
one name; a scan covers the names below a "/", never those of a sibling that begins alike (`runs/` and `runs_active/`, a
prefix and a longer one).
"""

import re
from enum import Enum

from strandline.errors import FormatError, InvalidInput
from strandline.protocol.canonical import to_signed, to_unsigned
from strandline.protocol.shards import RunKey, ShardKey

PREFIX = "/strandline/v1"


class Noun(Enum):
    """The kind of a key; the value is the part of its name after the tenant."""

    RUN = b"runs/%016x"
    ACTIVE_RUN = b"runs_active/%016x"
    SHARD = b"runs/%016x/shards/%016x"
    OWNER = b"runs/%016x/shards/%016x/owner"
    ACTIVE_SHARD = b"runs/%016x/shards_active/%016x"


_PREFIX = re.compile(r"(?:/[A-Za-z0-9_.-]+)+")
_TENANT = b"%s/tenants/%s/"
_NAMES = {noun: re.compile(noun.value.replace(b"%016x", b"([0-9a-f]{16})")) for noun in Noun}
_TENANT_NAME = re.compile(rb"/tenants/([0-9a-f]{64})/")


def check_prefix(prefix: str) -> bytes:
    """Return a prefix as bytes, or reject one that makes keys ambiguous."""
    if not _PREFIX.fullmatch(prefix):
        raise InvalidInput(
            "the prefix of keys in etcd must be names that each follow a slash", hint=f"for example {PREFIX}"
        )
    return prefix.encode()


def format_key(prefix: bytes, noun: Noun, key: RunKey | ShardKey) -> bytes:
    """Return the name of something under a prefix."""
    tenant, *ids = key
    beginning = _TENANT % (prefix, tenant.hex().encode())
    return beginning + noun.value % tuple(map(to_unsigned, ids))


def parse_key(prefix: bytes, name: bytes) -> tuple[Noun, RunKey | ShardKey]:
    """Return the parts of a name under a prefix."""
    tenant = _TENANT_NAME.match(name, len(prefix)) if name.startswith(prefix) else None
    for noun, pattern in _NAMES.items():
        if tenant is not None and (found := pattern.fullmatch(name, tenant.end())):
            owner = bytes.fromhex(tenant[1].decode())
            ids = [to_signed(int(digits, 16)) for digits in found.groups()]
            return noun, RunKey(owner, *ids) if len(ids) == 1 else ShardKey(owner, *ids)
    raise FormatError("etcd", "a key below the prefix is not ours", hint="give Strandline a prefix of its own")


def shards_of(prefix: bytes, run: RunKey) -> bytes:
    """Return the common prefix of all shard records and owners of a run."""
    return format_key(prefix, Noun.RUN, run) + b"/shards/"


def active_shards_of(prefix: bytes, run: RunKey) -> bytes:
    """Return the common prefix of all active shards of a run."""
    return format_key(prefix, Noun.RUN, run) + b"/shards_active/"


def end_of(beginning: bytes) -> bytes:
    """Return the end of the range of names below a prefix."""
    return beginning[:-1] + b"0"  # the byte after "/"
