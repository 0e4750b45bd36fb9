"""What can go wrong with a scan as a whole; part of the one tree of `strandline.errors`.

StrandlineError
└── EngineUnusable      the rules could not be made into an engine: no item is to blame
InvalidInput
├── StateNotShared      the stores are a file of this machine, and the workers are on others
└── SourceNotShared     what the driver listed is not there for the workers
Unavailable
└── WorkersFailed       workers stopped before the run was done; what they committed stays
Damaged
└── ManifestBroken      what a run was to look at is gone or cannot be read
"""

from strandline.errors import Damaged, InvalidInput, StrandlineError, Unavailable

AGAIN = "run the same command again: it goes on where this one stopped"


class EngineUnusable(StrandlineError):
    """The rules could not be made into an engine; `kind` is the class of the error that says why."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"the rules could not be made into an engine: {kind}",
            hint="see that there is memory left; with our own rules this is a defect: please report it",
        )
        self.kind = kind


class StateNotShared(InvalidInput):
    """SQLite is a file of one machine; workers of a cluster would each have their own, or none."""

    def __init__(self, master: str) -> None:
        super().__init__(
            f"the state is a SQLite file, which workers of {master} cannot share",
            hint="give --state postgresql://…, or a master on this machine such as local[*]",
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
    """Workers gave up before the run was done; `kind` is the error's class."""

    def __init__(self, kind: str, reason: str, hint: str | None = None) -> None:
        super().__init__(f"a worker stopped: {reason}", hint=hint or AGAIN)
        self.kind = kind
        self.reason = reason


class ManifestBroken(Damaged):
    """The rows of a run are gone or cannot be read."""

    def __init__(self, problem: str) -> None:
        super().__init__("the manifest of a run", problem, safe=AGAIN)
