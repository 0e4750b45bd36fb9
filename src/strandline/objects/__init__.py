"""Object storage as compare-and-swap.

**Promise.** A write that returned is durable; an object is there whole or not at all; of several conditional writes
that expect the same object at most one succeeds. A conflict, an unavailable store and an unknown outcome are three
errors, and a missing object is None, never a guess.

**Parts.** `contracts` has the Protocol: get, head, put, put_stream, delete, list, close. `LocalObjects` keeps a folder
with true compare-and-swap and fsync; `MemoryObjects` is the twin with faults on demand; S3, Google Cloud Storage and
Azure come through obstore (`open_objects` with their address). `RetryingObjects` repeats what may be repeated, and
reads a conditional write of unknown outcome back. `encrypted.EncryptedObjects` encrypts what another store keeps, under
the keys of a `KeyRing`. `probe_conditions` refuses a store that ignores conditions.
`strandline.testing.check_object_store` tells whether a store of your own keeps the contract.

**Trade-offs.** Calls block, since SQLite, folds and Spark tasks do; asyncio callers use a thread. A prefix is whole
names followed by "/", which stores of files and of flat keys can agree about. There is no conditional delete, since S3
has none: what must be given up conditionally is overwritten with a record that says so. Large bodies are streamed
without a condition: name them by their content, and point at them with a small conditional write.
"""

from strandline.objects.addresses import local_folder, open_objects
from strandline.objects.contracts import BrowsableObjects, Folder, Object, ObjectInfo, ObjectStore, browsable
from strandline.objects.counted import RequestCounts
from strandline.objects.errors import (
    ConditionsIgnored,
    InvalidAddress,
    InvalidObjectKey,
    KeyFileRefused,
    KeyMissing,
    KeyUnlistable,
    NotEncrypted,
    ObjectAltered,
    ObjectConflict,
    ObjectTooLarge,
    StoreRefused,
    StoreUnavailable,
    WriteUnknown,
    WrongKey,
)
from strandline.objects.guarded import GuardedObjects
from strandline.objects.key_ring import KeyRing, read_key_file
from strandline.objects.keys import KEY_BYTES_MAX, validate_key, validate_prefix
from strandline.objects.local import LocalObjects
from strandline.objects.memory import MemoryObjects, ObjectFaults
from strandline.objects.probe import probe_conditions, race_conditions
from strandline.objects.retrying import Retries, RetryingObjects

__all__ = [
    "KEY_BYTES_MAX",
    "BrowsableObjects",
    "ConditionsIgnored",
    "Folder",
    "GuardedObjects",
    "InvalidAddress",
    "InvalidObjectKey",
    "KeyFileRefused",
    "KeyMissing",
    "KeyRing",
    "KeyUnlistable",
    "LocalObjects",
    "MemoryObjects",
    "NotEncrypted",
    "Object",
    "ObjectAltered",
    "ObjectConflict",
    "ObjectFaults",
    "ObjectInfo",
    "ObjectStore",
    "ObjectTooLarge",
    "RequestCounts",
    "Retries",
    "RetryingObjects",
    "StoreRefused",
    "StoreUnavailable",
    "WriteUnknown",
    "WrongKey",
    "browsable",
    "local_folder",
    "open_objects",
    "probe_conditions",
    "race_conditions",
    "read_key_file",
    "validate_key",
    "validate_prefix",
]
