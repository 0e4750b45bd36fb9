"""The examples of docs/folds.md run on a real server and print what the page says."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.kv import StoreConfig
from strandline.kv.nats import NatsConnection
from tests.cli.runs import run_command
from tests.servers_nats import NatsServer, running_nats

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "folds.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n+```text\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^strandline (fold .*?) +#|^strandline (fold .*)$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    async def write(url: str) -> None:
        async with NatsConnection(url) as connection:
            writer = (await connection.store("prices", StoreConfig(history=5))).writer()
            assert writer is not None
            version = await writer.put("fruit.apple", b"3")
            await writer.update("fruit.apple", b"4", version)
            await writer.put("fruit.pear", b"5")

    with running_nats() as running:
        asyncio.run(write(running.url))
        yield running


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_prints_what_the_page_says(server: NatsServer, number: int, tmp_path: Path) -> None:
    code, expected = EXAMPLES[number]
    here = code.replace("127.0.0.1:4222", f"127.0.0.1:{server.port}")
    ran = subprocess.run([sys.executable, "-c", here], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == (expected, "", 0)


def test_every_command_of_the_page_is_one(server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [first or second for first, second in COMMANDS if "build" not in (first or second)]
    assert len(commands) >= 10
    store = {"127.0.0.1:4222": f"127.0.0.1:{server.port}", "s3://bucket": tmp_path.joinpath("objects").as_uri()}
    for told, is_here in store.items():
        commands = [command.replace(told, is_here) for command in commands]
    here = [command.split() for command in commands]
    for command in here:
        if command[1] == "run" and "--once" not in command:
            command.append("--once")
    monkeypatch.chdir(tmp_path)
    assert run_command(*here[1][:-2], "other.db", "--once").code == 0
    for command in here:
        ran = run_command(*command)
        assert (ran.code, "error" in ran.err) == (0, False), (command, ran)
