r"""Log text on its way out: no control codes, no secrets.

    log text --> mask_secrets --> data for a program (json, csv, parquet, ...)
                      |
                      +--> plain --> text for a terminal

Log text is untrusted. Whatever the command line prints or writes goes through here first, in every format;
masking comes before wrapping and quoting, which could hide a secret from it.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from sglogparse._cheap import lazy

if TYPE_CHECKING:
    import polars as pl

_Value = TypeVar("_Value")

_MASK = "***"
#: Names of arguments, variables and headers whose values are secret. Not `token` alone: servers count tokens.
_NAME = (
    r"(?i:[a-z0-9_-]*(?:api[_-]?key|passw(?:or)?d|passphrase|secret|secret[_-](?:access[_-])?key)"
    r"|[a-z0-9_-]*(?:hf|hub|auth|access|refresh)[_-]token"
    r"|x-amz-(?:signature|security-token))|[A-Z0-9_]+_TOKEN"
)
#: What stands between a name and its value: `name=`, `'name': `, `\"name\": `, `--name `, `'--name', `.
_NAMED = (
    rf"(?<![A-Za-z0-9_-])(?:--(?:{_NAME})(?:\\*['\"])?(?:,?\s+|=)|(?:{_NAME})(?:\\*['\"])?\s*[=:]\s*)[bru]?"
)
#: Values that keep no secret: nothing, a truth, a number of tokens, another argument.
_HARMLESS = r"(?!(?:None|null|True|False|true|false)\b|[\s,;)}\]&]|(?:(?<=_TOKEN=)|(?<=_TOKEN: ))[0-9]+\b|--)"
_SECRETS = (
    # the password in a URL
    lazy(r"((?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*:\\?/\\?/[^\s/:@'\"]*:)([^\s/'\"]+)(?=@)"),
    # a value in quotes ends at the same quote; a quote that is escaped within it does not end it
    lazy(rf"({_NAMED}')((?:\\.|[^'\\])+)"),
    lazy(rf'({_NAMED}")((?:\\.|[^"\\])+)'),
    # quotes that are themselves escaped: JSON in JSON, Python in Python
    lazy(rf"({_NAMED}(?P<quote>\\+['\"]))((?:(?!(?P=quote)).)+)", re.DOTALL),
    lazy(rf"({_NAMED})(?![bru]?\\*['\"]){_HARMLESS}([^\s,;&'\"\\)}}\]]+)"),
    lazy(r"((?i:authorization)\W{1,8}(?:b['\"])?(?i:bearer|basic|token)\s+)([^\s'\",\\]+)"),
    lazy(r"(\b(?i:bearer)\s+)((?=[A-Za-z._~+/=-]*[0-9])[A-Za-z0-9._~+/=-]{8,})"),
    # Hugging Face; a name in code, such as hf_transformers_utils, is shorter, or goes on
    lazy(r"(\b)(hf_(?:[A-Za-z0-9]{16,}|(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,})\b)"),
    lazy(r"(\b)(sk-[A-Za-z0-9_-]{8,}|(?:gh[pousr]_|github_pat_|glpat-|nvapi-|xox[abp]-)[A-Za-z0-9_-]{16,})"),
)
#: What a text must hold before it is worth a closer look. polars runs it, so it has no look-around.
_SUSPECT = (
    rf"[\u0130\u0131\x1c-\x1f]|(?:{_NAME})(?:\\*['\"])?,?[\s=:]"
    r"|(?i:authorization|bearer)\W"
    r"|\bhf_[A-Za-z0-9]{8}|\bsk-[A-Za-z0-9_-]{8}"
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|nvapi-|xox[abp]-)"
    r"|:\\?/\\?/[^\s/@]*:[^\s/]*@"
)


#: Letters that Python takes for an i where case makes no difference.
_AS_I = {0x131: "i", 0x307: None}
#: What a text with a secret holds, one of them at least, in small letters: most texts are left alone.
_NEEDLES = (
    *("apikey", "api_key", "api-key", "passw", "passphrase", "secret", "_token", "-token", "signature"),
    *(
        "authorization",
        "bearer",
        "hf_",
        "sk-",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
    ),
    *("nvapi-", "xox", ":/", ":\\"),
)


def mask_secrets(text: str) -> str:
    """Replace what looks like a key, a token or a password.

    >>> mask_secrets("api_key='sk-abc', admin_api_key=None, url=http://me:pw@host/")
    "api_key='***', admin_api_key=None, url=http://me:***@host/"
    """
    small = text.casefold().translate(_AS_I)
    if not any(needle in small for needle in _NEEDLES):
        return text
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
    """Return a frame with the secrets masked in its texts, also in lists and structs of texts.

    In a frame of names and values (server_arg) the name alone makes the whole value secret.
    """
    import polars as pl

    columns = [
        _masked_texts(column) if column.dtype == pl.String else _masked_nest(column)
        for column in frame.get_columns()
        if column.dtype == pl.String or column.dtype.is_nested()
    ]
    frame = frame.with_columns(columns)
    if {"name", "value"} <= set(frame.columns):
        secret = pl.col("name").str.contains(f"^(?:{_NAME})$") & ~pl.col("value").is_in(
            ["null", '""', "true", "false"]
        )
        frame = frame.with_columns(value=pl.when(secret).then(pl.lit(f'"{_MASK}"')).otherwise("value"))
    return frame


def _masked_texts(texts: pl.Series) -> pl.Series:
    rows = texts.str.contains(_SUSPECT).fill_null(False).arg_true()
    if rows.is_empty():
        return texts
    return texts.scatter(rows, [mask_secrets(text) for text in texts.gather(rows)])


def _masked_nest(column: pl.Series) -> pl.Series:
    import polars as pl

    mask = cache(mask_secrets)  # stacks repeat the same frames over and over

    def masked_value(value: Any) -> Any:  # noqa: ANN401 - a cell of a nested column
        if isinstance(value, str):
            return mask(value)
        if isinstance(value, list):
            return [masked_value(one) for one in value]
        if isinstance(value, dict):
            return {name: masked_value(one) for name, one in value.items()}
        return value

    return pl.Series(column.name, [masked_value(value) for value in column.to_list()], dtype=column.dtype)


#: Unicode categories that a terminal may act on, or that show nothing: controls, formats (bidi, zero width),
#: surrogates, private use, not assigned, line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def plain(text: str) -> str:
    r"""Return text without control codes: each becomes a visible escape, tabs and line ends a blank.

    >>> print(plain("a\x1b[31mb\tc"))
    a\x1b[31mb c
    """
    return text if text.isascii() and text.isprintable() else "".join(map(_visible, text))


def tame(text: str) -> str:
    r"""Return plain text that no CI runner takes for a command, should it stand at the beginning of a line.

    GitHub takes a line that begins with "::name", also after blanks; others look for "##name[" anywhere.

    >>> print(tame("::error::x ##vso[y]"))
    \x3a:error::x #\x23vso[y]
    """
    text = re.sub(r"##(?=\w*\[)", r"#\\x23", text)
    return re.sub(r"^(\s*):(?=:)", r"\1\\x3a", text)


def _visible(char: str) -> str:
    if char in "\t\n\r":
        return " "
    if unicodedata.category(char) not in _UNSAFE:
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 1 << 8 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
