"""The signature of a request to AWS, version 4: proves the secret key without sending it.

Invariant: pure; the same inputs give the same headers.
"""

import hashlib
import hmac
import re
from datetime import datetime
from urllib.parse import quote, urlsplit

_REGION = re.compile(r"(?:^|\.)sts\.([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com")
_DEFAULT_REGION = "us-east-1"


def region_of(host: str) -> str:
    """Return the region of an STS host; that of the global one is `us-east-1`."""
    found = _REGION.search(host)
    return found[1] if found else _DEFAULT_REGION


def signed_headers(
    url: str, when: datetime, key_id: str, secret: bytes, session: str = "", service: str = "sts"
) -> dict[str, str]:
    """Return the headers of a signed GET without a body; `when` is in UTC."""
    parts = urlsplit(url)
    stamp = when.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": parts.netloc, "x-amz-date": stamp}
    if session:
        headers["x-amz-security-token"] = session
    names = ";".join(sorted(headers))
    query = "&".join(sorted(parts.query.split("&"))) if parts.query else ""
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    body = hashlib.sha256(b"").hexdigest()
    canonical = "\n".join(("GET", quote(parts.path or "/"), query, lines, names, body))
    scope = f"{stamp[:8]}/{region_of(parts.hostname or '')}/{service}/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = b"AWS4" + secret
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    given = f"Credential={key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "Authorization": f"AWS4-HMAC-SHA256 {given}"}
