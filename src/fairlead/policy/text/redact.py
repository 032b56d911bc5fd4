"""Remove secrets from text for people, above all from logs. Spec: S13.

There are four filters, each for what the others miss: the secrets of this process (_core/known_secrets.py), names
of secrets (``refresh_token=...``), forms that only secrets have (``Bearer ...``, JWTs, providers' prefixes), and
strings that look random. The last one is for free text, because a tenant id may look random too.

This is the last line of defence: secrets live in types that print as ``***`` (_core/secret.py). Every log line
passes here, so each filter first checks cheaply whether there is anything to mask.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from itertools import pairwise

from fairlead._core.known_secrets import KNOWN_SECRETS, MASK

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)  # unlike lower(), it keeps the length

_NAME = re.compile(
    r"(?:token|secret|password|passwd|pwd|api[_-]?key|private[_-]?key|master[_-]?key|access[_-]?key|assertion"
    r"|verifier|authorization|cookie|credential|signature)s?"
)
_ENDS_AS_NAME = re.compile(rf"(?i){_NAME.pattern}\Z")
# = or :, also percent-encoded, with the quotes of JSON, of Python and of JSON within JSON; then the value.
_ASSIGNED = re.compile(
    r"""(?x)
    (?P<separator> \\*["']? \s{0,3} (?: = | : | %3[dDaA] ) \s{0,3} (?:%20|%22)* )
    (?P<value>
        \\" (?: (?!\\") . )*        # quoted within a quoted text
      | " (?: [^"\\] | \\. )* "?
      | ' (?: [^'\\] | \\. )* '?
      | [^\s"'\\&,;}\])<>]{1,128}  # as much as says whether it is to go; the rest of it goes with it
    )""",
    re.DOTALL,
)
_BARE_END = re.compile(r"[\s\"'\\&,;}\])<>]|\Z")
_DIGIT = re.compile(r"\d")
_OAUTH_CODE = re.compile(r"(?i)(?P<name>[?&](?:code|state|sig))=(?P<value>[^\s&\"'<>]+)")

_MARKS = re.compile(
    r"-----BEGIN|eyJ|APP_USR-|TG-|shp[a-z][a-z]_|ya29\.|1//|sk-|k_live_|k_test_|AIza|xox|gh[opurs]_|github_pat_"
    r"|glpat-|whsec_|AKIA"
)
_FORMS = re.compile(
    r"""(?x)
    -----BEGIN[ A-Z]*PRIVATE[ ]KEY-----.*?(?:-----END[ A-Z]*PRIVATE[ ]KEY-----|\Z)
  | (?<![A-Za-z0-9])
    (?: APP_USR- | TG- | shp(?:at|ca|pa|ss|rt|ua)_ | ya29\. | 1// | sk- | [srp]k_(?:live|test)_ | AIza
      | xox[abeprs]- | gh[opurs]_ | github_pat_ | glpat- | whsec_ | AKIA )
    [A-Za-z0-9_./+=~-]{6,}
    """,
    re.DOTALL,
)
# A run with dots, looked at as a whole: searched for from each `eyJ` on it would take quadratic time.
_DOTTED = re.compile(r"(?<![A-Za-z0-9_.-])[A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]*+)++")
_SCHEME_NAME = re.compile(r"bearer|basic|digest")
_SCHEME = re.compile(r"(?i)\b(?P<name>bearer|basic|digest)\s+(?P<value>[A-Za-z0-9._~+/=-]{6,})")
_USERINFO = re.compile(r"(?P<name>://[^\s/:@\"']*):[^\s/@\"']+@")

_LONG = re.compile(r"[A-Za-z0-9_\-+/.~%]{20,}={0,2}")
_PART = re.compile(r"[A-Za-z0-9_\-+~%]{20,}={0,2}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{24,}")
_NOT_ALNUM = re.compile(r"[^A-Za-z0-9]")
_SHORTEST = 16
_CHANGES = 0.2  # of neighbours: a random string has them at half of its places, a name seldom
_MIN_CAPITALS, _MAX_CAPITALS = 0.3, 0.7  # share in a random string without digits; CamelCase has fewer
_MIN_JWT_HEADER = 9  # characters


def redact(text: str, *, shapes: bool = True, mask_known: bool = True) -> str:
    """Return *text* with ``***`` for what is or looks like a secret.

    Args:
        text: The text.
        shapes: Also mask what looks random. Default True.
        mask_known: Search for the secrets of this process. False for fairlead's own names and codes, and for text that
            was searched before. Default True.

    >>> redact("POST failed: grant_type=refresh_token&refresh_token=TG-5b9032b4e23464aed1f959f-1234567")
    'POST failed: grant_type=refresh_token&refresh_token=***'
    >>> redact("got q0Vx3mT8yKp2Rz7LwN5sB1dF from the vendor")
    'got *** from the vendor'
    """
    text = KNOWN_SECRETS.masked(text) if mask_known else text
    lowered = text.translate(_LOWER)
    text = "".join(_without_named(text, lowered))
    if _MARKS.search(text):
        text = _DOTTED.sub(_masked_jwt, _FORMS.sub(MASK, text))
    if _SCHEME_NAME.search(lowered):
        text = _SCHEME.sub(_masked_scheme, text)
    if "://" in text or "?" in text or "&" in text:
        text = _OAUTH_CODE.sub(rf"\g<name>={MASK}", _USERINFO.sub(rf"\g<name>:{MASK}@", text))
    return _LONG.sub(_masked_shape, text) if shapes else text


def redact_values(value: object, depth: int = 64) -> object:
    """Return a JSON *value* with ``***`` for what has a secret's name or form, to a *depth* of 64.

    >>> redact_values({"refresh_token": "abc", "to": ["ada"], "auth": "Bearer q0Vx3mT8yKp2"})
    {'refresh_token': '***', 'to': ['ada'], 'auth': 'Bearer ***'}
    """
    if isinstance(value, str):
        return redact(value, shapes=False)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth == 0:
        return MASK
    if isinstance(value, Mapping):
        return {key: _redacted_item(str(key), item, depth - 1) for key, item in value.items()}
    return [redact_values(item, depth - 1) for item in value]


def _redacted_item(key: str, item: object, depth: int) -> object:
    """Mask a text under a secret's name; a number may be a count, as in ``max_tokens``."""
    if isinstance(item, str) and _ENDS_AS_NAME.search(key):
        return MASK
    return redact_values(item, depth)


