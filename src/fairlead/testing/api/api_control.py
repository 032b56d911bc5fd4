"""The control API of a vendor API.

switch   the `Switches` to change; returns all of them     calm    {}: reset them
lock     {"ids": [...]}                                    unlock  {"ids": [...]}
ledger   {"account": name}, or {}: how many requests arrived, were admitted and refused, and the most in
         flight; with "arrivals": true each of them
limits   {"account": name}: the state of its limits
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from fairlead.testing._kit.control import ControlApi
from fairlead.testing._kit.model import Model

if TYPE_CHECKING:
    from fairlead.testing.api.request_log import RequestLog
    from fairlead.testing.api.vendor_api import VendorApi


class _Ids(Model):
    ids: tuple[str, ...]


class _Account(Model):
    account: str


class _LogQuery(Model):
    account: str | None = None
    arrivals: bool = False


def api_control(api: VendorApi) -> ControlApi:
    """Return the operations on *api*."""
    return ControlApi(
        "test API",
        {
            "switch": (None, lambda changes: api.switch(**changes).model_dump()),
            "calm": (None, lambda _: api.calm()),
            "lock": (_Ids, lambda data: api.lock(*data.ids)),
            "unlock": (_Ids, lambda data: api.unlock(*data.ids)),
            "ledger": (_LogQuery, lambda query: _counts(api.ledger, query)),
            "limits": (_Account, lambda data: api.limits(data.account)),
        },
    )


def _counts(ledger: RequestLog, query: _LogQuery) -> dict[str, object]:
    account = query.account
    counts: dict[str, object] = {
        "arrived": ledger.arrived(account),
        "admitted": ledger.admitted(account),
        "refused": ledger.refused(account),
        "in_flight": ledger.in_flight(account),
        "most_in_flight": ledger.most_in_flight(account),
    }
    if query.arrivals:
        counts["arrivals"] = [asdict(arrival) for arrival in ledger.of(account)]
    return counts
