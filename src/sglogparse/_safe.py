"""Log text on its way out: no control codes, no secrets.

Log text is untrusted. Whatever the command line prints or writes goes through here first, in every format;
masking comes before wrapping and quoting, which could hide a secret from it.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import polars as pl

_Value = TypeVar("_Value")

_MASK = "***"
_SECRET_NAME = (
    r"(?:admin_api_key|api_key|ssl_keyfile_password|hf_token|access_token|password"
    r"|[A-Z_]+_(?:API_KEY|TOKEN|SECRET))"
)
_SECRETS = (
    re.compile(rf"(\b{_SECRET_NAME}['\"]?\s*[=:]\s*['\"])([^'\"]+)"),
    re.compile(rf"(\b{_SECRET_NAME}[=:])(?!None\b|['\"\s])([^\s,;)&]+)"),
    re.compile(r"((?i:authorization)['\"]?\s*[:=]\s*['\"]?(?i:bearer|basic)\s+)([^\s'\",]+)"),
    re.compile(r"()(\bhf_[A-Za-z0-9]{8,}|\bsk-[A-Za-z0-9_-]{8,})"),
    re.compile(r"([a-z][a-z0-9+.-]*://[^\s/:@]*:)([^\s/@]+)(?=@)"),
)
#: What a text must hold before it is worth a closer look (no look-around: polars runs it).
_SUSPECT = r"(?i)api_key|authorization|hf_|sk-|token['\"]?[=:]|_token|secret|password|://[^\s/]*@"
_NAMES = re.compile(_SECRET_NAME)


def mask_secrets(text: str) -> str:
    """Replace what looks like a key, a token or a password.

    >>> mask_secrets("api_key='sk-abc', url=http://me:pw@host/")
    "api_key='***', url=http://me:***@host/"
    """
    for pattern in _SECRETS:
        text = pattern.sub(lambda match: match[1] + _MASK, text)
    return text


def masked(value: _Value) -> _Value:
    """Return a report (dataclasses, tuples, texts) with the secrets masked in every text."""
    result: Any = value
    if isinstance(value, str) and type(value) is str:  # not an Outcome or a Severity
        result = mask_secrets(value)
    elif isinstance(value, tuple):
        result = tuple(masked(one) for one in value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {field.name: masked(getattr(value, field.name)) for field in dataclasses.fields(value)}
        result = dataclasses.replace(value, **changes)
    return result  # type: ignore[no-any-return]


def masked_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame with the secrets masked in its text columns."""
    import polars as pl

    for name, kind in frame.schema.items():
        if kind != pl.String:
            continue
        suspect = frame[name].str.contains(_SUSPECT).fill_null(False)
        if name == "value" and "name" in frame.columns:
            suspect |= frame["name"].str.contains(f"^{_SECRET_NAME}$") & (frame["value"] != "null")
        rows = suspect.arg_true()
        if rows.is_empty():
            continue
        texts = [mask_secrets(text) for text in frame[name].gather(rows)]
        if name == "value" and "name" in frame.columns:
            named = frame["name"].gather(rows)
            texts = [
                f'"{_MASK}"' if _NAMES.fullmatch(one) else text
                for one, text in zip(named, texts, strict=True)
            ]
        frame = frame.with_columns(frame[name].scatter(rows, texts))
    return frame


def plain(text: str) -> str:
    r"""Return text without control codes: each becomes a visible escape, tabs and line ends a blank.

    >>> print(plain("a\x1b[31mb\tc"))
    a\x1b[31mb c
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
