"""The options of verification.

Invariant: none is a key of `strandline.toml`: a file that stands in what is scanned must not say that secrets are sent,
nor where to.
"""

from typing import Annotated

import typer

Verify = Annotated[
    bool,
    typer.Option("--verify", help="Ask the providers of found secrets whether these are live, by sending them there."),
]
VerifyHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--verify-host",
        metavar="NAME=URL",
        envvar="STRANDLINE_VERIFY_HOST",
        help="Address of a provider's API, such as gitlab=https://gitlab.example.com.",
    ),
]
Again = Annotated[bool, typer.Option("--again", help="Ask again also about secrets with a recent answer.")]
