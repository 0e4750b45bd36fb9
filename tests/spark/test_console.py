"""What Py4J logs is not printed, whichever of its loggers it comes through; what others log is."""

import logging

import py4j.clientserver
import py4j.java_gateway
import pytest

from strandline.spark.console import silence_py4j


@pytest.mark.parametrize("name", ["root", py4j.clientserver.logger.name, py4j.java_gateway.logger.name])
def test_what_py4j_logs_is_not_printed(name: str, caplog: pytest.LogCaptureFixture) -> None:
    silence_py4j()
    logger = logging.getLogger(None if name == "root" else name)
    logger.handle(
        logger.makeRecord(name, logging.ERROR, py4j.clientserver.__file__, 1, "a call was cut short", (), None)
    )
    logger.handle(logger.makeRecord(name, logging.ERROR, __file__, 1, "something else", (), None))
    assert [record.getMessage() for record in caplog.records] == ["something else"]
