"""A page of metrics."""

from urllib.request import urlopen

from strandline.metrics import gauge, serve_metrics

with serve_metrics(0, lambda: [gauge("strandline_depth", "How deep it is.", 3)]) as page:
    assert page is not None
    assert "strandline_depth 3.0" in urlopen(page.address).read().decode()  # noqa: S310 - our own page
