"""Decides which of two responses to a refresh is newer, even across a restore of the database. Spec: R51.

Generations are valid within one history of the database: after a restore the same number names another token.
The epoch, which is the time of a send by the database's clock, orders the sends of all histories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from fairlead.engine.ports import Credential, JournalEntry, JournalHead

if TYPE_CHECKING:
    from fairlead.engine.tokens.settle import Send

    Sent: TypeAlias = JournalEntry | JournalHead | Send


def is_of_grant(credential: Credential, sent: Sent) -> bool:
    """Return whether a send was of the grant that is stored, by the database's clock.

    After a restore that undid a reconnect, the next reconnect gets the same generations, and a response for
    the first grant would replace the second. A send that the row still names needs no clock, which may be
    set back.
    """
    rotation, generation = credential.rotation, credential.generation
    if rotation and (rotation.from_generation, rotation.attempt_id) == (generation, sent.attempt_id):
        return True
    return credential.granted_at is None or sent.sent_at >= credential.granted_at


def is_newer(credential: Credential, sent: Sent) -> bool:
    """Return whether the response to *sent* is newer than the stored token and may replace it.

    It was sent after the stored token was received, and spent that one or a later one that the database lost.
    Or it spent the previous one: of two responses to one token, on two hosts, the later replaces the first.
    """
    if not is_of_grant(credential, sent) or sent.epoch <= credential.settled_epoch:
        return False
    if credential.generation <= sent.from_generation:
        return True
    return credential.generation == sent.from_generation + 1 and credential.settled_epoch > 0
