"""One arm's server process: started, waited for, watched, stopped.

Takes a command line; gives a ready server's URL and what it says really runs, or raises ``ServerFailed`` with the end
of what the process wrote to stderr. Apart from ``passes`` so that any command that prints the ready line will do.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, Self

from openjev_lab.evidence.manifest import ROOT
from openjev_lab.measure.experiment import Arm, Experiment

Command = Callable[[Experiment, Arm], Sequence[str]]
"""How to start an arm's server."""
TAIL_LINES = 6
POLL_S = 0.05
STOP_S = 15.0
"""How long a server may take to end by itself once told to."""


class ServerFailed(Exception):
    """The server did not get ready, or ended; the message says how, with the end of its stderr."""


def serve_command(experiment: Experiment, arm: Arm) -> list[str]:
    """The arm's ``openjev-lab serve``, the same for every arm but for the rung."""
    command = [sys.executable, "-m", "openjev_lab", "serve", "--rung", arm.rung, "--checkpoint", experiment.checkpoint]
    command += ["--device", experiment.device, "--dtype", experiment.dtype, "--port", "0", "--null-endpoint"]
    command += ["--parent-pid", str(os.getpid())]
    return command + (["--threads", str(experiment.threads)] if experiment.threads else [])


class Server:
    """A running process that said it is ready; use as a context manager, which ends it."""

    def __init__(self, command: Sequence[str], startup_timeout_s: float) -> None:
        """Starts and waits. Raises ``ServerFailed``; nothing is left running then."""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        # its own session: a Ctrl-C in the terminal is the measurement's to handle, not the server's
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
        )
        try:
            self.description = self._wait(startup_timeout_s)
            self.url = str(self.description.pop("url"))
            self._healthy()
        except BaseException:
            self.stop()
            raise

    def _wait(self, timeout_s: float) -> dict[str, Any]:
        """The ready line, which is the first line of JSON with ``"event": "ready"``."""
        lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                told = json.loads(lines.get(timeout=POLL_S))
            except queue.Empty:
                if not self.alive():
                    raise self.failed("ended before it was ready") from None
                continue
            except ValueError:
                continue  # a library's line
            if isinstance(told, dict) and told.pop("event", None) == "ready":
                return told
        raise self.failed(f"was not ready after {timeout_s:g} s")

    def _read(self, lines: queue.Queue[bytes]) -> None:
        """Keep the pipe empty for as long as the server writes."""
        assert self._process.stdout
        with self._process.stdout as stdout:
            for line in stdout:
                lines.put(line)

    def _healthy(self) -> None:
        """A ready server must say so over HTTP as well."""
        try:
            urllib.request.urlopen(f"{self.url}/health", timeout=10).close()
        except (OSError, urllib.error.URLError) as problem:
            raise self.failed(f"said that it is ready, but GET /health says {problem}") from None

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def failed(self, what: str) -> ServerFailed:
        """The error for what happened, with how the process ended and the end of its stderr."""
        code = self._process.poll()
        how = "" if code is None else f" ({signal.Signals(-code).name})" if code < 0 else f" (exit status {code})"
        tail = self.tail()
        return ServerFailed(f"the server {what}{how}" + (f"; it said: {tail}" if tail else ""))

    def tail(self) -> str:
        """The last lines of stderr, in one."""
        handle = self._stderr.fileno()  # read in place: the server writes where the shared offset is
        lines = os.pread(handle, os.fstat(handle).st_size, 0).decode(errors="replace").split("\n")
        return " | ".join([line.strip() for line in lines if line.strip()][-TAIL_LINES:])

    def stop(self) -> None:
        """Ask the process to end, and end it if it does not."""
        if self.alive():
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
