"""What a turn's room went to, in lines for people."""

from collections.abc import Iterator

from fusefs.operator_messages import Largest
from tools.cli_output import table
from tools.usage_table import short_size


def largest_lines(largest: Largest) -> Iterator[str]:
    """The largest folders and files, what could not be looked at, and where the walk was cut."""
    yield "largest folders"
    folders = [
        (("" if f.complete else "at least ") + short_size(f.bytes), _count(f.entries, "name"), f.path)
        for f in largest.folders
    ]
    yield from (f"  {line}" for line in table(("HOLDS", "BELOW", "FOLDER"), folders))
    yield "largest files"
    files = [(short_size(f.bytes), f.path if f.names == 1 else f"{f.path} ({f.names} names)") for f in largest.files]
    yield from (f"  {line}" for line in table(("HOLDS", "FILE"), files))
    if (gone := largest.deleted_open).files:
        yield f"deleted, but open: {_count(gone.files, 'file')}, {short_size(gone.bytes)}"
    for folder in largest.unreadable:
        yield f"skipped {folder.path}: {folder.reason}"
    if more := largest.unreadable_count - len(largest.unreadable):
        yield f"skipped {more} folders more"
    if largest.cut_by_entries:
        yield f"there is more: looked at the first {largest.looked_at} names only"
    if largest.cut_by_levels:
        yield f"there is more below: looked at {largest.most_levels} levels only"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
