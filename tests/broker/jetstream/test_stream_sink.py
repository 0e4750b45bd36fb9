"""Sinks of streams: which of them keep a subject."""

from unittest.mock import Mock

import pytest

from strandline.broker.jetstream.stream_sink import StreamSink, StreamSinks


def test_a_stream_s_subjects_are_read_once_however_many_subjects_are_asked_for() -> None:
    routes, sinks = Mock(), StreamSinks()
    for name, subjects in (("A", ("a.*", "both")), ("B", ("b.>", "both"))):
        sinks[name] = StreamSink(name, Mock(), Mock(), Mock(), Mock(), Mock())
        sinks[name].listen(subjects, routes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.broker.jetstream.stream_sink.matcher", Mock(side_effect=AssertionError))
        found = {
            subject: [sink.name for sink in sinks.listening(subject)] for subject in (b"a.1", b"b.1.2", b"both", b"c")
        }
    assert found == {b"a.1": ["A"], b"b.1.2": ["B"], b"both": ["A", "B"], b"c": []}
    routes.subscribe.return_value.assert_not_called()
    sinks["A"].listen(("c",), routes)
    routes.subscribe.return_value.assert_called_once_with()
    sinks.changed()
    assert [sink.name for sink in sinks.listening(b"c")] == ["A"]
    assert sinks.listening(b"a.1") == []
