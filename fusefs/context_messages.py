"""The messages of the control interface about contexts. Digests are SHA-256 in hexadecimal."""

import base64
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field

from fusefs.messages import HIGHEST_NUMBER, Answer, Request

MOST_ASKED = 500
"""Digests in one question what is lacking."""
MOST_ENTRIES = 10_000
MOST_BYTES = 4 << 20
"""Of entries, and of a file's content, in one answer."""
MOST_OFFSET = (1 << 63) - 1
"""The last byte that a file of Linux can have."""
OBJECTS = "application/vnd.fusefs.objects"
"""The media type of what is sent to be published: fusefs.context.store.Receiving tells its form."""

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Have(Request):
    """What a publisher has, and would send where the store lacks it."""

    files: list[Digest] = Field(default=[], max_length=MOST_ASKED)
    folders: list[Digest] = Field(default=[], max_length=MOST_ASKED)


class Lacking(Answer):
    """What of that is not in the store. A folder that is there is whole, with all that lies below it."""

    files: list[Digest]
    folders: list[Digest]


class Received(Answer):
    """What was taken into the store; nobody sees it before it is published."""

    files: int
    folders: int


class Publish(Request):
    """Make a folder in the store the next generation of an org's context."""

    root: Digest
    base: int | None = Field(
        default=None, ge=0, le=HIGHEST_NUMBER, description="the newest generation, or 0; 409 where it is another one"
    )


class Rollback(Request):
    """Make the next generation the same as an earlier one."""

    generation: int = Field(ge=1, le=HIGHEST_NUMBER)
    base: int | None = Field(
        default=None, ge=0, le=HIGHEST_NUMBER, description="the newest generation; 409 where it is another one"
    )


class GenerationView(Answer):
    """One immutable state of an org's context."""

    org: str
    generation: int
    published_at: AwareDatetime
    uid: int = Field(description="who published it, or asked for the rollback")
    of: int | None = Field(description="the generation that it is the same as, where it was made by a rollback")
    root: Digest
    files: int = Field(description="files and symbolic links")
    folders: int
    bytes: int = Field(description="of all files together, each as often as it is there")
    turns: int = Field(default=0, description="live turns that see it")


class EntryKind(StrEnum):
    """What an entry of a folder is."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"


class EntryView(Answer):
    """An entry of a folder."""

    name: str
    kind: EntryKind
    size: int | None = Field(description="of a file, in bytes")
    sha256: Digest | None = Field(description="of a file's content")
    modified_at: AwareDatetime | None = Field(description="null of a folder")
    target: str | None = Field(description="of a symbolic link")


class FolderView(Answer):
    """What lies in a folder and may be seen, in the order of the names."""

    org: str
    generation: int
    path: str = Field(description="empty for the whole context")
    entries: list[EntryView]
    cut: bool = Field(description="whether there are more; those that are here are the first after `after`")


class FileView(Answer):
    """A piece of a file."""

    org: str
    generation: int
    path: str
    size: int = Field(description="of the whole file, in bytes")
    sha256: Digest = Field(description="of the whole content")
    offset: int
    content: str = Field(description="base64")
    cut: bool = Field(description="whether the file goes on after this piece")

    @property
    def data(self) -> bytes:
        """The piece itself."""
        return base64.b64decode(self.content)


class Damage(Answer):
    """A file or a folder that is not in the store as it was published."""

    generation: int = Field(description="the newest one that it is in")
    path: str
    sha256: Digest
    reason: str


class Verified(Answer):
    """What a look at all that is kept of an org's context has found."""

    org: str
    generations: int
    folders: int = Field(description="different ones")
    files: int = Field(description="different contents")
    bytes: int
    damaged: list[Damage]
