"""Buckets to read, write and watch, behind one contract.

**Promise.** A watch tells every update after its cursor once and in order, or says `CursorExpired`: it never skips in
silence what retention has removed. A write that compares a version is refused when the key has another. What decides
is always a class or a code, never a text.

**Parts.** `contracts` has the Protocols, `entries` the values, `config` a bucket's settings. `MemoryConnection` is the
full twin: revisions, history, retention by count, bytes and age, time to live, markers of deletes, the resume window,
and faults on demand. `strandline.kv.nats` is the adapter for NATS servers. `strandline.testing.check_kv_store` tells
whether a backend of your own keeps the contract.

**Columns.** Updates travel as an `UpdateBatch`; iterating over it makes one object for each update.

**Trade-offs.** A prefix is whole tokens, because that is what a server can filter by. Compare-and-swap is per key; no
transaction spans several.
"""

from strandline.kv.config import Capabilities, ConnectionState, Discard, Retention, StoreConfig
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
    BucketPurged,
    BucketReplaced,
    CursorExpired,
    InvalidBucket,
    InvalidKey,
    NotConnected,
    NotSupported,
    RevisionMismatch,
    error_from_code,
)
from strandline.kv.faults import (
    Faults,
)
from strandline.kv.keys import (
    KEY_BYTES_MAX,
    key_filter,
    validate_bucket,
    validate_key,
    validate_prefix,
)
from strandline.kv.memory import (
    MemoryConnection,
    MemoryServer,
    MemoryStore,
)
from strandline.nats.errors import (
    AccessRefused,
    ConnectionDropped,
    JetStreamDisabled,
    LoginRefused,
    NoAnswer,
    ServerRefused,
    TlsRefused,
    Unreachable,
)
from strandline.nats.read_plan import Overrun

__all__ = [
    "KEY_BYTES_MAX",
    "NO_CURSOR",
    "UNKNOWN_VERSION",
    "UPDATE_SCHEMA",
    "VERSION_BYTES_MAX",
    "AccessRefused",
    "AlreadyExists",
    "AnswerLost",
    "BucketExists",
    "BucketFull",
    "BucketNotFound",
    "BucketPurged",
    "BucketReplaced",
    "Capabilities",
    "Connection",
    "ConnectionDropped",
    "ConnectionState",
    "CursorExpired",
    "Delete",
    "Discard",
    "Faults",
    "InvalidBucket",
    "InvalidKey",
    "JetStreamDisabled",
    "KvEntry",
    "KvReader",
    "KvStore",
    "KvUpdate",
    "KvWatcher",
    "KvWriter",
    "LoginRefused",
    "MemoryConnection",
    "MemoryServer",
    "MemoryStore",
    "NoAnswer",
    "NotConnected",
    "NotSupported",
    "Overrun",
    "Purge",
    "Put",
    "Retention",
    "RevisionMismatch",
    "ServerRefused",
    "StoreConfig",
    "TlsRefused",
    "Unreachable",
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
    "validate_bucket",
    "validate_key",
    "validate_prefix",
]
