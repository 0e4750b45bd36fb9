"""The corpus of the demonstration: a small company's files, history, table and journal, with fake secrets planted.

Invariants: the same folder comes out every time; every secret in it was made here and never issued; what is
planted is listed by source and rule, so that a scan can be counted. No secret is in the code: they are expanded from
the examples of the rules.
"""

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.detect import expand, load_builtin
from strandline.journal import Journal
from strandline.lazy_imports import deferred

if TYPE_CHECKING:
    import zstandard
else:
    zstandard = deferred("zstandard", "scan")

MODULES = 20_000
ROWS = 4_000
RECORDS = 4_000
LAST_COMMIT = 12
_DAY_S = 86_400
_FIRST_COMMIT_S = 1_760_000_000


@dataclass
class Planted:
    """What was planted: the sources to scan, and how many secrets of which rule each has."""

    files: Path
    git: Path | None
    table: Path
    journal: Path
    secrets: list[tuple[str, str]] = field(default_factory=list)
    """A source and a rule for each secret."""


def plant(folder: Path, *, modules: int = MODULES) -> Planted:
    """Write the corpus into a new folder, with so many harmless files."""
    planted = Planted(folder / "files", folder / "service.git", folder / "customers", folder / "events")
    secrets = _Secrets(planted)
    _plant_files(planted.files, secrets, modules)
    _plant_table(planted.table, secrets)
    _plant_journal(planted.journal, secrets)
    if shutil.which("git"):
        _plant_history(folder / "service.git", secrets)
    else:
        planted.git = None
    return planted


class _Secrets:
    """Makes fake secrets, each one new, and counts them."""

    def __init__(self, planted: Planted) -> None:
        self._planted = planted
        self._rules = load_builtin().by_id

    def line(self, source: str, rule_id: str, example: int = 0) -> str:
        """Return a line of text that holds a secret."""
        self._planted.secrets.append((source, rule_id))
        return expand(self._rules[rule_id].examples[example], f"demo/{len(self._planted.secrets)}")


def _plant_files(folder: Path, secrets: _Secrets, modules: int) -> None:
    for number in range(modules):
        _write(folder / f"src/area{number % 60:02}/module{number:04}.py", _module(number))
    for path, rules in _FILES.items():
        lines = [secrets.line("files", rule) for rule in rules]
        _write(folder / path, "\n".join(["# settings of the service", *lines, ""]))
    allowed = "AWS_ACCESS_KEY_ID=AKIA" + "IOSFODNN7" + "EXAMPLE"
    _write(folder / "docs/setup.md", f"Put your keys in the environment, for example:\n\n    {allowed}\n")
    inner = "\n".join(secrets.line("files", rule) for rule in ("github-pat", "sendgrid-key"))
    _write_archive(folder / "backup/home.tar.zst", {"home/.netrc.old": inner, "home/notes.txt": "buy milk\n"})


def _write_archive(path: Path, members: dict[str, str]) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zstandard.compress(packed.getvalue()))


def _plant_table(folder: Path, secrets: _Secrets) -> None:
    notes = [f"customer {number} called about invoice {number * 7 % 991}" for number in range(ROWS)]
    for row, rule in ((311, "stripe-secret-key"), (2_718, "twilio-api-key")):
        notes[row] = f"they pasted this into the ticket: {secrets.line('table', rule)}"
    table = pa.table({"id": range(ROWS), "name": [f"customer {row}" for row in range(ROWS)], "notes": notes})
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "part-0.parquet", row_group_size=1_000)


def _plant_journal(folder: Path, secrets: _Secrets) -> None:
    events = [f'{{"event": "login", "user": {number % 97}}}'.encode() for number in range(RECORDS)]
    events[1_234] = f'{{"event": "error", "detail": "{secrets.line("journal", "slack-bot-token")}"}}'.encode()
    with Journal.open(folder) as journal:
        for first in range(0, RECORDS, 1_000):
            journal.append(events[first : first + 1_000])


def _plant_history(repository: Path, secrets: _Secrets) -> None:
    """Commit secrets and take some of them out again: they stay in the history."""
    _git(repository, 0, "init", "--quiet", "--initial-branch=main", ".")
    for number in range(1, LAST_COMMIT + 1):
        _write(repository / f"service/handler{number}.py", _module(number))
        if number in _HISTORY:
            lines = [secrets.line("git", rule) for rule in _HISTORY[number]]
            _write(repository / "deploy/settings.env", "\n".join([*lines, ""]))
        elif number - 1 in _HISTORY:
            _write(repository / "deploy/settings.env", "# keys are in the vault now\n")
        _git(repository, number, "add", "--all")
        _git(repository, number, "commit", "--quiet", "--message", f"service: handler {number}")


def _git(repository: Path, day: int, *arguments: str) -> None:
    """Run git with a fixed author and time, so that commits have the same names everywhere."""
    repository.mkdir(parents=True, exist_ok=True)
    when = f"{_FIRST_COMMIT_S + day * _DAY_S} +0000"
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in _AUTHOR.items()}
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {**who, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *arguments], cwd=repository, env=environ, check=True, capture_output=True)  # noqa: S603, S607


def _module(number: int) -> str:
    """Return a harmless module, a few kilobytes of it."""
    body: Sequence[str] = [_FUNCTION.format(number=number, index=index, modulo=number % 17 + 2) for index in range(12)]
    return f'"""Module {number} of the service."""\n\nimport hashlib\n\n' + "\n\n".join(body)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


_AUTHOR = {"NAME": "Strandline", "EMAIL": "demo@strandline.invalid"}
_HISTORY = {3: ("aws-access-key-id", "postgresql-uri"), 8: ("gitlab-pat",)}
_FILES = {
    "config/production.env": ("openai-key", "stripe-webhook-secret", "postgresql-uri"),
    "config/staging.env": ("slack-webhook", "sendgrid-key"),
    "deploy/ci.yml": ("npm-token", "docker-hub-token"),
    "deploy/id_rsa": ("private-key",),
    "infrastructure/main.tf": ("aws-access-key-id", "digitalocean-token"),
    "scripts/release.sh": ("pypi-token", "github-pat"),
    "notebooks/experiment.ipynb": ("huggingface-token", "anthropic-api-key"),
    "legacy/config.php": ("telegram-bot-token", "shopify-access-token"),
}
_FUNCTION = '''def step_{index}(value: int) -> str:
    """Return the digest of step {index}, as callers of module {number} expect it."""
    seed = f"module-{number}/{{value % {modulo}}}"
    return hashlib.sha256(seed.encode()).hexdigest()
'''
