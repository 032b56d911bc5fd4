"""S01-S36: each control, the tests that prove it, or the part that is not there yet, and why.

``python -m tests.security.checklist > docs/security.md`` writes the page; a test compares the two. A test is
named by its file below ``tests``, or as ``file::function``. Proofs that stand elsewhere are not copied.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tools.bounds import BOUNDS, UNBOUND

ABSENT_PROXY = "there is no socket proxy yet: no socket of ours takes other programs' requests"
ABSENT_WEB = "there is no dashboard and no admin API yet: the one route takes the answer of a consent"
ABSENT_MAIL = "there is no mail yet: no address and no header of a message is made"

FOLDER = "tests/"
_ROUTE = ("unit/cli/test_callback.py::test_callback_accepts_one_answer_with_its_state",)
_FILES = ("security/test_S36_bounds.py", "contract/test_caps.py", "faults/test_e46_noisy_neighbour.py")
"""Files of S36; what else proves a bound is named by docs/reference/bounds.md."""


@dataclass(frozen=True, slots=True)
class Control:
    """One row. *asvs*: the ids of OWASP ASVS 5.0.0 that it answers. *absent*: what of it has no part in the
    product yet; without *tests* that is all of it."""

    id: str
    what: str
    asvs: tuple[str, ...]
    tests: tuple[str, ...] = ()
    absent: str = ""

    @property
    def node_ids(self) -> tuple[str, ...]:
        """Its tests as pytest calls them."""
        return tuple(FOLDER + test for test in self.tests)


CHECKLIST: tuple[Control, ...] = (
    Control(
        "S01",
        "a configured value of an address stays within its place: the host that is called is the template's",
        ("1.3.6", "1.2.2", "1.5.3"),
        ("security/test_S01_hosts.py", "unit/policy/test_endpoint.py", "unit/policy/test_origin.py"),
    ),
    Control(
        "S02",
        "the address that is connected to is checked, all of a name's at once, on every way out",
        ("1.3.6", "13.2.4", "15.3.2"),
        (
            "security/test_S02_addresses.py",
            "unit/adapters/test_http_addresses.py",
            "contract/test_transport_calls.py::test_no_spelling_of_an_inner_address_is_dialled",
            "contract/test_transport_calls.py::test_a_name_that_rebinds_gains_nothing",
            "contract/test_token_transport_calls.py::test_private_addresses_are_refused_unless_asked_for",
            "unit/adapters/test_webhook.py::test_private_addresses_are_refused",
            "unit/adapters/test_webhook.py::test_metadata_services_are_never_called",
            "faults/test_e34_redirects.py",
        ),
    ),
    Control(
        "S03",
        "public hosts are called by https at port 443, with TLS verified",
        ("12.2.1", "12.3.2"),
        (
            "security/test_S03_https.py",
            "contract/test_transport_calls.py::test_public_hosts_are_called_by_https_at_its_port",
            "contract/test_transport_calls.py::test_another_port_has_to_be_named",
            "contract/test_transport.py::test_a_certificate_that_is_not_right_gets_nothing",
            "contract/test_token_transport.py::test_a_certificate_that_is_not_trusted_stops_before_the_hook",
            "faults/test_e35_tls_dns.py::test_E35_tls",
            "faults/test_e35_tls_dns.py::test_E35_ablation_certificates_are_not_looked_at",
        ),
    ),
    Control(
        "S04",
        "no value ends a header or adds one: the upstream sees one request",
        ("4.2.5", "1.2.1"),
        (
            "security/test_S04_headers.py",
            "contract/test_transport_calls.py::test_a_header_that_would_break_the_request_is_a_wrong_call",
            "contract/test_transport_calls.py::test_a_name_in_the_path_is_one_request",
            "contract/test_token_transport_calls.py::test_call_that_http_cannot_express_is_refused",
            "unit/policy/test_token_request.py::test_no_header_can_be_ended_by_a_secret",
        ),
    ),
    Control(
        "S05",
        "SQL has parameters only; names of tables, columns and sort orders are constants",
        ("1.2.4",),
        (
            "security/test_S05_sql.py",
            "lint/test_sql_in_files.py",
            "lint/test_sql_headers.py",
            "sql/test_hostile.py::test_names_come_back_as_they_went",
        ),
    ),
    Control(
        "S06",
        "keys in Redis do not collide whatever a tenant is called; the hash tag is ours",
        ("1.3.3",),
        ("security/test_S06_keys.py", "unit/policy/test_gate_key.py", "contract/test_gate_keys.py"),
    ),
    Control(
        "S07",
        "scripts take values as arguments only; a user of Redis with the least rights suffices",
        ("13.2.2", "15.2.1"),
        (
            "security/test_S07_redis_acl.py",
            "unit/cli/test_gatecheck.py::test_versions",
            "unit/cli/test_checkup.py::test_servers_that_lose_data_or_are_too_old",
        ),
    ),
    Control(
        "S08",
        "configured patterns take linear time, are bounded, and are refused where they cannot be",
        ("1.3.12",),
        (
            "security/test_S08_patterns.py",
            "lint/test_patterns.py",
            "contract/test_dialect_hostile.py::test_a_pattern_is_loaded_and_matched_within_50_ms",
            "contract/test_dialect_hostile.py::test_a_pattern_that_cannot_be_fast_is_refused_at_load",
            "contract/test_dialect_hostile.py::test_many_rules_of_many_patterns_hold_nobody_up",
            "unit/policy/test_text_match.py",
        ),
    ),
    Control(
        "S09",
        "a template is filled in by name alone: nothing is evaluated, no attribute is reached",
        ("1.3.2", "1.3.7"),
        (
            "security/test_S09_templates.py",
            "unit/policy/test_endpoint.py::test_a_template_is_checked_when_it_is_loaded",
        ),
    ),
    Control(
        "S10",
        "every decoder has a bound of size, depth and time",
        ("5.2.3", "15.2.2"),
        (
            "faults/test_e33_bombs.py",
            "unit/adapters/test_http_body.py",
            "contract/test_transport_bodies.py",
            "contract/test_token_transport_bodies.py",
            "contract/test_dialect_hostile.py::test_no_body_breaks_the_judgement",
            "unit/policy/test_payload.py",
            "unit/policy/test_safe.py",
            "unit/policy/test_profile.py::test_a_large_or_deep_file_is_a_problem_and_no_crash",
        ),
    ),
    Control(
        "S11",
        "tokens are sealed with AES-256-GCM and bound to tenant, connection, provider, field, generation "
        "and the places that they may be sent to",
        ("11.3.2", "11.3.3", "11.3.4", "11.2.5"),
        (
            "security/test_S11_sealed_rows.py",
            "contract/test_vault.py::test_a_record_that_was_moved_does_not_open",
            "contract/test_vault.py::test_two_swapped_rows_both_refuse",
            "contract/test_vault.py::test_no_flipped_bit_opens",
            "contract/test_vault.py::test_only_the_very_same_context_opens",
            "contract/test_vault.py::test_a_data_key_that_was_altered_or_moved_is_unreadable",
        ),
    ),
    Control(
        "S12",
        "keys are rotated while everything runs; a wrong or missing key stops clearly and changes nothing",
        ("11.1.1", "13.3.4"),
        (
            "sql/test_key_rotation.py",
            "contract/test_vault.py::test_another_master_key_is_missing_the_right_one",
            "contract/test_vault.py::test_a_wrong_key_under_the_right_name_is_wrong",
            "contract/test_vault.py::test_no_failure_changes_a_key",
            "unit/adapters/test_vault_master.py",
        ),
    ),
    Control(
        "S13",
        "no secret comes out: logs, errors, dead letters, dumps, command lines, keys of Redis",
        ("16.2.5", "16.5.1", "14.2.1"),
        (
            "security/test_S13_search.py",
            "security/test_S13_canary_run.py",
            "unit/test_known_secrets.py",
            "unit/test_logs_canary.py",
            "unit/policy/test_redact.py",
            "unit/postgres/test_dsn.py",
        ),
    ),
    Control(
        "S14",
        "no name or error forges a line of a log or obeys in a terminal",
        ("16.4.1",),
        (
            "security/test_S14_log_forging.py",
            "unit/test_logs.py::test_json_has_one_valid_line_for_each_whatever_the_names_hold",
            "unit/test_logs.py::test_columns_cannot_be_forged_either",
            "unit/cli/test_output.py::test_printed_text_is_one_line_without_control_characters",
            "unit/cli/test_output.py::test_hostile_names_make_no_line_of_their_own",
            "unit/cli/test_output.py::test_no_stored_value_ends_or_forges_a_listing",
        ),
    ),
    Control(
        "S15",
        "a socket in a folder of its owner alone",
        ("13.2.2", "15.4.2"),
        (
            "embedded/test_places.py::test_a_folder_that_others_may_enter_is_refused",
            "embedded/test_places.py::test_a_link_or_a_file_in_a_folders_place_is_refused",
            "embedded/test_places.py::test_a_link_in_the_place_of_the_short_folder_is_not_followed",
            "embedded/test_places.py::test_a_folder_of_another_user_is_refused",
            "embedded/test_places.py::test_a_long_and_odd_path_works",
            "embedded/test_sharing.py::test_settings_and_modes_are_those_promised",
        ),
        absent=f"these are the sockets of the embedded servers; {ABSENT_PROXY}",
    ),
    Control(
        "S16",
        "each client of it is checked",
        ("13.2.1", "11.2.4"),
        absent="the embedded servers ask nobody, the mode of their folder (S15) is the wall; " + ABSENT_PROXY,
    ),
    Control("S17", "each of its clients has a scope", ("8.2.2", "8.3.1"), absent=ABSENT_PROXY),
    Control(
        "S18",
        "a token that is handed out is built new from five fields",
        ("10.1.1", "15.3.1"),
        (
            "security/test_S18_prints.py",
            "unit/policy/test_token_parse.py::test_parsed_token_response_has_only_five_names",
            "unit/policy/test_token_parse.py::test_no_secret_shows_when_a_token_set_is_printed",
        ),
    ),
    Control("S19", "clients of the socket change nothing", ("8.2.1", "2.4.1"), absent=ABSENT_PROXY),
    Control("S20", "frames of the socket are bounded", ("4.2.1", "15.2.2"), absent=ABSENT_PROXY),
    Control(
        "S21",
        "names are plain, and none of them reaches the path of a file",
        ("5.3.2",),
        (
            "security/test_S21_files.py",
            "unit/policy/test_names.py::test_v8",
            "unit/policy/test_profile.py::test_provider_names_are_one_plain_word",
            "contract/test_journal.py::test_files_are_for_their_owner_alone",
            "contract/test_journal.py::test_a_folder_open_to_others_is_refused",
        ),
    ),
    Control("S22", "every route authenticates its caller", ("8.1.1", "8.2.1", "4.1.4"), _ROUTE, ABSENT_WEB),
    Control("S23", "sessions of people", ("7.2.3", "7.2.4", "7.4.1", "3.3.1"), absent=ABSENT_WEB),
    Control("S24", "no request forged by another site", ("3.5.1", "3.5.2", "3.5.3"), _ROUTE, ABSENT_WEB),
    Control("S25", "no script in a page", ("1.2.1", "3.2.2", "3.4.3", "3.4.6", "14.3.2"), absent=ABSENT_WEB),
    Control("S26", "log-in and keys of administrators", ("6.3.1", "6.3.2", "11.4.2"), absent=ABSENT_WEB),
    Control(
        "S27",
        "one tenant sees nothing of another, by row-level security too",
        ("8.4.1", "8.2.2"),
        (
            "sql/test_tenants.py",
            "sql/test_tenant_wall.py",
            "sql/test_wall_state.py",
            "contract/test_tenants_apart.py",
            "e2e/test_tenant_matrix.py",
        ),
    ),
    Control(
        "S28",
        "a consent is answered once, by the browser that began it, and by the issuer that was asked",
        ("10.1.2", "10.2.1", "10.2.2", "10.2.3"),
        (
            "security/test_S28_consent.py",
            "unit/cli/test_callback.py",
            "unit/policy/test_token_request.py::test_the_consent_page",
            "unit/policy/test_token_request.py::test_the_exchange_of_a_code",
        ),
        absent="a mark in the store: only the object itself knows that it was answered, no copy of it",
    ),
    Control(
        "S29",
        "secrets go to a token endpoint in a header or the body, the app's to no host that a tenant chose; "
        "redirects are refused",
        ("14.2.1",),
        (
            "security/test_S29_token_endpoint.py",
            "security/test_S29_lent_secrets.py",
            "unit/policy/test_token_request.py::test_no_secret_stands_in_an_address_or_shows_when_printed",
            "contract/test_token_transport.py::test_an_error_is_an_answer_and_a_redirect_is_not_followed",
            "unit/policy/test_token_classify.py",
        ),
    ),
    Control(
        "S30",
        "errors say what to do and reveal nothing of what is inside",
        ("16.5.1", "16.5.4"),
        (
            "security/test_S30_errors.py",
            "unit/cli/test_entry.py",
            "contract/test_token_transport_calls.py::test_no_verdict_tells_a_secret_or_an_address",
            "unit/adapters/test_webhook.py::test_nothing_that_goes_wrong_repeats_the_secret_or_the_address",
            "unit/cli/test_callback.py::test_callback_accepts_one_answer_with_its_state",
            "unit/cli/test_callback.py::test_half_a_request_keeps_nobody_waiting",
        ),
        absent="errors with an id: callers get the library's, the command line's and one route's fixed texts",
    ),
    Control(
        "S31",
        "a check that fails says no",
        ("16.5.3",),
        (
            "security/test_S31_fail_closed.py",
            "security/test_S31_every_check.py",
            "contract/test_vault.py::test_a_kms_that_is_away_is_told_without_its_words",
            "contract/test_token_transport.py::test_error_of_the_hook_is_raised_and_nothing_is_sent",
        ),
    ),
    Control(
        "S32",
        "each act leaves one record that stays, without secrets",
        ("16.3.1", "16.3.2", "16.3.3", "16.4.2"),
        (
            "security/test_S32_audit.py",
            "sql/test_tenants.py::test_the_audit_trail_only_grows_whoever_asks",
            "contract/test_grants.py::test_each_act_leaves_one_line",
        ),
        absent="reads of a token are not recorded: only the process itself can ask for one yet",
    ),
    Control("S33", "mail cannot be bent", ("1.3.11",), absent=ABSENT_MAIL),
    Control(
        "S34",
        "settings: unknown keys refused, secrets from files or the environment, files for their owner alone",
        ("13.4.2", "13.3.1", "1.5.2"),
        (
            "security/test_S34_settings.py",
            "unit/test_checked_file.py",
            "security/test_S34_memory.py",
            "e2e/test_cli_setup.py::test_init_makes_what_is_missing_and_never_writes_over_a_key",
            "e2e/test_cli_setup.py::test_config_show_masks_secrets_and_names_origins",
            "unit/adapters/test_vault_master.py::test_a_file_that_others_can_read_is_refused",
            "e2e/test_cli_connections.py::test_secrets_come_from_anywhere_but_the_command_line",
        ),
        absent="giving up rights: a process keeps its user's, root's too; only the embedded servers do not",
    ),
    Control(
        "S35",
        "few dependencies, locked by their hashes, wheels only, on a list with their licences",
        ("15.1.1", "15.1.2", "15.2.1", "15.2.4"),
        (
            "security/test_S35_supply_chain.py",
            "lint/test_dependencies.py",
            "lint/test_no_local_traces.py",
        ),
    ),
    Control(
        "S36",
        "what one tenant fills leaves room for the others",
        ("2.4.1", "13.1.2", "13.1.3"),
        (
            *_FILES,
            *dict.fromkeys(bound.proof for bound in BOUNDS if bound.proof.partition("::")[0] not in _FILES),
        ),
        absent=f"a cap of a tenant's own on {', on '.join(subject for subject, _ in UNBOUND)}",
    ),
)

_HEAD = """\
<!-- Written by `python -m tests.security.checklist`. Do not edit. -->
# Security checklist

What is guarded and how it is shown. The ids are those of the tests in `tests/security`; the numbers behind
each are ids of [OWASP ASVS][asvs] 5.0.0. `make security` runs every test named here and ends with a table of
verdicts. What is protected, and what is not: [SECURITY.md](../SECURITY.md).

[asvs]: https://owasp.org/www-project-application-security-verification-standard/
"""


def page() -> str:
    """docs/security.md."""
    return "\n".join([_HEAD, *(line for control in CHECKLIST for line in _section(control))])


def _section(control: Control) -> Iterator[str]:
    yield f"## {control.id} {control.what}\n"
    yield f"ASVS {', '.join(control.asvs)}\n"
    yield from (f"- {_link(test)}" for test in control.tests)
    if control.tests:
        yield ""
    if control.absent:
        yield f"Not there: {control.absent}.\n"


def _link(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[{file}](../tests/{file})" + (f" `{name}`" if name else "")


if __name__ == "__main__":
    sys.stdout.write(page().rstrip("\n") + "\n")
