"""Limits of a scan, and the version of the engine's semantics; both are part of the policy.

Invariants: the item's coverage counts everything that a limit cuts off; a change of a limit is a change of policy.
"""

from dataclasses import asdict, dataclass

from strandline.errors import InvalidInput
from strandline.protocol.canonical import Plain

ENGINE_VERSION = "strandline-scan/1"
VIEWS = (
    *("utf-16le", "utf-16be", "base64", "hex", "percent", "escapes", "tables"),
    *("zip", "tar", "gzip", "bzip2", "xz", "zstd"),
)
KIB, MIB = 1 << 10, 1 << 20
COMMENTS = (
    "gitleaks:allow",
    "strandline:allow",
    "pragma: allowlist secret",
    "pragma: allowlist nextline secret",
    "trufflehog:ignore",
    "kingfisher:ignore",
)
"""Comments that allow a finding on their line; a `nextline` one, on the next."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one item's scan, in bytes unless the name says otherwise."""

    findings_max: int = 8_192
    match_bytes_max: int = 16 * KIB
    keyword_radius: int = KIB
    slow_steps_max: int = 10_000_000
    decode_depth: int = 3
    view_spans_max: int = 64
    view_bytes_max: int = 64 * KIB
    views_total_max: int = 512 * KIB
    archive_depth: int = 3
    archive_entries_max: int = 4_096
    entry_bytes_max: int = 64 * MIB
    archive_bytes_max: int = 256 * MIB
    archive_ratio_max: int = 128
    allow_comments: int = 1
    """1 if comments allow findings, else 0."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int) or value < 0:
                raise InvalidInput(f"{name} is a whole number, 0 or more, not {value!r}")
        if not 64 <= self.match_bytes_max <= MIB:  # noqa: PLR2004
            raise InvalidInput(f"match_bytes_max is within 64 to {MIB:,}, not {self.match_bytes_max:,}")

    def plain(self) -> Plain:
        """Return the limits as canonical values."""
        return {**asdict(self), "allow_comments": list(COMMENTS) if self.allow_comments else []}
