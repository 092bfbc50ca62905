"""Records as JSON: data, keys and the values of headers are bytes, so they are base64 there. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from kqlib.queue.item import Put


def to_text(value: bytes | None) -> str | None:
    """Bytes as base64."""
    return None if value is None else base64.b64encode(value).decode()


def to_bytes(text: str | None) -> bytes | None:
    """The bytes of a base64 text; ValueError if it is none."""
    return None if text is None else base64.b64decode(text, validate=True)


def headers_to_text(headers: Mapping[str, bytes | None]) -> dict[str, str | None]:
    """Headers for JSON."""
    return {name: to_text(value) for name, value in headers.items()}


def headers_to_bytes(headers: Mapping[str, str | None]) -> dict[str, bytes | None]:
    """Headers from JSON."""
    return {name: to_bytes(text) for name, text in headers.items()}


def to_json(put: Put) -> dict[str, Any]:
    """What is put."""
    return {
        "data": to_text(put.data),
        "key": to_text(put.key),
        "headers": headers_to_text(put.headers),
        "delay": float(put.delay),
    }
