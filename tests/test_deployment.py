"""Which files hold one launch, by how much their clocks differ, and what that does to the verdict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sglogparse import Outcome, read_log
from sglogparse._deployment import clock_offset, facts_of, read_groups
from sglogparse._split import read_launches
from sglogparse.render.text import render_text

FIXTURES = Path(__file__).parent / "fixtures" / "timeline"
NODE0 = (FIXTURES / "node0.log").read_text()
NODE1 = (FIXTURES / "node1.log").read_text()


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes logs and returns their names."""
    monkeypatch.chdir(tmp_path)

    def written(**texts):
        for name, text in texts.items():
            Path(f"{name}.log").write_text(text)
        return [f"{name}.log" for name in texts]

    return written


def shifted(text, minutes=0, seconds=0):
    """Return a log whose stamps are later."""

    def later(match):
        hour, minute, second = map(int, match[2].split(":"))
        total = hour * 3600 + (minute + minutes) * 60 + second + seconds
        return f"{match[1]}{total // 3600:02}:{total // 60 % 60:02}:{total % 60:02}"

    return re.sub(r"^(\[2026-04-09 )([0-9:]{8})", later, text, flags=re.MULTILINE)


def without_args(text):
    return "".join(line for line in text.splitlines(keepends=True) if "server_args=" not in line)


def groups(names):
    return read_groups(read_launches(read_log(names)))


# ------------------------------------------------------------------ what is joined


def test_nodes_of_one_job_are_joined_in_the_order_of_their_ranks(write):
    (group,) = groups(write(b=NODE1, a=NODE0))
    assert (group.kind, group.members, group.role) == ("nodes", (1, 0), None)
    assert group.reason == "nodes 0, 1 of one launch: equal arguments, dist_init_addr 10.1.0.4:20000"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dist_init_addr='10.1.0.4:20000'", "dist_init_addr='10.1.0.9:20000'"),
        ("tp_size=4", "tp_size=8"),
        ("node_rank=1", "node_rank=0"),
        ("/srv/models/Orca-120B", "/srv/models/Orca-70B"),
        ("2026-04-09", "2026-04-12"),
    ],
    ids=["another address", "other arguments", "the same node", "another model", "another day"],
)
def test_nodes_of_other_jobs_are_not_joined(write, old, new):
    # of TP0 and TP1 both files speak, so they cannot be ranks of one job either
    other = NODE1.replace(old, new).replace("TP2]", "TP0]").replace("TP3]", "TP1]")
    assert [one.kind for one in groups(write(a=NODE0, b=other))] == ["server", "server"]


def test_the_last_starts_of_two_nodes_belong_together(write):
    first = NODE0.split("\n")[0] + "\n[2026-04-09 07:59:00 TP0] Init torch distributed begin.\n"
    found = groups(write(a=first + NODE0, b=NODE1))
    assert [one.members for one in found] == [(0,), (1, 2)]


def test_ranks_in_files_of_their_own_are_joined(write):
    one, two = without_args(NODE0), without_args(NODE1)
    (group,) = groups(write(a=one, b=shifted(two, minutes=-480)))
    assert group.kind == "ranks"
    assert group.reason == (
        "ranks of one launch (TP0-TP1; TP2-TP3): none is in two files, and they ran at one time"
    )
    assert [offset.seconds for offset in group.offsets] == [0.0]
    # and where the time zones differ, if lines that must be simultaneous pin them
    (group,) = groups(write(a=one, b=two))
    assert [offset.seconds for offset in group.offsets] == [8 * 3600.0]


def test_ranks_are_not_joined_when_one_is_in_both_or_they_ran_at_other_times(write):
    one = without_args(NODE0)
    assert len(groups(write(a=one, b=one))) == 2
    late = "[2026-04-09 20:00:07 TP2] Load weight begin. avail mem=78.40 GB\n"
    assert len(groups(write(a=one, b=late))) == 2
    bare = re.sub(r"^\[2026-04-09 [0-9:]{8} (TP[0-9])\]", r"[\1]", without_args(NODE1), flags=re.MULTILINE)
    assert len(groups(write(a=one, b=bare))) == 2


def test_the_members_of_a_pd_deployment_stay_launches_of_their_own():
    names = [str(FIXTURES / f"{name}.log") for name in ("prefill", "decode", "router")]
    log = read_log(names)
    found = read_groups(read_launches(log))
    assert [(one.kind, one.role) for one in found] == [
        ("server", "prefill"),
        ("server", "decode"),
        ("router", "router"),
    ]
    text = render_text(log.diagnose(), 100)
    said = "one deployment, its servers judged one by one: prefill.log (prefill), decode.log (decode), router.log (router)"
    assert said in " ".join(text.split())


def test_the_role_is_in_the_batches_where_there_are_no_arguments(write):
    decode = (
        "[2026-04-09 08:00:00] Decode batch, #running-req: 4, #token: 90, token usage: 0.01, "
        "#prealloc-req: 1, #transfer-req: 0, cuda graph: True, gen throughput (token/s): 61.20, #queue-req: 0\n"
    )
    prefill = (
        "[2026-04-09 08:00:00] Prefill batch, #new-seq: 1, #new-token: 7, #cached-token: 0, token usage: 0.00, "
        "#running-req: 0, #queue-req: 0, #inflight-req: 1\n"
    )
    assert [one.role for one in groups(write(a=decode, b=prefill))] == ["decode", "prefill"]


