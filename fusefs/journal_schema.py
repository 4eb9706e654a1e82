"""The journal's tables: every step from an empty file to the schema in force, in order.

Together they are the reference for the schema. A step that has been released is never changed: another one is added.
"""

from sqlite_utils import Database


def m001_turns(db: Database) -> None:
    """The table of turns: one row a turn, live and ended.

    seq      the order in which turns began; begun_at may repeat, or go back with the host's clock.
    id       the caller's own id. Ids may come again after their turn has ended, so an id is no key.
    key      the folder's name below MNT/turns; never comes again.
    *_at     Unix time in seconds; ended_at is NULL while the turn is live.

    live_turn: of each id at most one turn is live. Without it two begins of one id could both succeed.
    """
    db.execute(
        """
        CREATE TABLE turns (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL,
            key TEXT NOT NULL UNIQUE,
            agent TEXT NOT NULL,
            user TEXT NOT NULL,
            org TEXT NOT NULL,
            uid INTEGER NOT NULL,
            gid INTEGER NOT NULL,
            begun_at REAL NOT NULL,
            deadline_at REAL NOT NULL,
            ended_at REAL
        ) STRICT
        """
    )
    db.execute("CREATE UNIQUE INDEX live_turn ON turns (id) WHERE ended_at IS NULL")
    db.execute("CREATE INDEX turns_by_id ON turns (id)")


def m002_events(db: Database) -> None:
    """The table of events, the newest of them (fusefs.event_records).

    id        counts up by one; it is what a follower goes on from.
    kind      as in the document, to select by.
    document  the event as it is told (fusefs.event_schema), one line of JSON.
    """
    db.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, document TEXT NOT NULL) STRICT")


def m003_calls(db: Database) -> None:
    """The table of calls: one row a call, live and ended; and what a turn has besides.

    seq         the order in which calls began.
    id          the caller's own id. Of each id at most one call is live (live_call); ids may come again.
    turn        the key of its turn.
    pid         the process that the caller named; NULL where none was, and then `started` and `boot` are, too.
    started     when that process started, in clock ticks since boot (proc_pid_stat(5)): with `boot`, the host's boot
                id, it tells the process from a later one of the same pid.
    known_by    how its other processes are known: namespace, cgroup or processes (fusefs.grips).
    place       the cgroup that was made for it, an absolute path.
    how         told, exited, limit or turn: what ended it; NULL while it is live, as ended_at is.
    exit_status, signal   how its program ended, where the caller has told.
    refused     the refusal that stopped it, as JSON; NULL where none did.
    is_left     1 while some of its processes may be there, also after its end.

    turns.how         asked, expired or lost: why it ended; NULL while it is live, and of turns before this step.
    turns.turn_disk   the limit that an operator has set (bytes); NULL: the agent's own.
    turns.emptying    1 from the decision to stop its calls and empty it until that is done.
    """
    db.execute(
        """
        CREATE TABLE calls (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL,
            turn TEXT NOT NULL REFERENCES turns (key),
            begun_at REAL NOT NULL,
            pid INTEGER,
            started INTEGER,
            boot TEXT,
            known_by TEXT,
            place TEXT,
            ended_at REAL,
            how TEXT,
            exit_status INTEGER,
            signal INTEGER,
            refused TEXT,
            is_left INTEGER NOT NULL
        ) STRICT
        """
    )
    db.execute("CREATE UNIQUE INDEX live_call ON calls (id) WHERE ended_at IS NULL")
    db.execute("CREATE INDEX calls_by_id ON calls (id)")
    db.execute("CREATE INDEX calls_left ON calls (turn) WHERE is_left = 1")
    db.execute("ALTER TABLE turns ADD COLUMN how TEXT")
    db.execute("ALTER TABLE turns ADD COLUMN turn_disk INTEGER")
    db.execute("ALTER TABLE turns ADD COLUMN emptying INTEGER NOT NULL DEFAULT 0")


