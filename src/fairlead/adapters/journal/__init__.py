"""The journal of answers: on this host's disk before anybody is told of them (R6, R11).

    record    frames on disk, found again among torn and flipped bytes
    disk      the few system calls that write, in one place
    segment   a file that is pre-extended with zeros, so that a full disk refuses before a token is spent
    writer    one thread; everything that waits shares one fsync
    owners    who owns which files: the kernel drops a dead owner's lock
    shelf     looking up entries in everybody's files
    journal   the port

The folder must be on a disk that outlives the process; on pods that means a volume.
"""

from __future__ import annotations

from fairlead.adapters.journal.journal import FileJournal

__all__ = ["FileJournal"]
