"""Credentials: a secret with its other part, if its provider needs one.

The other part is looked for near the secret, as rules look for required ones: among the secrets of other rules, nearest
first, then in the text. What is found nowhere leaves the credential incomplete, and no request is made.

Invariants: pure; no `repr` shows a byte of a credential.
"""

import re
from dataclasses import dataclass, field

from strandline.detect.revealed import Revealed


@dataclass(frozen=True)
class Credential:
    """A secret, and its other part; `is_certain` if nothing else nearby could be that part."""

    secret: bytes = field(repr=False)
    partner: bytes = field(default=b"", repr=False)
    is_certain: bool = True
    session: bytes = field(default=b"", repr=False)

    @property
    def text(self) -> str:
        """Return the secret as text; secrets of providers are ASCII."""
        return self.secret.decode("ascii")

    @property
    def partner_text(self) -> str:
        """Return the other part as text."""
        return self.partner.decode("ascii")


@dataclass(frozen=True)
class Partner:
    """The other part of a secret: what it is called, the rules that find it, and its form in a text."""

    what: str
    rules: tuple[str, ...] = ()
    form: re.Pattern[bytes] | None = None


def pair(found: Revealed, partner: Partner, session: re.Pattern[bytes] | None = None) -> Credential | None:
    """Return a secret with the nearest candidate for its other part, None if there is none."""
    candidates = [data for rule, data in found.near if rule in partner.rules]
    candidates += _matches(found, partner.form) if partner.form is not None else []
    distinct = list(dict.fromkeys(candidates))
    if not distinct:
        return None
    sessions = _matches(found, session) if session is not None else []
    return Credential(found.data, distinct[0], len(distinct) == 1, sessions[0] if sessions else b"")


def _matches(found: Revealed, form: re.Pattern[bytes]) -> list[bytes]:
    """Return the matches of a form near a secret, nearest first."""
    before = [(len(found.before) - one.end(1), one[1]) for one in form.finditer(found.before)]
    after = [(one.start(1), one[1]) for one in form.finditer(found.after)]
    return [data for _, data in sorted(before + after, key=lambda one: one[0])]
