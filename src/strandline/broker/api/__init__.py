"""The JetStream API: requests, responses, advisories and error codes, in nats-server's form.

**Invariant.** Everything here is pure and frozen. JSON is parsed as strictly and written as exactly as in nats-server.
"""

from strandline.broker.api.codes import ERROR_CODES, ApiError, ErrorCode
from strandline.broker.api.config import (
    ConsumerLimits,
    Discard,
    PersistMode,
    RePublish,
    Retention,
    Storage,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from strandline.broker.api.schema import from_json, to_json

__all__ = [
    "ERROR_CODES",
    "ApiError",
    "ConsumerLimits",
    "Discard",
    "ErrorCode",
    "PersistMode",
    "RePublish",
    "Retention",
    "Storage",
    "StreamConfig",
    "StreamSource",
    "SubjectTransform",
    "from_json",
    "to_json",
]
