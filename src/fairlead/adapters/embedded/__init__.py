"""Real PostgreSQL 18 and Valkey 9 out of pip wheels, shared by any number of processes of one folder.

    with EmbeddedServers(Path(".fairlead")) as endpoints:
        ...  # endpoints.database_url, endpoints.redis_url

Every user of the folder holds a shared `flock`; the kernel drops it however the user dies. A small
detached supervisor owns both servers and stops them once it gets the same lock for itself. No list of
pids is kept anywhere, so kill -9, a reboot or a container that shares the folder cannot spoil one.
Only the programs of the wheels are used. For development and a single node.
"""

from __future__ import annotations

from fairlead.adapters.embedded.layout import Endpoints
from fairlead.adapters.embedded.postgres_server import EmbeddedPostgres
from fairlead.adapters.embedded.servers import EmbeddedServers
from fairlead.adapters.embedded.valkey_server import EmbeddedValkey

__all__ = ["EmbeddedPostgres", "EmbeddedServers", "EmbeddedValkey", "Endpoints"]
