"""Credentials: a secret with its other part, if its provider needs one.

The other part is looked for near the secret, as rules look for required ones: among the secrets of other rules, nearest
first, then in the text. What is found nowhere leaves the credential incomplete, and no request is made.

Invariants: pure; no `repr` shows a byte of a credential.
"""

import re
from dataclasses import dataclass, field

from strandline.detect.revealed import NEAR_BYTES, Revealed


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
    """The other part of a secret: what it is called, its form, and the rules that find it.

    What a rule finds is taken only if it has the form: any file of rules may give a rule that name. `in_text` if the
    form alone tells it from other text.
    """

    what: str
    form: re.Pattern[bytes]
    rules: tuple[str, ...] = ()
    in_text: bool = True


def pair(found: Revealed, partner: Partner) -> Credential | None:
    """Return a secret with the nearest candidate for its other part, None if there is none."""
    candidates = [data for rule, data in found.near if rule in partner.rules and partner.form.fullmatch(data)]
    candidates += matches_near(found, partner.form) if partner.in_text else []
    distinct = list(dict.fromkeys(candidates))
    return Credential(found.data, distinct[0], len(distinct) == 1) if distinct else None


def matches_near(found: Revealed, form: re.Pattern[bytes]) -> list[bytes]:
    """Return the matches of a form near a secret, nearest first; one at the end of what is near may be cut off."""
    before = [(len(found.before) - one.end(1), one[1]) for one in form.finditer(found.before)]
    after = [(one.start(1), one[1]) for one in form.finditer(found.after) if one.end() < NEAR_BYTES]
    return [data for _, data in sorted(before + after, key=lambda one: one[0])]
