"""Which variables of the environment are settings, and what becomes of the others (K1)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from fairlead import Fairlead
from fairlead.assembly.config import load
from fairlead.cli import main
from fairlead.errors import InvalidConfigError
from fairlead.policy.settings.env_names import nearest_variable

KUBERNETES = {
    "FAIRLEAD_SERVICE_HOST": "10.96.0.12",
    "FAIRLEAD_SERVICE_PORT": "8080",
    "FAIRLEAD_SERVICE_PORT_HTTP": "8080",
    "FAIRLEAD_PORT": "tcp://10.96.0.12:8080",
    "FAIRLEAD_PORT_8080_TCP": "tcp://10.96.0.12:8080",
    "FAIRLEAD_PORT_8080_TCP_PROTO": "tcp",
    "FAIRLEAD_PORT_8080_TCP_PORT": "8080",
    "FAIRLEAD_PORT_8080_TCP_ADDR": "10.96.0.12",
    "FAIRLEAD_DATABASE_SERVICE_HOST": "10.96.0.13",
    "FAIRLEAD_DATABASE_SERVICE_PORT_PG": "5432",
    "FAIRLEAD_DATABASE_PORT": "tcp://10.96.0.13:5432",
    "FAIRLEAD_DATABASE_PORT_5432_TCP": "tcp://10.96.0.13:5432",
    "FAIRLEAD_DATABASE_PORT_5432_TCP_ADDR": "10.96.0.13",
    "FAIRLEAD_STATSD_PORT_8125_UDP": "udp://10.96.0.14:8125",
}
"""What the kubelet sets for Services called `fairlead`, `fairlead-database` and `fairlead-statsd`."""


@pytest.fixture(autouse=True)
def clean_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_variables_that_kubernetes_makes_for_a_service_stop_no_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in KUBERNETES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FAIRLEAD_STRICT_ENV", "1")
    assert main(["config", "show"]) == 0
    assert "warning" not in capsys.readouterr().err


def test_other_variables_with_the_prefix_are_one_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FAIRLEAD_IMAGE_TAG", "v1.2-hunter2")
    monkeypatch.setenv("FAIRLEAD_NAMESPACE", "prod")
    assert main(["config", "show"]) == 0
    (warning,) = capsys.readouterr().err.splitlines()
    assert "FAIRLEAD_IMAGE_TAG, FAIRLEAD_NAMESPACE" in warning
    assert "hunter2" not in warning
    with caplog.at_level(logging.WARNING):
        Fairlead.from_env({"FAIRLEAD_IMAGE_TAG": "v1.2"})
    assert ["FAIRLEAD_IMAGE_TAG" in record.getMessage() for record in caplog.records] == [True]


def test_strict_mode_refuses_other_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_IMAGE_TAG", "v1.2")
    monkeypatch.setenv("FAIRLEAD_STRICT_ENV", "1")
    assert main(["config", "show"]) == 78
    monkeypatch.setenv("FAIRLEAD_STRICT_ENV", "0")
    assert main(["config", "show"]) == 0
    with pytest.raises(InvalidConfigError, match="FAIRLEAD_STRICT_ENV is neither true nor false"):
        load({"FAIRLEAD_STRICT_ENV": "maybe", "FAIRLEAD_IMAGE_TAG": "v1.2"})


@pytest.mark.parametrize(
    ("name", "intended"),
    [
        ("FAIRLEAD_DATABASE_URL", "FAIRLEAD_DATABASE__URL"),
        ("FAIRLEAD_DATABASE.URL", "FAIRLEAD_DATABASE__URL"),
        ("FAIRLEAD_MASTER_KEYS", "FAIRLEAD_MASTER_KEY"),
        ("FAIRLEAD_LOGLEVEL", "FAIRLEAD_LOG__LEVEL"),
        ("FAIRLEAD_WORKER_CONCURRENCY", "FAIRLEAD_WORKER__CONCURRENCY"),
        ("FAIRLEAD_WORKER__LEASE", "FAIRLEAD_WORKER__LEASE_S"),
        ("FAIRLEAD_PROVIDERS_MY_SHOP_CLIENT_ID", "FAIRLEAD_PROVIDERS__MY_SHOP__CLIENT_ID"),
        ("FAIRLEAD_CONFIGS", "FAIRLEAD_CONFIG"),
    ],
)
def test_a_variable_that_nearly_equals_a_setting_is_refused_with_its_name(name: str, intended: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"{intended} is") as refused:
        load({name: "hunter2hunter2"})
    assert "hunter2" not in str(refused.value)


def test_a_setting_of_the_file_that_is_misspelt_is_refused_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "fairlead.toml"
    file.write_text("[worker]\nlease = 30\n")
    with pytest.raises(InvalidConfigError, match=r"worker\.lease is not a known setting, worker\.lease_s is"):
        load({}, file)


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(InvalidConfigError) as refused:
        load({"FAIRLEAD_DATABASE_URL": "x", "FAIRLEAD_WORKER__NONSENSE": "x", "LOG_LEVEL": "loud"})
    for part in ("FAIRLEAD_DATABASE__URL", "worker.nonsense", "log.level"):
        assert part in str(refused.value)


def test_no_setting_means_no_nearest_one() -> None:
    assert nearest_variable("FAIRLEAD_DATABASE_URL", ()) is None
