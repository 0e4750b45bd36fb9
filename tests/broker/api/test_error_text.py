"""Tests of what is said of an error, to clients and in the log."""

import pytest

from strandline.broker.api.error_text import for_clients, for_log
from strandline.errors import CommitFailed, StorageRefused


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/var/lib/s/strandline/$G/streams/A/journal: commit failed", "journal: commit failed"),
        ("dmg/streams/A/index: is damaged", "index: is damaged"),
        ("[Errno 28] No space left on device: '/a/b/state.delta'", "[Errno 28] No space left on device: 'state.delta'"),
        ("it is being restored", "it is being restored"),
    ],
)
def test_clients_hear_what_is_wrong_but_not_where_the_server_keeps_it(text: str, told: str) -> None:
    assert for_clients(text) == told
    assert for_clients(CommitFailed("/var/lib/journal", "no space")).count("/") == 0


def test_an_error_without_words_is_told_by_its_name() -> None:
    assert for_clients(ValueError()) == for_log(ValueError()) == "ValueError"


def test_the_log_says_what_to_do() -> None:
    error = StorageRefused("/x", "full", "ENOSPC", hint="make room")
    assert for_log(error, "restart the server") == "/x: full (ENOSPC); restart the server; make room"
    assert for_log(OSError("bad")) == "bad"
