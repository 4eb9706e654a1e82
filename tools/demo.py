"""The demo: python -m tools.demo. One turn from its beginning to its end, on a real mount, each step checked.

Every line after a prompt is run as it stands: `$` is the operator's shell, `turn$` a program of the turn that a
platform confines by itself, whose environment is what `fusefs turn begin` answered, and PATH. Answers 0 where all
came out as it should, else 1.
"""

import hashlib
import json
import os
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from fusefs.messages import Account, AccountKind, TurnBegun
from policy.limits import BLOCK_BYTES, NAME_BYTES
from tools import host
from tools.client import Client
from tools.demo_stage import Shell, Stage, Unexpected, expect, stage

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "LICENSE", "docs")
WORD = "limit"
CONFIGURATION = """\
[[agents]]
id = "field-guide"
[agents.sandbox]
scratch = "64m"      # all workspaces of the agent together
user_disk = "32m"    # all turns of one user
turn_disk = "24m"    # one turn
[agents.output]
files = ["csv", "png"]
"""
TURN_BYTES = 24 << 20
NEARLY = 64 << 10  # a full workspace has less room than this
RUN = "fusefs run demo --"
PROGRAMS = ("sh", "grep", "cut", "sort", "sed", "uniq", "find", "dd", "df", "git", "getfattr", "tar", "bwrap", "fusefs")
FREED_SECONDS = 10.0  # for an ended turn's files to be removed in the background


def main() -> int:
    """Run the demo; answers the exit status."""
    began = time.monotonic()
    try:
        with stage() as here:
            check_host(here)
            _play(here)
    except Unexpected as error:
        print(f"\ndemo: failed: {error}", file=sys.stderr)
        return 1
    print(f"\nEvery step came out as it should, in {time.monotonic() - began:.1f} s. Nothing is left.")
    return 0


def check_host(here: Stage) -> None:
    """Raise Unexpected where the demo cannot run, with the reason and what would help."""
    for missing in (host.device(), host.mount_right()):
        expect(missing is None, f"this host cannot mount, neither as root nor with fusermount3: {missing}")
    path = here.shell().environment["PATH"]
    absent = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    expect(not absent, f"missing programs: {', '.join(absent)}; ./tools/dev demo installs them")
    expect((ROOT / "README.md").exists(), f"{ROOT} is not a checkout of the project: it has no README.md")


def _play(here: Stage) -> None:
    operator = here.shell()
    pids = _mount(here, operator)
    with Client(here.socket) as client:
        _publish(here, operator)
        turn = _begin(here, operator)
        program = Shell(Path(turn.workspace), {**turn.env, "PATH": operator.environment["PATH"]}, "turn$")
        _pass_a_file(operator, program)
        _stay_inside(here, operator)
        _hand_over(here, client, operator)
        _read_the_context(here, operator)
        _clone(here, operator, program)
        why = "What the turn holds is known at all times, and counts for its user and its agent as well."
        _show_usage(why, client, operator, program)
        before, walked = _held(client), _walked(Path(turn.workspace))
        expect(walked == before[AccountKind.TURN], f"a walk finds {walked} bytes, not {before[AccountKind.TURN]}")
        _hit_the_limit(client, operator, program)
        program.run("What frees space always succeeds, also at a limit.", 'rm "$TMPDIR/big"')
        expect(_held(client) == before, "removing the file did not give back what it was charged with")
        _end(here, client, operator, turn)
    _unmount(here, operator, pids)


def _mount(here: Stage, operator: Shell) -> list[int]:
    (here.base / "demo.toml").write_text(CONFIGURATION)
    print(f"All of this happens in {here.base}, which is removed in the end. FUSEFS_SOCKET is {here.socket}.")
    operator.run("A configuration with small limits.", "cat demo.toml")
    line = "fusefs mount mnt --state state --config demo.toml"
    operator.run("Start the daemon; the command returns when the mount answers.", line)
    pids = here.daemons()
    expect(here.is_mounted(), "nothing is mounted")
    expect(len(pids) == 2, f"there are {len(pids)} processes, not a supervisor and a worker")
    return pids


