"""Mirrors and sources that name a durable consumer are refused, in the words and at the place of nats-server 2.15.1."""

from typing import Any

import pytest

from strandline.broker.api.checks import check_create
from strandline.broker.api.codes import ApiError
from strandline.broker.api.config import StreamConfig
from strandline.broker.api.origins import Neighbours
from strandline.broker.api.schema import from_plain

ORIGIN = {"name": "O", "consumer": {"name": "c"}}
TWICE = {"filter_subject": "o.a", "subject_transforms": [{"src": "o.a", "dest": "b"}]}


@pytest.mark.parametrize(
    ("config", "err_code"),
    [
        ({"mirror": ORIGIN}, 10213),
        ({"mirror": {**ORIGIN, "consumer": {}}}, 10213),
        ({"mirror": ORIGIN, "subjects": ["m"]}, 10034),
        ({"mirror": ORIGIN, "sources": [{"name": "O"}]}, 10031),
        ({"mirror": ORIGIN, "allow_atomic": True}, 10198),
        ({"mirror": ORIGIN, "allow_msg_schedules": True}, 10186),
        ({"mirror": ORIGIN | TWICE}, 10213),
        ({"mirror": ORIGIN, "subject_delete_marker_ttl": 10**10, "allow_msg_ttl": True}, 10213),
        ({"mirror": {**ORIGIN, "name": "a.b"}}, 10213),
        ({"mirror": {**ORIGIN, "external": {"api": "$JS.x.API", "deliver": "a.*"}}}, 10213),
        ({"sources": [ORIGIN]}, 10215),
        ({"sources": [{**ORIGIN, "name": "a.b"}]}, 10141),
        ({"sources": [ORIGIN], "allow_msg_schedules": True}, 10187),
        ({"sources": [ORIGIN, ORIGIN]}, 10215),
        ({"sources": [{"name": "O"}, {"name": "O"}, ORIGIN]}, 10140),
        ({"sources": [{**ORIGIN, "filter_subject": "o..a"}]}, 10215),
        ({"sources": [ORIGIN | TWICE]}, 10144),
        ({"sources": [{**ORIGIN, "subject_transforms": [{"src": "o..a", "dest": "b"}]}]}, 10145),
        ({"sources": [{**ORIGIN, "external": {"api": "$JS.x.API", "deliver": ""}}]}, 10215),
    ],
)
def test_an_origin_with_a_consumer_is_refused(config: dict[str, Any], err_code: int) -> None:
    with pytest.raises(ApiError) as caught:
        check_create(from_plain(StreamConfig, {"name": "M", **config}), Neighbours())
    assert caught.value.err_code == err_code
