"""What object storage refuses, and why; part of the one tree of `strandline.errors`.

    InvalidInput
    ├── InvalidObjectKey         no store takes such a key or prefix
    ├── KeyUnlistable            a listing has a key that the client cannot ask for
    ├── InvalidAddress           no store has such an address
    ├── ObjectTooLarge           the store does not take so much in one write
    ├── ConditionsIgnored        the store accepts a write whose condition does not hold
    ├── KeyFileRefused           the file of keys cannot be used
    ├── KeyMissing               an object is encrypted under a key that is not there
    ├── WrongKey                 an object is encrypted under another key of the same name
    └── NotEncrypted             an object of a store with keys is not encrypted
    Damaged
    └── ObjectAltered            an encrypted object is not as it was written, or not where
    Conflict
    └── ObjectConflict           the condition of a write does not hold; nothing was written
    Unavailable
    ├── StoreUnavailable         the store does not answer, or asks to retry later; nothing was done
    └── StoreRefused             the credentials do not allow it, or the bucket does not exist
    UnknownOutcome
    └── WriteUnknown             the write was sent, and no answer came

Invariants: a conflict, an unavailable store and an unknown outcome are three classes, never one. No message holds a
credential.
"""

from strandline.errors import Conflict, Damaged, InvalidInput, Unavailable, UnknownOutcome


class InvalidObjectKey(InvalidInput):
    """A key or prefix that no store takes."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(
            f"object key {key!r}: {problem}", hint="a key is names joined by '/', such as 'orders/0000/0001.ltx'"
        )
        self.key = key
        self.problem = problem


class KeyUnlistable(InvalidInput):
    """A listing has a key that another client wrote and this one cannot ask for; the listing ends there."""

    def __init__(self, address: str, key: str) -> None:
        super().__init__(
            f"{address}: the listing has the key {key!r}, which cannot be asked for",
            hint="a key has no empty name, no '.', '..', no control character: rename it, or list a prefix beside it",
        )
        self.address = address
        self.key = key


class InvalidAddress(InvalidInput):
    """An address that names no object store."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(
            f"{address!r} is not an object store: {problem}",
            hint="use s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///folder or memory://name",
        )
        self.address = address
        self.problem = problem


class ObjectTooLarge(InvalidInput):
    """A body is larger than the store takes in one write, the only kind that can be conditional; nothing was sent."""

    def __init__(self, key: str, size: int, size_max: int) -> None:
        super().__init__(
            f"object {key} has {size} bytes, and the store takes {size_max} in one write",
            hint="write it in parts, or as a stream where no condition is needed",
        )
        self.key = key
        self.size = size
        self.size_max = size_max


class ConditionsIgnored(InvalidInput):
    """The store accepted a write whose condition did not hold, so nothing on it can be compared and swapped."""

    def __init__(self, address: str, seen: str) -> None:
        super().__init__(
            f"{address} does not honour conditional writes: {seen}",
            hint="use a store that does: AWS S3, Cloudflare R2, Google Cloud Storage, Azure, MinIO, SeaweedFS or file:///",
        )
        self.address = address
        self.seen = seen


class KeyFileRefused(InvalidInput):
    """A file of keys that cannot be used. No message has a key."""

    def __init__(self, source: str, problem: str, *, hint: str = "a line is `name = key`, 32 bytes in base64") -> None:
        super().__init__(f"{source}: {problem}", hint=hint)
        self.source = source
        self.problem = problem


class KeyMissing(InvalidInput):
    """An object is encrypted under a key that is not there."""

    def __init__(self, key: str, name: str, source: str) -> None:
        super().__init__(
            f"object {key} is encrypted under the key {name!r}, which is not in {source}",
            hint="add the key below the others; keep a key until `rotate-key` has replaced it everywhere",
        )
        self.key = key
        self.name = name


class WrongKey(InvalidInput):
    """An object is encrypted under another key of the same name."""

    def __init__(self, key: str, name: str, source: str) -> None:
        super().__init__(
            f"object {key} is encrypted under another key {name!r} than that of {source}",
            hint="find the file of keys that it was written with; a new key gets a new name",
        )
        self.key = key
        self.name = name


class NotEncrypted(InvalidInput):
    """An object of a store with keys is not encrypted; it was not read."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"object {key} is not encrypted",
            hint="keys are for places that were encrypted from the beginning: use another place, or unset the keys",
        )
        self.key = key


class ObjectAltered(Damaged):
    """An encrypted object is not as it was written: altered, cut off, or moved from another key; nothing was used."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"object {key}", problem, safe="restore it from a copy; see who can write to the store")


class ObjectConflict(Conflict):
    """The object is not as the write expected it; nothing was written."""

    def __init__(self, key: str, wanted: str) -> None:
        super().__init__(f"object {key}: {wanted}", hint="read it again, then decide")
        self.key = key
        self.wanted = wanted


class StoreUnavailable(Unavailable):
    """The store did not answer, or asked to retry later; nothing was done."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}", hint="check the endpoint and the network; the call may be repeated")
        self.address = address
        self.reason = reason


class StoreRefused(Unavailable):
    """The store refuses the request: credentials, permissions, or a bucket that does not exist."""

    retryable = False

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            f"{address}: {reason}",
            hint="check the bucket's name and region, and the credentials (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …)",
        )
        self.address = address
        self.reason = reason


class WriteUnknown(UnknownOutcome):
    """A write was sent and no answer came: it may have happened, or may still happen."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"object {key}: {reason}", hint="read the object before you rely on it")
        self.key = key
        self.reason = reason