# ------------------------------------------------------------------ clocks


def offset(names):
    return clock_offset(*map(facts_of, read_launches(read_log(names))))


@pytest.mark.parametrize(
    ("minutes", "seconds", "kind", "value"),
    [
        (-480, 0, "same clock", 0.0),
        (-480, 3, "same clock", 0.0),
        (0, 0, "time zone", 28_800.0),
        (-150, 0, "time zone", 19_800.0),
        (-480, 1_000, "clock", 1_000.0),
        (-480, -90, "clock", -90.0),
    ],
)
def test_an_offset_is_inferred_from_simultaneous_lines(write, minutes, seconds, kind, value):
    found = offset(write(a=NODE0, b=shifted(NODE1, minutes, seconds)))
    assert (found.kind, found.seconds) == (kind, value)
    assert [(one.file, one.line) for one in found.evidence] == [
        ("a.log", 4),
        ("b.log", 4),
        ("a.log", 17),
        ("b.log", 17),
    ]


def test_why_an_offset_is_thought_is_said_with_its_lines(write):
    assert offset(write(a=NODE0, b=NODE1)).reason == (
        "8 h 00 min ahead, a whole number of half hours, so another time zone, by the end of the distributed "
        "set-up (b.log:4, a.log:4) and the end of the cuda graph capture (b.log:17, a.log:17)"
    )


def test_an_offset_is_null_when_nothing_pins_it(write):
    found = offset(write(a=NODE0, b="[2026-04-09 09:00:00 TP2] Load weight begin. avail mem=78.40 GB\n"))
    assert (found.seconds, found.kind, found.evidence) == (None, None, ())
    lines = NODE1.splitlines(keepends=True)
    torn = "".join(lines[:10]) + shifted("".join(lines[10:]), minutes=20)
    found = offset(write(a=NODE0, b=torn))
    assert (found.seconds, found.kind) == (None, None)
    assert found.reason.startswith("lines that must be simultaneous disagree: ")
    assert "8 h 20 min ahead" in found.reason


# ------------------------------------------------------------------ the verdict

CRASH = """\
[2026-04-09 16:12:30 TP3] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/python/sglang/srt/managers/scheduler.py", line 2311, in run_scheduler_process
    scheduler.event_loop_normal()
  File "/opt/sglang/python/sglang/srt/managers/scheduler.py", line 801, in event_loop_normal
    result = self.run_batch(batch)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.

"""
PEER = CRASH.replace("16:12:30 TP3", "08:12:40 TP1")


def test_a_node_that_never_prints_ready_is_ready_with_its_first_node(write):
    alone = read_log(write(b=NODE1)).diagnose()
    assert alone.outcome is Outcome.STARTING
    found = read_log(write(a=NODE0, b=NODE1)).diagnose()
    assert [one.outcome for one in found.launches] == [Outcome.READY, Outcome.READY]
    assert (found.outcome, found.exit_code()) == (Outcome.READY, 0)
    assert [(one.kind, one.outcome) for one in found.jobs] == [("nodes", Outcome.READY)]
    assert found.chief.file == "a.log"


def test_a_node_that_is_still_loading_is_not_called_ready(write):
    cut = "".join(NODE1.splitlines(keepends=True)[:9])
    found = read_log(write(a=NODE0, b=cut)).diagnose()
    assert [one.outcome for one in found.launches] == [Outcome.READY, Outcome.STARTING]
    # what is certain of the job: its first node serves
    assert [one.outcome for one in found.jobs] == [Outcome.READY]


def test_a_job_has_crashed_when_one_of_its_nodes_has(write):
    found = read_log(write(a=NODE0, b=NODE1 + CRASH)).diagnose()
    assert [one.outcome for one in found.jobs] == [Outcome.CRASHED]
    assert (found.outcome, found.root.file, found.root.rank) == (Outcome.CRASHED, "b.log", None)


def test_the_first_fault_is_the_first_by_one_clock(write):
    # node 1 died ten seconds before node 0, though its clock shows eight hours later
    found = read_log(write(a=NODE0 + PEER, b=NODE1 + CRASH)).diagnose()
    assert found.chief.file == "b.log"


def test_the_report_says_in_a_sentence_what_was_joined(write):
    found = read_log(write(a=NODE0, b=NODE1)).diagnose()
    said = " ".join(render_text(found, 80).split())
    assert (
        "joined: a.log, b.log (nodes 0, 1 of one launch: equal arguments, dist_init_addr 10.1.0.4:20000); clock of "
        "b.log against a.log: 8 h 00 min ahead, a whole number of half hours, so another time zone, by "
    ) in said
    assert "joined" not in render_text(read_log(write(a=NODE0)).diagnose(), 80)


def test_the_json_states_the_jobs(write):
    (job,) = read_log(write(a=NODE0, b=NODE1)).diagnose().as_dict()["jobs"]
    assert job["members"] == [
        {"file": "a.log", "first_line": 1, "last_line": 27},
        {"file": "b.log", "first_line": 1, "last_line": 20},
    ]
    assert (job["kind"], job["role"], job["outcome"]) == ("nodes", None, "ready")
    (clock,) = job["offsets"]
    assert (clock["file"], clock["reference"], clock["seconds"]) == ("b.log", "a.log", 28_800.0)
    assert [one["line"] for one in clock["evidence"]] == [4, 4, 17, 17]