def looks_like_chance(text: str) -> bool:
    """Return whether letters and digits alternate in *text* as in random strings, not as in words.

    Long hexadecimal numbers count as random too, except UUIDs.

    >>> looks_like_chance("q0Vx3mT8yKp2Rz7LwN5sB1dF"), looks_like_chance("tests/unit/policy/test_redact.py")
    (True, False)
    """
    bare = _NOT_ALNUM.sub("", _UUID.sub("", text))
    if len(bare) < _SHORTEST:
        return False
    kinds = [_kind(character) for character in bare]
    changes = sum(here != there for here, there in pairwise(kinds)) / (len(kinds) - 1)
    if changes < _CHANGES:
        return _HEX.fullmatch(bare.translate(_LOWER)) is not None
    capitals = kinds.count("upper") / len(kinds)
    return kinds.count("digit") >= 2 or _MIN_CAPITALS <= capitals <= _MAX_CAPITALS


def _kind(character: str) -> str:
    if character.isdigit():
        return "digit"
    return "upper" if character.isupper() else "lower"


def _without_named(text: str, lowered: str) -> Iterator[str]:
    """Yield *text* in pieces, without what is assigned to a secret's name."""
    done = 0
    for name in _NAME.finditer(lowered):
        if name.start() < done:
            continue  # part of a value that is masked already
        assigned = _ASSIGNED.match(text, name.end())
        if assigned is not None and not _is_prose(assigned):
            yield text[done : name.end()] + assigned["separator"] + _masked_value(assigned["value"])
            done = _end_of(text, assigned)
    yield text[done:]


def _end_of(text: str, assigned: re.Match[str]) -> int:
    """Return where the value ends, as one without quotes was matched in part."""
    bare = assigned["value"][0] not in "\"'\\"
    end = _BARE_END.search(text, assigned.end()) if bare else None
    return end.start() if end else assigned.end()


def _is_prose(assigned: re.Match[str]) -> bool:
    """Return whether it is a sentence as "the refresh token: none was sent", not a value with digits."""
    value, separator = assigned["value"], assigned["separator"]
    if ":" not in separator or separator[0] in "\"'\\" or value[0] in "\"'\\":
        return False
    return len(value) < 8 or _DIGIT.search(value) is None


def _masked_value(value: str) -> str:
    """Return ``***`` for *value*, within the quotes that it has; the closing one may be cut off."""
    opening = re.match(r"\\*[\"']", value)
    if opening is None:
        return MASK
    quote = opening[0]
    closed = value.endswith(quote) and len(value) > len(quote)
    return f"{quote}{MASK}{quote if closed else ''}"


def _masked_scheme(match: re.Match[str]) -> str:
    """Mask ``Bearer x``, but not the phrase "bearer authentication"."""
    if match["value"].isalpha() and match["value"].islower():
        return match[0]
    return f"{match['name']} {MASK}"


def _masked_jwt(match: re.Match[str]) -> str:
    """Mask ``eyJ...``, the header of a JWT, and what is joined to it by dots; ``name-eyJ...`` keeps its name."""
    part_start = 0
    for part in match[0].split(".")[:-1]:
        begins = part.find("eyJ") if part.startswith("eyJ") else part.find("-eyJ") + 1
        if len(part) - begins >= _MIN_JWT_HEADER and part.startswith("eyJ", begins):
            return f"{match[0][: part_start + begins]}{MASK}"
        part_start += len(part) + 1
    return match[0]


def _masked_shape(match: re.Match[str]) -> str:
    """Mask the random parts of a path or a dotted name, or all of it if the rest still looks random."""
    text = _PART.sub(lambda part: MASK if looks_like_chance(part[0]) else part[0], match[0])
    return MASK if looks_like_chance(text) else text
