"""Faults of this process or its host: they say nothing about the destination."""

from __future__ import annotations

from fairlead.policy.reasons.reason import refusal

DESCRIPTORS = refusal(
    "descriptors",
    "The process or its host has no file descriptor left.",
    "raise the limit of open files of this process (ulimit -n, LimitNOFILE=)",
)
RESOURCES = refusal(
    "resources",
    "The host has no memory, buffers or local ports left.",
    "find what uses the memory, buffers or local ports of this host with `dmesg` and `ss -s`",
)
RESOLVER = refusal(
    "resolver",
    "The name servers of the host do not respond.",
    "check that the name servers of this host respond (/etc/resolv.conf)",
)
PROXY = refusal(
    "proxy",
    "The proxy cannot be reached or refuses the password.",
    "check HTTPS_PROXY, and that this host can reach the proxy",
)
POOL = refusal(
    "pool",
    "No connection of the pool became free in time.",
    "run fewer calls at once in this process, or start another one",
)
FORBIDDEN = refusal(
    "forbidden",
    "The process lacks the permission for a file.",
    "give the user of the process access to the file with `chown` or `chmod`",
)
