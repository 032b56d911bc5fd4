"""The examples of docs/reference/notices.md run."""

from __future__ import annotations

import json
import re
import time

from fairlead._core.secret import Secret
from fairlead.policy.notifications.webhook import sign, signing_key
from tests.lint.tree import ROOT

PAGE = (ROOT / "docs/reference/notices.md").read_text("utf-8")
SECRET = "whsec_" + "QUJD" * 8


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


async def test_the_examples_run() -> None:
    register, check = blocks("python")
    names: dict[str, object] = {}
    exec(register, names)
    event = {"tenant": "acme", "provider": "xero", "link": None}
    await names["ask_the_customer"](event)  # type: ignore[operator]

    (shown,) = blocks("json")
    body, sent_s = shown.strip().encode(), int(time.time())
    headers = {
        "webhook-id": json.loads(body)["data"]["event_id"],
        "webhook-timestamp": str(sent_s),
        "webhook-signature": sign(signing_key(Secret(SECRET)), "...", sent_s, body),
    }
    assert set(json.loads(body)) == {
        "type",
        "timestamp",
        "data",
    }  # as sent: tests/unit/engine/test_notices.py
    exec(check, {"secret": SECRET, "headers": headers, "body": body})
