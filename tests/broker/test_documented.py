"""docs/broker.md: its example prints what it says, and its tables list the flags and keys that there are."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.broker.monitoring.pages import PAGES
from strandline.broker.settings import configuration, identities, listeners
from strandline.broker.settings.errors import ConfigurationRefused, NotServed
from strandline.broker.settings.flags import FLAGS
from strandline.broker.settings.syntax import Place, Value
from strandline.broker.settings.values import Table, nothing

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "broker.md").read_text()
EXAMPLE = re.compile(r"<!-- example -->\n```python\n(.*?)```\n+.*?```text\n(.*?)```", re.DOTALL)
BLOCKS = {
    "top": configuration.KEYS,
    "`jetstream`": configuration.JETSTREAM,
    "`authorization`": identities.AUTHORIZATION,
    "a user": identities.USER,
    "`permissions`": identities.PERMISSIONS,
    "an account": identities.ACCOUNT,
    "`tls`": listeners.TLS,
    "`websocket`": listeners.WEBSOCKET,
}


@pytest.mark.parametrize(("code", "expected"), EXAMPLE.findall(PAGE), ids=["clients", "buckets"])
def test_the_examples_print_what_the_page_says(code: str, expected: str, tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == (expected, "", 0)


def test_the_flags_of_the_page_are_those_that_are_served() -> None:
    section = PAGE.split("### Flags")[1].split("###")[0]
    documented = {name.lstrip("-") for row in _rows(section) for name in re.findall(r"`(-\S+)`", row[0])}
    assert documented == {name for flag in FLAGS for name in flag.names}


@pytest.mark.parametrize("block", BLOCKS)
def test_the_keys_of_the_page_are_those_that_are_served(block: str) -> None:
    section = PAGE.split("### The configuration file")[1].split("###")[0]
    row = next(row for row in _rows(section) if row[0] == block)
    documented = re.findall(r"`(\w+)`", row[1])
    assert sorted(documented) == sorted(_served(BLOCKS[block]))


def _served(table: Table) -> list[str]:
    """Return the keys that are neither left out nor refused, whatever they are given."""
    place = Place("c.conf", 1, 0)
    served = []
    for key, read in table.items():
        try:
            read(Value("x", place))
        except NotServed:
            continue
        except ConfigurationRefused:
            pass  # the value is wrong, the key is right
        if read is not nothing and key not in ("leaf", "leafnodes"):
            served.append(key)
    return served


def test_the_pages_of_monitoring_are_those_that_there_are() -> None:
    section = PAGE.split("### Monitoring")[1].split("\n## ")[0]
    assert set(re.findall(r"`(/[\w/]+)`", section)) == set(PAGES) - {"/", "/subscriptionsz"}


def _rows(section: str) -> list[list[str]]:
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
