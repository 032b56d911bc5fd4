"""Which of two answers to a refresh is the newer one, also where the database was restored in between (R51).

Generations count within one history of the database: after a restore the same number names another token.
What orders the sends of all histories is the epoch, which is their time by the database's clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from fairlead.engine.ports import Credential, JournalEntry, JournalHead

if TYPE_CHECKING:
    from fairlead.engine.token.settle import Send

    Sent: TypeAlias = JournalEntry | JournalHead | Send


def is_of_grant(credential: Credential, sent: Sent) -> bool:
    """Return whether a send was of the grant that is stored, by the database's clock.

    Where a restore took back a reconnect, the next one gets its generations again: the answer for the first
    would take the place of the second. A send that the row still names needs no clock, which may be set back.
    """
    rotation, generation = credential.rotation, credential.generation
    if rotation and (rotation.from_generation, rotation.rotation_id) == (generation, sent.rotation_id):
        return True
    return credential.granted_at is None or sent.sent_at >= credential.granted_at


def is_newer(credential: Credential, sent: Sent) -> bool:
    """Return whether the answer of *sent* is newer than what is stored, and may take its place.

    It was sent after the stored token was got, and spent that one, or a later one that the database has lost.
    Or it spent the one before: of two answers to one token, on two hosts, the later replaces the first.
    """
    if not is_of_grant(credential, sent) or sent.epoch <= credential.settled_epoch:
        return False
    if credential.generation <= sent.from_generation:
        return True
    return credential.generation == sent.from_generation + 1 and credential.settled_epoch > 0
