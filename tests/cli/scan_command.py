"""`strandline scan` in a folder or a repository of its own, run in this process."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.cli.runs import Ran, run_command

RULES = """
[[rules]]
id = "alpha"
description = "a made-up token"
regex = '''alpha_[0-9]{8}'''
keywords = ["alpha_"]
[[rules]]
id = "beta"
description = "another made-up token"
regex = '''beta_[0-9]{8}'''
keywords = ["beta_"]
"""


class Here:
    """A folder to scan, rules, and a state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = folder / "files"
        self.files.mkdir()
        self.state = folder / "state"
        self.rules = folder / "rules.toml"
        self.rules.write_text(RULES)

    def write(self, **texts: str) -> None:
        """Write files."""
        for name, text in texts.items():
            (self.files / name).write_text(text)

    def scan(self, *arguments: object, paths: tuple[Path, ...] | None = None) -> Ran:
        """Scan the folder."""
        places = (self.files,) if paths is None else paths
        return run_command("scan", *places, "--rules", self.rules, "--state", self.state, *map(str, arguments))

    def done(self, *arguments: object, paths: tuple[Path, ...] | None = None) -> Ran:
        """Scan the folder, which must go well, whatever it finds."""
        ran = self.scan(*arguments, "--exit-zero", paths=paths)
        assert ran.code == 0, ran.err
        return ran

    def found(self, *arguments: object, paths: tuple[Path, ...] | None = None) -> tuple[list[str], dict[str, Any]]:
        """Scan the folder; return the places of findings, and the summary."""
        *rows, last = (json.loads(line) for line in self.done(*arguments, "--json", paths=paths).out.splitlines())
        return sorted(row["location"] for row in rows), last["summary"]


class Repository:
    """A repository with findings, scanned in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "shop"
        self.folder.mkdir()
        self.state = folder / "state"
        self.rules = folder / "rules.toml"
        self.rules.write_text(RULES)
        self.git("init", "--quiet", ".")

    def git(self, *arguments: str) -> None:
        """Run git."""
        who = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.invalid")
        subprocess.run(["git", *who, *arguments], cwd=self.folder, check=True, capture_output=True)  # noqa: S607 - the git that is tested

    def commit(self, **texts: str) -> None:
        """Write files, and commit them."""
        for name, text in texts.items():
            (self.folder / name).write_text(text)
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "change")

    def scan(self, *arguments: str | Path) -> Ran:
        """Scan the files."""
        words = ("scan", self.folder, "--rules", self.rules, "--state", self.state, "--without-spark", *arguments)
        return run_command(*words)

    def ids(self, *arguments: str) -> list[str]:
        """Return the ids of findings."""
        lines = run_command("findings", "list", "--json", "--state", self.state, *arguments).out.splitlines()
        return [json.loads(line)["finding_id"] for line in lines]

    def triage(self, *arguments: str | Path) -> Ran:
        """Decide about findings."""
        return run_command("findings", "triage", *arguments, "--state", self.state)
