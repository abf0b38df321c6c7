"""Waiting for a server: looks at its log, its process and its health until its fate is known.

    Follower --> news --> Progress                     (cheap: the new lines alone)
                      --> a line that can decide?      (no: wait on)
    log() --> diagnose() --> is it certain by now? --> Fate
    --pid is gone, --url answers, the time is over ----^

A crash is certain when a process has ended: the parent says so, a scheduler reports the exception that ends
it, or an exception has left a program's outermost frame. Any other traceback can be one that was caught: it
counts when nothing goes on for some time behind it, or its process is gone; and never while --pid lives.
What a shell, a scheduler of jobs or an argument parser prints when a process is gone counts when nothing of
the server comes behind it.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import polars as pl

from sglogparse._faults import is_of_a_client
from sglogparse._follow import Block, Follower
from sglogparse._progress import BAR, LEAVES, UP, Lag, Progress, Stage, leaves
from sglogparse._ranks import rank_spread
from sglogparse._report import Diagnosis, Outcome
from sglogparse._vitals import span

if TYPE_CHECKING:
    from sglogparse._follow import News

#: How long to wait from one look at the log to the next, s.
POLL = 0.05
#: From one look at the process to the next, s.
_ASK = 0.2
#: How long to wait for the reason of an end, where its line came first, s; and causes that are none.
_SETTLE, _NO_REASON = 0.2, ("unknown", "process.killed")
#: How long no line must come after one that may decide, and how long that is waited for at the most, s.
_CALM, _LONGEST = 0.15, 2.0
#: How long nothing must go on after an exception that may have been caught, s: imports can take as long
#: without a line, and weights that come from a slow disk longer.
_LIFELESS, _LOADING = 60.0, 300.0
#: The rule by which others say that a server has ended.
_FROM_OUTSIDE = "P006"
#: How long nothing of the server must come behind a line that says that its process is gone, s.
_LEFT = 10.0
#: A silence that is told, s.
_LONG = 10.0
#: How long lines may take to reach the log after their process has gone, s.
_LINGER = 0.5
#: How long batches without a line that says so must have been served before they count as readiness, s.
_PROVEN = 30.0
#: How long no line must come until the log is judged though none of its lines may decide, s.
_SILENCE = 20.0
#: Part of the time that may be spent on judging lines that may decide; what may be spent at once, s.
_SHARE, _CREDIT = 0.05, 2.0

#: Events by which a process of the server has ended.
_DECIDES = ("sigquit", "process_exit", "warmup_failed", "child_terminated", "graceful_exit")
#: Events that may lead there.
_TELLS = (
    *("exception_report", "watchdog_timeout", "sigterm", "kill_tree", "stack_dump"),
    *("profile_max_num_token", "max_total_tokens_capped"),
)
#: Lines that may decide, where no event has them. What decides is left to the rules.
_TELLING = (
    r"Traceback \(most recent|Error\b|error:|Exception\b|[Ff]atal|[Ss]eg(?:mentation )?fault|terminate called"
    r"|core dumped|[Kk]illed|Aborted|SIG[A-Z]{3,4}\b|[Ww]atchdog|[Ss]hut(?:ting)? ?down|assert|ERR[0-9]{5}"
    r"|OutOf|out of |Caught signal|NCCL WARN|Router ready|Starting server on|Server is ready"
)
#: Functions that are the outermost of a process, and files that are programs: an exception that leaves them
#: ends it.
_OUTERMOST = ("_run_module_as_main", "_bootstrap", "run_scheduler_process")
_PROGRAM = r"launch_server|__main__|/bin/|sglang/cli/|^<"
#: Lines of native code and shells behind which there is no process any more.
_DEADLY = r"Fatal Python error: |^terminate called |Segmentation fault|core dumped|^Killed\b"

#: What of a line is quoted, characters.
_QUOTED = 200


class End(StrEnum):
    """How waiting can end."""

    READY = "ready"
    CRASHED = "crashed"
    STOPPED = "stopped"
    GONE = "gone"
    HUNG = "hung"
    TIMED_OUT = "timed out"
    LOG_ENDED = "log ended"


_ENDS = {Outcome.CRASHED: End.CRASHED, Outcome.HUNG: End.HUNG, Outcome.STOPPED: End.STOPPED}
#: The exit code of each end: not ready and never will be is 1, not known to be is 3.
EXIT_CODES = {
    End.READY: 0,
    End.CRASHED: 1,
    End.STOPPED: 1,
    End.GONE: 1,
    End.HUNG: 3,
    End.TIMED_OUT: 3,
    End.LOG_ENDED: 3,
}


@dataclass(frozen=True)
class Fate:
    """What became of the server that was waited for."""

    end: End
    #: in a sentence: what is known, and by what
    summary: str
    #: how long it was waited for, s
    waited: float
    #: None where the server is ready
    diagnosis: Diagnosis | None = None
    #: who is behind, where the start has not ended
    lag: Lag | None = None
    #: what is known of the way there
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """Return 0 ready, 1 crashed, stopped or gone, 3 not known to be ready."""
        return EXIT_CODES[self.end]


class Process:
    """A process by its number, as it is now: another one that gets the number later is not it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._begun = self._stat()[1]

    def gone(self) -> bool:
        """Tell whether it has ended; one that its parent has not asked about yet has ended too."""
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except PermissionError:
            pass  # another user's
        state, begun = self._stat()
        return state in ("Z", "X") or begun != self._begun

    def _stat(self) -> tuple[str | None, str | None]:
        """Return its state and when it began, as Linux tells; None elsewhere."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None, None
        fields = text.rpartition(")")[2].split()
        return (fields[0], fields[19]) if len(fields) > 19 else (None, None)


class Probe:
    """Asks a URL, again and again and beside everything else, whether the server is well."""

    #: from one question to the next, and for an answer, s
    EVERY, PATIENCE = 1.0, 5.0

    def __init__(self, url: str) -> None:
        self.url = url
        self.answered = threading.Event()
        #: the last answer that was none
        self.last = "was not asked yet"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="sglogparse-probe", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()

    def _ask(self) -> None:
        while not self._stop.is_set():
            if self.once():
                self.answered.set()
                return
            self._stop.wait(self.EVERY)

    def once(self) -> bool:
        """Ask once; tell whether the answer was 200. Redirections and proxies are not followed."""
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=self.PATIENCE)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            connection.request("GET", target)
            status = connection.getresponse().status
        except ssl.SSLError as error:
            self.last = f"failed: {error.reason or 'TLS'}"
        except (OSError, UnicodeError) as error:
            self.last = f"failed: {getattr(error, 'strerror', None) or error}"
        except http.client.HTTPException as error:
            self.last = f"failed: {type(error).__name__}"
        else:
            self.last = f"answered {status}"
            return status == http.HTTPStatus.OK
        finally:
            connection.close()
        return False


#: A start that dies, to be judged when nothing else is to be done.
_REHEARSAL = """\
[2026-01-01 00:00:00] server_args=ServerArgs(model_path='/m', tp_size=1)
[2026-01-01 00:00:01 TP0] Load weight begin. avail mem=70.00 GB
[2026-01-01 00:00:02 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process
    scheduler = Scheduler()
  File "/sglang/srt/model_executor/model_runner.py", line 1, in load_model
    raise RuntimeError()
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.

[2026-01-01 00:00:03] Received sigquit from a child process. It usually means the child failed.
"""


def rehearse() -> Diagnosis:
    """Judge a made-up log: the first judgement loads what all of them need, and would come late otherwise."""
    text = pl.Series("text", _REHEARSAL.splitlines())
    follower = Follower("-")
    follower.take(Block(text, len(_REHEARSAL), 0, fresh=True))
    return follower.log().diagnose()


class Wait:
    """Waits for the fate of the server that writes a log, look by look."""

    def __init__(
        self,
        name: str,
        timeout: float,
        process: Process | None = None,
        probe: Probe | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.timeout = name, timeout
        self.follower = Follower(name)
        self.progress = Progress(clock)
        self._process, self._probe, self._clock = process, probe, clock
        self.begun = clock()
        #: when the last line came
        self.heard = self.begun
        #: since when a line stands that decides, and one that may; when one was seen last
        self._decides: float | None = None
        self._tells: float | None = None
        #: what may be spent on judging, s, and as of when
        self._credit, self._credited = _CREDIT, self.begun
        #: lines have come since the last judgement
        self._new = False
        #: since when the newest judgement is one that only life could contradict, and the last line of life
        self._doomed: float | None = None
        self._alive = 0
        #: lines that were there when waiting began: they can be those of an older start
        self._there: int | None = None
        #: the first batch of the newest start, and when it was seen
        self._worked: tuple[int, float] | None = None
        #: the last line that says that the process is gone, and since when nothing came behind it
        self._said: tuple[int, str] | None = None
        self._left: float | None = None
        #: a fate whose reason may still come
        self._weak: Fate | None = None
        self._held = 0
        #: when the process is looked for next, and since when it is gone
        self._asked = self.begun
        self._lost: float | None = None
        self._warm = False
        self._diagnosis: Diagnosis | None = None

    @property
    def waited(self) -> float:
        """Return how long it was waited for, s."""
        return self._clock() - self.begun

    @property
    def node(self) -> str | None:
        """Return what is to be known of waiting for another node than the first, if this is one."""
        if self.progress.node is None:
            return None
        told = "only the first node prints that it is ready: wait by its log, or with --url"
        return f"this is the log of node {self.progress.node}: {told}"

    @property
    def quiet(self) -> float:
        """Return how long no line has come, s."""
        return self._clock() - self.heard

    @property
    def bar(self) -> str | None:
        """Return the last bar of progress, also one whose line is not ended."""
        held = re.search(BAR, self.follower.tail.partial)
        return f"{held[1]}: {held[2]}%" if held else self.progress.bar

    @property
    def _lives(self) -> bool:
        """Tell whether the process is known, and runs."""
        return self._process is not None and self._lost is None

    @property
    def idle(self) -> bool:
        """Tell whether all that was there is read, and nothing of it is still to be judged."""
        return self._warm and not self.follower.tail.behind and self._decides is None and self._tells is None

    @property
    def pause(self) -> float:
        """Return how long to wait until the next look, s."""
        if self.follower.tail.behind:
            return 0.0
        return POLL / 4 if self._decides is not None else POLL

    def step(self) -> Fate | None:
        """Look once; return the fate if it is known.

        Raises SourceError when the log cannot be read.
        """
        block = self.follower.tail.read()
        now = self._clock()
        if block is not None:
            if block.fresh and (self._decides or self._tells):
                fate = self._judged(now, sure=True)
                if fate is not None:
                    return fate
            self._take(self.follower.take(block), now)
        if self.follower.tail.behind:
            return None
        if self.follower.tail.held != self._held:  # a bar of progress is drawn
            self._held = self.follower.tail.held
            self._doomed = None if self._doomed is None else now
        if self._there is None:
            # every line of a pipe comes after waiting has begun
            self._there = 0 if self.follower.tail.streams else self.follower.lines
        if self._process is not None and self._lost is None and now >= self._asked:
            self._asked = now + _ASK
            self._lost = now if self._process.gone() else None
        return self._decide(now)

    def _take(self, news: News, now: float) -> None:
        self.heard = now
        self._new = True
        if news.fresh:
            self._decides = self._tells = self._doomed = self._worked = self._weak = None
            self._said = self._left = None
            self._alive = 0
            self._there = None if self._there is None else 0
        self.progress.take(news)
        decides, tells = alarms(news)
        if decides:
            self._decides = self._decides or now
        if tells:
            self._tells = self._tells or now
        alive = _life(news)
        if _goes_on(news):
            self._doomed = None if self._doomed is None else now
            self._left = None if self._left is None else now
        if alive is not None:
            self._alive, self._doomed, self._left = alive, None, None
        said = _leaves(news)
        if said is not None:
            self._said, self._left = said, (now if said[0] > self._alive else None)
        if self._said is not None and self._said[0] < self.progress.since:  # of the start before
            self._said = self._left = None
        if self.progress.works is None:
            self._worked = None
        elif self._worked is None or self._worked[0] != self.progress.works:
            self._worked = self.progress.works, now - news.age

    # ------------------------------------------------------------------ what decides

    def _decide(self, now: float) -> Fate | None:
        if self._at_the_end(now):
            held, heard = self.follower.tail.finish(), self.heard
            if held is not None:
                self._take(self.follower.take(held), now)
                self.heard = heard
            return self._ready(now) or self._judged(now, sure=not self._lives) or self._without_a_word()
        fate = self._ready(now)
        if fate is not None:
            return fate
        quiet = now - self.heard
        if self._decides is not None:
            return self._settled(now, self._decides)
        if self._tells is not None:
            settled = quiet >= _CALM or now - self._tells >= _LONGEST
            return self._judged(now, sure=False) if settled and self._affordable(now) else None
        if self._left is not None and now - self._left >= _LEFT and not self._lives:
            return self._judged(now, sure=True) or self._without_a_word()
        if self._doomed is not None:
            patience = _LOADING if self.progress.loads else _LIFELESS
            over = now - self._doomed >= patience and not self._lives
            return self._judged(now, sure=True) if over else None
        if self._new and (quiet >= _SILENCE or not self._warm):
            return self._judged(now, sure=False)
        return None

    def _settled(self, now: float, since: float) -> Fate | None:
        """Return the fate behind a line that decides, with what other processes still have to say of it."""
        fate = self._judged(now, sure=True) if self._new or self._weak is None else self._weak
        block = self.follower.tail.read()
        if block is not None and not (block.fresh and fate):
            self._take(self.follower.take(block), now)  # it has come in the meantime
            if fate is not None and (self._decides or self._tells):
                fate = self._judged(now, sure=True) or fate
        weak = fate is not None and fate.diagnosis is not None and fate.diagnosis.cause in _NO_REASON
        self._weak = fate if weak else None
        if weak and self._clock() - since < _SETTLE:
            self._decides = since
            return None
        return fate

    def _affordable(self, now: float) -> bool:
        """Tell whether judging has not taken too much of the time."""
        self._credit = min(_CREDIT, self._credit + (now - self._credited) * _SHARE)
        self._credited = now
        return self._credit > 0

    def _at_the_end(self, now: float) -> bool:
        """Tell whether nothing more is waited for."""
        lost = self._lost is not None and now - self._lost >= _LINGER
        return lost or self.follower.tail.ended or now - self.begun >= self.timeout

    def _ready(self, now: float) -> Fate | None:
        """Return that the server is ready, if anything says so and nothing speaks against it."""
        progress, name = self.progress, self.name
        if self._lost is not None or self._decides is not None or self._doomed is not None:
            return None
        if self._probe is not None and self._probe.answered.is_set():
            return self._fate(End.READY, f"{self._probe.url} answers 200, and the log does not say so yet")
        if self._left is not None and not self._lives:
            return None
        if self._tells is not None and (progress.ready or (progress.works and self._affordable(now))):
            fate = self._judged(now, sure=False)
            if fate is not None or self._doomed is not None:
                return fate
        if progress.ready is not None:
            before = ", and did when waiting began" if progress.ready <= (self._there or 0) else ""
            return self._fate(End.READY, f"{name}:{progress.ready} says so{before}")
        if progress.works is None or self._worked is None:
            return None
        # a log that begins in the middle, and a node that prints no ready line, show it by their batches
        if not progress.begun or progress.node is not None or now - self._worked[1] >= _PROVEN:
            return self._fate(End.READY, f"no line says so, but {name}:{progress.works} shows it at work")
        return None

    def _judged(self, now: float, *, sure: bool) -> Fate | None:
        """Judge the log; return the fate if it is certain, or if no more certainty is to be had."""
        self._decides = self._tells = None
        self._warm, self._new = True, False
        started = time.perf_counter()
        log = self.follower.log()
        diagnosis = self._diagnosis = log.diagnose()
        self._credit -= time.perf_counter() - started
        outcome = diagnosis.outcome
        left = self._left is not None and not self._lives
        if outcome is Outcome.READY and self._lost is None and not left and not self.progress.begun:
            return self._fate(End.READY, diagnosis.summary.removeprefix("ready: "))
        if outcome not in _ENDS:
            self._doomed = None
            chief = diagnosis.chief
            if chief is not None and chief.gone is not None and not left and not self._lives:
                return self._fate(End.GONE, diagnosis.summary, diagnosis, self.progress.lag(), self._notes())
            return None
        if not (sure or self._lost is not None or _is_over(log.traceback, diagnosis)):
            # what the server has gone on after did not end it
            pardoned = diagnosis.root is not None and diagnosis.root.line < self._alive
            self._doomed = None if pardoned else now
            return None
        end = _ENDS[outcome]
        lag = self.progress.lag() if end is End.HUNG else None
        return self._fate(end, diagnosis.summary, diagnosis, lag, self._old())

    def _old(self) -> tuple[str, ...]:
        """Return a note that nothing has come since waiting began, if so."""
        if self.follower.lines > (self._there or 0):
            return ()
        return ("no line has come since waiting began: the log may be that of an older start",)

    def _without_a_word(self) -> Fate:
        """Return the fate where the log does not tell it, and nothing more is waited for."""
        diagnosis, lag, notes = self._diagnosis, self.progress.lag(), self._notes()
        serves = diagnosis is not None and diagnosis.outcome is Outcome.READY
        if self._lost is not None and self._process is not None:
            told = "though the log shows a server that serves" if serves else "and the log does not say why"
            if not self.follower.tail.exists:
                told, diagnosis = f"and {self.name} never came", None
            hint = "see `dmesg -T | grep -i oom`, its exit code, and whether somebody stopped it"
            said = f"process {self._process.pid} is gone, {told}"
            return self._fate(End.GONE, said, diagnosis, lag, (hint, *notes))
        if self._said is not None and self._left is not None and not self._lives:
            line, text = self._said
            shown = None if serves else diagnosis
            return self._fate(End.GONE, f"{self.name}:{line} says so: {text}", shown, lag, self._old())
        if not self.follower.tail.exists:
            return self._fate(End.TIMED_OUT, f"{self.name} never came: there is no such file", notes=notes)
        if self.follower.tail.ended:
            said = f"before anything in it decides; {self.stands()}"
            return self._fate(End.LOG_ENDED, said, diagnosis, lag, notes)
        return self._fate(End.TIMED_OUT, self.stands(), diagnosis, lag, notes)

    def _fate(
        self,
        end: End,
        summary: str,
        diagnosis: Diagnosis | None = None,
        lag: Lag | None = None,
        notes: tuple[str, ...] = (),
    ) -> Fate:
        return Fate(end, summary, self.waited, diagnosis, lag, notes)

    # ------------------------------------------------------------------ in words

    def stands(self) -> str:
        """Return how far the start is, and who is behind."""
        if not self.follower.tail.exists:
            return f"{self.name} does not exist"
        if not self.follower.lines:
            return f"{self.name} is empty"
        lag, stages = self.progress.lag(), self.progress.stages()
        if lag is not None:
            return lag_words(lag)
        if not stages:
            return "no line shows a start"
        stage = stages[-1]
        return f"{stage_words(stage)}, {_lasts(stage.lasts)}"

    def _notes(self) -> tuple[str, ...]:
        out = []
        if self.follower.lines and self.quiet >= _LONG:
            out.append(f"no line has come for {span(self.quiet)}")
        if self._said is not None:
            out.append(f"line {self._said[0]} speaks of an end: {self._said[1]}")
        if self.bar is not None:
            out.append(f"the last bar of progress: {self.bar}")
        if self.node is not None:
            out.append(self.node)
        if self._probe is not None:
            out.append(f"{self._probe.url} {self._probe.last}")
        return tuple(out)


def lag_words(lag: Lag) -> str:
    """Return in words who is behind, and how the others fared."""
    peers = _names(lag.peers)
    took = f", which took {span(lag.took)} for it" if lag.took is not None else ""
    verb = "is" if len(lag.ranks) == 1 else "are"
    return (
        f"{_names(lag.ranks)} {verb} behind, {_where(lag.words)}, {_lasts(lag.lasts)}; ahead: {peers}{took}"
    )


def stage_words(stage: Stage) -> str:
    """Return in words which ranks stand where."""
    return f"{_names(stage.ranks)} {_where(stage.words)}"


def _where(words: str) -> str:
    return words if words.startswith(("after", "before", "ready")) else f"in {words}"


def _names(ranks: tuple[str | None, ...]) -> str:
    return rank_spread(ranks) or "the server"


def _lasts(lasts: float | None) -> str:
    return "since when is not known" if lasts is None else f"for {span(lasts)}"


def alarms(news: News) -> tuple[bool, bool]:
    """Tell whether a process has ended by what new lines say, and whether one may have ended."""
    found = news.frames.found
    steps = found.get("http_lifecycle")
    stops = steps is not None and not steps.filter(~pl.col("lifecycle").is_in(UP)).is_empty()
    free = news.records["message"].filter(news.kinds.is_null())
    tells = stops or any(kind in found for kind in _TELLS) or free.str.contains(_TELLING).any()
    return any(kind in found for kind in _DECIDES), bool(tells)


def _life(news: News) -> int | None:
    """Return the last line that shows that the server goes on: no answer to a probe, nothing of an end."""
    kind = news.kinds.cast(pl.String)
    known = kind.is_in([*_DECIDES, *_TELLS, "http_access", "http_lifecycle", "health_check_failed"])
    drawn = kind.is_in(["load_progress", "graph_capture_progress"])
    rows = ((news.records["headed"] & ~known.fill_null(False)) | drawn.fill_null(False)).arg_true()
    alive = rows.filter(~news.records["message"].gather(rows).str.contains(_TELLING))
    return None if alive.is_empty() else int(news.records["line"][alive[-1]])


def _goes_on(news: News) -> bool:
    """Tell whether a line shows that anything goes on, be it another program; an empty one shows nothing."""
    kind = news.kinds.cast(pl.String)
    answers = kind.is_in(["http_access", "http_lifecycle", "health_check_failed", *_DECIDES, *_TELLS])
    messages = news.records["message"].filter(~answers.fill_null(False))
    return bool((messages.str.contains(r"\S") & ~messages.str.contains(f"{_TELLING}|{LEAVES}")).any())


def _leaves(news: News) -> tuple[int, str] | None:
    """Return the last line that says that the process is gone, and its text."""
    found = leaves(news).tail(1)
    if found.is_empty():
        return None
    line, message = found.row(0)
    text = " ".join(message.split())
    return int(line), f"{text[:_QUOTED]}..." if len(text) > _QUOTED else text


def _is_over(tracebacks: pl.DataFrame, diagnosis: Diagnosis) -> bool:
    """Tell whether a process has ended for certain, by the exceptions and the first fault of a launch."""
    chief = diagnosis.chief
    if chief is None or chief.outcome is not Outcome.CRASHED:
        return True
    if chief.chief is not None and chief.chief.code == _FROM_OUTSIDE:
        return False  # the server may go on
    if chief.root is not None and re.search(_DEADLY, chief.root.message):
        return True
    raised = tracebacks.filter((pl.col("line") >= chief.first_line) & pl.col("exception").is_not_null())
    for name, stack in raised.select("process_name", "stack").iter_rows():
        outermost = stack[0] if stack else {"function": None, "path": None}
        if is_of_a_client(stack or ()):
            continue
        if name is not None or outermost["function"] in _OUTERMOST:
            return True
        if outermost["function"] == "<module>" and re.search(_PROGRAM, outermost["path"] or ""):
            return True
    return False
