"""Why a call has no response, or its response cannot be used."""

from __future__ import annotations

from fairlead.policy.reasons.reason import end, refusal

# ---- no response

REFUSED_ADDRESS = refusal(
    "refused_address",
    "The address policy forbids the destination.",
    "allow the host in your settings if it is yours",
)
DNS = end(
    "dns",
    "The name of the host was not resolved.",
    "correct the host in the profile or in `fairlead connections show`",
)
CONNECT = end("connect", "No connection to the host could be made.", "check that your host can reach it")
TLS = end(
    "tls",
    "The TLS handshake failed or the certificate is not valid.",
    "check the certificate of the host with `openssl s_client`",
)
TIMEOUT = end(
    "timeout", "No complete response arrived before the deadline.", "give your call a longer `deadline_s`"
)
RESET = end(
    "reset", "The connection was lost, or the response was cut off.", "nothing, unless you see it often"
)
TOO_LARGE = end(
    "too_large",
    "The response is larger than the limit.",
    "request less, or raise `max_body_bytes` of your call",
)
MALFORMED = end(
    "malformed",
    "The response is not HTTP or does not decode.",
    "report the response to the provider, with the time of the call",
)
UNMARKED = end(
    "unmarked",
    "The request was not sent, because its start could not be recorded first.",
    "check the database and the journal with `fairlead doctor`",
)
CONNECTION_REFUSED = end(
    "connection_refused", "The host refused the connection.", "check the port in your URL"
)
CONNECTION_RESET = end(
    "connection_reset", "The host reset the connection.", "nothing, unless you see it often"
)
CONNECTION_LOST = end("connection_lost", "The connection was lost.", "nothing, unless you see it often")
NETWORK = end("network", "A library reported a network error.", "read the error with `fairlead dlq show`")

# ---- a response that cannot be used

CLOSED = end(
    "closed",
    "The response was dropped because its client was closed.",
    "read the response before you close the client",
)
LINE_TOO_LONG = end(
    "line_too_long", "A line of a streamed response is too long.", "read the stream as bytes instead of lines"
)
NOT_JSON = end("not_json", "The response is not JSON.", "look at `.text` of the response for the reason")
NOT_XML = end("not_xml", "The response is not XML.", "look at `.text` of the response for the reason")
NO_FILE = end("no_file", "The bulk operation has no result file.", "start the bulk operation again")
PARTIAL = end(
    "partial",
    "The response reports that some items failed, without a code.",
    "retry the items in `failed_items` of the error",
)
NEXT_PAGE_UNREADABLE = end(
    "next_page_unreadable",
    "The link to the next page cannot be read.",
    "check `pages` of your profile or of your call",
)
LEADS_ELSEWHERE = end(
    "leads_elsewhere",
    "The link to the next page leads to another host.",
    "check `pages` of your profile or of your call",
)
MAY_HAVE_ACTED = end(
    "may_have_acted",
    "The provider may have executed the call, and repeating it may do harm.",
    "check at the provider, then run `fairlead dlq redrive` or `fairlead dlq abandon`",
)
FOREIGN_HOST = refusal(
    "foreign_host",
    "The call leads to a host that is none of the provider's, or over plain http.",
    "correct your URL, or list the host in `hosts` of your profile",
)
