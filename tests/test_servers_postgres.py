"""PostgreSQL runs from a checkout that other accounts cannot reach, as one in root's home."""

import shutil
from pathlib import Path

import psycopg
import pytest

from tests import servers_postgres


def test_a_server_starts_from_programs_in_a_folder_of_the_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = servers_postgres.installed_programs()
    package = installed.parents[1]
    closed = tmp_path / "closed"
    for part in (package, *package.parent.glob(f"{package.name}.libs")):
        shutil.copytree(part, closed / part.name)
    closed.chmod(0o700)
    programs = closed / installed.relative_to(package.parent)
    monkeypatch.setattr(servers_postgres, "installed_programs", lambda: programs)
    with servers_postgres.running_postgres() as server, psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
