"""The outcome of a launch: what real logs teach about readiness, stops, crashes and hangs."""

import pytest

from sglogparse import read_log

AT = "[2026-03-02 10:00:%02d%s] "
ARGS = AT % (0, "") + "server_args=ServerArgs(model_path='m', tp_size=2, nnodes=%d, node_rank=%d)"
LOADS = AT % (3, " TP0") + "Load weight begin. avail mem=78.50 GB"
READY = AT % (9, "") + "The server is fired up and ready to roll!"
BATCH = AT % (20, " TP0") + (
    "Decode batch, #running-req: 1, #token: 90, token usage: 0.01, cuda graph: True, "
    "gen throughput (token/s): 80.10, #queue-req: 0"
)
TERM = AT % (30, "") + "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
QUIT = AT % (31, "") + "Received sigquit from a child process. It usually means the child failed."
EXIT = AT % (31, "") + (
    "Subprocess scheduler_0 (pid=101) crashed with exit code -15. Triggering SIGQUIT for cleanup..."
)
HARNESS = [
    "Traceback (most recent call last):",
    '  File "/work/tests/test_serving.py", line 12, in <module>',
    "    run()",
    '  File "/opt/lib/python3.12/site-packages/requests/api.py", line 59, in request',
    "    return session.request()",
    "requests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=30000)",
]
RANK = [
    AT % (25, " TP1") + "Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/opt/sglang/srt/managers/scheduler.py", line 9, in run_scheduler_process',
    "    scheduler.event_loop_overlap()",
    "KeyError: 'x'",
]
NOTICES = [
    AT % (1, "") + "Ignore import error when loading sglang.srt.models.glm: No module named 'x'",
    AT % (1, " TP0") + "Setup Custom allreduce failed with [Errno 2] No such file. To silence this warning, "
    "specify --disable-custom-all-reduce explicitly.",
    "W0302 10:00:01.104586 27322 rdma_context.cpp:80] No RDMA devices found",
]


@pytest.fixture
def judge(tmp_path):
    def judge(*lines):
        path = tmp_path / "server.log"
        path.write_text("".join(f"{line}\n" for line in lines))
        found = read_log(path).diagnose()
        return found.outcome.value, found.cause, found.root.line if found.root else None

    return judge


def test_a_ready_line_or_a_batch_is_readiness(judge):
    assert judge(ARGS % (1, 0), READY) == ("ready", "none", None)
    assert judge(BATCH) == ("ready", "none", None)
    assert judge(ARGS % (1, 0), LOADS) == ("starting", "none", None)


def test_what_a_clean_stop_prints_is_no_crash(judge):
    assert judge(ARGS % (1, 0), READY, BATCH, TERM, EXIT, QUIT) == ("stopped", "none", None)
    # an exception that follows is teardown, one that came before is a crash
    assert judge(ARGS % (1, 0), READY, TERM, *RANK)[:2] == ("stopped", "none")
    assert judge(ARGS % (1, 0), READY, *RANK, QUIT, TERM) == ("crashed", "code.assertion", 6)


def test_a_node_that_never_prints_ready_is_starting(judge):
    assert judge(ARGS % (2, 1), LOADS) == ("starting", "none", None)


def test_a_harnesss_traceback_is_not_the_servers(judge):
    assert judge(ARGS % (1, 0), READY, BATCH, *HARNESS) == ("ready", "none", None)
    assert judge(ARGS % (1, 0), LOADS, *HARNESS)[0] != "crashed"


def test_silence_at_the_end_is_never_a_crash(judge):
    assert judge(ARGS % (1, 0), LOADS, "")[0] == "starting"
    assert judge("")[0] == "unknown"


def test_words_in_the_arguments_are_no_events(judge):
    args = AT % (0, "") + (
        "server_args=ServerArgs(model_path='/models/sigquit-error', tp_size=1, retract_decode_steps=20, "
        "crash_dump_folder='/tmp/crash', log_level='error', watchdog_timeout=300, crash_on_nan=False)"
    )
    assert judge(args, READY) == ("ready", "none", None)


@pytest.mark.parametrize("notice", NOTICES)
def test_notices_are_noise_even_when_they_come_first(judge, notice):
    assert judge(ARGS % (1, 0), notice, READY) == ("ready", "none", None)
    assert judge(notice, ARGS % (1, 0), LOADS)[:2] == ("starting", "none")
    assert judge(notice, *RANK) == ("crashed", "code.assertion", 5)


def test_a_sigquit_alone_is_a_crash_without_a_reason(judge):
    assert judge(ARGS % (1, 0), LOADS, QUIT) == ("crashed", "process.killed", 3)
    assert judge(QUIT, *RANK) == ("crashed", "code.assertion", 5)


def test_a_restart_that_serves_is_ready_and_tells_of_the_crash(tmp_path):
    path = tmp_path / "server.log"
    lines = [ARGS % (1, 0), LOADS, *RANK, QUIT, (ARGS % (1, 0)).replace("10:00:00", "10:05:00"), READY]
    path.write_text("".join(f"{line}\n" for line in lines))
    found = read_log(path).diagnose()
    assert [one.outcome.value for one in found.launches] == ["crashed", "ready"]
    assert found.outcome.value == "ready"
    assert "an earlier launch (lines 1-7) crashed" in found.summary
