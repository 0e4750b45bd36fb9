"""The result of an item's scan: findings without a byte of the secret, and coverage.

Invariants: no value holds scanned bytes; no `repr` shows a hash of a secret; `coverage.is_whole` means that no limit
and no broken member left anything out.
"""

from dataclasses import dataclass

from strandline.pipeline.identity import RuleFingerprint, SecretHash

CONFIDENCE_MAX = 10


@dataclass(frozen=True, slots=True)
class Found:
    """A secret at a place: `start` and `end` are the span in the item's bytes; line and column count from 1.

    Inside an archive the line and the column are those of the innermost member; inside encoded text they are those of
    the text, and `inner` is the place in what it holds, if that is a file of its own (base64 of a gzip). The span is
    the member's bytes as far as they stand in the item as they are, otherwise all of what the member is packed in.
    `via` names members and views from the outside in; `path` is that of the file which has the line: the item's, with
    those of members behind `!`. `comment` is the comment on the line that allows the finding, if there is one: reports
    leave it out, and count it.
    """

    rule_id: str
    fingerprint: RuleFingerprint
    start: int
    end: int
    line: int
    column: int
    secret: SecretHash
    confidence: int
    via: tuple[str, ...] = ()
    path: str = ""
    comment: str = ""
    inner: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The extent of a scan; bytes of members count beside those of the item that holds them."""

    bytes_seen: int = 0
    members_skipped: int = 0
    decodes_skipped: int = 0
    findings_dropped: int = 0

    @property
    def is_whole(self) -> bool:
        """Return whether nothing was left out."""
        return not (self.members_skipped or self.decodes_skipped or self.findings_dropped)


@dataclass(frozen=True, slots=True)
class ItemResult:
    """The findings of an item, ordered by span and rule, and its coverage."""

    findings: tuple[Found, ...]
    coverage: Coverage
