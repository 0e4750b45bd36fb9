"""What object storage refuses, and why; part of the one tree of `strandline.errors`.

    InvalidInput
    ├── InvalidObjectKey         no store takes such a key or prefix
    ├── InvalidAddress           no store has such an address
    └── ConditionsIgnored        the store accepts a write whose condition does not hold
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

from strandline.errors import Conflict, InvalidInput, Unavailable, UnknownOutcome


class InvalidObjectKey(InvalidInput):
    """A key or prefix that no store takes."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(
            f"object key {key!r}: {problem}", hint="a key is names joined by '/', such as 'orders/0000/0001.ltx'"
        )
        self.key = key
        self.problem = problem


class InvalidAddress(InvalidInput):
    """An address that names no object store."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(
            f"{address!r} is not an object store: {problem}",
            hint="use s3://bucket/prefix, gs://bucket/prefix, az://account/container/prefix, file:///folder or memory://name",
        )
        self.address = address
        self.problem = problem


class ConditionsIgnored(InvalidInput):
    """The store accepted a write whose condition did not hold, so nothing on it can be compared and swapped."""

    def __init__(self, address: str, seen: str) -> None:
        super().__init__(
            f"{address} does not honour conditional writes: {seen}",
            hint="use a store that does: AWS S3, Cloudflare R2, Google Cloud Storage, Azure, MinIO, SeaweedFS or file:///",
        )
        self.address = address
        self.seen = seen


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
