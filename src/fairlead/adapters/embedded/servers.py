"""The servers of one root folder, as a user of them sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import fairlead
from fairlead.adapters.embedded.account import explain_os_errors
from fairlead.adapters.embedded.flock import POLL_S, is_locked, lock_file
from fairlead.adapters.embedded.layout import SERVER_NAMES, Endpoints, Layout
from fairlead.adapters.embedded.postgres import DATABASE
from fairlead.adapters.embedded.settings import checked_settings
from fairlead.adapters.embedded.wheels import postgres_wheel, valkey_wheel
from fairlead.errors import DependencyUnavailable
