"""Bytes as people and programs see them: escaped on one line, or as a field of JSON."""

import base64

_SURROGATE_FIRST, _SURROGATE_LAST, _SURROGATE_BASE = "\udc80", "\udcff", 0xDC00


def json_field(name: str, data: bytes) -> tuple[str, str]:
    """Return a field of JSON: text if the bytes are UTF-8, else base64 under another name (`value_base64`)."""
    try:
        return name, data.decode()
    except UnicodeDecodeError:
        return f"{name}_base64", base64.b64encode(data).decode()


def escape(data: bytes) -> str:
    r"""Return bytes as text on one line: UTF-8 as it is, anything else, and backslashes, as in Python (`\x00`)."""
    text = data.decode("utf-8", "surrogateescape")
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(map(_escape_character, text))


def _escape_character(character: str) -> str:
    if _SURROGATE_FIRST <= character <= _SURROGATE_LAST:
        return f"\\x{ord(character) - _SURROGATE_BASE:02x}"
    if character.isprintable() and character != "\\":
        return character
    return character.encode("unicode_escape").decode()
