"""Logs that looked healthy and were not, and the other way round: a server that served, and what came after."""

import pytest

from sglogparse import read_log

STAMP = "[2025-04-02 08:00:%02d%s] "
ARGS = STAMP % (0, "") + "server_args=ServerArgs(model_path='m', tp_size=2, mem_fraction_static=0.8)"
READY = STAMP % (9, "") + "The server is fired up and ready to roll!"
BATCH = STAMP % (20, " TP0") + (
    "Decode batch, #running-req: 1, #token: 90, token usage: 0.01, cuda graph: True, "
    "gen throughput (token/s): 80.10, #queue-req: 0"
)
ANSWERED = 'INFO:     10.0.0.9:4021 - "POST /generate HTTP/1.1" 200 OK'
FAILED = 'INFO:     10.0.0.9:4021 - "POST /generate HTTP/1.1" 500 Internal Server Error'
SCRAPED = 'INFO:     10.0.0.9:4022 - "GET /metrics HTTP/1.1" 200 OK'
DIED = [
    "Traceback (most recent call last):",
    '  File "/opt/sglang/python/sglang/srt/managers/scheduler.py", line 9, in run_scheduler_process',
    "    scheduler.event_loop_overlap()",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB",
]
SERVED = [ARGS, READY, BATCH, ANSWERED]


@pytest.fixture
def diagnose(tmp_path):
    def read(*lines):
        path = tmp_path / "server.log"
        path.write_text("".join(f"{line}\n" for line in lines))
        return read_log(path).diagnose()

    return read


def test_a_server_that_serves_is_healthy(diagnose):
    found = diagnose(*SERVED)
    assert (found.outcome, found.cause, found.exit_code()) == ("ready", "none", 0)


def test_an_http_answer_does_not_hide_a_dead_scheduler(diagnose):
    found = diagnose(*SERVED, *DIED, SCRAPED)
    assert (found.outcome, found.cause, found.root.line, found.exit_code()) == (
        "crashed",
        "memory.runtime",
        8,
        1,
    )


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "bash: line 1: 4711 Killed                  python -m sglang.launch_server",
        "OOMKilled",
        "Command exited with code 137",
        "OSError: [Errno 28] No space left on device",
    ],
)
def test_words_of_the_end_leave_a_server_that_served_undecided(diagnose, line):
    found = diagnose(*SERVED, line)
    assert (found.outcome, found.cause, found.exit_code()) == ("ready", "unknown", 3)
    assert "no fault" not in found.summary


def test_a_pool_that_is_exhausted_at_the_end_is_an_error(diagnose):
    line = STAMP % (50, " TP1") + "Decode out of memory. Try to lower your batch size."
    found = diagnose(*SERVED, line)
    assert (found.outcome, found.cause, found.exit_code(), found.root.line) == (
        "ready",
        "kv.pool_exhausted",
        1,
        5,
    )


def test_a_crash_after_a_restart_is_not_the_teardown_of_the_stop_before_it(diagnose):
    stopped = ["INFO:     Shutting down", "INFO:     Finished server process [7]"]
    found = diagnose(*SERVED, *stopped, READY, BATCH, *DIED)
    assert (found.outcome, found.root.line, found.exit_code()) == ("crashed", 12, 1)


def test_a_traceback_that_another_program_was_answered_is_no_crash(diagnose):
    line = "output.error='" + "\\n".join(DIED) + "\\n'"
    assert diagnose(*SERVED, line).outcome != "crashed"


@pytest.mark.parametrize("tag", ["[rank1]: ", "(Worker pid=7, ip=10.0.0.1) "])
def test_a_traceback_whose_lines_name_their_process_is_a_crash(diagnose, tag):
    found = diagnose(*SERVED, *(tag + line for line in DIED))
    assert (found.outcome, found.cause, found.root.line) == ("crashed", "memory.runtime", 8)


def test_tracebacks_that_cannot_be_told_apart_are_a_crash(diagnose):
    other = [
        '  File "/opt/sglang/python/sglang/srt/managers/tp_worker.py", line 3, in forward',
        "ValueError: x",
    ]
    found = diagnose(*SERVED, *DIED[:3], DIED[0], *other, DIED[3])
    assert (found.outcome, found.root.line) == ("crashed", 10)


@pytest.mark.parametrize(
    ("failures", "after", "code"),
    [
        (1, [ANSWERED] * 3, 0),
        (2, [], 3),
        (3, [], 3),
        (30, [], 3),
        (30, [ANSWERED], 3),
        (3, [ANSWERED] * 20, 0),
    ],
)
def test_requests_that_only_fail_are_not_health(diagnose, failures, after, code):
    assert diagnose(*SERVED, *[FAILED] * failures, *after).exit_code() == code


