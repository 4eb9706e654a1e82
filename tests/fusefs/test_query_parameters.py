"""What a request's address, and the numbers in it, may be: all operations of the control interface are asked."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from fusefs import control_operators
from fusefs.context_control import add_context
from fusefs.control import create_app
from tests.fusefs.control_client import ask
from tests.stand_ins import FakeTurns

HIGHEST = 2**63 - 1


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """The OpenAPI document of the whole application."""
    nobody: Any = SimpleNamespace(handed_over=None)
    app: FastAPI = create_app(nobody, nobody, nobody, nobody, nobody, nobody)
    add_context(app, nobody, nobody)
    control_operators.add(app, nobody, nobody)
    return app.openapi()


@pytest.mark.parametrize(
    ("address", "detail"),
    [
        ("/v1/operations?usr=ada", "unknown query parameter 'usr'; right: turn, user, op, failed, since, page, a_page"),
        ("/v1/usage?by=turn&verbose=1", "unknown query parameter 'verbose'; right: by"),
        ("/v1/turns?user=ada", "unknown query parameter 'user'; this operation takes none"),
        ("/v1/events?%ff=1", r"unknown query parameter '\\xff'; right: since, follow"),
        ("/v1/operations?op=read&op=write", "query parameter op is given more than once; right: once"),
        ("/v1/operations?user=%ff", r"query parameter user: b'\xff' is not UTF-8"),
        (f"/v1/operations?page={2**63}", "page: Input should be less than or equal to 5000000"),
        (f"/v1/operations?a_page={2**63}", "a_page: Input should be less than or equal to 1000"),
        (f"/v1/events?since={2**63}", f"since: Input should be less than or equal to {HIGHEST}"),
    ],
)
def test_what_an_operation_does_not_take_is_refused_and_said(
    turns: FakeTurns, tmp_path: Path, address: str, detail: str
) -> None:
    response = ask(turns, tmp_path, lambda client: client.get(address))

    assert (response.status_code, response.json()["detail"]) == (400, detail)


def test_a_name_that_is_not_utf_8_is_nobodys_also_where_it_would_be_new(turns: FakeTurns, tmp_path: Path) -> None:
    body = {"agent": "guide", "user": "ada"}
    for answer in (
        ask(turns, tmp_path, lambda client: client.get("/v1/turns/a%ff")),
        ask(turns, tmp_path, lambda client: client.post("/v1/turns/a%ff/calls", json=body)),
    ):
        assert answer.status_code == 404
        assert "nothing has a name that is not UTF-8" in answer.json()["detail"]


def test_what_it_takes_goes_on(turns: FakeTurns, tmp_path: Path) -> None:
    for address in ("/v1/operations?page=2&a_page=7&", "/v1/operations?user=%C3%A4+b", "/openapi.json?a=1"):
        assert ask(turns, tmp_path, partial(httpx.AsyncClient.get, url=address)).status_code == 200


def unbounded(schema: Any, defined: dict[str, Any], where: str) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Numbers of a schema that may be as high as one likes."""
    if "$ref" in schema:
        schema = defined[schema["$ref"].rpartition("/")[2]]
    if schema.get("type") == "integer" and schema.get("maximum", 1e99) > 2**63 and "enum" not in schema:
        yield where
    for one in schema.get("anyOf", ()):
        yield from unbounded(one, defined, where)
    for name, one in schema.get("properties", {}).items():
        yield from unbounded(one, defined, f"{where}.{name}")


def test_each_number_that_is_asked_for_has_a_bound_that_the_host_can_take(described: dict[str, Any]) -> None:
    defined = described["components"]["schemas"]
    found: list[str] = []
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            where = f"{method.upper()} {path}"
            for parameter in operation.get("parameters", ()):
                found += unbounded(parameter["schema"], defined, f"{where} {parameter['name']}")
            for content in operation.get("requestBody", {}).get("content", {}).values():
                found += unbounded(content["schema"], defined, where)

    assert found == ["PATCH /v1/turns/{turn}.turn_disk"]  # a size: the next test


def test_a_size_has_a_bound_too(turns: FakeTurns, tmp_path: Path) -> None:
    response = ask(turns, tmp_path, lambda client: client.patch("/v1/turns/t1", json={"turn_disk": 2**63}))

    assert response.status_code == 400
    assert "turn_disk" in response.json()["detail"]
