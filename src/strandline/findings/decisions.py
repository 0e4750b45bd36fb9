"""The current decision about a finding: its own latest one, or that about its secret, if it is later.

An undo is a decision too, with the reason `UNDO`: it brings the state back that held before. So the history shows it,
and undoing again goes one step further back.

Invariant: nothing is written here.
"""

from collections.abc import Iterable, Sequence

from strandline.findings.reports.values import Decision
from strandline.pipeline.identity import SecretHash
from strandline.pipeline.secret_decisions import read_secret_decisions
from strandline.pipeline.triage import TriageEvent, TriageState
from strandline.scan.state import State

UNDO = "(undo)"
"""The reason of an undo."""


class Decisions:
    """The decisions about secrets of a tenant, and what they mean for findings."""

    def __init__(self, state: State) -> None:
        self._state = state
        found = read_secret_decisions(state.stores.state, state.tenant)
        self._of_secrets = {
            secret: [Decision(*decided, everywhere=True) for decided in decisions]
            for secret, decisions in found.items()
        }
        self._current = {secret: _last(standing(decisions)) for secret, decisions in self._of_secrets.items()}

    @property
    def secrets(self) -> dict[SecretHash, list[Decision]]:
        """Return the decisions about secrets, oldest first."""
        return self._of_secrets

    def current(self, secret: SecretHash | None, own: TriageEvent | None) -> Decision | None:
        """Return the decision that holds for a finding; `own` is the latest one about the finding itself."""
        everywhere = self._current.get(secret) if secret is not None else None
        if own is None:
            return everywhere
        if secret is not None and everywhere is not None and own.why == UNDO:
            # The undo is later than the decision about the secret, and may have brought that back.
            history = self._state.stores.reads.history(self._state.tenant, own.finding_id)
            return _last(standing(self.all_of(secret, history.decisions if history else ())))
        if everywhere is not None and everywhere.when_ns > own.when_ns:
            return everywhere
        return _decision(own)

    def all_of(self, secret: SecretHash, own: Iterable[TriageEvent]) -> list[Decision]:
        """Return every decision about a finding and about its secret, oldest first."""
        found = [*map(_decision, own), *self._of_secrets.get(secret, ())]
        return sorted(found, key=lambda one: one.when_ns)


def standing(decisions: Sequence[Decision]) -> list[Decision]:
    """Return the decisions that no undo took back, oldest first; an undo takes back one of its own kind."""
    kept: list[Decision] = []
    for decision in decisions:
        if decision.why != UNDO:
            kept.append(decision)
            continue
        last = next((at for at in reversed(range(len(kept))) if kept[at].everywhere == decision.everywhere), None)
        if last is not None:
            del kept[last]
    return kept


def _decision(event: TriageEvent) -> Decision:
    return Decision(TriageState(event.state), event.when_ns, event.who, event.why)


def _last(decisions: Sequence[Decision]) -> Decision | None:
    return decisions[-1] if decisions else None
