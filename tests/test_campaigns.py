"""A campaign is run by its name, and its row of the page takes the place of the last one."""

import re
import subprocess
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


def test_a_commit_is_marked_where_files_but_the_page_differ_from_it(tmp_path: Path) -> None:
    page, other = tmp_path / "docs" / "page.md", tmp_path / "code.py"
    page.parent.mkdir()
    for path in (page, other):
        path.write_text("before")
    for arguments in ("init -q", "add .", "-c user.name=a -c user.email=a@localhost commit -qm first"):
        command = ["git", "-C", str(tmp_path), *arguments.split()]
        subprocess.run(command, check=True)
    page.write_text("a row of another campaign")
    commit = campaigns.commit_of(page)
    assert re.fullmatch(r"[0-9a-f]{10}", commit)
    other.write_text("after")
    assert campaigns.commit_of(page) == f"{commit}+"


def test_every_campaign_is_on_the_page_and_none_else() -> None:
    named = re.compile(r"mark\.campaign\(\"([\w-]+)\"|long_parts\(\d+, \"([\w-]+)\"")
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py") if path.name not in OTHERS]
    used = {one or other for text in texts for one, other in named.findall(text)}
    listed = set(re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs" / "campaigns.md").read_text(), re.MULTILINE))
    assert used == listed != set()


OTHERS = {"test_campaigns.py", "test_tidy_rules.py"}
