"""Ids of findings: whole, or a prefix of at least four digits that only one finding has."""

import re
from collections.abc import Sequence

from strandline.errors import InvalidInput
from strandline.findings.report_builder import observations
from strandline.pipeline.identity import DIGEST_BYTES, FindingId
from strandline.scan.state import State

PREFIX_DIGITS_MIN = 4
ID_SHOWN = 12
_HEX = re.compile(r"[0-9a-f]+")


class FindingUnknown(InvalidInput):
    """No finding has an id with this prefix."""

    def __init__(self, given: str) -> None:
        super().__init__(
            f"no finding's id begins with {given}", hint="list all ids with `strandline findings list --all`"
        )
        self.given = given


class FindingAmbiguous(InvalidInput):
    """Several findings have an id with this prefix."""

    def __init__(self, given: str, ids: Sequence[str]) -> None:
        super().__init__(
            f"{len(ids):,} findings have an id that begins with {given}",
            hint=f"give more of it: {', '.join(one[:16] for one in ids[:5])}{' …' if len(ids) > 5 else ''}",  # noqa: PLR2004
        )
        self.given = given
        self.ids = list(ids)


def find_ids(state: State, given: Sequence[str]) -> list[FindingId]:
    """Return the ids that ids or prefixes name, in their order, each once."""
    texts = [text.strip().lower() for text in given]
    for text in texts:
        if not _HEX.fullmatch(text) or not PREFIX_DIGITS_MIN <= len(text) <= 2 * DIGEST_BYTES:
            raise InvalidInput(
                "an id of a finding has 4 to 64 hexadecimal digits", hint="`strandline findings list` shows them"
            )
    known: list[str] = []
    if any(len(text) < 2 * DIGEST_BYTES for text in texts):
        known = _all_ids(state)
    return list(dict.fromkeys(_find(state, text, known) for text in texts))


def _find(state: State, text: str, known: Sequence[str]) -> FindingId:
    if len(text) == 2 * DIGEST_BYTES:
        found = [text] if state.stores.reads.history(state.tenant, FindingId(bytes.fromhex(text))) else []
    else:
        found = [one for one in known if one.startswith(text)]
    if not found:
        raise FindingUnknown(text)
    if len(found) > 1:
        raise FindingAmbiguous(text, found)
    return FindingId(bytes.fromhex(found[0]))


def _all_ids(state: State) -> list[str]:
    policies = [counts.policy for counts in state.stores.reads.counts_by_policy(state.tenant)]
    pages = (rows for policy in policies for rows in observations(state, policy))
    return sorted({row.finding.finding_id.hex() for rows in pages for row in rows})
