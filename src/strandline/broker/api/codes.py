"""The error codes of the JetStream API: one table, from which every error response is made.

Invariants: a client branches on `err_code`, on the HTTP-like `code`, or on the text, so all three are nats-server's. A
text with a part in braces needs exactly that part. The table is complete, though not every error occurs here. Names are
nats-server's constants without their prefix.
"""

from dataclasses import dataclass

from strandline.errors import StrandlineError


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One row of the table."""

    err_code: int
    code: int
    template: str

    def with_text(self, **parts: object) -> "ApiError":
        """Return the error with the placeholders of its text filled in."""
        return ApiError(self.code, self.err_code, self.template.format(**parts))

    def error(self) -> "ApiError":
        """Return the error, whose text has no placeholders."""
        return ApiError(self.code, self.err_code, self.template)


class ApiError(StrandlineError):
    """The error response to a refused request."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.err_code = err_code
        self.description = description

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ApiError) and (self.err_code, self.description) == (other.err_code, other.description)

    def __hash__(self) -> int:
        return hash((self.err_code, self.description))


ACCOUNT_RESOURCES_EXCEEDED = ErrorCode(10002, 400, "resource limits exceeded for account")
BAD_REQUEST = ErrorCode(10003, 400, "bad request")
CLUSTER_INCOMPLETE = ErrorCode(10004, 503, "incomplete results")
CLUSTER_NO_PEERS = ErrorCode(10005, 400, "{err}")
CLUSTER_NOT_ACTIVE = ErrorCode(10006, 500, "JetStream not in clustered mode")
CLUSTER_NOT_ASSIGNED = ErrorCode(10007, 500, "JetStream cluster not assigned to this server")
CLUSTER_NOT_AVAIL = ErrorCode(10008, 503, "JetStream system temporarily unavailable")
CLUSTER_NOT_LEADER = ErrorCode(10009, 500, "JetStream cluster can not handle request")
CLUSTER_REQUIRED = ErrorCode(10010, 503, "JetStream clustering support required")
CLUSTER_TAGS = ErrorCode(10011, 400, "tags placement not supported for operation")
CONSUMER_CREATE = ErrorCode(10012, 500, "{err}")
CONSUMER_NAME_EXIST = ErrorCode(10013, 400, "consumer name already in use")
CONSUMER_NOT_FOUND = ErrorCode(10014, 404, "consumer not found")
SNAPSHOT_DELIVER_SUBJECT_INVALID = ErrorCode(10015, 400, "deliver subject not valid")
CONSUMER_DURABLE_NAME_NOT_IN_SUBJECT = ErrorCode(
    10016, 400, "consumer expected to be durable but no durable name set in subject"
)
CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT = ErrorCode(
    10017, 400, "consumer name in subject does not match durable name in request"
)
CONSUMER_DURABLE_NAME_NOT_SET = ErrorCode(10018, 400, "consumer expected to be durable but a durable name was not set")
CONSUMER_EPHEMERAL_WITH_DURABLE_IN_SUBJECT = ErrorCode(
    10019, 400, "consumer expected to be ephemeral but detected a durable name set in subject"
)
CONSUMER_EPHEMERAL_WITH_DURABLE_NAME = ErrorCode(
    10020, 400, "consumer expected to be ephemeral but a durable name was set in request"
)
STREAM_EXTERNAL_API_OVERLAP = ErrorCode(
    10021, 400, "stream external api prefix {prefix} must not overlap with {subject}"
)
STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS = ErrorCode(
    10022, 400, "stream external delivery prefix {prefix} overlaps with stream subject {subject}"
)
INSUFFICIENT_RESOURCES = ErrorCode(10023, 503, "insufficient resources")
STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ = ErrorCode(
    10024, 400, "stream external delivery prefix {prefix} must not contain wildcards"
)
INVALID_JSON = ErrorCode(10025, 400, "invalid JSON: {err}")
MAXIMUM_CONSUMERS_LIMIT = ErrorCode(10026, 400, "maximum consumers limit reached")
MAXIMUM_STREAMS_LIMIT = ErrorCode(10027, 400, "maximum number of streams reached")
MEMORY_RESOURCES_EXCEEDED = ErrorCode(10028, 500, "insufficient memory resources available")
MIRROR_CONSUMER_SETUP_FAILED = ErrorCode(10029, 500, "{err}")
MIRROR_MAX_MESSAGE_SIZE_TOO_BIG = ErrorCode(10030, 400, "stream mirror must have max message size >= source")
MIRROR_WITH_SOURCES = ErrorCode(10031, 400, "stream mirrors can not also contain other sources")
MIRROR_WITH_START_SEQ_AND_TIME = ErrorCode(
    10032, 400, "stream mirrors can not have both start seq and start time configured"
)
MIRROR_WITH_SUBJECT_FILTERS = ErrorCode(10033, 400, "stream mirrors can not contain filtered subjects")
MIRROR_WITH_SUBJECTS = ErrorCode(10034, 400, "stream mirrors can not contain subjects")
NO_ACCOUNT = ErrorCode(10035, 503, "account not found")
CLUSTER_UN_SUPPORT_FEATURE = ErrorCode(10036, 503, "not currently supported in clustered mode")
NO_MESSAGE_FOUND = ErrorCode(10037, 404, "no message found")
NOT_EMPTY_REQUEST = ErrorCode(10038, 400, "expected an empty request payload")
NOT_ENABLED_FOR_ACCOUNT = ErrorCode(10039, 503, "JetStream not enabled for account")
CLUSTER_PEER_NOT_MEMBER = ErrorCode(10040, 400, "peer not a member")
RAFT_GENERAL = ErrorCode(10041, 500, "{err}")
RESTORE_SUBSCRIBE_FAILED = ErrorCode(10042, 500, "JetStream unable to subscribe to restore snapshot {subject}: {err}")
SEQUENCE_NOT_FOUND = ErrorCode(10043, 400, "sequence {seq} not found")
CLUSTER_SERVER_NOT_MEMBER = ErrorCode(10044, 400, "server is not a member of the cluster")
SOURCE_CONSUMER_SETUP_FAILED = ErrorCode(10045, 500, "{err}")
SOURCE_MAX_MESSAGE_SIZE_TOO_BIG = ErrorCode(10046, 400, "stream source must have max message size >= target")
STORAGE_RESOURCES_EXCEEDED = ErrorCode(10047, 500, "insufficient storage resources available")
STREAM_ASSIGNMENT = ErrorCode(10048, 500, "{err}")
STREAM_CREATE = ErrorCode(10049, 500, "{err}")
STREAM_DELETE = ErrorCode(10050, 500, "{err}")
STREAM_GENERAL_ERROR = ErrorCode(10051, 500, "{err}")
STREAM_INVALID_CONFIG = ErrorCode(10052, 500, "{err}")
STREAM_LIMITS = ErrorCode(10053, 500, "{err}")
STREAM_MESSAGE_EXCEEDS_MAXIMUM = ErrorCode(10054, 400, "message size exceeds maximum allowed")
STREAM_MIRROR_NOT_UPDATABLE = ErrorCode(10055, 400, "stream mirror configuration can not be updated")
STREAM_MISMATCH = ErrorCode(10056, 400, "stream name in subject does not match request")
STREAM_MSG_DELETE_FAILED = ErrorCode(10057, 500, "{err}")
STREAM_NAME_EXIST = ErrorCode(10058, 400, "stream name already in use with a different configuration")
STREAM_NOT_FOUND = ErrorCode(10059, 404, "stream not found")
STREAM_NOT_MATCH = ErrorCode(10060, 400, "expected stream does not match")
STREAM_REPLICAS_NOT_UPDATABLE = ErrorCode(10061, 400, "Replicas configuration can not be updated")
STREAM_RESTORE = ErrorCode(10062, 500, "restore failed: {err}")
STREAM_SEQUENCE_NOT_MATCH = ErrorCode(10063, 503, "expected stream sequence does not match")
STREAM_SNAPSHOT = ErrorCode(10064, 500, "snapshot failed: {err}")
STREAM_SUBJECT_OVERLAP = ErrorCode(10065, 400, "subjects overlap with an existing stream")
STREAM_TEMPLATE_CREATE = ErrorCode(10066, 500, "{err}")
STREAM_TEMPLATE_DELETE = ErrorCode(10067, 500, "{err}")
STREAM_TEMPLATE_NOT_FOUND = ErrorCode(10068, 404, "template not found")
STREAM_UPDATE = ErrorCode(10069, 500, "{err}")
STREAM_WRONG_LAST_MSG_ID = ErrorCode(10070, 400, "wrong last msg ID: {id}")
STREAM_WRONG_LAST_SEQUENCE = ErrorCode(10071, 400, "wrong last sequence: {seq}")
TEMP_STORAGE_FAILED = ErrorCode(10072, 500, "JetStream unable to open temp storage for restore")
TEMPLATE_NAME_NOT_MATCH_SUBJECT = ErrorCode(10073, 400, "template name in subject does not match request")
STREAM_REPLICAS_NOT_SUPPORTED = ErrorCode(10074, 500, "replicas > 1 not supported in non-clustered mode")
PEER_REMAP = ErrorCode(10075, 503, "peer remap failed")
NOT_ENABLED = ErrorCode(10076, 503, "JetStream not enabled")
STREAM_STORE_FAILED = ErrorCode(10077, 503, "{err}")
CONSUMER_CONFIG_REQUIRED = ErrorCode(10078, 400, "consumer config required")
CONSUMER_DELIVER_TO_WILDCARDS = ErrorCode(10079, 400, "consumer deliver subject has wildcards")
CONSUMER_PUSH_MAX_WAITING = ErrorCode(10080, 400, "consumer in push mode can not set max waiting")
CONSUMER_DELIVER_CYCLE = ErrorCode(10081, 400, "consumer deliver subject forms a cycle")
CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED = ErrorCode(10082, 400, "consumer requires ack policy for max ack pending")
CONSUMER_SMALL_HEARTBEAT = ErrorCode(10083, 400, "consumer idle heartbeat needs to be >= 100ms")
CONSUMER_PULL_REQUIRES_ACK = ErrorCode(
    10084, 400, "consumer in pull mode requires explicit ack policy on workqueue stream"
)
CONSUMER_PULL_NOT_DURABLE = ErrorCode(10085, 400, "consumer in pull mode requires a durable name")
CONSUMER_PULL_WITH_RATE_LIMIT = ErrorCode(10086, 400, "consumer in pull mode can not have rate limit set")
CONSUMER_MAX_WAITING_NEGATIVE = ErrorCode(10087, 400, "consumer max waiting needs to be positive")
CONSUMER_HB_REQUIRES_PUSH = ErrorCode(10088, 400, "consumer idle heartbeat requires a push based consumer")
CONSUMER_FC_REQUIRES_PUSH = ErrorCode(10089, 400, "consumer flow control requires a push based consumer")
CONSUMER_DIRECT_REQUIRES_PUSH = ErrorCode(10090, 400, "consumer direct requires a push based consumer")
CONSUMER_DIRECT_REQUIRES_EPHEMERAL = ErrorCode(10091, 400, "consumer direct requires an ephemeral consumer")
CONSUMER_ON_MAPPED = ErrorCode(10092, 400, "consumer direct on a mapped consumer")
CONSUMER_FILTER_NOT_SUBSET = ErrorCode(
    10093, 400, "consumer filter subject is not a valid subset of the interest subjects"
)
CONSUMER_INVALID_POLICY = ErrorCode(10094, 400, "{err}")
CONSUMER_INVALID_SAMPLING = ErrorCode(10095, 400, "failed to parse consumer sampling configuration: {err}")
STREAM_INVALID = ErrorCode(10096, 500, "stream not valid")
STREAM_HEADER_EXCEEDS_MAXIMUM = ErrorCode(10097, 400, "header size exceeds maximum allowed of 64k")
CONSUMER_WQ_REQUIRES_EXPLICIT_ACK = ErrorCode(10098, 400, "workqueue stream requires explicit ack")
CONSUMER_WQ_MULTIPLE_UNFILTERED = ErrorCode(
    10099, 400, "multiple non-filtered consumers not allowed on workqueue stream"
)
CONSUMER_WQ_CONSUMER_NOT_UNIQUE = ErrorCode(10100, 400, "filtered consumer not unique on workqueue stream")
CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL = ErrorCode(10101, 400, "consumer must be deliver all on workqueue stream")
CONSUMER_NAME_TOO_LONG = ErrorCode(10102, 400, "consumer name is too long, maximum allowed is {max}")
CONSUMER_BAD_DURABLE_NAME = ErrorCode(10103, 400, "durable name can not contain '.', '*', '>'")
CONSUMER_STORE_FAILED = ErrorCode(10104, 500, "error creating store for consumer: {err}")
CONSUMER_EXISTING_ACTIVE = ErrorCode(10105, 400, "consumer already exists and is still active")
CONSUMER_REPLACEMENT_WITH_DIFFERENT_NAME = ErrorCode(10106, 400, "consumer replacement durable config not the same")
CONSUMER_DESCRIPTION_TOO_LONG = ErrorCode(10107, 400, "consumer description is too long, maximum allowed is {max}")
CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS = ErrorCode(10108, 400, "consumer with flow control also needs heartbeats")
STREAM_SEALED = ErrorCode(10109, 400, "invalid operation on sealed stream")
STREAM_PURGE_FAILED = ErrorCode(10110, 500, "{err}")
STREAM_ROLLUP_FAILED = ErrorCode(10111, 500, "{err}")
CONSUMER_INVALID_DELIVER_SUBJECT = ErrorCode(10112, 400, "invalid push consumer deliver subject")
STREAM_MAX_BYTES_REQUIRED = ErrorCode(10113, 400, "account requires a stream config to have max bytes set")
CONSUMER_MAX_REQUEST_BATCH_NEGATIVE = ErrorCode(10114, 400, "consumer max request batch needs to be > 0")
CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL = ErrorCode(10115, 400, "consumer max request expires needs to be >= 1ms")
CONSUMER_MAX_DELIVER_BACKOFF = ErrorCode(10116, 400, "max deliver is required to be > length of backoff values")
STREAM_INFO_MAX_SUBJECTS = ErrorCode(10117, 500, "subject details would exceed maximum allowed")
STREAM_OFFLINE = ErrorCode(10118, 500, "stream is offline")
CONSUMER_OFFLINE = ErrorCode(10119, 500, "consumer is offline")
NO_LIMITS = ErrorCode(10120, 400, "no JetStream default or applicable tiered limit present")
CONSUMER_MAX_PENDING_ACK_EXCESS = ErrorCode(10121, 400, "consumer max ack pending exceeds system limit of {limit}")
STREAM_MAX_STREAM_BYTES_EXCEEDED = ErrorCode(10122, 400, "stream max bytes exceeds account limit max stream bytes")
STREAM_MOVE_AND_SCALE = ErrorCode(10123, 400, "can not move and scale a stream in a single update")
STREAM_MOVE_IN_PROGRESS = ErrorCode(10124, 400, "stream move already in progress")
CONSUMER_MAX_REQUEST_BATCH_EXCEEDED = ErrorCode(
    10125, 400, "consumer max request batch exceeds server limit of {limit}"
)
CONSUMER_REPLICAS_EXCEEDS_STREAM = ErrorCode(10126, 400, "consumer config replica count exceeds parent stream")
CONSUMER_NAME_CONTAINS_PATH_SEPARATORS = ErrorCode(10127, 400, "Consumer name can not contain path separators")
STREAM_NAME_CONTAINS_PATH_SEPARATORS = ErrorCode(10128, 400, "Stream name can not contain path separators")
STREAM_RECONFIGURE_NOT_IN_PROGRESS = ErrorCode(10129, 400, "stream reconfiguration not in progress")
STREAM_NAME_EXIST_RESTORE_FAILED = ErrorCode(10130, 400, "stream name already in use, cannot restore")
CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH = ErrorCode(
    10131, 400, "Consumer create request did not match filtered subject from create subject"
)
CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH = ErrorCode(
    10132, 400, "Consumer Durable and Name have to be equal if both are provided"
)
REPLICAS_COUNT_CANNOT_BE_NEGATIVE = ErrorCode(10133, 400, "replicas count cannot be negative")
CONSUMER_REPLICAS_SHOULD_MATCH_STREAM = ErrorCode(
    10134, 400, "consumer config replicas must match interest retention stream's replicas"
)
CONSUMER_METADATA_LENGTH = ErrorCode(10135, 400, "consumer metadata exceeds maximum size of {limit}")
CONSUMER_DUPLICATE_FILTER_SUBJECTS = ErrorCode(
    10136, 400, "consumer cannot have both FilterSubject and FilterSubjects specified"
)
CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED = ErrorCode(
    10137, 400, "consumer with multiple subject filters cannot use subject based API"
)
CONSUMER_OVERLAPPING_SUBJECT_FILTERS = ErrorCode(10138, 400, "consumer subject filters cannot overlap")
CONSUMER_EMPTY_FILTER = ErrorCode(10139, 400, "consumer filter in FilterSubjects cannot be empty")
SOURCE_DUPLICATE_DETECTED = ErrorCode(10140, 400, "duplicate source configuration detected")
SOURCE_INVALID_STREAM_NAME = ErrorCode(10141, 400, "sourced stream name is invalid")
MIRROR_INVALID_STREAM_NAME = ErrorCode(10142, 400, "mirrored stream name is invalid")
MIRROR_WITH_FIRST_SEQ = ErrorCode(10143, 400, "stream mirrors can not have first sequence configured")
SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED = ErrorCode(
    10144, 400, "source with multiple subject transforms cannot also have a single subject filter"
)
SOURCE_INVALID_SUBJECT_FILTER = ErrorCode(10145, 400, "source transform source: {err}")
SOURCE_INVALID_TRANSFORM_DESTINATION = ErrorCode(10146, 400, "source transform: {err}")
SOURCE_OVERLAPPING_SUBJECT_FILTERS = ErrorCode(10147, 400, "source filters can not overlap")
CONSUMER_ALREADY_EXISTS = ErrorCode(10148, 400, "consumer already exists")
CONSUMER_DOES_NOT_EXIST = ErrorCode(10149, 400, "consumer does not exist")
MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED = ErrorCode(
    10150, 400, "mirror with multiple subject transforms cannot also have a single subject filter"
)
MIRROR_INVALID_SUBJECT_FILTER = ErrorCode(10151, 400, "mirror transform source: {err}")
MIRROR_OVERLAPPING_SUBJECT_FILTERS = ErrorCode(10152, 400, "mirror subject filters can not overlap")
CONSUMER_INACTIVE_THRESHOLD_EXCESS = ErrorCode(
    10153, 400, "consumer inactive threshold exceeds system limit of {limit}"
)
MIRROR_INVALID_TRANSFORM_DESTINATION = ErrorCode(10154, 400, "mirror transform: {err}")
STREAM_TRANSFORM_INVALID_SOURCE = ErrorCode(10155, 400, "stream transform source: {err}")
STREAM_TRANSFORM_INVALID_DESTINATION = ErrorCode(10156, 400, "stream transform: {err}")
PEDANTIC = ErrorCode(10157, 400, "pedantic mode: {err}")
STREAM_DUPLICATE_MESSAGE_CONFLICT = ErrorCode(10158, 409, "duplicate message id is in process")
CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP = ErrorCode(
    10159, 400, "Setting PriorityPolicy requires at least one PriorityGroup to be set"
)
CONSUMER_INVALID_PRIORITY_GROUP = ErrorCode(10160, 400, "Provided priority group does not exist for this consumer")
CONSUMER_EMPTY_GROUP_NAME = ErrorCode(10161, 400, "Group name cannot be an empty string")
CONSUMER_INVALID_GROUP_NAME = ErrorCode(
    10162, 400, "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters"
)
STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_NOT_READY = ErrorCode(
    10163, 503, "expected last sequence per subject temporarily unavailable"
)
STREAM_WRONG_LAST_SEQUENCE_CONSTANT = ErrorCode(10164, 400, "wrong last sequence")
MESSAGE_TTL_INVALID = ErrorCode(10165, 400, "invalid per-message TTL")
MESSAGE_TTL_DISABLED = ErrorCode(10166, 400, "per-message TTL is disabled")
STREAM_TOO_MANY_REQUESTS = ErrorCode(10167, 429, "too many requests")
MESSAGE_INCR_DISABLED = ErrorCode(10168, 400, "message counters is disabled")
MESSAGE_INCR_MISSING = ErrorCode(10169, 400, "message counter increment is missing")
MESSAGE_INCR_PAYLOAD = ErrorCode(10170, 400, "message counter has payload")
MESSAGE_INCR_INVALID = ErrorCode(10171, 400, "message counter increment is invalid")
MESSAGE_COUNTER_BROKEN = ErrorCode(10172, 400, "message counter is broken")
MIRROR_WITH_COUNTERS = ErrorCode(10173, 400, "stream mirrors can not also calculate counters")
ATOMIC_PUBLISH_DISABLED = ErrorCode(10174, 400, "atomic publish is disabled")
ATOMIC_PUBLISH_MISSING_SEQ = ErrorCode(10175, 400, "atomic publish sequence is missing")
ATOMIC_PUBLISH_INCOMPLETE_BATCH = ErrorCode(10176, 400, "atomic publish batch is incomplete")
ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH = ErrorCode(10177, 400, "atomic publish unsupported header used: {header}")
CONSUMER_PUSH_WITH_PRIORITY_GROUP = ErrorCode(10178, 400, "priority groups can not be used with push consumers")
ATOMIC_PUBLISH_INVALID_BATCH_ID = ErrorCode(10179, 400, "atomic publish batch ID is invalid")
STREAM_MIN_LAST_SEQ = ErrorCode(10180, 412, "min last sequence")
CONSUMER_ACK_POLICY_INVALID = ErrorCode(10181, 400, "consumer ack policy invalid")
CONSUMER_REPLAY_POLICY_INVALID = ErrorCode(10182, 400, "consumer replay policy invalid")
CONSUMER_ACK_WAIT_NEGATIVE = ErrorCode(10183, 400, "consumer ack wait needs to be positive")
CONSUMER_BACK_OFF_NEGATIVE = ErrorCode(10184, 400, "consumer backoff needs to be positive")
REQUIRED_API_LEVEL = ErrorCode(10185, 412, "JetStream minimum api level required")
MIRROR_WITH_MSG_SCHEDULES = ErrorCode(10186, 400, "stream mirrors can not also schedule messages")
SOURCE_WITH_MSG_SCHEDULES = ErrorCode(10187, 400, "stream source can not also schedule messages")
MESSAGE_SCHEDULES_DISABLED = ErrorCode(10188, 400, "message schedules is disabled")
MESSAGE_SCHEDULES_PATTERN_INVALID = ErrorCode(10189, 400, "message schedules pattern is invalid")
MESSAGE_SCHEDULES_TARGET_INVALID = ErrorCode(10190, 400, "message schedules target is invalid")
MESSAGE_SCHEDULES_TTL_INVALID = ErrorCode(10191, 400, "message schedules invalid per-message TTL")
MESSAGE_SCHEDULES_ROLLUP_INVALID = ErrorCode(10192, 400, "message schedules invalid rollup")
STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID = ErrorCode(
    10193, 400, "missing sequence for expected last sequence per subject"
)
STREAM_OFFLINE_REASON = ErrorCode(10194, 500, "stream is offline: {err}")
CONSUMER_OFFLINE_REASON = ErrorCode(10195, 500, "consumer is offline: {err}")
CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE = ErrorCode(
    10196, 400, "consumer can not have priority groups when policy is none"
)
CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE = ErrorCode(
    10197, 400, "PinnedTTL cannot be set when PriorityPolicy is none"
)
MIRROR_WITH_ATOMIC_PUBLISH = ErrorCode(10198, 400, "stream mirrors can not also use atomic publishing")
ATOMIC_PUBLISH_TOO_LARGE_BATCH = ErrorCode(10199, 400, "atomic publish batch is too large: {size}")
ATOMIC_PUBLISH_INVALID_BATCH_COMMIT = ErrorCode(10200, 400, "atomic publish batch commit is invalid")
ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE = ErrorCode(10201, 400, "atomic publish batch contains duplicate message id")
CLUSTER_SERVER_MEMBER_CHANGE_INFLIGHT = ErrorCode(10202, 400, "cluster member change is in progress")
MESSAGE_SCHEDULES_SOURCE_INVALID = ErrorCode(10203, 400, "message schedules source is invalid")
CONSUMER_INVALID_RESET = ErrorCode(10204, 400, "invalid reset: {err}")
BATCH_PUBLISH_DISABLED = ErrorCode(10205, 400, "batch publish is disabled")
BATCH_PUBLISH_INVALID_PATTERN = ErrorCode(10206, 400, "batch publish pattern is invalid")
BATCH_PUBLISH_INVALID_BATCH_ID = ErrorCode(10207, 400, "batch publish ID is invalid")
BATCH_PUBLISH_UNKNOWN_BATCH_ID = ErrorCode(10208, 400, "batch publish ID unknown")
MIRROR_WITH_BATCH_PUBLISH = ErrorCode(10209, 400, "stream mirrors can not also use batch publishing")
ATOMIC_PUBLISH_TOO_MANY_INFLIGHT = ErrorCode(10210, 429, "atomic publish too many inflight")
BATCH_PUBLISH_TOO_MANY_INFLIGHT = ErrorCode(10211, 429, "batch publish too many inflight")
MESSAGE_SCHEDULES_SCHEDULER_INVALID = ErrorCode(10212, 400, "message schedules invalid scheduler")
MIRROR_DURABLE_CONSUMER_CFG_INVALID = ErrorCode(10213, 400, "stream mirror consumer config is invalid")
MIRROR_CONSUMER_REQUIRES_ACK_FC = ErrorCode(10214, 400, "stream mirror consumer requires flow control ack policy")
SOURCE_DURABLE_CONSUMER_CFG_INVALID = ErrorCode(10215, 400, "stream source consumer config is invalid")
SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED = ErrorCode(10216, 400, "duplicate stream source consumer detected")
SOURCE_CONSUMER_REQUIRES_ACK_FC = ErrorCode(10217, 400, "stream source consumer requires flow control ack policy")
CONSUMER_ACK_FC_REQUIRES_PUSH = ErrorCode(10218, 400, "flow control ack policy requires a push based consumer")
CONSUMER_ACK_FC_REQUIRES_FC = ErrorCode(10219, 400, "flow control ack policy requires flow control")
CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING = ErrorCode(10220, 400, "flow control ack policy requires max ack pending")
CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT = ErrorCode(10221, 400, "flow control ack policy requires unset ack wait")
CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER = ErrorCode(10222, 400, "flow control ack policy requires unset max deliver")
MESSAGE_SCHEDULES_TIME_ZONE_INVALID = ErrorCode(10223, 400, "message schedules time zone is invalid")
CLUSTER_RESCUE = ErrorCode(10224, 400, "JetStream system rescue not applied: {err}")
CONSUMER_STREAM_IDENTITY_MISMATCH = ErrorCode(10225, 400, "consumer's stream identity does not match: {msg}")
STREAM_RECONFIGURE_IN_PROGRESS = ErrorCode(10226, 400, "stream reconfiguration already in progress")
MESSAGE_SOURCE_HDR_NOT_ALLOWED = ErrorCode(10227, 400, "message stream source header is not allowed")

ERROR_CODES: dict[int, ErrorCode] = {
    row.err_code: row for row in tuple(globals().values()) if isinstance(row, ErrorCode)
}
"""Every code by its number."""