def _publish(here: Stage, operator: Shell) -> None:
    """The documents become what every turn of the org can read."""
    (here.base / "handbook").mkdir()
    for name in DOCUMENTS:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, here.base / "handbook" / name)
    why = "The org's documents, which its turns may read: published in one step, as generation 1."
    said = operator.run(why, "fusefs context publish default handbook")
    expect(said.startswith("generation 1 of default"), "nothing was published")


def _read_the_context(here: Stage, operator: Shell) -> None:
    """That a turn reads it, keeps it as it was, and cannot change it."""
    count = f'grep -rci {WORD} "$FUSEFS_CONTEXT" | cut -d: -f2'
    counted = operator.run("A call reads the org's documents.", f"{RUN} sh -c {shlex.quote(count)}")
    truth = sum(WORD.encode() in line.lower() for line in _document_lines())
    expect(sum(map(int, counted.split())) == truth, f"the context has other documents than the {truth} lines of these")
    line = """sh -c 'rm "$FUSEFS_CONTEXT/README.md"'"""
    said = operator.run("Nobody can change them.", f"{RUN} {line}", 1)
    expect("Read-only file system" in said, "the call was not told EROFS")
    said = operator.run("Not even the operator, through the mount.", "touch mnt/context/default/new", 1)
    expect("Read-only file system" in said, "the operator was not told EROFS")
    (here.base / "handbook" / "NEWS").write_text("new\n")
    operator.run("Something new is published.", "fusefs context publish default handbook")
    operator.run("Operators see it at once.", "cat mnt/context/default/NEWS")
    said = operator.run("The turn keeps what it began with.", f"""{RUN} sh -c 'cat "$FUSEFS_CONTEXT/NEWS"'""", 1)
    expect("No such file" in said, "the turn sees another generation")


def _begin(here: Stage, operator: Shell) -> TurnBegun:
    line = "fusefs turn begin --agent field-guide --user ada --turn demo"
    turn = TurnBegun.model_validate_json(operator.run("Begin a turn: it gets a workspace of its own.", line))
    expect(Path(turn.workspace).is_relative_to(here.mountpoint), "the workspace is not in the mount")
    expect(turn.env["TMPDIR"] == turn.env["HOME"] == turn.workspace, "TMPDIR and HOME are not the workspace")
    return turn


def _pass_a_file(operator: Shell, program: Shell) -> None:
    """Two calls: by bubblewrap where it can confine here, else as the caller's own programs."""
    grep = f'grep -rni {WORD} {" ".join(DOCUMENTS)} > "$TMPDIR/found.txt"'
    search = f"tar -C {shlex.quote(str(ROOT))} -c {' '.join(DOCUMENTS)} | {RUN} sh -c 'tar x && {grep}'"
    why = "A first call: real documents go in by standard input, and are searched into a file in $TMPDIR."
    operator.run(why, search)
    count = "cut -d: -f1 found.txt | sort | uniq -c | sort -rn"
    counted = operator.run(
        "A second call, another program: it counts what the first one found.", f"{RUN} sh -c '{count}'"
    )
    total = sum(int(line.split()[0]) for line in counted.splitlines())
    truth = sum(WORD.encode() in line.lower() for line in _document_lines())
    expect(0 < truth == total, f"counted {total} lines, but the documents have {truth}")
    seen = program.run("What calls leave in the workspace is there for every program of the turn.", "wc -l < found.txt")
    expect(int(seen) == truth, f"the file has {seen.strip()} lines, not {truth}")


