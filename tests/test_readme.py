"""The examples of README and docs are executed, and print what the page says they print."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
QUICKSTART = re.compile(r"<!-- quickstart -->\n```python\n(.*?)```\n+.*?```text\n(.*?)```", re.DOTALL)


def test_the_quickstart_prints_what_the_readme_says(tmp_path: Path) -> None:
    found = QUICKSTART.search(README.read_text())
    assert found, "README.md has no quickstart: a python block after <!-- quickstart -->, then a text block"
    code, expected = found.groups()
    assert len(code.splitlines()) <= 20, "the quickstart should stay within 20 lines"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == (expected, "", 0)


def test_the_pipelines_example_prints_what_the_page_says(tmp_path: Path) -> None:
    pattern = QUICKSTART.pattern.replace("quickstart", "example")
    found = re.search(pattern, (ROOT / "docs" / "pipeline.md").read_text(), re.DOTALL)
    assert found, "docs/pipeline.md has no example: a python block after <!-- example -->, then a text block"
    code, expected = found.groups()
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == (expected, "", 0)
