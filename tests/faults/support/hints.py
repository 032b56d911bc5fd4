"""Waits that a vendor may ask for: each form of V1, V2 and V3, and others like them with other numbers (R15).

What a case asks for is known from how it was made, never from reading it: a wait is drawn first, and then
written in a shape that says it, or in one that nobody may read. A wait in nonsense is longer than any
backoff, so whoever reads it all the same waits too long, and is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import cycle
from random import Random

Lines = list[tuple[str, str]]
"""Header lines: names and values."""
HintLines = tuple[Lines, float | None]
"""Header lines, and the wait in seconds that they ask for; None: none that is readable."""
Shape = Callable[[Random, int], Lines]
"""Lines that are about a wait of so many seconds, and are else as they are drawn."""

CAP_S = 900
"""Whoever is asked for more waits no longer."""
LONGEST_S = 9_999_999_999
"""What ten digits say; more is nonsense."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the vectors. *forms*: as they are written down; *readable*, *nonsense*: shapes of any wait.

    *longest_s*: the longest wait that its shapes can say.
    """

    forms: Sequence[HintLines]
    readable: Sequence[Shape]
    nonsense: Sequence[Shape]
    longest_s: int = LONGEST_S

    def cases(self, draw: Random) -> Iterator[HintLines]:
        """Each form once, and then without end a readable one and one that is not, by turns."""
        yield from self.forms
        for says, mumbles in zip(cycle(self.readable), cycle(self.nonsense), strict=False):
            wait_s = self._wait_s(draw)
            yield says(draw, wait_s), wait_s
            yield mumbles(draw, _long_s(draw)), None

    def _wait_s(self, draw: Random) -> int:
        """Half of them are below the cap, where each second shows."""
        if draw.random() < 0.5:
            return draw.randrange(1, CAP_S)
        return draw.randrange(1, min(self.longest_s, 10 ** draw.randrange(3, 11)))


def _long_s(draw: Random) -> int:
    """For nonsense: twice the longest backoff, or more."""
    return draw.randrange(10, 10 ** draw.randrange(2, 7))


def _retry(*values: str) -> Lines:
    return [("Retry-After", value) for value in values]


def _with_less(draw: Random, wait_s: int, text: str) -> list[str]:
    """*text*, which asks for *wait_s*, among others that ask for no more."""
    texts = [text, *(str(draw.randrange(wait_s + 1)) for _ in range(draw.randrange(1, 4)))]
    draw.shuffle(texts)
    return texts


def _blank(draw: Random) -> str:
    return draw.choice(("", " ", "\t", " \t  "))


def _digits(draw: Random, least: int, most: int) -> str:
    """So many digits, the last of them no 0."""
    more = "".join(draw.choice("0123456789") for _ in range(draw.randrange(least - 1, most)))
    return more + draw.choice("123456789")


def _foreign(draw: Random, text: str) -> str:
    """*text* with its digits in another script, which Python takes for the same."""
    zero = draw.choice("\u0660\u06f0\u0966\u09e6\u0e50\uff10\U0001d7ce")
    return "".join(chr(ord(zero) + int(char)) if char.isdigit() else char for char in text)


# ---- V1: seconds


def _v1_forms() -> Iterator[HintLines]:
    readable = {"5": 5, " 5 ": 5, "5.5": 6, "0.001": 1, "007": 7, "120, 5": 120, "9999999999": 9_999_999_999}
    nonsense = (
        "0", "-1", "-0", "+5", "1e3", "1e400", "nan", "inf", "1_000", "\u0663\u0666", "0x10", "9" * 5000, "",
        "5,", "soon", "120, soon", "99999999999", "true", "5 s", "\u00b2",
    )  # fmt: skip
    yield from ((_retry(value), wait_s) for value, wait_s in readable.items())
    yield from ((_retry(value), None) for value in nonsense)
    yield _retry("5", "120"), 120


def _rounded_up(draw: Random, wait_s: int) -> str:
    return f"{wait_s - 1}.{_digits(draw, 1, 3)}"


_V1_READABLE: tuple[Shape, ...] = (
    lambda _draw, wait_s: _retry(f"{wait_s}"),
    lambda draw, wait_s: _retry(f"{_blank(draw)}{wait_s}{_blank(draw)}"),
    lambda draw, wait_s: _retry(f"{wait_s}".zfill(draw.randrange(2, 11))),
    lambda draw, wait_s: _retry(_rounded_up(draw, wait_s)),
    lambda draw, wait_s: _retry(f"{wait_s}.{'0' * draw.randrange(1, 4)}"),
    lambda draw, wait_s: _retry(f"{_blank(draw)},{_blank(draw)}".join(_with_less(draw, wait_s, f"{wait_s}"))),
    lambda draw, wait_s: _retry(", ".join(_with_less(draw, wait_s, _rounded_up(draw, wait_s)))),
    lambda draw, wait_s: _retry(*_with_less(draw, wait_s, f"{wait_s}")),
)
_V1_NONSENSE: tuple[Shape, ...] = (
    lambda draw, wait_s: _retry(f"{draw.choice(('+', '-', '- ', chr(0x2212)))}{wait_s}"),
    lambda draw, wait_s: _retry(f"{wait_s}{draw.choice(('e', 'E', '.5e', 'e+'))}{draw.randrange(400)}"),
    lambda draw, wait_s: _retry(f"{wait_s + 1000:_}"),
    lambda draw, wait_s: _retry(_foreign(draw, f"{wait_s}")),
    lambda draw, wait_s: _retry(f"{wait_s}{_foreign(draw, '5')}"),
    lambda draw, wait_s: _retry(draw.choice((hex, oct, bin))(wait_s)),
    lambda draw, wait_s: _retry(f"{wait_s}".zfill(draw.randrange(11, 5000))),
    lambda draw, wait_s: _retry(f"{wait_s}".ljust(draw.randrange(11, 5000), "0")),
    lambda draw, wait_s: _retry(f"{wait_s}.{_digits(draw, 4, 20)}"),
    lambda draw, wait_s: _retry(draw.choice((f"{wait_s}.", f".{wait_s}", f"{wait_s}.5.5"))),
    lambda draw, wait_s: _retry(draw.choice((f"{wait_s},", f",{wait_s}", f"{wait_s},,5", f"{wait_s}, -5"))),
    lambda draw, wait_s: _retry(f"{wait_s}{draw.choice((' s', 's', ' seconds', 'ms', ' min', 'h', ':00'))}"),
    lambda draw, wait_s: _retry(draw.choice((f"{wait_s} 5", f"{wait_s};5", f'"{wait_s}"', f"PT{wait_s}S"))),
    lambda draw, wait_s: _retry(draw.choice(("NaN", "Infinity", "-inf", "null", "soon", f"in {wait_s}"))),
    lambda _draw, wait_s: _retry(f"+{wait_s}", f"{wait_s}s", "nan"),
)  # fmt: skip


# ---- V2: dates, by the vendor's clock and by ours

_THEIRS = datetime(2026, 11, 20, 9, 0, 0, tzinfo=UTC)
_TEN_YEARS_S, _HALF_A_DAY_S = 3650 * 86_400, 43_200


def _imf(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


def _rfc850(moment: datetime) -> str:
    return moment.strftime("%A, %d-%b-%y %H:%M:%S GMT")


def _any_date(draw: Random, moment: datetime) -> str:
    return draw.choice((_imf, _rfc850, datetime.ctime))(moment)


def _v2_forms() -> Iterator[HintLines]:
    date = ("Date", _imf(_THEIRS))
    for ahead_s in (90, 3600, 10_800):
        yield [date, *_retry(_imf(_THEIRS + timedelta(seconds=ahead_s)))], ahead_s
    for text in ("Friday, 20-Nov-26 09:01:30 GMT", "Fri Nov 20 09:01:30 2026", "2026-11-20T09:01:30Z"):
        yield [date, *_retry(text)], 90
    for text in (
        _imf(_THEIRS - timedelta(days=1)), "Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 99999 23:59:59 GMT",
        "Fri, 20 Nov 26 09:01:30 GMT", "Fri, 20 Nov 2026 09:01:30 -0000", "Fri, 20 Nov 2026 09:01:30 +9999",
        "Fri, 31 Feb 2026 09:01:30 GMT", "tomorrow", "2026-11-20T09:01:30", "Fri, 20 Nov 2026",
    ):  # fmt: skip
        yield [date, *_retry(text)], None


def _clock(draw: Random) -> datetime:
    """What the vendor thinks it is: hours or years beside ours."""
    off_s = draw.choice((_HALF_A_DAY_S, _TEN_YEARS_S))
    return _THEIRS + timedelta(seconds=draw.randrange(-off_s, off_s))


def _dated(*texts: Callable[[Random, datetime], str], date: Callable[[datetime], str] = _imf) -> Shape:
    """Retry-After as *texts* write the end of the wait, by a clock that the header Date tells."""

    def shape(draw: Random, wait_s: int) -> Lines:
        now = _clock(draw)
        until = now + timedelta(seconds=wait_s)
        lines = _retry(*(text(draw, until) for text in texts))
        return [("Date", date(now)), *lines]

    return shape


def _on_another_day(draw: Random, until: datetime) -> str:
    """A date whose day of the week is wrong; the date counts."""
    other = until + timedelta(days=draw.randrange(1, 7))
    return draw.choice((f"{other:%a}{_imf(until)[3:]}", f"{other:%A}, {_rfc850(until).partition(', ')[2]}"))


def _earlier(draw: Random, until: datetime) -> str:
    return _any_date(draw, until - timedelta(seconds=draw.randrange(100_000)))


def _past(draw: Random, wait_s: int) -> Lines:
    now = _clock(draw)
    return [("Date", _imf(now)), *_retry(_any_date(draw, now - timedelta(seconds=wait_s)))]


def _far(draw: Random, until: datetime) -> str:
    """More seconds away than ten digits say."""
    years = draw.choice(((until.year + 320, 10_000), (10_000, 1_000_000)))
    return f"Fri, 01 {until:%b} {draw.randrange(*years)} {until:%H:%M:%S} GMT"


def _short_year(draw: Random, until: datetime) -> str:
    """As many digits of the year as another form has."""
    return until.strftime(draw.choice(("%a, %d %b %y %H:%M:%S GMT", "%A, %d-%b-%Y %H:%M:%S GMT")))


def _zoned(draw: Random, until: datetime) -> str:
    """Days away, so that no zone makes it past."""
    zones = ("-0000", "+0000", "+9999", "-9999", "+0100", "UTC", "Z", "EST", "gmt", "GMT+1", "")
    return f"{until + timedelta(days=6):%a, %d %b %Y %H:%M:%S} {draw.choice(zones)}"


def _no_day(draw: Random, until: datetime) -> str:
    day = draw.choice(("30 Feb", "31 Feb", "31 Apr", "31 Jun", "31 Sep", "00 Mar", "32 Jan", "99 Dec"))
    return f"Fri, {day} {until.year + 1} {until:%H:%M:%S} GMT"


def _no_time(draw: Random, until: datetime) -> str:
    at = [f"{until:%H}", f"{until:%M}", f"{until:%S}"]
    at[draw.randrange(3)] = f"{draw.randrange(61, 100)}"
    return f"{until + timedelta(days=2):%a, %d %b %Y} {':'.join(at)} GMT"


def _otherwise(draw: Random, until: datetime) -> str:
    """As people and other standards write it."""
    forms = (
        f"{until:%Y-%m-%dT%H:%M:%S}", f"{until:%Y-%m-%d %H:%M:%S}", f"{until:%d/%m/%Y}",
        f"{until:%b %d, %Y %H:%M:%S} GMT", f"{until:%d %b %Y %H:%M:%S} GMT", f"@{until.timestamp():.0f}",
        f"{until:%a, %d %B %Y, %I:%M:%S %p} GMT", "tomorrow", "in an hour",
    )  # fmt: skip
    return draw.choice(forms)


def _cut(draw: Random, until: datetime) -> str:
    text = _any_date(draw, until)
    return text[: draw.randrange(1, len(text))]


def _changed(draw: Random, until: datetime) -> str:
    text = _any_date(draw, until)
    forms = (text.upper(), text.lower(), text.replace(" ", "  "), text.replace(" ", ""), _foreign(draw, text))
    return draw.choice((*forms, f"{text} {text}", f'"{text}"', f"{text};5", text.replace(":", ".")))


_V2_READABLE: tuple[Shape, ...] = (
    _dated(lambda _draw, until: _imf(until)),
    _dated(lambda _draw, until: _rfc850(until)),
    _dated(lambda draw, until: draw.choice((until.ctime(), f"{until}", f"{until:%Y-%m-%dT%H:%M:%SZ}"))),
    _dated(lambda draw, until: f"{_blank(draw)}{_any_date(draw, until)}{_blank(draw)}"),
    _dated(_on_another_day),
    _dated(_any_date, date=_rfc850),
    _dated(_any_date, date=datetime.ctime),
    _dated(_any_date, _earlier),
    _dated(_earlier, _any_date),
)
_V2_NONSENSE: tuple[Shape, ...] = (
    _past, _dated(_far), _dated(_short_year), _dated(_zoned), _dated(_no_day), _dated(_no_time),
    _dated(_otherwise), _dated(_cut), _dated(_changed), _dated(_changed, _cut),
)  # fmt: skip


# ---- V3: RateLimit, new and old; Retry-After wins over it


def _limit(*values: str) -> Lines:
    return [("RateLimit", value) for value in values]


def _v3_forms() -> Iterator[HintLines]:
    for text, wait_s in (
        ('"default";r=0;t=30', 30), ("default;r=0;t=7", 7), ('"a";r=0;t=10, "b";r=0;t=40', 40),
        ("limit=100, remaining=0, reset=30", 30), ('"default";r=0;t=9999999999', 9_999_999_999),
        ('"default";r=0;t=-30', None), ('"default";r=0;t=1e9', None), ("r=0;t=;;,,", None), (",", None),
        (f'"default";r={"9" * 20};t=1', None), ('"default";r=1.5;t=30', None),
        ('"x";r=1;' + "a" * 9000, None),
    ):  # fmt: skip
        yield _limit(text), wait_s
    yield [*_limit('"default";r=0;t=600'), *_retry("5")], 5
    three = (("0", "30", 30), ("0", "-30", None), ("0", "1e9", None), ("x", "30", None), ("0, 5", "30", None))
    for rest, reset, wait_s in three:
        yield [("RateLimit-Remaining", rest), ("RateLimit-Reset", reset)], wait_s


_NAMES = ('"default"', "default", '"a"', "burst", "Burst", '"per user"', '"x\\"y"', "*", "a/b:c")
_MOST_UNITS = 10**9
_TAILS = (".5", "e3", " s", ";w=5")
"""What makes a number none."""
_NONE_SPENT = ("-1", "5", "x", "0.0", "")
"""What remains, where that is not 0."""


def _policy(draw: Random, reset: object, *, rest: object = 0, name: str | None = None) -> str:
    """One limit, its parameters in any order, and perhaps with one that nobody knows."""
    parts = [f"r={rest}", f"t={reset}", *draw.choice(((), ("pk=:dXNlcg==:",), ("x",), ('y="z"',)))]
    draw.shuffle(parts)
    return "".join((name or draw.choice(_NAMES), *(f";{draw.choice(('', ' '))}{part}" for part in parts)))


def _spent(draw: Random, wait_s: int, name: str | None = None) -> list[str]:
    """Limits that all have nothing left, for *wait_s* and for less; of one *name* (default: any)."""
    return [_policy(draw, reset, name=name) for reset in _with_less(draw, wait_s, f"{wait_s}")]


def _beside(draw: Random, wait_s: int) -> list[str]:
    """One limit has nothing left, and another, of which something is left, is whole again much later."""
    names = draw.sample(_NAMES[1:], 2)
    policies = [_policy(draw, wait_s, name=names[0])]
    policies += [_policy(draw, wait_s + 10_000, rest=draw.randrange(1, _MOST_UNITS), name=names[1])]
    draw.shuffle(policies)
    return policies


def _draft_07(draw: Random, *parts: str) -> Lines:
    directives = [*parts, *draw.choice(((), (f"limit={draw.randrange(100, _MOST_UNITS)}",)))]
    draw.shuffle(directives)
    return _limit(f"{_blank(draw)},{_blank(draw)}".join(directives))


def _three(draw: Random, rest: str | None, reset: str, *more: str) -> Lines:
    """The older headers; *more*: values that follow the reset in lines of their own."""
    most = draw.randrange(100, _MOST_UNITS)
    lines = [("RateLimit-Reset", line) for line in (reset, *more)]
    lines += [("RateLimit-Remaining", rest)] if rest is not None else []
    lines += [("RateLimit-Limit", line) for line in draw.choice(((), (f"{most}",), (f"{most}, 100;w=60",)))]
    draw.shuffle(lines)
    return lines


def _asked_twice(draw: Random, wait_s: int) -> Lines:
    """By RateLimit for another time, which does not count."""
    other_s = draw.randrange(1, LONGEST_S)
    other = draw.choice((_limit(_policy(draw, other_s)), _draft_07(draw, "remaining=0", f"reset={other_s}")))
    return draw.choice((_retry(f"{wait_s}") + other, other + _retry(f"{wait_s}")))


def _mistold(draw: Random, wait_s: int) -> list[str]:
    """Limits with a number that is none, or none that it may be."""
    not_left = ("-5", "1.5", "0.0", "0" * 16, '"0"', "zero", "?0", "", ":MA==:", _foreign(draw, "0"))
    not_reset = (
        f"-{wait_s}", f"+{wait_s}", f"{wait_s}.5", f"{wait_s}.0", f"{wait_s}e3", f"0x{wait_s}", f'"{wait_s}"',
        f"{wait_s}".ljust(draw.randrange(11, 20), "0"), _foreign(draw, f"{wait_s}"), "soon", "?1", "",
    )  # fmt: skip
    return [_policy(draw, wait_s, rest=draw.choice(not_left)), _policy(draw, draw.choice(not_reset))]


def _misspelt(draw: Random, wait_s: int) -> str:
    """A list that is none, for whatever reason; so nothing of it counts."""
    name, policy = '"a"', f"r=0;t={wait_s}"
    good = f"{name};{policy}"
    forms = (
        f"{good},", f",{good}", f"{good};", f"{good}, ,{good}", f"{good} {good}", f'{good}, "b;r=0;t=5',
        f"{good}, b c", f"({good})", f"{{{good}}}", f"{good}; T=5", policy, f";{policy}", f"{name} {policy}",
        f'"{good}', good.upper(), f"{name};{policy.replace(';', ',')}", f"{name};{policy.replace('=', ':')}",
    )  # fmt: skip
    return draw.choice(forms)


def _no_wait(draw: Random, wait_s: int) -> str:
    """Read, and no reason to wait: something is left, or nobody says until when nothing is."""
    return draw.choice((_policy(draw, wait_s, rest=draw.randrange(1, _MOST_UNITS)), '"a";r=0', "b;r=0;x"))


_V3_READABLE: tuple[Shape, ...] = (
    lambda draw, wait_s: _limit(_policy(draw, wait_s)),
    lambda draw, wait_s: _limit(", ".join(_spent(draw, wait_s))),
    lambda draw, wait_s: _limit(*_spent(draw, wait_s)),
    lambda draw, wait_s: _limit(",".join(_spent(draw, wait_s, draw.choice(_NAMES)))),
    lambda draw, wait_s: _limit(", ".join(_beside(draw, wait_s))),
    lambda draw, wait_s: _draft_07(draw, "remaining=0", f"reset={wait_s}"),
    lambda draw, wait_s: _three(draw, f"{_blank(draw)}0", f"{wait_s}{_blank(draw)}"),
    _asked_twice,
    lambda draw, wait_s: [*_limit(_policy(draw, wait_s)), *draw.choice(_V1_NONSENSE)(draw, _long_s(draw))],
)
_V3_NONSENSE: tuple[Shape, ...] = (
    lambda draw, wait_s: _limit(draw.choice(_mistold(draw, wait_s))),
    lambda draw, wait_s: _limit(", ".join(_mistold(draw, wait_s))),
    lambda draw, wait_s: _limit(_misspelt(draw, wait_s)),
    lambda draw, wait_s: _limit(_no_wait(draw, wait_s)),
    lambda draw, wait_s: _limit(", ".join(f"n{at};r=0;t={wait_s}" for at in range(draw.randrange(350, 450)))),
    lambda draw, wait_s: _draft_07(draw, "remaining=0", f"reset={draw.choice('-+')}{wait_s}"),
    lambda draw, wait_s: _draft_07(draw, "remaining=0", f"reset={wait_s}{draw.choice(_TAILS)}"),
    lambda draw, wait_s: _draft_07(draw, f"remaining={draw.choice(_NONE_SPENT)}", f"reset={wait_s}"),
    lambda draw, wait_s: _three(draw, "0", f"{draw.choice('-+')}{wait_s}"),
    lambda draw, wait_s: _three(draw, "0", f"{wait_s}{draw.choice((*_TAILS, ', 5'))}"),
    lambda draw, wait_s: _three(draw, draw.choice((*_NONE_SPENT, None, "0, 5")), f"{wait_s}"),
    lambda draw, wait_s: _three(draw, "0", f"{wait_s}", f"{wait_s}"),
)  # fmt: skip


KINDS = {
    "V1": Kind((*_v1_forms(),), _V1_READABLE, _V1_NONSENSE),
    "V2": Kind((*_v2_forms(),), _V2_READABLE, _V2_NONSENSE, longest_s=10**8),
    "V3": Kind((*_v3_forms(),), _V3_READABLE, _V3_NONSENSE),
}
"""The vectors, by their names."""
