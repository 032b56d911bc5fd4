"""The journal of token responses: each is on this host's disk before the refresh returns. Spec: R6, R11.

    record     frames on disk, which a reader finds among torn and flipped bytes
    disk       the system calls that write
    segment    a file that is filled with zeros first, so that a full disk refuses before a token is spent
    writer     the one thread that writes; all waiting entries share one fsync
    trailer    the index at the end of a closed file
    reads      the system calls that read
    newest     the newest epoch of each connection, in memory
    index      the search for entries in the files of this host
    retention  which files may be deleted, and when
    owners     the owners of files: the kernel drops the lock of a dead one
    journal    the port

The folder must be on a disk that outlives the process; on pods that means a volume.
"""

from __future__ import annotations

from fairlead.adapters.journal.journal import FileJournal

__all__ = ["FileJournal"]
