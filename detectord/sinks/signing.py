"""Standard Webhooks signatures: HMAC-SHA256 over ``id.timestamp.body``, base64, ``v1,``; one for each secret, so that
secrets can be rotated."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from detectord.core.errors import ConfigError


def decode_secret(text: str) -> bytes:
    """The key of ``whsec_`` and base64 of 24 to 64 bytes. Raises ``ConfigError``."""
    if not text.startswith("whsec_"):
        raise ConfigError("a webhook secret begins with whsec_; make one: echo whsec_$(openssl rand -base64 32)")
    try:
        key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except binascii.Error as error:
        raise ConfigError(f"a webhook secret is whsec_ and base64: {error}") from error
    if not 24 <= len(key) <= 64:
        raise ConfigError(f"a webhook secret holds 24 to 64 bytes, this one {len(key)}")
    return key


def sign(keys: Sequence[bytes], identifier: str, timestamp: int, body: bytes) -> str:
    """The value of the ``webhook-signature`` header."""
    message = b".".join((identifier.encode(), str(timestamp).encode(), body))
    return " ".join("v1," + base64.b64encode(hmac.new(key, message, hashlib.sha256).digest()).decode() for key in keys)
