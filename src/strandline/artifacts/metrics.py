"""What a process that keeps artifacts of a fold knows of the newest one, for Prometheus and for alarms.

Invariant: an `ArtifactState` is as old as its last look; a look that failed is counted and changes nothing else.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterable

from strandline.artifacts.continuity import log_continues
from strandline.artifacts.errors import NoArtifact
from strandline.artifacts.published import PublishedArtifacts
from strandline.artifacts.rounds import RoundOutcome, RoundResult
from strandline.clock import Clock, SystemClock
from strandline.kv import Retention
from strandline.metrics import Metric, Sample, counter

_PREFIX = "strandline_artifact"
_OUTCOMES = (*(outcome.name.lower() for outcome in RoundOutcome), "failed")


class ArtifactState:
    """The newest artifact against the log of its bucket; told by the loop that looks at both."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self._labels = {"fold": name}
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._exports = Counter[str]()
        self._looks_failed = 0
        self._values: dict[str, float] = {}
        self._problem: str | None = None
        self._is_known = False

    def look(self, artifacts: PublishedArtifacts, retention: Retention) -> None:
        """Compare the newest artifact with a log, and note the result."""
        try:
            manifest = artifacts.newest()
        except NoArtifact as none:
            with self._lock:
                self._values = {"floor_revision": retention.first_revision, "continues": 0}
                self._problem, self._is_known = none.reason, True
            return
        continuity = log_continues(manifest, retention, self._clock.now_ns())
        with self._lock:
            self._values = {
                "revision": manifest.rank,
                "created_timestamp_seconds": manifest.created_unix,
                "floor_revision": retention.first_revision,
                "continues": continuity.continues,
            }
            self._problem, self._is_known = None if continuity.continues else continuity.reason, True

    def failed(self) -> None:
        """Note that one of the two could not be looked at."""
        with self._lock:
            self._looks_failed += 1

    def exported(self, ended: RoundResult | Exception) -> None:
        """Note how a round of exports ended."""
        with self._lock:
            self._exports["failed" if isinstance(ended, Exception) else ended.outcome.name.lower()] += 1

    @property
    def problem(self) -> str | None:
        """Why no fold can start from the newest artifact; None where one can, or nothing was looked at yet."""
        with self._lock:
            return self._problem

    @property
    def is_known(self) -> bool:
        """Return whether it was looked at."""
        with self._lock:
            return self._is_known

    def metrics(self) -> Iterable[Metric]:
        """Return what is known."""
        with self._lock:
            values, exports, failed = dict(self._values), dict(self._exports), self._looks_failed
        if "created_timestamp_seconds" in values:
            values["age_seconds"] = max(0.0, time.time() - values["created_timestamp_seconds"])
        texts = {
            "revision": "The revision of the newest artifact.",
            "created_timestamp_seconds": "When the newest artifact was made.",
            "age_seconds": "Age of the newest artifact.",
            "floor_revision": "The first revision that the bucket's log still has.",
            "continues": "1 while the log continues the newest artifact, so that a fold can start from it.",
        }
        for name, text in texts.items():
            samples = [Sample(values[name], self._labels)] if name in values else []
            yield Metric(f"{_PREFIX}_{name}", "gauge", text, samples)
        rounds = [Sample(exports.get(outcome, 0), {**self._labels, "outcome": outcome}) for outcome in _OUTCOMES]
        yield Metric(f"{_PREFIX}_exports_total", "counter", "Rounds of exports.", rounds)
        yield counter(f"{_PREFIX}_look_failures_total", "Looks that failed.", failed, **self._labels)
