"""The commands: migrate the database, seed it with grants, serve until standard input closes."""

from __future__ import annotations

import json
import os
import sys
import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import django

CLIENT_ID, CLIENT_SECRET = "fairlead", "secret-of-the-app"


def main() -> None:
    """Run one command and print its answer as a line of JSON."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.integration.dot_server.settings"
    django.setup()
    match sys.argv[1:]:
        case ["migrate"]:
            migrate()
        case ["seed", count]:
            seed(int(count))
        case ["serve"]:
            serve()
        case _:
            sys.exit(f"usage: {__doc__}")


def migrate() -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def seed(count: int) -> None:
    """One application, *count* users, and for each an access and a refresh token as a consent leaves them."""
    from django.contrib.auth import get_user_model
    from oauth2_provider.models import get_application_model

    application = get_application_model().objects.create(
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        hash_client_secret=False,  # a third of a second of processor per request is not what is tested
        client_type="confidential",
        authorization_grant_type="authorization-code",
        redirect_uris="http://127.0.0.1/callback",
    )
    users = [get_user_model().objects.create(username=f"user-{number:02}") for number in range(1, count + 1)]
    _say(
        {
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "grants": [_grant(application, user) for user in users],
        }
    )


def _grant(application: Any, user: Any) -> dict[str, object]:
    from django.utils import timezone
    from oauth2_provider.models import get_access_token_model, get_refresh_token_model
    from oauth2_provider.settings import oauth2_settings
    from oauthlib.common import generate_token

    ttl_s = oauth2_settings.ACCESS_TOKEN_EXPIRE_SECONDS
    access = get_access_token_model().objects.create(
        user=user,
        application=application,
        token=generate_token(),
        scope="read write",
        expires=timezone.now() + timedelta(seconds=ttl_s),
    )
    refresh = get_refresh_token_model().objects.create(
        user=user,
        application=application,
        token=generate_token(),
        access_token=access,
        token_family=uuid4(),
    )
    return {
        "user": user.username,
        "access_token": access.token,
        "refresh_token": refresh.token,
        "expires_in": ttl_s,
    }


def serve() -> None:
    """Django's own threaded server on a free port; its address is the first line printed."""
    from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
    from django.core.wsgi import get_wsgi_application

    from tests.integration.dot_server.endpoint import RecordedEndpoint
    from tests.integration.dot_server.record import Record

    delay_s = float(os.environ.get("DOT_ANSWER_DELAY_S", "0"))
    application = RecordedEndpoint(get_wsgi_application(), Record(os.environ["DOT_RECORD"]), delay_s)
    ThreadedWSGIServer.request_queue_size = 128  # of connections not yet accepted; a fleet comes at once
    server = ThreadedWSGIServer(("127.0.0.1", 0), WSGIRequestHandler)
    server.set_app(application)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _say({"url": f"http://127.0.0.1:{server.server_port}"})
    sys.stdin.read()  # closed by whoever started us, or by its death
    server.shutdown()


def _say(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
