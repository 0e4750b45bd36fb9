"""Errors of a scan as a whole; part of the tree of `strandline.errors`.

StrandlineError
└── EngineUnusable      the rules could not be compiled
InvalidInput
├── StateNotShared      the stores are a file of this machine, and the workers are on others
└── SourceNotShared     workers do not see the files that the driver listed
Unavailable
└── WorkersFailed       workers stopped before the run ended; committed pages stay
Damaged
└── ManifestBroken      the manifest of a run is missing or unreadable
"""

from strandline.errors import Damaged, InvalidInput, StrandlineError, Unavailable

AGAIN = "run the same command again: it resumes the scan"


class EngineUnusable(StrandlineError):
    """The rules could not be compiled; `kind` is the class of the cause."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"the rules could not be compiled: {kind}",
            hint="check the free memory; with the built-in rules this is a defect: please report it",
        )
        self.kind = kind


class StateNotShared(InvalidInput):
    """The state is in files of this machine, which machines of a cluster cannot share."""

    def __init__(self, master: str) -> None:
        super().__init__(
            f"the state is in files of this machine, which the workers of {master} cannot share",
            hint="give --state postgresql://… or s3://…, or a master on this machine such as local[*]",
        )
        self.master = master


class SourceNotShared(InvalidInput):
    """Workers do not see the files that the driver listed."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(
            f"{source}: {problem}",
            hint="every machine needs the same files at the same path, readable for the workers' account: use a file "
            "system that all of them mount, or a master on this machine such as local[*]",
        )
        self.source = source
        self.problem = problem


class WorkersFailed(Unavailable):
    """A worker stopped before the run ended; `kind` is the class of its error."""

    def __init__(self, kind: str, reason: str, hint: str | None = None) -> None:
        super().__init__(f"a worker stopped: {reason}", hint=hint or AGAIN)
        self.kind = kind
        self.reason = reason


class ManifestBroken(Damaged):
    """The manifest of a run is missing or unreadable."""

    def __init__(self, problem: str) -> None:
        super().__init__("the manifest of a run", problem, safe=AGAIN)
