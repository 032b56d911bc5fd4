"""What strangers try (reference V8, V9): the lists of the unit tests, put together."""

from __future__ import annotations

from tests.contract.test_transport_calls import THIS_HOST
from tests.unit.adapters.test_http_addresses import NEVER_ADDRESSES, PRIVATE_ADDRESSES
from tests.unit.policy.test_endpoint import HOSTS_V9, SHOPS_V9
from tests.unit.policy.test_names import V8 as _V8

V8 = tuple(_V8)
"""Names."""
V9 = tuple(dict.fromkeys([*SHOPS_V9, *HOSTS_V9, *THIS_HOST]))
"""Hosts, and values that would make another host of one."""
INNER = tuple(address for address in [*PRIVATE_ADDRESSES, *NEVER_ADDRESSES] if "%" not in address)
"""Addresses that no public host may lead to (F9 among them)."""
ENDERS = ("\r", "\n", "\r\n", "\r\nX-Evil: 1", "\r\n\r\nGET /evil HTTP/1.1\r\nHost: x\r\n\r\n", "\0", "\x0b",
          "\x85", "\u2028", "\ud800", "\u010d\u010a")  # fmt: skip
"""What ends a header, or does once somebody has cut its characters to bytes."""
EXPRESSIONS = ("{0.__class__}", "{token.__class__.__mro__}", "{tenant!r}", "{tenant.__class__}", "{}", "{0}",
               "%(token)s", "%s", "${jndi:ldap://x}", "{{7*7}}", "{% for x in y %}", "{tenant[0]}",
               "__import__('os').system('id')", "{self}", "{connection.__init__.__globals__}")  # fmt: skip
"""What template languages would evaluate."""
ATTACKED_NAMES = tuple(name for name in V8 if 0 < len(name) < 1000 and name.isprintable())
"""Those that a tenant may bear, or that come close."""
