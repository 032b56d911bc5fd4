"""The user's settings in the engine's own words: what is not set is what the engine holds by itself."""

from __future__ import annotations

import pytest

from fairlead.assembly.config import load
from fairlead.assembly.settings import DeadLettersTable, RefreshTable, Settings
from fairlead.assembly.settings_mapping import (
    call_transport,
    dead_letter_rules,
    refresh_settings,
    retention,
    token_transport,
)
from fairlead.engine.jobs.pruner import DEFAULT_RETENTION
from fairlead.engine.tokens.deps import RefreshSettings
from fairlead.errors import InvalidConfigError
from fairlead.policy.jobs.dead_letter import DEFAULT_DEAD_LETTER_RULES, DeadLetterRules


def test_dead_letters() -> None:
    assert dead_letter_rules(load({}).settings) == DEFAULT_DEAD_LETTER_RULES
    values = {
        "FAIRLEAD_DEAD_LETTERS__MAX_REPLAYS": "2",
        "FAIRLEAD_DEAD_LETTERS__REPLAY_WINDOW_S": "7200",
        "FAIRLEAD_DEAD_LETTERS__COOL_DOWN_S": "60",
        "FAIRLEAD_DEAD_LETTERS__REDRIVE_AFTER_S": "21600",
        "FAIRLEAD_DEAD_LETTERS__ABANDON_AFTER_S": "1000000",
        "FAIRLEAD_DEAD_LETTERS__NOTICE_BEFORE_S": "1000",
        "FAIRLEAD_RETENTION__DEAD_LETTER_BOUND": "50",
    }
    assert dead_letter_rules(load(values).settings) == DeadLetterRules(
        replay_window_s=7200.0,
        max_replays=2,
        cool_down_s=60.0,
        redrive_after_s=21600.0,
        abandon_after_s=1_000_000.0,
        notice_before_s=1000.0,
        bound=50,
        batch=50,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("REPLAYS", "4"), ("REDRIVE_AFTER_S", "0"), ("NOTICE_BEFORE_S", "604800"), ("ABANDON_AFTER_S", "60")],
)
def test_dead_letters_that_cannot_be(name: str, value: str) -> None:
    with pytest.raises(InvalidConfigError):
        load({f"FAIRLEAD_DEAD_LETTERS__{name}": value})


def test_retention() -> None:
    kept_rules = retention(load({}).settings)
    assert kept_rules.jobs == dict(DEFAULT_RETENTION.jobs)
    assert (kept_rules.dead_letters_s, kept_rules.dead_letter_bound) == (30 * 86_400.0, 10_000)


def test_the_bound_of_a_header_holds_for_calls_and_token_endpoints() -> None:
    settings = load({"FAIRLEAD_HTTP__MAX_HEADER_BYTES": "65536"}).settings
    assert call_transport(settings).max_header_bytes == 65_536
    assert token_transport(settings).max_header_bytes == 65_536


NOT_OF_THE_COORDINATOR = {"cache_s"}  # the reader takes it from the table itself


def test_each_setting_of_refreshes_reaches_the_field_of_its_name() -> None:
    names = RefreshTable.model_fields.keys() - NOT_OF_THE_COORDINATOR
    table = RefreshTable.model_construct(**{name: object() for name in names})
    mapped = refresh_settings(Settings().model_copy(update={"refresh": table}))
    assert {name: getattr(mapped, name) for name in names} == {name: getattr(table, name) for name in names}
    assert refresh_settings(Settings()) == RefreshSettings()


def test_each_setting_of_dead_letters_reaches_the_field_of_its_name() -> None:
    table = DeadLettersTable(
        max_replays=2,
        replay_window_s=1,
        cool_down_s=2,
        redrive_after_s=3,
        abandon_after_s=5,
        notice_before_s=4,
    )
    rules = dead_letter_rules(Settings().model_copy(update={"dead_letters": table}))
    assert {name: getattr(rules, name) for name in DeadLettersTable.model_fields} == table.model_dump()
