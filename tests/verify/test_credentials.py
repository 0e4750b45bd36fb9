"""The other parts of secrets: found near them, and of their own form."""

from strandline.detect.revealed import NEAR_BYTES, Revealed
from strandline.pipeline.identity import SecretHash
from strandline.verify import PROVIDERS
from strandline.verify.credentials import Credential

AWS = PROVIDERS[0]
KEY, LONG_ID, SHORT_ID = b"k" * 40, b"AKIA" + b"B" * 16, b"ASIA" + b"B" * 16
SESSION = b"x" * 200


def credential(
    data: bytes = KEY, *, before: bytes = b"", after: bytes = b"", near: tuple[tuple[str, bytes], ...] = ()
) -> Credential | None:
    return AWS.credential(Revealed("aws-secret-access-key", SecretHash(bytes(32)), data, before, after, near))


def test_what_a_rule_calls_the_other_part_has_its_form() -> None:
    foreign = ("aws-access-key-id", "pässword\r\nof another".encode())
    assert credential(near=(foreign,)) is None
    assert credential(near=(foreign, ("aws-access-key-id", LONG_ID))) == Credential(KEY, LONG_ID)
    assert credential(LONG_ID, near=(("aws-secret-access-key", b"short"),)) is None
    assert credential(LONG_ID, near=(("aws-secret-access-key", KEY),)) == Credential(KEY, LONG_ID)


def test_a_session_goes_with_a_temporary_key_alone() -> None:
    after = b"\naws_session_token = " + SESSION + b"\n"
    assert credential(before=LONG_ID + b"\n", after=after) == Credential(KEY, LONG_ID)
    assert credential(before=SHORT_ID + b"\n", after=after) == Credential(KEY, SHORT_ID, session=SESSION)
    other = after + b"session_token = " + b"y" * 200 + b"\n"
    assert credential(before=SHORT_ID + b"\n", after=other) == Credential(KEY, SHORT_ID, False, SESSION)


def test_a_session_that_is_cut_off_is_not_taken() -> None:
    after = (b"\naws_session_token = " + b"x" * NEAR_BYTES)[:NEAR_BYTES]
    assert credential(before=SHORT_ID + b"\n", after=after) == Credential(KEY, SHORT_ID)
