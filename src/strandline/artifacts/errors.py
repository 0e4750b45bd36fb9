"""What an artifact is refused for; part of the one tree of `strandline.errors`.

    Damaged
    └── ArtifactInvalid          the artifact is not whole, or not what its manifest says
    Conflict
    ├── ArtifactUnfit            the artifact is whole, and not for this fold
    ├── DestinationTaken         there is something where the fold or the artifact should go
    └── PointerContended         other exporters moved the pointer during each attempt
    Unavailable
    └── NoArtifact               nothing was published at this address

Invariants: `refusal` names the rule, so that callers and tests need not read sentences. Whichever is raised, nothing is
left at the destination.
"""

from enum import Enum

from strandline.errors import Conflict, Damaged, Unavailable


class Refusal(Enum):
    """The rule that an artifact breaks."""

    NOT_A_MANIFEST = "the manifest is missing, too large, or no manifest"
    SCHEMA = "the manifest has another schema"
    UNSAFE_PATH = "a path leads out of the artifact"
    SYMLINK = "a file is a link or a device"
    EXTRA_FILE = "a file is not in the manifest"
    MISSING_FILE = "a file is missing"
    TAMPERED = "a file is not the one that was exported"
    CURSOR_MISMATCH = "data and manifest are of different moments"
    BACKEND = "it is of another backend"
    BACKEND_VERSION = "the format of its backend is another version"
    SCOPE = "it does not hold every key of the scope"
    MODE = "it is a mirror, and an archive was asked for"
    IDENTITY = "it is of another bucket"
    NO_CURSOR = "the fold has data and no cursor"


class ArtifactInvalid(Damaged):
    """An artifact that is not whole, or not what its manifest says; nothing was imported."""

    def __init__(self, path: str, refusal: Refusal, problem: str, *, safe: str | None = None) -> None:
        super().__init__(path, problem, safe=safe or "fetch it again, or use another artifact; nothing was changed")
        self.refusal = refusal


class ArtifactUnfit(Conflict):
    """A whole artifact that this fold cannot be made of; nothing was changed."""

    def __init__(self, path: str, refusal: Refusal, problem: str, *, hint: str) -> None:
        super().__init__(f"{path}: {problem}", hint=hint)
        self.path = path
        self.refusal = refusal
        self.problem = problem


class DestinationTaken(Conflict):
    """There is something at the destination already; it was left alone."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(f"{path}: {found} is there already", hint="give another path, or move that away first")
        self.path = path
        self.found = found


class PointerContended(Conflict):
    """Other exporters moved the pointer during each attempt; the payload is uploaded and nothing points to it."""

    retryable = True

    def __init__(self, address: str, attempts: int) -> None:
        super().__init__(
            f"{address}: the pointer moved during each of {attempts} attempts",
            hint="export again later; one exporter for each fleet is enough (ExportLease)",
        )
        self.address = address
        self.attempts = attempts


class NoArtifact(Unavailable):
    """Nothing was published at this address."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}", hint="publish one first, or check the address")
        self.address = address
        self.reason = reason
