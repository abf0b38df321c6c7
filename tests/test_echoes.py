"""The tables of what is no first fault, in both directions, and what follows from them for the root line."""

import re

import pytest

from sglogparse import read_log
from sglogparse._echoes import ECHOES, WAITING, Role, role_of, role_of_stack
from sglogparse._faults import faults
from sglogparse._split import read_launches

RAISED = 'File "/opt/sglang/srt/managers/scheduler.py", line 9, in run_scheduler_process'


@pytest.fixture
def read(tmp_path):
    def read(*lines):
        path = tmp_path / "server.log"
        path.write_text("".join(f"{line}\n" for line in lines))
        return read_log(path)

    return read


def report(stamp, rank, *exception):
    return [
        f"[2026-03-02 {stamp} {rank}] Scheduler hit an exception: Traceback (most recent call last):",
        f"  {RAISED}",
        "    scheduler.event_loop_overlap()",
        *exception,
    ]


@pytest.mark.parametrize("echo", ECHOES, ids=lambda one: one.why)
def test_an_echo_matches_what_it_says(echo):
    assert echo.says
    assert [role_of(text) for text in echo.says] == [(echo.role, echo.why)] * len(echo.says)


@pytest.mark.parametrize("echo", ECHOES, ids=lambda one: one.why)
def test_an_echo_does_not_match_its_neighbours(echo):
    assert echo.not_these
    for text in echo.not_these:
        role, why = role_of(text)
        assert (role, why) == (Role.ROOT, "nothing in the log explains it") or why != echo.why


def test_the_patterns_have_no_look_around():
    assert not [echo for echo in ECHOES if re.search(r"\(\?[=!<]", echo.pattern.pattern)]


def test_every_role_is_in_use():
    assert {echo.role for echo in ECHOES} == set(Role) - {Role.ROOT}


@pytest.mark.parametrize("waiting", WAITING, ids=lambda one: one.why)
def test_a_stack_that_only_waits_is_no_first_fault(waiting):
    for name in waiting.names:
        assert role_of_stack(["main", name]) == (waiting.role, waiting.why)
        assert role_of_stack(["main"], f"self.x = {name}(args)") == (waiting.role, waiting.why)
        # further out it has called something that failed
        assert role_of_stack([name, "load_model"])[0] is Role.ROOT
    assert role_of_stack([]) == role_of_stack([None]) == (Role.ROOT, "its exception is cut off")


def test_advice_at_the_end_of_an_exception_is_not_its_role(read):
    lines = report(
        "10:00:00", "TP0", "Exception: Capture cuda graph failed: odd", "Possible solutions:", "1. set --x"
    )
    (found,) = faults(read_launches(read(*lines))[0])
    assert (found.role, found.line, found.root_line) == (Role.ROOT, 1, 4)


def test_the_earliest_stamp_is_the_first_fault_wherever_it_stands(read):
    late = report("10:00:07", "TP0", "KeyError: 'late'")
    early = report("10:00:02", "TP3", "KeyError: 'early'")
    chief = read(*late, *early).diagnose().chief
    assert (chief.root.line, chief.detail.exceptions) == (8, ("KeyError: 'early'",))


def test_without_stamps_the_first_line_is_the_first_fault(read):
    lines = [line.replace("2026-03-02 10:00:07 ", "").replace("2026-03-02 10:00:02 ", "") for line in (
        *report("10:00:07", "TP0", "KeyError: 'one'"), *report("10:00:02", "TP3", "KeyError: 'two'")
    )]  # fmt: skip
    assert read(*lines).diagnose().root.line == 4


def test_a_sigquit_before_its_cause_is_not_the_cause(read):
    quits = "[2026-03-02 10:00:01] Received sigquit from a child process. It usually means the child failed."
    found = read(quits, *report("10:00:01", "TP1", "KeyError: 'x'")).diagnose()
    assert (found.root.line, found.cause) == (5, "code.assertion")
    assert "1 echo of it" in found.findings[0].message


def test_the_same_fault_on_other_ranks_with_other_numbers_is_no_other_fault(read):
    lines = [
        *report("10:00:00", "TP0", "ValueError: 12 tokens at 0x7f01 do not fit"),
        *report("10:00:00", "TP1", "ValueError: 13 tokens at 0x7f02 do not fit"),
        *report("10:00:00", "TP2", "KeyError: 'other'"),
        "[2026-03-02 10:00:01 TP3] Scheduler hit an exception: Traceback (most recent call last):",
    ]
    (died,) = [one for one in read(*lines).diagnose().findings if one.code == "P001"]
    assert "(1 other fault)" in died.message


def test_the_parents_own_handler_is_an_echo(read):
    handler = '  File "/opt/sglang/srt/entrypoints/engine.py", line 346, in sigquit_handler'
    found = read('  File "/opt/sglang/srt/utils.py", line 507, in kill_process_tree', "    itself.send_signal(3)",
                 handler, "    kill_process_tree(os.getpid())").diagnose()  # fmt: skip
    assert (found.outcome, found.cause, found.root.line) == ("crashed", "process.killed", 3)


def test_an_exception_without_a_text_is_named_by_the_one_below(read):
    found = read(
        "ImportError:",
        "[sgl_kernel] CRITICAL: Could not load any common_ops library!",
        "",
        "Error details from previous import attempts:",
        "- ImportError: libfoo.so.1: cannot open shared object file",
    ).diagnose()
    assert (found.root.line, found.cause) == (5, "env.missing_dependency")


def test_what_was_said_ahead_speaks_for_an_exception_that_is_cut_off(read):
    ahead = (
        "[2026-03-02 10:00:00 TP1] Piecewise CUDA Graph failed with error: 'Ctx' object has no attribute 'n'"
    )
    found = read(ahead, *report("10:00:00", "TP1")).diagnose()
    assert (found.root.line, found.cause, found.chief.phase) == (1, "code.assertion", "graph capture")
    whole = read(ahead, *report("10:00:00", "TP1", "AttributeError: 'Ctx' object has no attribute 'n'"))
    assert whole.diagnose().root.line == 5


def test_the_text_of_a_native_end_stands_on_its_next_line(read):
    found = read(
        "Process group watchdog thread terminated with exception:", "HIP error: invalid device"
    ).diagnose()
    assert (found.outcome, found.cause, found.root.line) == ("crashed", "gpu.kernel_fault", 1)


def test_an_abort_is_the_fault_when_nothing_says_why(read):
    assert read("Fatal Python error: Aborted").diagnose().cause == "process.segfault"
    said = read(
        "RuntimeError: CUDA error: an illegal memory access was encountered", "Fatal Python error: Aborted"
    )
    assert (said.diagnose().cause, said.diagnose().root.line) == ("gpu.illegal_access", 1)


def test_a_librarys_traceback_is_the_servers_when_its_caller_is_cut_off(read):
    hub = [
        "Traceback (most recent call last):",
        '  File "/opt/lib/python3.12/site-packages/huggingface_hub/utils/_http.py", line 402, in hf_raise',
        "    raise HTTPError(message)",
        "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/m/x.json",
    ]
    assert read(*hub).diagnose().cause == "model.not_found"
    # another program's traceback begins in that program
    script = ['  File "/home/me/bench.py", line 3, in <module>', "    main()"]
    assert read(hub[0], *script, *hub[1:]).diagnose().outcome != "crashed"
    # and what a start goes on after was no fault of it
    ready = "[2026-03-02 10:00:00] The server is fired up and ready to roll!"
    assert read(*hub, ready).diagnose().outcome == "ready"
