"""The page of metrics: what parts say of themselves, by the conventions of Prometheus."""

import socket
from collections.abc import Iterable

import pytest

from strandline.errors import InvalidInput, Unavailable
from strandline.metrics import Metric, Sample, check_metric, counter, gauge, serve_metrics
from tests.metrics.scrapes import Scrapes
from tests.scraped import page


def test_a_page_tells_what_holds_at_each_scrape() -> None:
    count = 0

    def source() -> Iterable[Metric]:
        samples = [Sample(count, {"kind": kind}) for kind in ("a", "b")]
        return [
            Metric("strandline_things_total", "counter", "Things.", samples),
            gauge("strandline_size_bytes", "Size.", 7),
        ]

    with serve_metrics(0, source) as served:
        assert served is not None
        for count in (1, 5):
            found = page(served.address)
            assert found["strandline_things_total{kind=b}"] == count
        assert found["strandline_size_bytes"] == 7
        assert found["strandline_metrics_failures_total"] == 0
        assert any(name.startswith("strandline_build_info{version=") for name in found)
        assert "process_resident_memory_bytes" in found
    with pytest.raises(OSError):  # noqa: PT011 - nothing listens any more
        page(served.address)


def test_a_part_that_cannot_be_asked_is_counted_and_hides_no_other() -> None:
    is_broken, scrapes = False, Scrapes()

    def source() -> Iterable[Metric]:
        if is_broken:
            raise RuntimeError
        return [gauge("strandline_one", "One.", 1)]

    with serve_metrics(0, source, lambda: [gauge("strandline_two", "Two.", 2)]) as served:
        assert served is not None
        scrapes.read(page(served.address))
        is_broken = True
        found = page(served.address)
        scrapes.read(found)
        scrapes.check_changed("strandline_metrics_failures_total")
        assert "strandline_one" not in found
        assert (found["strandline_two"], found["strandline_metrics_failures_total"]) == (2, 1)


@pytest.mark.parametrize(
    "metric",
    [
        counter("strandline_things", "A counter without its ending.", 1),
        gauge("strandline_things_total", "A gauge with a counter's ending.", 1),
        gauge("things", "Not ours.", 1),
        gauge("strandline_Things", "Upper case.", 1),
        Metric("strandline_things", "gauge", "Two shapes.", [Sample(1, {"a": "x"}), Sample(1, {"b": "x"})]),
    ],
)
def test_names_that_break_the_conventions_are_refused(metric: Metric) -> None:
    with pytest.raises(InvalidInput):
        check_metric(metric)
    with pytest.raises(InvalidInput), serve_metrics(0, lambda: [metric]):
        pass


def test_no_port_serves_nothing_and_a_taken_one_is_said() -> None:
    with serve_metrics(None) as served:
        assert served is None
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"cannot be served at 127.0.0.1:{port}") as raised, serve_metrics(port):
            pass
    assert "--metrics-port" in (raised.value.hint or "")
