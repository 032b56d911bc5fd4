"""Django's settings. The environment names the database, the record and what a run varies."""

from __future__ import annotations

import os
from urllib.parse import parse_qs, unquote, urlsplit

_url = urlsplit(os.environ["DOT_DATABASE_URL"])
_query = {key: values[-1] for key, values in parse_qs(_url.query).items()}

SECRET_KEY = "not a secret: this server lives as long as one test"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
USE_TZ = True
ROOT_URLCONF = "tests.integration.dot_server.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "oauth2_provider"]
MIDDLEWARE: list[str] = []
LOGGING_CONFIG = None

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path.removeprefix("/"),
        "USER": unquote(_url.username or ""),
        "PASSWORD": unquote(_url.password or ""),
        "HOST": _url.hostname or _query.get("host", ""),
        "PORT": str(_url.port or _query.get("port", "")),
        "CONN_MAX_AGE": None,
    }
}

OAUTH2_PROVIDER = {
    "ROTATE_REFRESH_TOKEN": True,
    "REFRESH_TOKEN_REUSE_PROTECTION": True,
    "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": int(os.environ.get("DOT_GRACE_S", "0")),
    "ACCESS_TOKEN_EXPIRE_SECONDS": int(os.environ.get("DOT_TTL_S", "36000")),
    "OAUTH2_VALIDATOR_CLASS": "tests.integration.dot_server.validator.RecordingValidator",
    "SCOPES": {"read": "Read", "write": "Write"},
}
