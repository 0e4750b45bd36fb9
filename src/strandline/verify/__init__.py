"""Ask providers whether the secrets of findings are live: opt-in, one read-only request each.

**Promise.** A secret goes to its own provider's host and nowhere else, over TLS that is verified, and only if the bytes
have the keyed hash of the finding. No byte of it is stored, logged or shown; nor is a byte that a provider answers.
A result is `live` or `revoked` only if the provider said so in its documented form; anything else is `unknown`.

**How.**

    providers       one read-only request for each provider, the rules whose secrets it takes, and what answers mean
    aws_signature   the signature of a request to AWS (version 4): the secret key itself is never sent
    credentials     a secret with its other part (key id, account), found near it
    item_secrets    the items of findings, read again from their sources; the secrets of wanted hashes in them
    http_client     one request: bounded as a whole, no redirects, proxies of the environment
    host_limits     the pace of requests to one host, `Retry-After`, and hosts that do not answer
    addresses       addresses of providers, and those given instead: https, or a server on this machine
    verifier        of findings, those to ask about; results are stored in `pipeline.verifications`

**Trade-offs.** Secrets are read again by the process that was asked to verify, after the scan: workers on other
machines never send them. A source that cannot be opened again (standard input, later) leaves its findings
unknown. A token of a server of one's own (GitHub Enterprise, GitLab) is unknown to the public one, which calls it
revoked: the address can be given.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from strandline.verify.addresses import Addresses, parse_addresses
    from strandline.verify.providers import PROVIDERS, Provider, provider_of
    from strandline.verify.verifier import Verified, Verifier

__all__ = [
    "PROVIDERS",
    "Addresses",
    "Provider",
    "Verified",
    "Verifier",
    "parse_addresses",
    "provider_of",
]

# Import a public name at its first use; most scans ask no provider.
__getattr__ = _lazy_names(
    __name__,
    {
        "addresses": ("Addresses", "parse_addresses"),
        "providers": ("PROVIDERS", "Provider", "provider_of"),
        "verifier": ("Verified", "Verifier"),
    },
)
