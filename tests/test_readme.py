"""The quickstart of the README is executed, and prints what the README says it prints."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
QUICKSTART = re.compile(r"<!-- quickstart -->\n```python\n(.*?)```\n+.*?```text\n(.*?)```", re.DOTALL)


def test_the_quickstart_prints_what_the_readme_says(tmp_path: Path) -> None:
    found = QUICKSTART.search(README.read_text())
    assert found, "README.md has no quickstart: a python block after <!-- quickstart -->, then a text block"
    code, expected = found.groups()
    assert len(code.splitlines()) <= 20, "the quickstart should stay within 20 lines"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == (expected, "", 0)
