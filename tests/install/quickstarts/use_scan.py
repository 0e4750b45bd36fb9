"""A folder is scanned into a state of its own, and the finding is listed."""

from pathlib import Path

from strandline.detect import parse_rules
from strandline.findings import build_report
from strandline.scan import ScanRequest, open_state, scan
from strandline.scan.sources import FileSource

rules = parse_rules("[[rules]]\nid = 'token'\nregex = 'tok_[a-z0-9]{16}'\n")
Path("shop").mkdir()
Path("shop/config.py").write_text("key = tok_" + "a1b2c3d4e5f6a7b8\n")
with open_state("state", create=True) as state:
    scan(ScanRequest((FileSource.at("shop"),), rules, state.tenant, state.key, state.address))
    assert [finding.rule_id for finding in build_report(state).findings] == ["token"]
