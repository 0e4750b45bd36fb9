"""Text fields, checked before any store sees them.

Invariants: a text that passes is stored and read back the same by every backend: it is valid Unicode, has no NUL and is
within its limit.
"""

from strandline.errors import InvalidInput


def check_text(text: object, what: str, bytes_max: int, bytes_min: int = 1) -> None:
    """Raise `InvalidInput` for a value that is not text of the allowed size; the message does not repeat it."""
    if not isinstance(text, str):
        raise InvalidInput(f"{what} is not text")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} is not valid Unicode", hint="decode it with errors='replace'") from None
    if not bytes_min <= size <= bytes_max:
        raise InvalidInput(f"{what} has {bytes_min} to {bytes_max:,} bytes, not {size:,}")
    if "\0" in text:
        raise InvalidInput(f"{what} contains a NUL character")
