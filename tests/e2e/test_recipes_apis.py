"""The page of docs/how-to about rude APIs: its tests and its process run as they stand."""

from __future__ import annotations

import asyncio
import json
import re
import sys

import aiohttp
import pytest

from fairlead.testing.api import APIS, LIES, LiarApi, Switches
from tests.e2e.test_recipes import HOW_TO, program, written
from tests.support.cli import Shell

pytestmark = pytest.mark.slow

PAGE = (HOW_TO / "test-your-integration.md").read_text("utf-8")


async def test_its_tests_pass(shell: Shell) -> None:
    written(shell, "test-your-integration.md")
    told = await program(shell, "", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio")
    assert "2 passed" in told


async def test_its_process_does_what_it_says() -> None:
    (command,) = re.findall(r"^python (-m fairlead\.testing\.api .*) --port \d+$", PAGE, re.MULTILINE)
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, *command.split(), stdout=pipe)
    assert child.stdout is not None
    try:
        url = json.loads(await child.stdout.readline())["url"]
        async with aiohttp.ClientSession() as http:
            for operation in set(re.findall(r"/_control/(\w+)", PAGE)):
                data = {"switch": {"capacity": 0.1}, "lock": {"ids": []}, "unlock": {"ids": []}, "calm": {}}
                sent = data.get(operation, {"account": "my-shop"})
                async with http.post(f"{url}/_control/{operation}", json=sent) as response:
                    assert response.status == 200, operation
    finally:
        child.terminate()
        await child.communicate()
    assert child.returncode == 0


def test_all_are_named() -> None:
    assert {*APIS, LiarApi.name} == set(re.findall(r"^\| `\w+Api`, `(\w+)`", PAGE, re.MULTILINE))
    assert set(Switches.model_fields) == set(re.findall(r"^\| `(\w+)=", PAGE, re.MULTILINE))
    assert set(re.findall(r"/liar/(\w+)", PAGE)) <= set(LIES)
