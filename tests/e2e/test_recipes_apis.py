"""The page of docs/how-to about rude APIs: its tests and its process run as they stand."""

from __future__ import annotations

import asyncio
import json
import re
import sys

import aiohttp
import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.testing.api import APIS, MALFORMED_RESPONSES, MalformedApi, Switches
from tests.e2e.test_recipes import program, written
from tests.support.cli import Shell
from tests.support.pages import Page

pytestmark = pytest.mark.slow

PAGE = Page("how-to/test-your-integration.md")


async def test_its_tests_pass(shell: Shell, servers: Endpoints) -> None:
    shell.environ["REDIS_URL"] = servers.redis_url
    written(shell, "test-your-integration.md")
    output = await program(shell, "", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio")
    assert "4 passed" in output


async def test_its_process_does_what_it_says() -> None:
    ((python, *arguments, option, _),) = PAGE.commands()
    assert (python, option) == ("python", "--port")  # of which any free one will do
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=pipe)
    assert child.stdout is not None
    try:
        url = json.loads(await child.stdout.readline())["url"]
        async with aiohttp.ClientSession() as http:
            for operation in set(re.findall(r"/_control/(\w+)", PAGE.text)):
                data = {"switch": {"capacity": 0.1}, "lock": {"ids": []}, "unlock": {"ids": []}, "calm": {}}
                sent = data.get(operation, {"account": "my-shop"})
                async with http.post(f"{url}/_control/{operation}", json=sent) as response:
                    assert response.status == 200, operation
    finally:
        child.terminate()
        await child.communicate()
    assert child.returncode == 0


def test_all_are_named() -> None:
    assert {*APIS, MalformedApi.name} == set(re.findall(r"^\| `\w+Api`, `(\w+)`", PAGE.text, re.MULTILINE))
    assert set(Switches.model_fields) == set(re.findall(r"^\| `(\w+)=", PAGE.text, re.MULTILINE))
    assert set(re.findall(r"/liar/(\w+)", PAGE.text)) <= set(MALFORMED_RESPONSES)
