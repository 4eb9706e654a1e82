"""`fusefs top` in a terminal: the table, kept up to date; keys to sort, filter, look into a turn and end it."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from fusefs.messages import UsageBy
from tools.cli_largest import largest_lines
from tools.cli_turns import described
from tools.client import Client, ControlError
from tools.top_rows import HEADS, RIGHT, Look, Row, Wanted, cells, look, refusals, rows, summary
from tools.usage_table import FULL, TIGHT, fullness

REFUSALS_SHOWN = 5


class Confirm(ModalScreen[bool]):
    """Asks whether to do what cannot be undone; whatever is not a clear yes is a no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,enter,q", "answer(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """The question."""
        yield Vertical(Static(f"{self._question}\n\ny: yes   n: no", markup=False), id="box")

    def action_answer(self, answer: bool) -> None:
        """Answer it."""
        self.dismiss(answer)


class Inside(ModalScreen[None]):
    """One turn: who it is, what was refused, what is largest in it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss", "Back")]

    def __init__(self, client: Client, key: str) -> None:
        super().__init__()
        self._client = client
        self._key = key

    def compose(self) -> ComposeResult:
        """Room for it."""
        yield VerticalScroll(Static("looking ...", markup=False, id="inside"), id="box")

    def on_mount(self) -> None:
        """Ask for it."""
        self.look_inside()

    @work(thread=True, exit_on_error=False)
    def look_inside(self) -> None:
        """Ask the daemon; the walk takes its time."""
        try:
            told = [*described(self._client.show(self._key)), *largest_lines(self._client.largest(self._key))]
        except ControlError as error:
            told = [str(error)]
        self.app.call_from_thread(self.query_one("#inside", Static).update, "\n".join(told))


class Top(App[None]):
    """The application. `client` is asked every `interval` seconds, in a thread."""

    CSS = """
    #summary { height: 1; text-style: bold; }
    #refusals { height: auto; max-height: 7; }
    #filter { display: none; }
    #filter.asked { display: block; }
    Confirm, Inside { align: center middle; }
    #box { border: thick $accent; background: $surface; padding: 1 2; width: 80%; height: auto; max-height: 90%; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("s", "sort", "Sort"),
        Binding("b", "by", "By"),
        Binding("slash", "ask_filter", "Filter", key_display="/"),
        Binding("enter", "look_into", "Look into", priority=False),
        Binding("e", "end", "End turn"),
        Binding("space", "pause", "Pause"),
    ]

    def __init__(self, client: Client, interval: float, wanted: Wanted) -> None:
        super().__init__()
        self._client = client
        self._interval = interval
        self._wanted = wanted
        self._before: Look | None = None
        self._now: Look | None = None
        self._paused = False
        self._answered = threading.Event()
        self._answered.set()

    def compose(self) -> ComposeResult:
        """The places on the screen."""
        yield Static("", markup=False, id="summary")
        yield DataTable[Text](cursor_type="row", zebra_stripes=True)
        yield Input(placeholder="part of a turn, agent, user or org", id="filter")
        yield Static("", markup=False, id="refusals")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        table = self._table
        for head in HEADS:
            table.add_column(Text(head, justify="right" if head in RIGHT else "left"))
        table.focus()
        self.look_again()
        self.set_interval(self._interval, self._tick)

    @property
    def _table(self) -> DataTable[Text]:
        return self.query_one(DataTable)

    def _tick(self) -> None:
        if not self._paused:
            self.look_again()

    class Looked(Message):
        """What the daemon has answered."""

        def __init__(self, now: Look | ControlError) -> None:
            super().__init__()
            self.now = now

    def look_again(self) -> None:
        """Ask the daemon what goes on, unless it is being asked."""
        if self._answered.is_set():
            self._answered.clear()
            # A worker of the library's would not begin where the program ends first, and nobody would be answered.
            threading.Thread(target=self._ask, name="look", daemon=True).start()

    def _ask(self) -> None:
        try:
            now: Look | ControlError = look(self._client, self._wanted.by)
        except ControlError as error:
            now = error
        finally:
            self._answered.set()
        with suppress(RuntimeError):  # the program has ended meanwhile
            self.post_message(self.Looked(now))

    def settle(self) -> None:
        """Wait for the answer to what is being asked: then the client can be closed."""
        self._answered.wait()

    def _say(self, text: str) -> None:
        self.query_one("#summary", Static).update(text)

    def on_top_looked(self, message: Looked) -> None:
        """The daemon has answered."""
        now = message.now
        if not self.screen_stack or not self.screen_stack[0].query(DataTable):
            return  # what it would be shown in is gone already: the program ends
        if isinstance(now, ControlError):  # it is asked again with the next tick
            self._say(str(now))
        else:
            self._before, self._now = self._now, now
            self._show()

    def _shown(self) -> Sequence[Row]:
        if self._now is None or (self._now.accounts is None) != (self._wanted.by is UsageBy.TURN):
            return []
        return rows(self._before, self._now, self._wanted)

    def _show(self) -> None:
        """Show the latest look; the cursor stays on its row."""
        if self._now is None:
            return
        table, shown = self._table, self._shown()
        chosen = self._chosen_id()
        table.clear()
        for row in shown:
            full = fullness(row.held)
            style = "red" if full >= FULL else "yellow" if full >= TIGHT else ""
            texts = (
                Text(cell, style, justify="right" if head in RIGHT else "left")
                for cell, head in zip(cells(row), HEADS, strict=True)
            )
            table.add_row(*texts, key=_id(row))
        at = next((at for at, row in enumerate(shown) if _id(row) == chosen), 0)
        table.move_cursor(row=at)
        self._say(("PAUSED  " if self._paused else "") + summary(shown, self._now, self._wanted))
        told = refusals(self._now, REFUSALS_SHOWN) or ["none"]
        self.query_one("#refusals", Static).update("\n".join(["newest refusals", *told]))

    def _chosen_id(self) -> str | None:
        table = self._table
        if not table.row_count:
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    def _chosen(self) -> Row | None:
        """The turn below the cursor; None where there is none, or another kind of account."""
        chosen = self._chosen_id()
        return next((row for row in self._shown() if _id(row) == chosen and row.key is not None), None)

    def action_sort(self) -> None:
        """Sort by the next thing."""
        self._wanted = replace(self._wanted, sort=self._wanted.sort.next)
        self._show()

    def action_by(self) -> None:
        """Show turns, users, agents, orgs, one after the other."""
        every = list(UsageBy)
        self._wanted = replace(self._wanted, by=every[(every.index(self._wanted.by) + 1) % len(every)])
        self.look_again()

    def action_pause(self) -> None:
        """Look no more, or again."""
        self._paused = not self._paused
        self._show()

    def action_ask_filter(self) -> None:
        """Ask for a filter."""
        asked = self.query_one("#filter", Input)
        asked.add_class("asked")
        asked.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self._wanted = replace(self._wanted, filter=event.value)
        self._show()

    def on_input_submitted(self) -> None:
        """The filter is as it is to be."""
        self.query_one("#filter", Input).remove_class("asked")
        self._table.focus()

    def on_data_table_row_selected(self) -> None:
        """Enter, or a click, on a row."""
        self.action_look_into()

    def action_look_into(self) -> None:
        """Show a turn."""
        row = self._chosen()
        if row is not None and row.key is not None:
            self.push_screen(Inside(self._client, row.key))

    def action_end(self) -> None:
        """End a turn, if that is confirmed."""
        row = self._chosen()
        if row is None or row.key is None:
            return
        key = row.key

        def answered(yes: bool | None) -> None:
            if yes:
                self.end_turn(key)

        who = f"{row.name} ({row.agent}, {row.user}, {row.org})"
        self.push_screen(Confirm(f"End turn {who}? Its calls are killed, and its files are gone."), answered)

    @work(thread=True, exit_on_error=False)
    def end_turn(self, key: str) -> None:
        """End a turn."""
        try:
            ended = self._client.end(key)
        except ControlError as error:
            self.call_from_thread(self.notify, str(error), severity="error", markup=False)
        else:
            self.call_from_thread(self.notify, f"turn {ended.turn} has ended", markup=False)
        self.call_from_thread(self.look_again)


def _id(row: Row) -> str:
    """What tells rows apart: two users of one name have different agents."""
    return row.key or f"{row.agent}\0{row.name}"
