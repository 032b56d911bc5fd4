"""PostgreSQL 18 and Valkey 9 from pip wheels, shared by all processes that use one root folder.

    with EmbeddedServers(Path(".fairlead")) as endpoints:
        ...  # endpoints.database_url, endpoints.redis_url

Each process that uses the servers holds a shared `flock`, which the kernel releases however the process
ends. A small detached supervisor starts both servers. It stops them once it gets the same lock exclusively,
which means that no user is left. No list of pids is stored, so none can be wrong after kill -9, after a
reboot, or when containers share the folder. Of the wheels only the programs are used. The servers are meant
for development and for a single node.
"""

from __future__ import annotations

from fairlead.adapters.embedded.layout import Endpoints
from fairlead.adapters.embedded.postgres_server import EmbeddedPostgres
from fairlead.adapters.embedded.servers import EmbeddedServers
from fairlead.adapters.embedded.valkey_server import EmbeddedValkey

__all__ = ["EmbeddedPostgres", "EmbeddedServers", "EmbeddedValkey", "Endpoints"]
