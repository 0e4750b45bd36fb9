"""A campaign is run by its name, and its row of the page takes the place of the last one."""

import re
from pathlib import Path

from tests import campaigns

ROOT = Path(__file__).resolve().parent.parent
PAGE = """text

| campaign | shows |
|---|---|
| `a` | it |

## Last runs

| campaign | date |
|---|---|
| a | long ago |
"""


def test_a_row_takes_the_place_of_the_last_one_or_comes_at_the_end() -> None:
    assert campaigns.with_row(PAGE, "a", "| a | today |") == PAGE.replace("long ago", "today")
    assert campaigns.with_row(PAGE, "b", "| b | today |") == PAGE + "| b | today |\n"


def test_every_campaign_is_on_the_page_and_none_else() -> None:
    named = re.compile(r"mark\.campaign\(\"([\w-]+)\"|long_parts\(\d+, \"([\w-]+)\"")
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py") if path.name not in OTHERS]
    used = {one or other for text in texts for one, other in named.findall(text)}
    listed = set(re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs" / "campaigns.md").read_text(), re.MULTILINE))
    assert used == listed != set()


OTHERS = {"test_campaigns.py", "test_tidy_rules.py"}
