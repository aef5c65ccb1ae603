"""One thread owns the arm; requests wait for it in arrival order, without a thread each, and never too many of them.

Takes request bodies from the HTTP side and settles one future each. ``prepare`` runs in a small pool, so that a long
text being tokenized holds up nobody else's; ``execute`` and ``finish`` run on the arm's thread, in order of arrival.
Admission is bounded: ``queue`` requests may wait (in whichever step) beside the one that runs, the next is turned away.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from openjev_lab.contract import MAX_LENGTH_TOKENS, NOUL_ENDING
from openjev_lab.serving import steps
from openjev_lab.tokens import HEAD, Prompter

if TYPE_CHECKING:
    from openjev_lab.rungs import Arm

PREPARE_THREADS = 2
WARM_UP_PROMPT = f"{HEAD}The kettle is warm.\n\nQuestion: Is the kettle warm?\n{NOUL_ENDING}"


class Overloaded(Exception):
    """As many requests wait as may; try again after ``retry_after_s`` seconds."""

    def __init__(self, waiting: int, retry_after_s: int) -> None:
        super().__init__(f"{waiting} requests are running or waiting, no more may; try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class NotReady(Exception):
    """The arm has not done its warm-up forward yet, or never will."""


@dataclass(slots=True, eq=False)
class Job:
    """One admitted request; its future holds the response's bytes or the error."""

    body: bytes
    request_id: str
    started_ns: int
    """When the request's first byte was seen; every time here is of ``time.perf_counter_ns``."""
    admitted_ns: int = field(default_factory=time.perf_counter_ns)
    prepare_ns: tuple[int, int] = (0, 0)
    """Start and end of ``prepare``."""
    prepared: steps.Prepared | None = None
    future: Future[bytes] = field(default_factory=Future)
    gone: bool = False

    def cancel(self) -> None:
        """The client has gone: what waits is dropped, what runs stops before its next candidate."""
        self.gone = True
        self.future.cancel()

    def is_gone(self) -> bool:
        return self.gone

    def settle(self, result: bytes | None = None, error: BaseException | None = None) -> None:
        """Hands over the result or the error; a client that has gone meanwhile misses it."""
        with contextlib.suppress(InvalidStateError):
            if error is not None:
                self.future.set_exception(error)
            else:
                self.future.set_result(result or b"")


