"""What a turn's room went to, in lines for people."""

from collections.abc import Iterator

from fusefs.operator_messages import Largest
from tools.cli_output import table
from tools.usage_table import short_size


def largest_lines(largest: Largest) -> Iterator[str]:
    """The largest folders and files, what could not be looked at, and where the walk was cut."""
    yield "largest folders"
    folders = [
        (short_size(f.bytes), f"{f.entries} names", ("" if f.complete else "at least, ") + f.path)
        for f in largest.folders
    ]
    yield from (f"  {line}" for line in table(("HOLDS", "BELOW", "FOLDER"), folders))
    yield "largest files"
    files = [(short_size(f.bytes), f.path if f.names == 1 else f"{f.path} ({f.names} names)") for f in largest.files]
    yield from (f"  {line}" for line in table(("HOLDS", "FILE"), files))
    if largest.deleted_open.files:
        yield f"deleted, but open: {largest.deleted_open.files} files, {short_size(largest.deleted_open.bytes)}"
    for folder in largest.unreadable:
        yield f"skipped {folder.path}: {folder.reason}"
    if more := largest.unreadable_count - len(largest.unreadable):
        yield f"skipped {more} folders more"
    if largest.cut_by_entries:
        yield f"there is more: looked at the first {largest.looked_at} names only"
    if largest.cut_by_levels:
        yield f"there is more below: looked at {largest.most_levels} levels only"
