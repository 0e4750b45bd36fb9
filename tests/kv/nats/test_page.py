"""The examples of docs/buckets.md run on a real server, print what the page says, and its table names every error."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from strandline import kv
from strandline.errors import StrandlineError
from tests.servers_nats import running_nats

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "buckets.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n+(?:```text\n(.*?)```)?", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_prints_what_the_page_says(number: int, tmp_path: Path) -> None:
    code, expected = EXAMPLES[number]
    with running_nats() as server:
        here = code.replace("127.0.0.1:4222", f"127.0.0.1:{server.port}") if "NatsConnection" in code else code
        ran = subprocess.run([sys.executable, "-c", here], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == (expected, "", 0)


def test_examples_are_formatted() -> None:
    for code, _ in EXAMPLES:
        command = [sys.executable, "-m", "ruff", "format", "--line-length", "120", "-"]
        formatted = subprocess.run(command, input=code, capture_output=True, text=True, check=True).stdout
        assert formatted == code


def test_the_table_names_every_error_of_buckets() -> None:
    table = PAGE.split("## Errors")[1].split("\n## ")[0]
    errors = {name for name, each in vars(kv).items() if inspect.isclass(each) and issubclass(each, StrandlineError)}
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))))
    assert errors | {"RecordTooLarge"} == named - {"error"}
