"""Artifacts are what the A2A protocol's own models take, and callers get the media types that they ask for."""

import json
from collections.abc import Sequence
from typing import TypeVar

import pytest
from a2a.types import Artifact, StreamResponse, TaskArtifactUpdateEvent
from google.protobuf.json_format import MessageToDict, Parse, ParseError
from hypothesis import given
from hypothesis import strategies as st

from policy.artifacts import accepts, artifact, artifact_update

M = TypeVar("M")  # a message of the SDK
LENGTHS = b"name,mm\nred clover,12\n"


def lengths() -> dict[str, object]:
    return artifact("a-1", "lengths.csv", "text/csv", LENGTHS, "call-7")


def test_an_artifact_reads_as_the_contract_has_it() -> None:
    part = {
        "raw": "bmFtZSxtbQpyZWQgY2xvdmVyLDEyCg==",
        "mediaType": "text/csv",
        "filename": "lengths.csv",
        "metadata": {"call_id": "call-7"},
    }

    assert lengths() == {"artifactId": "a-1", "name": "file", "parts": [part]}


def test_an_update_is_a_last_chunk() -> None:
    assert artifact_update("t-1", "c-1", {"artifactId": "a-1"}) == {
        "artifactUpdate": {
            "taskId": "t-1",
            "contextId": "c-1",
            "artifact": {"artifactId": "a-1"},
            "lastChunk": True,
        }
    }


def read_strictly(document: object, model: M) -> M:
    """`document` as the SDK's model has it; a field that this does not know fails."""
    Parse(json.dumps(document), model, ignore_unknown_fields=False)
    return model


def test_the_sdk_reads_an_artifact_and_writes_the_same() -> None:
    read = read_strictly(lengths(), Artifact())

    assert read.artifact_id == "a-1"
    assert read.parts[0].raw == LENGTHS
    assert read.parts[0].media_type == "text/csv"
    assert read.parts[0].filename == "lengths.csv"
    assert dict(read.parts[0].metadata) == {"call_id": "call-7"}
    assert MessageToDict(read) == lengths()


def test_the_sdk_reads_an_update_and_writes_the_same() -> None:
    update = artifact_update("t-1", "c-1", lengths())
    read = read_strictly(update, StreamResponse())

    assert read.WhichOneof("payload") == "artifact_update"
    assert read.artifact_update.last_chunk
    assert MessageToDict(read) == update
    assert read_strictly(update["artifactUpdate"], TaskArtifactUpdateEvent()) == read.artifact_update


def test_the_sdk_would_refuse_a_field_that_it_does_not_know() -> None:
    with pytest.raises(ParseError, match="sha256"):
        read_strictly(lengths() | {"sha256": "00"}, Artifact())


@given(st.binary(), st.text(st.characters(exclude_categories=["Cs"])))
def test_every_content_and_name_arrives(content: bytes, filename: str) -> None:
    part = read_strictly(artifact("a", filename, "image/png", content, "c"), Artifact()).parts[0]

    assert (part.raw, part.filename) == (content, filename)


@pytest.mark.parametrize(
    ("media_type", "modes", "taken"),
    [
        ("text/csv", [], True),
        ("text/csv", ["text/csv"], True),
        ("text/csv", ["image/png", "text/csv"], True),
        ("text/csv", ["image/png"], False),
        ("text/csv", ["TEXT/CSV; charset=utf-8; header=present"], True),
        ("text/csv; charset=utf-8", ["text/csv"], True),
        ("image/svg+xml", ["image/*"], True),
        ("image/svg+xml", ["IMAGE/*;q=0.8"], True),
        ("image/svg+xml", ["image/svg"], False),
        ("application/pdf", ["image/*"], False),
        ("application/pdf", ["*/*"], True),
        ("application/pdf", ["application"], False),
        ("application/pdf", ["*/pdf"], False),
        ("application/pdf", [""], False),
        ("application/pdf", ["text", "text/plain"], False),
    ],
)
def test_accepts(media_type: str, modes: Sequence[str], taken: bool) -> None:
    assert accepts(media_type, modes) is taken
