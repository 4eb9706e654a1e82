"""What operators are told beside turns and accounts: what a turn's room went to, and what goes on."""

from pydantic import Field

from fusefs.messages import Answer, Refused, Usage


class LargestFolder(Answer):
    """A folder, and what lies below it as far as it was looked at."""

    path: str = Field(description="below the workspace, which is `.` itself; what does not print is escaped")
    bytes: int = Field(description="charged for what lies below it")
    entries: int = Field(description="names below it")
    complete: bool = Field(description="whether all that lies below it was looked at")


class LargestFile(Answer):
    """A regular file."""

    path: str = Field(description="the first name that was found of it")
    bytes: int = Field(description="charged for it and this name")
    names: int = Field(description="how many names it has, also elsewhere in the workspace")


class Unreadable(Answer):
    """A folder that was skipped."""

    path: str
    reason: str


class DeletedOpen(Answer):
    """Files that have no name any more, and are charged while programs have them open."""

    files: int
    bytes: int


class Largest(Answer):
    """What a turn's room went to: a walk, breadth first, that ends early where the workspace is large."""

    folders: list[LargestFolder] = Field(description="the largest first")
    files: list[LargestFile] = Field(description="the largest first")
    deleted_open: DeletedOpen
    looked_at: int = Field(description="names that were looked at")
    most_entries: int = Field(description="how many are looked at at most")
    most_levels: int = Field(description="how many levels below the workspace are looked at")
    cut_by_entries: bool = Field(description="whether there were more names than that")
    cut_by_levels: bool = Field(description="whether something lies deeper")
    unreadable: list[Unreadable] = Field(description="the first folders that could not be read, and were skipped")
    unreadable_count: int


class TurnActivity(Answer):
    """What goes on in a live turn. Counts are since its worker began: those of another `pid` begin anew."""

    turn: str
    key: str
    agent: str
    user: str
    org: str
    usage: Usage
    operations: int = Field(description="requests about its files; one about two of them, as rename, counts twice")
    read_bytes: int
    written_bytes: int
    open_files: int = Field(description="files and folders that are open")
    calls: list[str] = Field(description="ids of its live calls")
    refused_count: int


class TurnRefused(Refused):
    """A refusal, and of which turn."""

    turn: str
    key: str


class Activity(Answer):
    """What goes on in all live turns, at one moment."""

    at: float = Field(description="seconds on a clock that only goes on, for rates")
    pid: int = Field(description="of the worker that has counted")
    counting: bool = Field(description="whether totals are still being counted after a start; then `turns` is empty")
    turns: list[TurnActivity]
    refused: list[TurnRefused] = Field(description="the newest refusals of all live turns, oldest first")
