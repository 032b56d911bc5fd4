"""Why a connection has no usable token, or a refresh waits."""

from __future__ import annotations

from fairlead.policy.reasons.reason import end, refusal, wait

NEEDS_REAUTH = wait(
    "needs_reauth",
    "The connection needs a new grant of the customer.",
    "send your customer the link of `fairlead connections reauthorize`",
)
REVOKED = end(
    "revoked",
    "The connection was revoked.",
    "send your customer the link of `fairlead connections reauthorize`",
)
LOST_ROTATION = end(
    "lost_rotation",
    "The response of a refresh was lost and the provider does not repeat it.",
    "send your customer the link of `fairlead connections reauthorize`",
)
ACCOUNT_GONE = end(
    "account_gone",
    "The provider reports that the account does not exist.",
    "ask your customer whether the account was closed or renamed",
)
FATAL_PHRASE = end(
    "fatal_phrase",
    "The provider refused the grant with a phrase that the profile lists as fatal.",
    "send your customer the link of `fairlead connections reauthorize`",
)
UNRECOGNISED = end(
    "unrecognised",
    "The provider returned a code that may hold a secret, so it is not shown.",
    "add the code to `errors` of your profile",
)
BACKED_OFF = wait(
    "backed_off",
    "A refresh of this connection failed and its retry waits.",
    "wait for `retry_after_s`, then call again",
)
BUSY = wait(
    "busy",
    "Other transactions hold the locks of the token endpoint's rows.",
    "wait for `retry_after_s`, then call again",
)
JOURNAL_UNAVAILABLE = refusal(
    "journal_unavailable",
    "The journal cannot store a token response, so none is requested.",
    "check the disk of the journal with `fairlead doctor`",
)