def _stay_inside(here: Stage, operator: Shell) -> None:
    """What a call does not see, and that its exit status is told."""
    seen = operator.run("A call sees its own processes, and no others.", f"{RUN} sh -c 'ls -d /proc/[0-9]*'")
    expect(len(seen.splitlines()) < 10, "a call sees processes of the host")
    hidden = shlex.join([str(here.state), str(here.socket)])
    said = operator.run("It sees neither the state nor the control socket.", f"{RUN} ls {hidden}", 2)
    expect(said.count("No such file") == 2, "a call sees what it must not")
    operator.run("The exit status of a call is its program's.", f"{RUN} sh -c 'exit 3'", 3)


def _hand_over(here: Stage, client: Client, operator: Shell) -> None:
    """The outbox: a file that breaks a rule is told at once, a good one is handed over when the call ends."""
    count = r"cut -d: -f1 found.txt | sort | uniq -c | sort -rn | sed 's/ *\([0-9]*\) /\1,/'"
    make = f'(echo lines,file; {count}) > "$FUSEFS_OUTBOX/lines.csv"; cp found.txt "$FUSEFS_OUTBOX/plot.png"'
    why = "Results leave through the outbox. A file that breaks a rule is refused when it is closed: cp is told."
    said = operator.run(why, f"fusefs run --call results demo -- sh -c {shlex.quote(make)}", 1)
    expect("plot.png': Invalid argument" in said, "cp was not told that this is no PNG")
    expect("attached lines.csv (text/csv, " in said, "the CSV was not attached")
    expect("not attached: plot.png: " in said, "the end of the call does not name the file that it refused")
    why = "What was kept is frozen, with its SHA-256. Save it, and let the daemon delete its copy."
    operator.run(why, "fusefs call attachments results --save results --acknowledge")
    digest = hashlib.sha256((here.base / "results" / "lines.csv").read_bytes()).hexdigest()
    expect([one.sha256 for one in client.attachments("results")] == [digest], "what was saved is not what was kept")


def _document_lines() -> Iterator[bytes]:
    for path in (ROOT / name for name in DOCUMENTS):
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        for file in files:
            yield from file.read_bytes().split(b"\n")


def _clone(here: Stage, operator: Shell, program: Shell) -> None:
    source = repository(here, operator, program)
    line = f"git clone --quiet --depth 1 {shlex.quote(source.as_uri())} project"
    program.run("Git, as on a local disk: clone a repository into the workspace ($HOME).", line)
    status = program.run("The clone is clean.", "cd project && git status --short --branch")
    expect(len(status.splitlines()) == 1, "git finds changes in a fresh clone")
    program.run("It has the commit.", "cd project && git log -1 --format='%h %s'")
    _, commits = program.quietly(f"git -C {shlex.quote(str(source))} rev-parse HEAD; git -C project rev-parse HEAD")
    expect(len({line.split()[0] for line in commits.splitlines()}) == 1, "the clone has another commit")


def repository(here: Stage, operator: Shell, program: Shell) -> Path:
    """The checkout that the demo runs from, where git in a turn can read it; else one made of the documents."""
    status, head = program.quietly(f"git ls-remote {shlex.quote(ROOT.as_uri())} HEAD")
    if status == 0 and head.strip():
        return ROOT
    documents = shlex.join(str(ROOT / name) for name in DOCUMENTS)
    make = f"mkdir documents && cd documents && git init --quiet && cp -r {documents} . && git add ."
    commit = (
        "git -c user.name=demo -c user.email=demo@localhost -c commit.gpgsign=false commit --quiet -m 'The documents'"
    )
    why = "This copy of the project is no repository that git can clone, so make one of its documents."
    operator.run(why, f"{make} && {commit}")
    return here.base / "documents"


def _held(client: Client) -> dict[AccountKind, int]:
    """What each account holds (bytes)."""
    return {kind: account.used_bytes for kind, account in _accounts(client).items()}


def _accounts(client: Client) -> dict[AccountKind, Account]:
    return {account.kind: account for account in client.usage()}