def test_an_optional_import_before_readiness_is_no_crash(diagnose):
    optional = [DIED[0], '  File "/opt/sglang/srt/utils.py", line 3, in probe', "ImportError: no such extra"]
    found = diagnose(ARGS, *optional, READY)
    assert (found.outcome, found.exit_code()) == ("ready", 0)


def test_an_export_never_overwrites_its_log(tmp_path):
    from click.testing import CliRunner

    from sglogparse._cli import main

    path = tmp_path / "server.csv"
    path.write_text(f"{BATCH}\n")
    done = CliRunner().invoke(main, ["export", str(path), "--frame", "lines", "-o", str(path)])
    assert done.exit_code == 2
    assert path.read_text() == f"{BATCH}\n"


def test_a_scheduler_s_own_exception_needs_no_stack(diagnose):
    raised = "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`."
    found = diagnose(*SERVED, raised)
    assert (found.outcome, found.cause, found.root.line) == ("crashed", "kv.pool_exhausted", 5)


def test_a_failed_request_as_the_last_lines_is_no_crash(diagnose):
    failed = [
        STAMP % (40, "") + "Error in request: 'NoneType' object is not iterable",
        DIED[0],
        '  File "/opt/sglang/srt/entrypoints/openai/serving_chat.py", line 9, in handle_request',
        "    return self.convert(request)",
        "TypeError: 'NoneType' object is not iterable",
    ]
    found = diagnose(*SERVED, *failed)
    assert (found.outcome, found.root) == ("ready", None)


def test_a_port_in_use_ends_a_start(diagnose):
    taken = "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use"
    found = diagnose(ARGS, "INFO:     Waiting for application startup.", taken)
    assert (found.outcome, found.cause, found.root.line) == ("crashed", "env.port_in_use", 3)


@pytest.mark.parametrize(
    "line",
    [
        "Receive: obj=GenerateReqInput(rid='a1', http_worker_ipc=None, text='Why Segmentation fault?')",
        "Finish: obj=GenerateReqInput(text='CUDA error'), out={'text': 'out of memory means'}",
        '{"timestamp": "2025-04-02T08:00:50", "event": "request.received", "rid": "a1", '
        '"obj": {"text": "NCCL error"}}',
    ],
)
def test_what_clients_write_about_failures_is_none(diagnose, line):
    found = diagnose(*SERVED, STAMP % (50, "") + line)
    assert (found.outcome, found.cause, found.exit_code(), found.findings) == ("ready", "none", 0, ())


HUGE = "DEBUG profile_max_num_token: avail={} GiB, total=94.037 GiB, fraction=0.55, reserved={} GiB, rest=-20.608 GiB, cell_size=70272, max_tokens=-314887"


@pytest.mark.parametrize(
    "line",
    [
        "(A pid=1) x [repeated 99999999999999999999x across cluster]",
        "[rank40000]: Traceback (most recent call last):",
        STAMP % (1, " TP0") + HUGE.format("21.1e999", "42.316"),
        STAMP % (1, " TP0") + HUGE.format("21.708", "1" * 400),
    ],
)
def test_numbers_that_no_column_holds_are_no_error(diagnose, line):
    assert diagnose(line).outcome in ("unknown", "starting", "crashed")
    assert diagnose(*SERVED, line).exit_code() in (0, 1, 3)


def test_a_number_of_ranks_that_no_machine_has_is_no_number_of_ranks(diagnose):
    args = ARGS.replace("tp_size=2", "tp_size=99999999999")
    found = diagnose(
        args, *(STAMP % (2, f" TP{tp}") + "Load weight begin. avail mem=78.50 GB" for tp in (0, 1))
    )
    assert (found.outcome, [one.code for one in found.findings]) == ("starting", ["P002"])


def test_the_first_arguments_below_an_older_server_begin_a_launch(diagnose):
    older = [
        STAMP % (1, " TP0") + "Load weight begin. avail mem=78.50 GB",
        STAMP % (2, " TP0") + "Scheduler hit an exception: Traceback (most recent call last):",
        *DIED[1:3],
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "",
    ]
    found = diagnose(*older, *SERVED)
    assert [(one.first_line, one.last_line, one.outcome) for one in found.launches] == [
        (1, 6, "crashed"), (7, 10, "ready"),
    ]  # fmt: skip
    assert (found.outcome, found.exit_code()) == ("ready", 1)
    assert "an earlier launch (lines 1-6) crashed" in found.summary
