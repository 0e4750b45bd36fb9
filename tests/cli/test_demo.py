"""`strandline demo` keeps its promises, and leaves foreign folders alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.cli.runs import run_command
from tests.spark.lives import MAIN
from tests.waiting import PATIENCE_S

MODULES, KILL_AFTER_ITEMS = 3_000, 300
SMALLER = f"""
from strandline.cli import demo, demo_corpus
demo.KILL_AFTER_ITEMS, demo_corpus.MODULES = {KILL_AFTER_ITEMS}, {MODULES}
{MAIN}
"""


def test_the_demonstration_keeps_its_promises(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    words = [sys.executable, "-c", SMALLER, "demo", "--json", "--folder", str(folder)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=10 * PATIENCE_S, env=os.environ)
    assert ran.returncode == 0, ran.stderr
    story = json.loads(ran.stdout)
    assert story["items"] > MODULES
    assert story["planted"] == story["findings"] == story["findings_undisturbed"] > 10
    assert 0 < story["items_before_kill"] < story["items"]
    assert story["again_looked_at"] == 0
    assert story["rule_changed_items"] == story["items"]
    assert Path(story["report"]).read_text().startswith("<!")
    assert not (folder / "undisturbed").exists()
    listed = run_command("findings", "list", "--json", "--state", folder / "state")
    assert len(listed.out.splitlines()) == story["findings"]


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    ran = run_command("demo", "--folder", tmp_path)
    assert ran.code == 1
    assert "was not made by `strandline demo`" in ran.err
    assert "hint: give another --folder" in ran.err
    assert (tmp_path / "precious").read_text() == "mine"
