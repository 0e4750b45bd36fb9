"""A repository that a test fills, and scans with the real command."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.cli.runs import Ran, run_command
from tests.cli.scan_command import RULES

KEY = "key = alpha_12345678\n"
PATHS = """
[[rules]]
id = "gamma"
regex = '''gamma_[0-9]{8}'''
keywords = ["gamma_"]
path = '''\\.env$'''
"""


class Shop:
    """A repository that a test fills, and a state."""

    def __init__(self, folder: Path, name: str = "shop") -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.state = folder / "state"
        self.rules = folder / "rules.toml"
        self.rules.write_text(RULES + PATHS)
        self.seconds = 1_700_000_000
        self.git("init", "--quiet", "--initial-branch=main", ".")

    def git(self, *arguments: str, author: str = "Ada") -> str:
        """Run git, each time an hour later."""
        self.seconds += 3600
        who = {f"GIT_{role}_NAME": author for role in ("AUTHOR", "COMMITTER")}
        mail = {f"GIT_{role}_EMAIL": f"{author.lower()}@example.org" for role in ("AUTHOR", "COMMITTER")}
        dates = {f"GIT_{role}_DATE": f"{self.seconds} +0000" for role in ("AUTHOR", "COMMITTER")}
        command = ["git", *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=os.environ | who | mail | dates, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def write(self, **texts: str) -> None:
        """Write files."""
        for name, text in texts.items():
            (self.folder / name).write_text(text)

    def commit(self, author: str = "Ada", **texts: str) -> str:
        """Write files, commit everything, and return the commit's id."""
        self.write(**texts)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "change", author=author)
        return self.git("rev-parse", "HEAD")

    def scan(self, *arguments: str | Path, path: Path | None = None) -> Ran:
        """Scan the repository, without Spark."""
        words = ("--rules", self.rules, "--state", self.state, "--without-spark", *arguments)
        return run_command("scan", path or self.folder, *words)

    def rows(self, *arguments: str | Path, path: Path | None = None) -> list[dict[str, Any]]:
        """Scan the repository; return the findings."""
        ran = self.scan(*arguments, "--exit-zero", "--json", path=path)
        assert ran.code == 0, ran.err
        return [json.loads(line) for line in ran.out.splitlines()][:-1]

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        """Return what `findings list` has."""
        ran = run_command("findings", "list", "--json", "--state", self.state, *arguments)
        assert ran.code == 0, ran.err
        return [json.loads(line) for line in ran.out.splitlines()]
