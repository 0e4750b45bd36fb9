"""Buckets to read, write and watch, behind one contract.

**Promise.** A watch tells every update after its cursor once and in order, or says `CursorExpired`: it never skips in
silence what retention has removed. A write that compares a version is refused when the key has another. What decides
is always a class or a code, never a text.

**Parts.** `contracts` has the Protocols, `entries` the values, `config` a bucket's settings. `MemoryConnection` is the
full twin: revisions, history, retention by count, bytes and age, time to live, tombstones, purge markers, the resume
window, and faults on demand. `strandline.testing.check_kv_store` tells whether a backend of your own keeps the
contract.

**Columns.** `UpdateBatch` is how many updates travel; one object per update is for those who ask for it.

**Trade-offs.** An empty value is a tombstone and cannot be stored as a value. A prefix is whole tokens, because that is
what a server can filter by. Compare-and-swap is per key; there are no transactions over several.
"""

from strandline.kv.config import (
    Capabilities,
    ConnectionState,
    Discard,
    Retention,
    StoreConfig,
)
from strandline.kv.contracts import (
    Connection,
    KvReader,
    KvStore,
    KvWatcher,
    KvWriter,
    Watch,
)
from strandline.kv.entries import (
    NO_CURSOR,
    UNKNOWN_VERSION,
    UPDATE_SCHEMA,
    VERSION_BYTES_MAX,
    Delete,
    KvEntry,
    KvUpdate,
    Purge,
    Put,
    UpdateBatch,
    UpdateKind,
    VersionToken,
    WatchCursor,
    format_cursor,
    format_revision,
    kind_of,
    make_update,
    parse_cursor,
    parse_revision,
)
from strandline.kv.errors import (
    AlreadyExists,
    AnswerLost,
    BucketExists,
    BucketFull,
    BucketNotFound,
    ConnectionDropped,
    CursorExpired,
    InvalidKey,
    NotConnected,
    NotSupported,
    RevisionMismatch,
    ServerRefused,
    error_from_code,
)
from strandline.kv.faults import (
    Faults,
)
from strandline.kv.keys import (
    key_filter,
    validate_key,
    validate_prefix,
)
from strandline.kv.memory import (
    MemoryConnection,
    MemoryServer,
    MemoryStore,
)

__all__ = [
    "NO_CURSOR",
    "UNKNOWN_VERSION",
    "UPDATE_SCHEMA",
    "VERSION_BYTES_MAX",
    "AlreadyExists",
    "AnswerLost",
    "BucketExists",
    "BucketFull",
    "BucketNotFound",
    "Capabilities",
    "Connection",
    "ConnectionDropped",
    "ConnectionState",
    "CursorExpired",
    "Delete",
    "Discard",
    "Faults",
    "InvalidKey",
    "KvEntry",
    "KvReader",
    "KvStore",
    "KvUpdate",
    "KvWatcher",
    "KvWriter",
    "MemoryConnection",
    "MemoryServer",
    "MemoryStore",
    "NotConnected",
    "NotSupported",
    "Purge",
    "Put",
    "Retention",
    "RevisionMismatch",
    "ServerRefused",
    "StoreConfig",
    "UpdateBatch",
    "UpdateKind",
    "VersionToken",
    "Watch",
    "WatchCursor",
    "error_from_code",
    "format_cursor",
    "format_revision",
    "key_filter",
    "kind_of",
    "make_update",
    "parse_cursor",
    "parse_revision",
    "validate_key",
    "validate_prefix",
]