def m004_attachments(db: Database) -> None:
    """The table of attachments: one row for each file that a call's end has kept of an outbox.

    seq         the order in which they were kept; it is what a follower goes on from.
    turn        the key of its turn.
    call        the `seq` of its call, call_id the caller's own id of that.
    name, media_type, size, sha256   the file as it is handed over; size in bytes, sha256 in hexadecimal.
    warnings    what whoever shows it should know: a JSON list of texts.
    path        where its bytes lie; NULL once they are gone, acknowledged or with their turn.
    kept_at     Unix time in seconds.

    calls.command   what it runs, as a shell would be told; NULL where the caller has not said.
    calls.notes     what a call's end says of its outbox, as a JSON list; NULL where it says nothing.
    calls.leaving   the names, in hexadecimal, and inodes that are still to be taken out of the outbox, as JSON; NULL
                    where that is done.
    """
    db.execute(
        """
        CREATE TABLE attachments (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            turn TEXT NOT NULL REFERENCES turns (key),
            call INTEGER NOT NULL REFERENCES calls (seq),
            call_id TEXT NOT NULL,
            name TEXT NOT NULL,
            media_type TEXT NOT NULL,
            size INTEGER NOT NULL,
            sha256 TEXT NOT NULL,
            warnings TEXT NOT NULL,
            path TEXT,
            kept_at REAL NOT NULL
        ) STRICT
        """
    )
    db.execute("CREATE INDEX attachments_by_turn ON attachments (turn)")
    db.execute("CREATE INDEX calls_by_turn ON calls (turn)")
    db.execute("CREATE INDEX attachments_by_call ON attachments (call)")
    db.execute("ALTER TABLE calls ADD COLUMN notes TEXT")
    db.execute("ALTER TABLE calls ADD COLUMN leaving TEXT")
    db.execute("ALTER TABLE calls ADD COLUMN command TEXT")


def m005_context(db: Database) -> None:
    """The table of generations of contexts, and which one a turn sees.

    org, number   counts up by one in each org, also by a rollback.
    root          the digest of its top folder (SHA-256).
    uid           who published it, or asked for the rollback.
    of            the generation that it is the same as; NULL where it was published.
    is_gone       1 once it is not kept any more.

    turns.generation      of its org, when it began; NULL where there was none.
    turns.context_rules   what it may see of that: a list of [include, exclude], all of which hold, as JSON.
    """
    db.execute(
        """
        CREATE TABLE generations (
            org TEXT NOT NULL,
            number INTEGER NOT NULL,
            root BLOB NOT NULL,
            published_at REAL NOT NULL,
            uid INTEGER NOT NULL,
            of INTEGER,
            is_gone INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (org, number)
        ) STRICT
        """
    )
    db.execute("ALTER TABLE turns ADD COLUMN generation INTEGER")
    db.execute("ALTER TABLE turns ADD COLUMN context_rules TEXT")


def m006_history(db: Database) -> None:
    """What is asked of turns and calls that have ended.

    calls.verdicts   what a call's end says of each entry of its outbox: a JSON list of [name, reason], the reason null
                     for what was kept; NULL where there was none, and of calls before this step.

    turns.used_bytes, used_inodes   what a turn held when it ended; NULL where that is not known.
    turns.peak_bytes                the most that it ever held.
    turns.refused_count             how often a limit refused something in it, as far as its last worker knew.

    calls_by_end, turns_by_end: what has ended before a time goes, what has ended since one is looked for.
    """
    db.execute("ALTER TABLE calls ADD COLUMN verdicts TEXT")
    for column in ("used_bytes", "used_inodes", "peak_bytes", "refused_count"):
        db.execute(f"ALTER TABLE turns ADD COLUMN {column} INTEGER")
    db.execute("CREATE INDEX calls_by_end ON calls (ended_at)")
    db.execute("CREATE INDEX turns_by_end ON turns (ended_at)")


SCHEMA = (m001_turns, m002_events, m003_calls, m004_attachments, m005_context, m006_history)
