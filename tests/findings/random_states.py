"""States of random scans: the same and other items, hostile names, several sources, decisions, live secrets."""

import random
from pathlib import Path

from strandline.findings.report_builder import build_report
from strandline.findings.triage import decide, decide_everywhere, undo
from strandline.pipeline.identity import FindingId
from strandline.pipeline.triage import TriageState
from strandline.pipeline.verifications import Liveness, Verification, record_verifications
from strandline.scan.state import open_state
from tests.cli.scanned import FakeSource, Items, hit, scan

RULE_IDS = ("aws-access-key-id", "github-pat", "private-key")
NAMES = (
    "a.env",
    "B.env",
    "b.env",
    "ß.txt",
    "sub/a%20b.env",
    "\udcff.bin",
    "x#y=1&z",
    "<b>\u202e.js",
    "deep/dir/key.pem",
)


def items_of(chosen: random.Random, source: str) -> Items:
    """Return random items: plain and hostile names, many findings at one path, and items that end otherwise."""
    items: dict[str, object] = {}
    for name in chosen.sample(NAMES, chosen.randrange(3, len(NAMES))):
        path = f"{chosen.choice(('api', 'web'))}/{name}"
        places = chosen.sample(range(1, 30), chosen.randrange(4))
        commit = {"commit": "ab" * 20} if source == "git" and chosen.random() < 0.5 else {}
        via = {"via": ("base64",)} if chosen.random() < 0.2 else {}
        items[path] = [
            hit(
                *(chosen.choice(RULE_IDS), f"secret {chosen.randrange(6)}", path, line),
                **{"confidence": chosen.randrange(11), "source": source, **commit, **via},  # type: ignore[arg-type]
            )
            for line in sorted(places)
        ]
    return items  # type: ignore[return-value]


def fill(where: str, chosen: random.Random, key_file: Path) -> None:
    """Leave what several scans leave: the same and other items, sources and versions, and decisions."""
    for run in range(1, 4):
        sources = [FakeSource("fs", "/srv/platform", items_of(chosen, "file"), version=b"%d" % chosen.randrange(2))]
        if chosen.random() < 0.7:
            sources.append(FakeSource("git", "service.git", items_of(chosen, "git")))
        if chosen.random() < 0.3:
            sources.append(FakeSource("fs", "/srv/platform/api", items_of(chosen, "file"), part_of="/srv/platform"))
        scan(where, *sources, run=run, key_file=key_file)
    with open_state(where, key_file=key_file) as state:
        found = list(build_report(state, everything=True).findings)
        chosen.shuffle(found)
        ids = [FindingId(bytes.fromhex(one.finding_id)) for one in found]
        decide(state, ids[:2], TriageState.CONFIRMED, who="ann", why="real")
        decide_everywhere(state, ids[2:4], TriageState.REVOKED, who="ben")
        undo(state, ids[1:3], who="ann")
        answers = [(one.secret, Verification(Liveness.LIVE, 5, "api.example.org")) for one in found[4:6]]
        record_verifications(state.stores.state, state.tenant, answers)


def key(tmp_path: Path) -> Path:
    """Return the file of a tenant's key."""
    file = tmp_path / "tenant.key"
    file.write_text("ab" * 32)
    file.chmod(0o600)
    return file
