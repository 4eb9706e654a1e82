"""Slips for our keys are caught, keys of other programs are not."""

import pytest

from policy.deployment import Agent, ContextRule, Deployment, Output, Sandbox, Settings
from policy.spelling import nearest, slip

MODELS = (Deployment, Settings, Agent, Sandbox, Output, ContextRule)
OURS = sorted({key for model in MODELS for key in model.model_fields})

FOREIGN = """
    image memory cpus cpu network model name prompt timeout timeouts tools format max_tokens user
    uid gid pid ids description instructions temperature top_p provider version env environment
    command args workdir volumes memory_limit cpu_limit pids_limit time_limit rate_limit max_steps
    max_retries timeout_seconds user_id user_name root_disk disk tmp_disk output_format
    output_schema context_window context_tokens sandbox_image schema encoding run_dir title owner
    url host port secret secrets api_key labels tags enabled type kind path paths database schedule
    replicas region workers concurrency retries logging log_level streaming skills servers mcp
    filesystem
"""


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("turn_disc", "turn_disk"),
        ("scratchs", "scratch"),
        ("onlimit", "on_limit"),
        ("max_turn", "max_turns"),
        ("operation_retention_day", "operation_retention_days"),
        ("turnDisk", "turn_disk"),
        ("turn-disk", "turn_disk"),
        ("Scratch", "scratch"),
        ("scrach", "scratch"),
        ("user_disks", "user_disk"),
        ("file", "files"),
        ("includes", "include"),
        ("exlude", "exclude"),
        ("agent", "agents"),
        ("sandbx", "sandbox"),
        ("ouput", "output"),
        ("fusfs", "fusefs"),
        ("ID", "id"),
        ("deadline_secs", "deadline_seconds"),
        ("max_turns_per_orgs", "max_turns_per_org"),
        ("operator-group", "operator_group"),
        ("operation", "operations"),
    ],
)
def test_a_slip_is_caught(key: str, meant: str) -> None:
    assert slip(key, OURS) == meant


@pytest.mark.parametrize("key", FOREIGN.split())
def test_a_foreign_key_is_left_alone(key: str) -> None:
    assert slip(key, OURS) is None


def test_no_keys_no_slip() -> None:
    assert slip("scratch", []) is None


def test_nearest_is_more_generous_as_the_word_is_certainly_wrong() -> None:
    assert nearest("guide", ["field-guide", "notebook"]) == "field-guide"
    assert nearest("zzz", ["field-guide", "notebook"]) is None
    assert nearest("guide", []) is None