class Worker:
    """Loads the arm on a thread of its own, warms it up, then serves jobs until ``stop``.

    ``load`` returns the arm and its checkpoint's tokenizer; ``on_up`` is called on the arm's thread once the warm-up
    forward is done, or with the error that prevented it.
    """

    def __init__(
        self,
        load: Callable[[], tuple[Arm, Prompter]],
        *,
        queue: int = 64,
        on_up: Callable[[BaseException | None], None] = lambda error: None,
    ) -> None:
        self._load, self._on_up = load, on_up
        self.capacity = queue + 1
        self.ready = False
        self.description: dict[str, Any] = {}
        self.model = ""
        """The name that answers carry."""
        self.names: list[str] = []
        """The names that requests may give."""
        self.running: Job | None = None
        """The job that has the arm."""
        self.last_execute_s = 0.0
        """How long the last request held the arm; ``Retry-After`` guesses from it."""
        self.admitted = 0
        """Requests inside: being prepared, waiting or running."""
        self._waiting: deque[Job] = deque()
        self._stopping = False
        self._wake = threading.Condition()
        self._pool = ThreadPoolExecutor(PREPARE_THREADS, thread_name_prefix="prepare")
        self._thread = threading.Thread(target=self._run, name="arm", daemon=True)

    def start(self) -> None:
        """Starts loading; returns at once."""
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Lets the arm's thread end after the jobs that wait. False if it is still at it, as in a load in progress."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._pool.shutdown(wait=False)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def submit(self, body: bytes, request_id: str, started_ns: int) -> Job:
        """Admits a request. Raises ``NotReady`` or ``Overloaded`` at once, before anything is computed for it."""
        if not self.ready:
            raise NotReady("the model is still loading; /health says when it is ready")
        job = Job(body, request_id, started_ns)
        with self._wake:
            if self.admitted >= self.capacity:
                pause_s = min(60, max(1, math.ceil(self.admitted * self.last_execute_s)))
                raise Overloaded(self.admitted, pause_s)
            self.admitted += 1
        job.future.add_done_callback(lambda _: self._release(job))
        self._pool.submit(self._prepare, job)
        return job

    @property
    def waiting(self) -> int:
        """Requests that are prepared and wait for the arm."""
        return len(self._waiting)

    def _release(self, job: Job) -> None:
        with self._wake:
            self.admitted -= 1
            with contextlib.suppress(ValueError):
                self._waiting.remove(job)
            if self._stopping:
                self._wake.notify()
        job.body, job.prepared = b"", None

    def _prepare(self, job: Job) -> None:
        begin_ns = time.perf_counter_ns()
        try:
            prepared = steps.prepare(job.body, self._prompter, self._limits, job.is_gone)
        except BaseException as error:
            job.settle(error=error)
            return
        job.prepare_ns = (begin_ns, time.perf_counter_ns())
        with self._wake:
            if not job.future.cancelled():
                job.prepared = prepared
                bisect.insort(self._waiting, job, key=lambda waiting: waiting.admitted_ns)  # not in order of prepare
                self._wake.notify()

    def _run(self) -> None:
        try:
            self._bring_up()
        except BaseException as error:
            self._on_up(error)
            return
        self.ready = True
        self._on_up(None)
        while (job := self._next()) is not None:
            self.running = job
            self._serve(job)
            self.running = None

    def _bring_up(self) -> None:
        arm, self._prompter = self._load()
        package = arm.package
        self._arm = arm
        self.model, self.names = package.model_id, list(package.aliases)
        self._limits = steps.Limits(frozenset(self.names), min(package.max_length, MAX_LENGTH_TOKENS))
        ids = self._prompter.encode(WARM_UP_PROMPT)
        if not math.isfinite(arm.score(ids)):
            raise steps.ForwardFailed(f"the warm-up forward of {len(ids)} tokens gave no number")
        self.description = arm.describe()

    def _next(self) -> Job | None:
        """The next job in order, waiting for one; None when stopping and none is left."""
        with self._wake:
            while True:
                while self._waiting:
                    job = self._waiting.popleft()
                    if job.future.set_running_or_notify_cancel():
                        return job
                if self._stopping and not self.admitted:
                    return None
                self._wake.wait()

    def _serve(self, job: Job) -> None:
        prepared, begin_ns = job.prepared, time.perf_counter_ns()
        assert prepared is not None  # a job waits for the arm only once it is prepared
        try:
            scores = steps.execute(prepared, self._arm.score, job.is_gone)
            executed_ns = time.perf_counter_ns()
            opened = steps.finish(prepared, scores, self._arm.package.temperature, self.model)
            times = _times(job, begin_ns, executed_ns, time.perf_counter_ns())
            counts = {"candidate_tokens": prepared.candidate_tokens, "scores": scores}
            response = steps.close(opened, {"request_id": job.request_id, **times, **counts})
        except BaseException as error:
            job.settle(error=error)
            return
        self.last_execute_s = (executed_ns - begin_ns) / 1e9
        job.settle(response)


def _times(job: Job, begin_ns: int, executed_ns: int, finished_ns: int) -> dict[str, float]:
    """The request's own times in ms; ``queue_ms`` is all its waiting, before ``prepare`` and before ``execute``."""
    prepare_begin_ns, prepare_end_ns = job.prepare_ns
    waited_ns = (prepare_begin_ns - job.admitted_ns) + (begin_ns - prepare_end_ns)
    return {
        "queue_ms": waited_ns / 1e6,
        "prepare_ms": (prepare_end_ns - prepare_begin_ns) / 1e6,
        "execute_ms": (executed_ns - begin_ns) / 1e6,
        "finish_ms": (finished_ns - executed_ns) / 1e6,
        "elapsed_ms": (finished_ns - job.started_ns) / 1e6,
    }
