"""Hooks, action, template, image and nightly job: their own lines are run, on a repository with a leak."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.install.environments import install_wheel, make_environment

ROOT = Path(__file__).resolve().parents[2]
SECRET = "AKIAQYLPMN5HFIQR7XYA"  # noqa: S105 - made up
BASH = shutil.which("bash") or "bash"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user: strandline on the path, a name for commits, a cache of hooks."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "STRANDLINE_", "PRE_"))}
    who = {f"GIT_{role}_{what}": f"{what.lower()}@x" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return kept | who | {"PATH": paths, "PRE_COMMIT_HOME": str(tmp_path / "hooks"), "PRE_COMMIT_COLOR": "never"}


def run(folder: Path, environ: dict[str, str], *words: str, code: int = 0) -> str:
    """Run a command, which must leave with a code; return what it said."""
    ran = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    said = ran.stdout + ran.stderr
    assert ran.returncode == code, said
    return said


@pytest.fixture
def shop(tmp_path: Path, environ: dict[str, str]) -> Path:
    """Return a repository with one clean commit, and a secret that is not committed."""
    folder = tmp_path / "repositories" / "shop"
    folder.mkdir(parents=True)
    run(folder, environ, "git", "init", "--quiet", "--initial-branch=main")
    (folder / "clean.py").write_text("x = 1\n")
    run(folder, environ, "git", "add", ".")
    run(folder, environ, "git", "commit", "--quiet", "--message=clean")
    (folder / "leak.py").write_text(f'key = "{SECRET}"\n')
    return folder


def yaml_of(name: str) -> Any:  # noqa: ANN401 - whatever the file has
    return yaml.safe_load((ROOT / name).read_text())


def test_a_commit_with_a_secret_is_refused_by_the_hook(tmp_path: Path, shop: Path, environ: dict[str, str]) -> None:
    hooks = tmp_path / "strandline"
    hooks.mkdir()
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
    run(hooks, environ, "git", "init", "--quiet")
    run(hooks, environ, "git", "add", ".")
    run(hooks, environ, "git", "commit", "--quiet", "--message=hooks")
    revision = run(hooks, environ, "git", "rev-parse", "HEAD").strip()
    config = {"repos": [{"repo": str(hooks), "rev": revision, "hooks": [{"id": "strandline-system"}]}]}
    (shop / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    run(shop, environ, "pre-commit", "install")
    run(shop, environ, "git", "add", "leak.py")
    said = run(shop, environ, "git", "commit", "--message=leak", code=1)
    assert "aws-access-key-id" in said
    assert "leak.py:1:8" in said
    assert SECRET not in said
    (shop / "leak.py").write_text("x = 2\n")
    run(shop, environ, "git", "add", "leak.py")
    assert "Passed" in run(shop, environ, "git", "commit", "--message=clean")


def test_hooks_are_the_same_command_and_install_what_it_needs() -> None:
    ours, system = yaml_of(".pre-commit-hooks.yaml")
    assert (ours["id"], ours["language"], ours["additional_dependencies"]) == ("strandline", "python", [".[scan]"])
    assert system["language"] == "system"
    for name in ("entry", "pass_filenames", "require_serial", "stages"):
        assert ours[name] == system[name]
    check = [sys.executable, "-m", "pre_commit", "validate-manifest", str(ROOT / ".pre-commit-hooks.yaml")]
    subprocess.run(check, check=True)


def test_the_action_scans_and_writes_sarif(shop: Path, environ: dict[str, str]) -> None:
    action = yaml_of("action.yml")
    assert set(action) == {"name", "description", "inputs", "outputs", "runs", "branding"}
    assert action["runs"]["using"] == "composite"
    for each in action["inputs"].values():
        assert set(each) == {"description", "default"}
    install, scan = (step for step in action["runs"]["steps"] if "run" in step)
    assert shlex.split(install["run"])[-1] == "$ACTION_PATH[scan]"
    for step in (install, scan):
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an input is a variable, never a part of the script"
    inputs = {name: each["default"] for name, each in action["inputs"].items()} | {"arguments": "--confidence high"}
    given = {name: inputs[re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", r"\1", text)] for name, text in scan["env"].items()}
    run(shop, environ | given, BASH, "-eo", "pipefail", "-c", scan["run"], code=1)
    assert locations(shop / "strandline.sarif") == ["leak.py"]


def locations(sarif: Path) -> list[str]:
    results = json.loads(sarif.read_text())["runs"][0]["results"]
    places = [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in results]
    return sorted(place.rpartition("/")[2] for place in places)


def test_the_template_judges_a_merge_request_by_what_it_brings(shop: Path, environ: dict[str, str]) -> None:
    template = yaml_of("ci/gitlab.yml")
    (job,) = template.values()
    assert set(job) == {"stage", "image", "variables", "before_script", "script", "artifacts"}
    assert all(isinstance(value, str) for value in job["variables"].values())
    assert job["variables"]["STRANDLINE_PACKAGE"] == "strandline[scan]"
    assert job["artifacts"]["paths"] == ["strandline.sarif"]
    base = run(shop, environ, "git", "rev-parse", "HEAD").strip()
    run(shop, environ, "git", "add", "leak.py")
    run(shop, environ, "git", "commit", "--quiet", "--message=leak")
    given = environ | job["variables"] | {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base}
    (script,) = job["script"]
    run(shop, given, BASH, "-eo", "pipefail", "-c", script, code=1)
    assert locations(shop / "strandline.sarif") == ["leak.py"]


@pytest.mark.long
def test_a_night_scans_every_repository_and_writes_reports(tmp_path: Path, shop: Path, environ: dict[str, str]) -> None:
    run(shop, environ, "git", "add", "leak.py")
    run(shop, environ, "git", "commit", "--quiet", "--message=leak")
    shutil.copytree(shop, shop.parent / "store")
    reports = tmp_path / "reports"
    reports.mkdir()
    given = environ | {"REPOSITORIES": str(shop.parent), "STATE": str(tmp_path / "state"), "REPORTS": str(reports)}
    for _ in range(2):
        run(tmp_path, given, str(ROOT / "ci/examples/nightly.sh"), code=1)
    assert locations(reports / "secrets.sarif") == ["leak.py", "leak.py"]
    assert SECRET not in (reports / "secrets.html").read_text()


INSTRUCTION = re.compile(r"^([A-Z]+)\s+(.*)$")


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    found = [INSTRUCTION.match(line) for line in text.splitlines() if line and not line.startswith("#")]
    assert all(found), "each line is an instruction"
    return [(match[1], " ".join(match[2].split())) for match in found if match]


def test_the_image_is_small_unprivileged_and_holds_what_it_copies() -> None:
    steps = instructions()
    names = [name for name, _ in steps]
    assert names[0] == "FROM"
    assert all(":" in text and ":latest" not in text for name, text in steps if name == "FROM")
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert dict(steps)["USER"] != "root"
    for text in (text for name, text in steps if name == "RUN" and "apt-get install" in text):
        assert "--no-install-recommends" in text
        assert "rm -rf /var/lib/apt/lists/*" in text
    assert all("--no-cache-dir" in text for name, text in steps if name == "RUN" and " pip " in text)
    kept = (ROOT / ".dockerignore").read_text().split()
    copied = [word for name, text in steps if name == "COPY" and "--from" not in text for word in text.split()[:-1]]
    for word in copied:
        assert (ROOT / word).exists()
        assert f"!{word.removeprefix('./')}" in kept
    assert json.loads(dict(steps)["ENTRYPOINT"]) == ["strandline"]


@pytest.mark.long
def test_what_the_image_installs_does_what_it_runs(tmp_path: Path, shop: Path) -> None:
    steps = instructions()
    (install,) = (text for name, text in steps if name == "RUN" and "pip install" in text)
    (extra,) = re.findall(r"\.whl\)\[(\w+)\]", install)
    python = make_environment(tmp_path / "image", install_wheel(tmp_path / "wheel"), extra)
    command = json.loads([text for name, text in steps if name == "CMD"][-1])
    words = [word.replace("/repo", str(shop)).replace("/state", str(tmp_path / "state")) for word in command]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "STRANDLINE"))}
    said = run(tmp_path, environ, str(python), "-I", "-m", "strandline", *words, code=1)
    assert "aws-access-key-id" in said
