"""Log text on its way out: no control codes, no secrets.

Log text is untrusted. Whatever leaves the package goes through here first, in every format.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_MASK = "***"
_SECRETS = (
    re.compile(r"((?:admin_)?api_key['\"]?\s*[=:]\s*['\"])([^'\"]+)"),
    re.compile(r"((?:admin_)?api_key=)(?!None\b|['\"])([^\s,)&]+)"),
    re.compile(r"((?i:authorization)['\"]?\s*[:=]\s*['\"]?(?i:bearer)\s+)([^\s'\",]+)"),
    re.compile(r"((?:ssl_keyfile_password|hf_token|HF_TOKEN|OPENAI_API_KEY)['\"]?\s*[=:]\s*['\"]?)(?!None\b)([^\s'\",)]+)"),
    re.compile(r"()(\bhf_[A-Za-z0-9]{8,}|\bsk-[A-Za-z0-9_-]{8,})"),
    re.compile(r"([a-z][a-z0-9+.-]*://[^\s/:@]*:)([^\s/@]+)(?=@)"),
)


def mask_secrets(text: str) -> str:
    """Replace what looks like a key, a token or a password.

    >>> mask_secrets("api_key='sk-abc', url=http://me:pw@host/")
    "api_key='***', url=http://me:***@host/"
    """
    for pattern in _SECRETS:
        text = pattern.sub(lambda match: match[1] + _MASK, text)
    return text


def plain(text: str) -> str:
    """Return text without control codes: each becomes a visible escape, line ends a blank.

    >>> plain("a\\x1b[31mb\\tc")
    'a\\\\x1b[31mb c'
    """
    out = []
    for char in text:
        if char in "\t\n\r":
            out.append(" ")
        elif unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
            out.append(f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")
        else:
            out.append(char)
    return "".join(out)


def masked(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value with secrets masked in every text."""
    if isinstance(value, str):
        return mask_secrets(value)
    if isinstance(value, dict):
        return {key: masked(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [masked(one) for one in value]
    return value