def _show_usage(why: str, client: Client, operator: Shell, program: Shell) -> None:
    """Show what is used in three ways, and check that they are one number."""
    operator.run(why, "fusefs usage")
    seen = operator.run("df, from outside of a turn, tells the totals of all scratch.", "df -Pk mnt")
    line = 'getfattr --absolute-names --only-values --name user.fusefs.usage "$HOME"'
    told = json.loads(program.run("Programs of the turn can read the same figures on each of its paths.", line))
    accounts = _accounts(client)
    _, total, used, *_ = seen.splitlines()[-1].split()
    scratch = accounts[AccountKind.SCRATCH]
    expect(int(total) * 1024 == scratch.limit_bytes, f"df tells {total} KiB in all, not {scratch.limit_bytes} bytes")
    expect(int(used) == -(-scratch.used_bytes // 1024), f"df tells {used} KiB used, not {scratch.used_bytes} bytes")
    for kind, account in accounts.items():
        expect(told[kind]["used_bytes"] == account.used_bytes, f"{kind}: the attribute differs from fusefs usage")


def _walked(workspace: Path) -> int:
    """What a workspace is charged with (bytes), counted the slow way: 1 KiB for each name, and blocks of files."""
    found = [path.lstat() for path in workspace.rglob("*")]
    files = {st.st_ino: st.st_blocks * BLOCK_BYTES for st in found if stat.S_ISREG(st.st_mode)}
    return len(found) * NAME_BYTES + sum(files.values())


def _hit_the_limit(client: Client, operator: Shell, program: Shell) -> None:
    line = 'dd if=/dev/zero of="$TMPDIR/big" bs=1M count=32'
    said = program.run("Write 32 MiB into a turn that may hold 24: the write that would cross is refused.", line, 1)
    expect("Disk quota exceeded" in said, "dd was not told EDQUOT")
    _show_usage("The turn is full, to the last block that fits, and no further.", client, operator, program)
    held = _held(client)[AccountKind.TURN]
    expect(TURN_BYTES - NEARLY < held <= TURN_BYTES, f"the turn holds {held} bytes of {TURN_BYTES}")
    operator.run("What was refused stays readable, for whoever asks later why a write failed.", "fusefs turn show demo")
    view = client.show("demo")
    expect(view.refused_count > 0, "no refusal was kept")
    expect(view.refused[-1].limit == "turn", f"the {view.refused[-1].limit} limit was hit, not the turn's")


def _end(here: Stage, client: Client, operator: Shell, turn: TurnBegun) -> None:
    operator.run("End the turn: its workspace is gone at once, for everyone.", "fusefs turn end demo")
    folder = shlex.quote(os.path.relpath(turn.workspace, here.base))
    gone = operator.run("The workspace is gone.", f"ls {folder}", 2)
    expect("No such file or directory" in gone, "the workspace is still there")
    until = time.monotonic() + FREED_SECONDS
    while os.listdir(here.state / "ended") and time.monotonic() < until:
        time.sleep(0.02)
    why = "Its files are removed in the background, and by now they are gone, too."
    left = operator.run(why, "find state/turns state/ended -mindepth 1")
    expect(not left, "the state directory still holds files of the turn")
    operator.run("Nothing is used any more; what was the most stays known.", "fusefs usage")
    expect(set(_held(client)) == {AccountKind.SCRATCH}, "the turn's or the user's account is still there")
    expect(_held(client)[AccountKind.SCRATCH] == 0, "scratch is still charged")


def _unmount(here: Stage, operator: Shell, pids: list[int]) -> None:
    operator.run("Unmount; the command returns when the daemon has ended.", "fusefs umount mnt")
    operator.run("No mount is left.", 'grep "$PWD/mnt" /proc/mounts', 1)
    operator.run("No process is left.", " || ".join(f"readlink /proc/{pid}/exe" for pid in pids), 1)
    expect(not here.is_mounted(), "it is still mounted")
    expect(not here.daemons(), "a daemon still runs")


if __name__ == "__main__":
    sys.exit(main())
