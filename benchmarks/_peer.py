"""Kingfisher: what it finds in a folder, how long that takes, and which providers it knows.

A provider is known to it if one of its rules begins with the provider's name, or with another name of the same.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOUND = 200
OTHER_NAMES = {
    "brevo": ("sendinblue",),
    "cockroachdb": ("cockroachlabs",),
    "fly": ("flyio",),
    "gcp": ("google",),
    "langsmith": ("langchain",),
    "onepassword": ("1password",),
    "pgp": ("private-key",),
    "sonarqube": ("sonar",),
    "ssh": ("private-key",),
    "teams": ("microsoft-teams",),
    "terraform": ("hashicorp-tf",),
    "together": ("togetherai",),
    "travis": ("travisci",),
    "voyage": ("voyageai",),
    "wandb": ("weights-and-biases",),
}


@dataclass(frozen=True, slots=True)
class PeerFinding:
    """A finding: its rule, the file relative to the folder, the first and last line, and the text."""

    rule_id: str
    path: str
    first_line: int
    last_line: int
    text: str


@dataclass(frozen=True, slots=True)
class PeerReport:
    """What a scan found, how many bytes it looked at, and how long that took without starting up."""

    findings: list[PeerFinding]
    bytes_seen: int
    seconds: float


def peer_scan(folder: Path, *options: str, core: int | None = None) -> PeerReport:
    """Return all that Kingfisher finds in a folder, every occurrence; on one core, if it is told which."""
    command = [
        _program(),
        "scan",
        str(folder),
        "--no-update-check",
        "--no-validate",
        "--no-dedup",
        "--format",
        "json",
        "-q",
    ]
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    done = subprocess.run([*pinned, *command, *options], check=False, capture_output=True)
    if done.returncode not in (0, FOUND):
        raise RuntimeError(f"kingfisher ended with {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}")
    report = json.loads(done.stdout)
    summary = report["metadata"]["summary"]
    found = list(_findings(report["findings"], folder.resolve()))
    return PeerReport(found, summary["bytes_scanned"], summary["scan_duration_seconds"])


def _findings(found: list[dict[str, dict[str, str]]], folder: Path) -> Iterator[PeerFinding]:
    for each in found:
        finding = each["finding"]
        path = str(Path(finding["path"]).resolve().relative_to(folder))
        line, text = int(finding["line"]), finding["snippet"]
        yield PeerFinding(each["rule"]["id"], path, line, line + text.count("\n"), text)


def _program() -> str:
    found = shutil.which("kingfisher", path=f"{Path(sys.executable).parent}") or shutil.which("kingfisher")
    if found is None:
        raise RuntimeError("kingfisher is not installed")
    return found


@cache
def peer_rules() -> dict[str, str]:
    """Return Kingfisher's expressions by the names of its rules, those that report."""
    listed = subprocess.run(
        [_program(), "rules", "list", "--no-update-check", "--format", "json"], check=True, capture_output=True
    )
    return {rule["id"]: rule["pattern"] for rule in json.loads(listed.stdout) if rule["visible"]}


def peer_name(rule_id: str) -> str:
    """Return a rule's name without its source: betterleaks.algolia-api-key.1 is algolia-api-key."""
    return re.sub(r"\.\d+$", "", re.sub(r"^(?:betterleaks\.|veles\.secrets/)", "", rule_id))


def peer_knows(provider: str) -> list[str]:
    """Return the rules of Kingfisher for a provider."""
    names = (provider, provider.replace("-", ""), *OTHER_NAMES.get(provider, ()))
    return sorted(rule for rule in peer_rules() if any(_is_of(rule, name) for name in names))


def _is_of(rule_id: str, name: str) -> bool:
    """Return whether a rule is for a name; those of one source write all words of a name as one."""
    rule = peer_name(rule_id)
    return rule == name or rule.startswith(f"{name}-") or ("/" in rule_id and rule.startswith(name.replace("-", "")))
