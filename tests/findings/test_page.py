"""The example of docs/findings.md prints what the page says."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "findings.md").read_text()
EXAMPLES = re.findall(r"<!-- example -->\n```python\n(.*?)```\n+```text\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_prints_what_the_page_says(tmp_path: Path) -> None:
    [(code, expected)] = EXAMPLES
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == (expected, "")
    assert (tmp_path / "report.html").stat().st_size > 1000
