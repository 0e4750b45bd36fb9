"""The signature of requests to AWS."""

from datetime import UTC, datetime

import pytest

from strandline.verify.aws_signature import region_of, signed_headers


@pytest.mark.parametrize(
    ("query", "signature"),
    [
        ("", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("?Param2=value2&Param1=value1", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
    ],
)
def test_signatures_are_those_of_the_published_test_suite(query: str, signature: str) -> None:
    when = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
    secret = b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    url = f"https://example.amazonaws.com/{query}"
    headers = signed_headers(url, when, "AKIDEXAMPLE", secret, service="service")
    assert headers["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders=host;x-amz-date, Signature={signature}"
    )
    assert not [value for value in headers.values() if secret.decode() in value]


def test_the_region_is_that_of_the_host() -> None:
    assert region_of("sts.amazonaws.com") == "us-east-1"
    assert region_of("sts.eu-central-1.amazonaws.com") == "eu-central-1"
    assert region_of("sts.cn-north-1.amazonaws.com.cn") == "cn-north-1"
