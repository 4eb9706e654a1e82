"""One value: what becomes of it, and what is said of a wrong one."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from policy.values import AgentId, Count, FileTypes, Globs, Logged, OnLimit, Seconds, Size, Text, shown


@pytest.mark.parametrize(
    ("kind", "value", "taken"),
    [
        (Size, "64m", 67_108_864),
        (Size, 67_108_864, 67_108_864),
        (Count, 1, 1),
        (Seconds, 600, 600.0),
        (Seconds, 0.5, 0.5),
        (AgentId, "field-guide", "field-guide"),
        (Text, "fusefs", "fusefs"),
        (OnLimit, "stop", "stop"),
        (Logged, "off", "off"),
        (FileTypes, ["png", "csv"], ("png", "csv")),
        (FileTypes, [], ()),
        (Globs, ["**"], ("**",)),
    ],
)
def test_right_values(kind: Any, value: object, taken: object) -> None:  # noqa: ANN401 (an annotated type)
    assert TypeAdapter(kind).validate_python(value) == taken


@pytest.mark.parametrize(
    "value", [True, None, -1, 0, "", [], {}, float("nan"), float("inf"), -(1 << 70), -(1 << 10_000)]
)
@pytest.mark.parametrize("kind", [Size, Count, Seconds, AgentId, Text, OnLimit, Logged])
def test_no_value_takes_these(kind: Any, value: object) -> None:  # noqa: ANN401 (an annotated type)
    with pytest.raises(ValidationError) as invalid:
        TypeAdapter(kind).validate_python(value)

    [error] = invalid.value.errors()
    assert error["ctx"].keys() == {"reason", "right"}


@pytest.mark.parametrize("value", [True, None, "png", 3, {"png": 1}, ["gif"], [3], [["png"]], [""]])
@pytest.mark.parametrize("kind", [FileTypes])
def test_no_list_takes_these(kind: Any, value: object) -> None:  # noqa: ANN401 (an annotated type)
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("64M", '"64M"'),
        ("é\n", '"é\\n"'),
        (True, "true"),
        (1 << 64, "0x10000000000000000"),
        (1 << 10_000, "0x1" + "0" * 57 + "…"),
        (1.5, "1.5"),
        ({}, "a table"),
        ([], "a list"),
        ("x" * 100, '"' + "x" * 59 + "…"),
    ],
)
def test_a_wrong_value_is_shown_as_in_toml(value: object, text: str) -> None:
    assert shown(value) == text
