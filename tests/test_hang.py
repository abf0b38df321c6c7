"""What a hang leaves in the log: the last state, silent ranks, dumped stacks, collectives."""

import pytest

from sglogparse import read_log
from sglogparse._hang import collectives, last_state, queued, silent_first, stacks, stuck
from sglogparse._split import read_launches

BATCH = (
    "[2026-03-02 10:%s %s] Decode batch, #running-req: 8, #token: 36000, token usage: 0.40, cuda graph: True, "
    "gen throughput (token/s): 400.00, #queue-req: 3"
)
FIRED = "[2026-03-02 10:05:00 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"


@pytest.fixture
def read(tmp_path):
    def read(*lines):
        path = tmp_path / "server.log"
        path.write_text("".join(f"{line}\n" for line in lines))
        return read_log(path)

    return read


@pytest.fixture
def launch(read):
    return lambda *lines: read_launches(read(*lines))[0]


def test_the_last_batch_before_a_hang(launch):
    one = launch(BATCH % ("00:00", "TP0"), BATCH % ("00:30", "TP0"), FIRED)
    assert last_state(one, 3) == "last batch 4 min 30 s before (line 2): 8 running, 3 queued, usage 0.40"
    assert last_state(one, 1) is None


def test_ranks_that_fell_silent_first(launch):
    spoke = [BATCH % ("01:40", f"DP{rank} TP{rank}") for rank in (0, 1, 3)]
    one = launch(BATCH % ("01:00", "DP2 TP2"), *spoke, FIRED)
    assert silent_first(one, 5) == "DP2 TP2 fell silent first, 40 s before the others"
    # the first rank alone prints batches: that the others are silent means nothing
    quiet = launch(*(BATCH % ("00:00", f"TP{rank}") for rank in (1, 2, 3)), BATCH % ("01:40", "TP0"), FIRED)
    assert silent_first(quiet, 5) is None
    assert silent_first(launch(BATCH % ("00:00", "TP0"), FIRED), 2) is None


DUMP = [
    "Process 74965: sglang::scheduler_TP0",
    "Python v3.12.3 (/usr/bin/python3.12)",
    "",
    'Thread 10366 (idle): "MainThread"',
    "    wait4 (libc.so.6)",
    "    wait (threading.py:359)",
    "    resolve_batch_result (sglang/srt/managers/tp_worker_overlap_thread.py:171)",
    "    event_loop_overlap (sglang/srt/managers/scheduler.py:700)",
    'Thread 13170 (idle): "Thread-1 (_watchdog_thread)"',
    "    pyspy_dump_schedulers (utils/common.py:2432)",
]
NATIVE = [
    "Process 74966: sglang::scheduler_TP1",
    'Thread 10367 (idle): "MainThread"',
    "    pthread_cond_timedwait (libc.so.6)",
    "    c10d::ProcessGroupGloo::RecvWork::wait (libtorch_cpu.so)",
]


def test_where_the_dumped_main_threads_stand(launch):
    one = launch(*DUMP, "", *NATIVE)
    assert [(stack.line, stack.process) for stack in stacks(one)] == [
        (1, "sglang::scheduler_TP0"),
        (12, "sglang::scheduler_TP1"),
    ]
    assert stuck(one) == (
        "sglang::scheduler_TP0 in resolve_batch_result (sglang/srt/managers/tp_worker_overlap_thread.py:171); "
        "sglang::scheduler_TP1 in c10d::ProcessGroupGloo::RecvWork::wait (libtorch_cpu.so)"
    )
    assert stuck(launch(FIRED)) is None


def test_a_dump_without_the_line_of_its_watchdog_is_a_hang(read):
    found = read(BATCH % ("00:00", "TP0"), *DUMP).diagnose()
    assert (found.outcome, found.cause, found.root.line) == ("hung", "hang.watchdog", 2)
    assert "scheduler_TP0 in resolve_batch_result" in found.findings[0].message
    # what is dumped while batches go on was asked for
    assert read(*DUMP, BATCH % ("00:00", "TP0")).diagnose().outcome == "ready"


def test_a_watchdog_says_what_the_server_was_at(read):
    (found,) = [
        one for one in read(BATCH % ("00:00", "TP0"), FIRED).diagnose().findings if one.code == "H001"
    ]
    assert found.message == (
        "No progress for 300 s: the watchdog fired (watchdog_timeout=300) on TP0; last batch 5 min 00 s before "
        "(line 1): 8 running, 3 queued, usage 0.40."
    )


def test_the_collectives_that_timed_out(launch):
    caught = (
        "[rank%d]:[E302 10:10:00.1 ProcessGroupNCCL.cpp:632] [Rank %d] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=88120, OpType=ALLREDUCE, NumelIn=36864, NumelOut=36864, Timeout(ms)=600000) ran for 600041 "
        "milliseconds before timing out."
    )
    detected = (
        "[PG ID 2 PG GUID 3 Rank 1] Exception (either an error or timeout) detected by watchdog at work: 7, "
        "last enqueued NCCL work: 9, last completed NCCL work: 6."
    )
    one = launch(caught % (0, 0), caught % (0, 0), caught % (3, 3), detected)
    assert [(work.rank, work.line, work.number, work.operation) for work in collectives(one)] == [
        ("0", 1, 88120, "ALLREDUCE"),
        ("3", 3, 88120, "ALLREDUCE"),
    ]
    assert [(work.elements, work.limit, work.ran) for work in collectives(one)] == [
        (36864, 600000, 600041)
    ] * 2
    assert queued(one) == {"1": (9, 6)}


DIED = [
    "[2026-03-02 10:00:00 TP1] TpModelWorkerClient hit an exception: Traceback (most recent call last):",
    '  File "/opt/sglang/srt/managers/tp_worker_overlap_thread.py", line 9, in forward_thread_func',
    "    self.forward_thread_func_()",
    "KeyError: 'x'",
]
UNWELL = (
    "[2026-03-02 10:%s] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
    "tic start time: 10:01:00. last_heartbeat time: 09:59:59"
)


def test_a_rank_that_threw_while_the_process_lives_on_is_a_hang_with_a_first_fault(read):
    found = read(*DIED, UNWELL % "01:20", UNWELL % "31:20").diagnose()
    assert (found.outcome, found.cause, found.root.line) == ("hung", "code.assertion", 4)


@pytest.mark.parametrize(
    "after",
    [
        [],
        [UNWELL % "01:20"],
        [UNWELL % "01:20", UNWELL % "01:40"],
        ["[2026-03-02 10:00:01] Received sigquit from a child process. It usually means the child failed.",
         UNWELL % "01:20", UNWELL % "31:20"],
    ],
)  # fmt: skip
def test_else_it_is_a_crash(read, after):
    found = read(*DIED, *after).diagnose()
    assert (found.outcome, found.root.line) == ("crashed", 4)
