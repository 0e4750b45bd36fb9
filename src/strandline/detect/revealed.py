"""Secrets of findings, read again from the bytes of their item, to ask a provider about them.

`Engine.reveal` is `Engine.scan` with a trace that takes the bytes of the matches whose keyed hashes are wanted. So a
secret is found again wherever the scan found it, in archives and encoded text too, and bytes with another hash are
never taken.

Invariants: what is revealed lives as long as the caller holds it; no `repr` shows it; nothing here stores or logs it.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from strandline.detect.explanation import Trace
from strandline.detect.frames import Frame
from strandline.detect.limits import Limits
from strandline.detect.matching.matcher import Hit, Refusal
from strandline.detect.rules.rule import RuleSet
from strandline.pipeline.identity import SecretHash

NEAR_BYTES = 2_000
"""How far from a secret its other parts are looked for: the id of a key, the name of an account."""


@dataclass(frozen=True)
class Revealed:
    """A secret with its bytes, and what stands near it: the text, and the secrets of other rules by distance."""

    rule_id: str
    secret: SecretHash
    data: bytes = field(repr=False)
    before: bytes = field(repr=False)
    after: bytes = field(repr=False)
    near: tuple[tuple[str, bytes], ...] = field(repr=False)


class RevealingTrace(Trace):
    """Takes the bytes of wanted secrets during a scan."""

    def __init__(self, rules: RuleSet, limits: Limits, wanted: Container[SecretHash]) -> None:
        super().__init__(rules, limits)
        self._names = [rule.id for rule in rules.rules]
        self._wanted = wanted
        self.revealed: list[Revealed] = []

    def unselected(self, frame: Frame, hits: Sequence[Hit], kept: Sequence[Hit]) -> None:  # noqa: ARG002 - as a trace's
        """Take the hits of a frame that are wanted."""
        self.revealed += [self._taken(frame, hit, hits) for hit in hits if hit.secret in self._wanted]

    def _taken(self, frame: Frame, hit: Hit, hits: Sequence[Hit]) -> Revealed:
        data, start, end = frame.data, hit.start, hit.end
        near = [one for one in hits if one.start < end + NEAR_BYTES and start < one.end + NEAR_BYTES]
        near.sort(key=lambda one: max(one.start - end, start - one.end))
        return Revealed(
            self._names[hit.rule],
            hit.secret,
            data[start:end],
            data[max(0, start - NEAR_BYTES) : start],
            data[end : end + NEAR_BYTES],
            tuple((self._names[one.rule], data[one.start : one.end]) for one in near if one.secret != hit.secret),
        )

    def allowed_file(self, frame: Frame) -> None:
        """Nothing: such a file has no findings."""

    def not_for_path(self, frame: Frame, matches: Iterable[Hit | Refusal]) -> None:
        """Nothing."""

    def refused(self, frame: Frame, refusal: Refusal) -> None:
        """Nothing."""

    def repeated(self, frame: Frame, hits: Sequence[Hit], news: Sequence[Hit]) -> None:
        """Nothing."""
