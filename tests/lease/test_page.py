"""The example of docs/lease.md prints what the page says."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "lease.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n+```text\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_prints_what_the_page_says() -> None:
    [(code, expected)] = EXAMPLES
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == (expected, "")
