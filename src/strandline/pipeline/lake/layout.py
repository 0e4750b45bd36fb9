"""Names of the objects of a lake: one prefix of a store that holds all of a pipeline's state.

    strandline-pipeline.json                                    the marker: what this prefix is, and its format
    coordination/…                                              runs and shards: `pipeline.coordination.objects`
    state/<tenant>/log/<number>                                 batches of scanner state, one object each, in order
    state/<tenant>/snapshots/<number>                           all keys after the batch of that number
    state/<tenant>/trimmed                                      written before the first batch is deleted
    state/<tenant>/values/<xx>/<id>                             values that are too large for a batch
    policies/<tenant>/<policy>                                  the rules of a policy
    pages/<table>/<xx>/<tenant>-<policy>-<run>-<shard>-<fence>-<digest>.parquet    rows of one page
    tables/<table>/…                                            Delta tables of folded pages: `pipeline.lake.delta_log`
    compaction/…                                                pages that were folded, until they are deleted

Numbers and ids are hexadecimal; `<xx>` is the first byte of a digest, which spreads objects that are written at once
over the store. Tenant and policy of a page are the first 8 bytes of each: the rows have them in full.

Invariants: a page's name follows from its rows and its writer, so that a page that is written again is the same object;
`parse_…(format_…(x)) == x`.
"""

import re
from typing import Literal, NamedTuple

from blake3 import blake3

from strandline.pipeline.identity import PolicyHash, TenantId
from strandline.pipeline.scope import WriteContext
from strandline.protocol.canonical import to_signed, to_unsigned

MARKER = "strandline-pipeline.json"
PageTable = Literal["ledger", "findings", "triage"]
PAGES = "pages/"
STATE = "state/"
POLICIES = "policies/"
COMPACTION = "compaction/"
ID_BYTES = 8
_PAGE = re.compile(
    r"pages/(ledger|findings|triage)/([0-9a-f]{2})/([0-9a-f]{16})-([0-9a-f]{16})"
    r"-([0-9a-f]{16})-([0-9a-f]{16})-([0-9a-f]{16})-([0-9a-f]{32})\.parquet"
)

DATA_FILE = re.compile(
    r"tables/(ledger|findings|occurrences|observations|triage)/(part|[0-9a-f]{32})-([0-9a-f]{16}-)?[0-9a-f]{64}\.parquet"
)
_OURS = re.compile(
    r"compaction/(clock|[0-9a-f]{32}\.json)"
    r"|coordination/(runs|shards)/[0-9a-f]{64}/.*"
    r"|(state|policies)/[0-9a-f]{64}/.*"
    r"|tables/(ledger|findings|occurrences|observations|triage)/_delta_log/[0-9]{20}\.json"
)


class PageName(NamedTuple):
    """The name of a page: its table, the beginnings of its tenant and policy, its writer, and a digest of its rows."""

    table: PageTable
    tenant: bytes
    policy: bytes
    run_id: int
    shard_id: int
    fence: int
    digest: bytes

    @classmethod
    def of(cls, table: PageTable, context: WriteContext, digest: bytes) -> "PageName":
        """Return the name of a writer's page with rows of that digest."""
        tenant, policy = context.tenant[:ID_BYTES], context.policy[:ID_BYTES]
        return cls(table, tenant, policy, context.run_id, context.shard_id, context.fence, digest)


def format_page(name: PageName) -> str:
    """Return the key of a page."""
    table, tenant, policy, run_id, shard_id, fence, digest = name
    numbers = "-".join(f"{to_unsigned(number):016x}" for number in (run_id, shard_id, fence))
    tail = f"{tenant.hex()}-{policy.hex()}-{numbers}-{digest.hex()}.parquet"
    return f"{PAGES}{table}/{blake3(tail.encode()).hexdigest()[:2]}/{tail}"


def parse_page(key: str) -> PageName | None:
    """Return the name of a page, or None where the key is not that of a page."""
    match = _PAGE.fullmatch(key)
    if match is None:
        return None
    table, _, tenant, policy, *numbers, digest = match.groups()
    run_id, shard_id, fence = (to_signed(int(number, 16)) for number in numbers)
    known: dict[str, PageTable] = {"ledger": "ledger", "findings": "findings", "triage": "triage"}
    ids = bytes.fromhex(tenant), bytes.fromhex(policy)
    return PageName(known[table], *ids, run_id, shard_id, fence, bytes.fromhex(digest))


def is_ours(key: str) -> bool:
    """Return whether a key is one that only a lake has."""
    return parse_page(key) is not None or _OURS.fullmatch(key) is not None or DATA_FILE.fullmatch(key) is not None


def format_scope(tenant: TenantId, policy: PolicyHash) -> str:
    """Return how names of data files of the ledger begin: with its tenant and policy."""
    return f"{tenant[:ID_BYTES].hex()}{policy[:ID_BYTES].hex()}-"


def format_pages_prefix(table: PageTable) -> str:
    """Return the prefix of a table's pages."""
    return f"{PAGES}{table}/"


def format_policy(tenant: TenantId, policy: PolicyHash) -> str:
    """Return the key of a policy's rules."""
    return f"{format_policies_prefix(tenant)}{policy.hex()}"


def parse_policy(key: str) -> PolicyHash:
    """Return the policy of a key."""
    return PolicyHash(bytes.fromhex(key.rsplit("/", 1)[1]))


def format_policies_prefix(tenant: TenantId) -> str:
    """Return the prefix of a tenant's policies."""
    return f"{POLICIES}{tenant.hex()}/"


def format_log(tenant: TenantId, number: int) -> str:
    """Return the key of a batch of scanner state."""
    return f"{format_log_prefix(tenant)}{number:016x}"


def format_log_prefix(tenant: TenantId) -> str:
    """Return the prefix of a tenant's batches."""
    return f"{STATE}{tenant.hex()}/log/"


def format_trimmed(tenant: TenantId) -> str:
    """Return the key of the object that says that batches of a tenant were deleted."""
    return f"{STATE}{tenant.hex()}/trimmed"


def format_snapshot(tenant: TenantId, number: int) -> str:
    """Return the key of the snapshot after a batch."""
    return f"{format_snapshots_prefix(tenant)}{number:016x}"


def format_snapshots_prefix(tenant: TenantId) -> str:
    """Return the prefix of a tenant's snapshots."""
    return f"{STATE}{tenant.hex()}/snapshots/"


def parse_number(key: str) -> int:
    """Return the number of a batch or snapshot."""
    return int(key.rsplit("/", 1)[1], 16)


def format_value(tenant: TenantId, name: bytes) -> str:
    """Return the key of a large value."""
    return f"{format_values_prefix(tenant)}{name[:1].hex()}/{name.hex()}"


def parse_value(key: str) -> bytes:
    """Return the id of a large value."""
    return bytes.fromhex(key.rsplit("/", 1)[1])


def format_values_prefix(tenant: TenantId) -> str:
    """Return the prefix of a tenant's large values."""
    return f"{STATE}{tenant.hex()}/values/"


def parse_tenant(key: str) -> TenantId:
    """Return the tenant of a key below `state/` or `policies/`."""
    return TenantId(bytes.fromhex(key.split("/")[1]))
