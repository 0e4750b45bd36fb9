"""Redaction: hashes, keys and rows that hold them never show a secret, nor do values that wrap such rows.

The checks have the names of the reference system's, and look at the library's own types; no backend is needed.
"""

import logging
import pprint
import string
from collections.abc import Callable, Iterator
from typing import Any

from strandline.pipeline.commit import Page
from strandline.pipeline.identity import NormHash, SecretHash, TenantSecretKey
from strandline.pipeline.policy import Policy
from strandline.pipeline.reads import FindingHistory, PendingFinding, Seen
from strandline.pipeline.receipts import FindingsReceipt
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.triage import TriageState
from strandline.testing.contract import expect
from strandline.testing.persistence_helpers import (
    WRITER,
    Location,
    batch_of,
    decision,
    digest,
    done,
    found,
    scope_of,
)

RedactionCheck = Callable[[], None]
"""A check without arguments: it inspects the library's own types."""


def norm_hash_debug() -> None:
    """The unkeyed digest of a secret, which can be guessed, and the key that hides it."""
    _expect_hidden("a NormHash", NormHash(digest("norm")), digest("norm"))
    _expect_hidden("a TenantSecretKey", TenantSecretKey(digest("key")), digest("key"))


def secret_hash_debug() -> None:
    """The keyed hash, by itself and inside of what one would print."""
    secret = SecretHash(digest("secret"))
    _expect_hidden("a SecretHash", secret, digest("secret"))
    for what, holder in (("a list", [secret]), ("a dict", {"secret": secret}), ("a tuple", (1, secret))):
        _expect_hidden(f"{what} of a SecretHash", holder, digest("secret"))
    try:
        SecretHash(digest("secret") + b"x")
    except ValueError as error:
        _expect_hidden("the error for a hash of another length", error, digest("secret"))


def finding_record_debug() -> None:
    """Rows of all layers, batches, pages and answers, and the ids that are made of a secret."""
    row = found(location=Location(1, "file"))
    event = decision(row, TriageState.OPEN)
    seen = Seen(row.occurrence, row.observation, 1, 1)
    batch = batch_of(row)
    for what, holder in (
        ("a FindingRecord", row.finding),
        ("an OccurrenceRecord", row.occurrence),
        ("an ObservationRecord", row.observation),
        ("a FindingsBatch", batch),
        ("a Page", Page(batch, [done("a")])),
        ("a TriageEvent", event),
        ("a PendingFinding", PendingFinding(row.finding, 1, 1, "file", event)),
        ("a FindingHistory", FindingHistory(row.finding, 1, [seen], [event])),
        ("a FindingsReceipt", FindingsReceipt(batch.scope, 1, 1, 1)),
    ):
        for hidden in (row.finding.secret, row.finding.finding_id, row.occurrence.occurrence_id):
            _expect_hidden(what, holder, bytes(hidden))


def cursors_and_tenants_debug() -> None:
    """Where a page ends may be a file's name, and no error shows it."""
    scope = scope_of(WriteContext(*WRITER), end=digest("the end"))
    _expect_hidden("a CommitScope's cursor", scope, digest("the end"))
    _expect_hidden("a WriteContext's tenant", WRITER, WRITER.tenant)
    policy = Policy({"rule": {"pattern": "x"}}, {}, [], "1")
    _expect_hidden("a Policy's fingerprints", policy, policy.fingerprints["rule"])


def _expect_hidden(what: str, holder: object, hidden: bytes) -> None:
    forms = hidden.hex(), repr(hidden)[2:-1].lower(), repr(list(hidden))[1:-1], hidden.decode("latin-1").lower()
    for how, shown in _shown(holder):
        expect(not any(form in shown.lower() for form in forms), f"{what} shows its bytes in {how}")


def _shown(holder: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - whatever can be printed
    yield "repr", repr(holder)
    yield "str", str(holder)
    yield "format", string.Formatter().format("{0} {0!s} {0!r} {0!a}", holder)
    yield "%s and %r", "%s %r" % ((holder,), (holder,))  # noqa: UP031 - another way to the same bytes
    yield "pprint", pprint.pformat(holder)
    yield "a log line", logging.LogRecord("", 0, "", 0, "%s %r", (holder, holder), None).getMessage()


REDACTION_CHECKS: tuple[RedactionCheck, ...] = (
    norm_hash_debug,
    secret_hash_debug,
    finding_record_debug,
    cursors_and_tenants_debug,
)
"""What the library itself must not show, as functions without arguments."""
