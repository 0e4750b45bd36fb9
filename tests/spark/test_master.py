"""A master is looked at before Spark does."""

import socket

import pytest

from strandline.errors import InvalidInput
from strandline.spark.master import MasterUnreachable, check_master


@pytest.mark.parametrize("master", ["", "locl[2]", "local[2", "http://host:1", "local[2] ", "spark//host:7077"])
def test_what_is_no_master_is_refused(master: str) -> None:
    with pytest.raises(InvalidInput, match="is no Spark master") as caught:
        check_master(master)
    assert "spark://HOST:7077" in str(caught.value.hint)


@pytest.mark.parametrize("master", ["spark://host", "spark://:7077", "spark://host:seven"])
def test_a_standalone_master_needs_host_and_port(master: str) -> None:
    with pytest.raises(InvalidInput, match="no host and port"):
        check_master(master)


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]", "local-cluster[2,1,1024]", "yarn", "k8s://h:1"])
def test_others_are_left_to_spark(master: str) -> None:
    check_master(master)


def test_a_standalone_master_must_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_master(f"spark://127.0.0.1:{port}")
        closed = socket.create_server(("127.0.0.1", 0))
        gone = closed.getsockname()[1]
        closed.close()
        check_master(f"spark://127.0.0.1:{gone},127.0.0.1:{port}")
        with pytest.raises(MasterUnreachable, match="no Spark master answers") as caught:
            check_master(f"spark://127.0.0.1:{gone}")
    assert caught.value.retryable
