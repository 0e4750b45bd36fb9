"""Gives pytest fixtures with a NATS server of their own, inside the process, wherever the package is installed.

    def test_greets(nats_server: str) -> None:
        asyncio.run(greet(nats_server))

`nats_server` is the URL of a fresh, empty server with JetStream, for one test. `shared_nats_server` is the URL of one
for the whole run, which costs nothing after the first test; tests keep apart by the names of their streams. Both are
made of `nats_server_settings`, a fixture of the whole run to be overridden in a `conftest.py`; a single test changes
some of them by a mark: `@pytest.mark.nats_server(max_payload=1024)`.

Nothing but pytest is imported until a test asks for a server. What is published is not synced to disk, for no test
outlives the machine's power.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from strandline.broker.settings import ServerSettings

__all__ = ["nats_server", "nats_server_settings", "pytest_configure", "shared_nats_server"]

MARK = "nats_server(**settings): settings of the server of the fixture `nats_server`, fields of ServerSettings"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", MARK)


@pytest.fixture(scope="session")
def nats_server_settings() -> "ServerSettings":
    """Return the settings of servers; override it in a `conftest.py`."""
    from strandline.broker.settings import ServerSettings  # noqa: PLC0415 - loaded by tests that use the fixture
    from strandline.journal import WRITTEN  # noqa: PLC0415 - loaded by tests that use the fixture

    return ServerSettings(port=0, durability=WRITTEN)


@pytest.fixture
def nats_server(request: pytest.FixtureRequest, nats_server_settings: "ServerSettings") -> Iterator[str]:
    """Give a test the URL of a fresh server, gone afterwards."""
    from strandline.broker.embedded_server import running  # noqa: PLC0415 - loaded by tests that use the fixture

    mark = request.node.get_closest_marker("nats_server")
    settings = nats_server_settings if mark is None else _changed(nats_server_settings, mark)
    with running(settings) as url:
        yield url


def _changed(settings: "ServerSettings", mark: pytest.Mark) -> "ServerSettings":
    unknown = sorted(set(mark.kwargs) - {each.name for each in fields(settings)})
    if mark.args or unknown:
        what = f"ServerSettings has no {', '.join(unknown)}" if unknown else "its arguments need names"
        raise pytest.UsageError(f"mark nats_server: {what}")
    return replace(settings, **mark.kwargs)


@pytest.fixture(scope="session")
def shared_nats_server(nats_server_settings: "ServerSettings") -> Iterator[str]:
    """Give all tests the URL of one server."""
    from strandline.broker.embedded_server import running  # noqa: PLC0415 - loaded by tests that use the fixture

    with running(nats_server_settings) as url:
        yield url
