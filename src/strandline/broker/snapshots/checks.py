"""What a restored message must be: nothing that could not have been published.

Invariants: pure. A subject cannot end the line that it is written into; sequences and times leave room for those that
follow. What a client may publish is taken, however odd: else one such message would make every backup worthless.
"""

import re
from collections.abc import Iterable

from strandline.broker.api.schema import SEQUENCE_MAX
from strandline.broker.snapshots.archive import Archived, BadArchive
from strandline.broker.streams.admission import HEADERS_MAX
from strandline.wire import WireLimits

_SUBJECT = re.compile(rb"[^ \t\r\n.]+(?:\.[^ \t\r\n.]+)*")


def check_messages(messages: Iterable[Archived], limits: WireLimits) -> None:
    """Refuse messages that nobody could have published."""
    subjects = set()
    for name, time_ns, sequence, headers, payload in messages:
        subjects.add(name)
        if not (sequence <= SEQUENCE_MAX and 0 <= time_ns <= SEQUENCE_MAX):
            raise BadArchive("a message has a sequence or a time that cannot be")
        if len(headers) > HEADERS_MAX:
            raise BadArchive(f"message {sequence} has too many headers")
        if len(headers) + len(payload) > limits.payload_bytes_max:
            raise BadArchive(f"message {sequence} is too large", hint="raise max_payload")
    for subject in subjects:
        if len(subject) > limits.line_bytes_max:
            raise BadArchive("a subject is too long", hint="raise max_control_line")
        if not _SUBJECT.fullmatch(subject):
            raise BadArchive("a message has a subject that is none")
