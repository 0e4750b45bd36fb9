"""Health of a process: checks that tell a problem or None, asked for each answer.

Invariants: a check that raises, or is unknown, is a problem: health is told only where every check was asked and is
well. A process is ready only where it is alive too. No answer holds a password of an address.
"""

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from strandline.config.passwords import masked

HealthCheck = Callable[[], str | None]
"""Returns a problem in a sentence, or None."""


class HealthReport(NamedTuple):
    """Problems by check; None for a check that is well."""

    problems: Mapping[str, str | None]

    @property
    def is_well(self) -> bool:
        """Return whether no check has a problem."""
        return not any(self.problems.values())

    @property
    def status(self) -> int:
        """Return the status of HTTP: 200, or 503."""
        return 200 if self.is_well else 503

    def body(self) -> bytes:
        """Return the report as JSON."""
        checks = {name: problem or "ok" for name, problem in self.problems.items()}
        fields = {"status": "ok" if self.is_well else "unavailable", "checks": checks}
        return json.dumps(fields, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


class Health(NamedTuple):
    """The checks of a process: `live` fails where only a restart helps, `ready` where it cannot do its work now."""

    live: Mapping[str, HealthCheck] = {}
    ready: Mapping[str, HealthCheck] = {}

    def liveness(self) -> HealthReport:
        """Return what `/healthz` answers."""
        return check_all(self.live)

    def readiness(self) -> HealthReport:
        """Return what `/readyz` answers."""
        return check_all({**self.live, **self.ready})


def check_all(checks: Mapping[str, HealthCheck]) -> HealthReport:
    """Ask every check."""
    return HealthReport({name: _asked(check) for name, check in checks.items()})


def _asked(check: HealthCheck) -> str | None:
    try:
        problem = check()
    except Exception as error:  # noqa: BLE001 - told as the problem
        problem = f"it cannot be asked: {type(error).__name__}: {error}"
    return None if problem is None else str(masked(problem))
