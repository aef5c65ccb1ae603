"""``openjev-lab serve``: one process, one arm, one port, until a signal or the end of whoever started it.

The port is open from the start and answers 503 while the arm loads; one line of JSON on stdout says when it is ready:

    {"event": "ready", "url": "http://127.0.0.1:PORT", ...what really runs}
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from openjev_lab.errors import LabError

if TYPE_CHECKING:
    from types import FrameType

    import uvicorn
    from fastapi import FastAPI

    from openjev_lab.rungs import Arm
    from openjev_lab.tokens import Prompter

KEEP_ALIVE_S = 120
"""Longer than clients keep an idle connection (``typesafe-sdk``: 30 s): the client is the one to close it."""
DRAIN_S = 30
"""How long requests that were admitted may go on after the first signal; a second one ends them."""
PARENT_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Settings:
    """How to serve, whatever is served. Raises ``LabError`` for what must not or can't be."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free one; the ready line names it."""
    queue: int = 64
    """Requests that may wait beside the running one."""
    token: str | None = None
    """What clients send as a bearer token; needed for any address but loopback."""
    null_endpoint: bool = False
    parent_pid: int | None = None
    """End, too, when this process is no longer our parent: a measurement that is killed leaves no server behind."""

    def __post_init__(self) -> None:
        token = self.token
        if self.queue < 0:
            raise LabError(f"--queue is how many requests may wait, 0 or more; got {self.queue}")
        if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
            raise LabError("--token must be printable ASCII without spaces, and not empty: it travels in a header")
        if token is None and not is_loopback(self.host):
            raise LabError(
                f"--host {self.host} can be reached from other machines and wants a --token; without one bind 127.0.0.1"
            )


def serve(
    rung: str,
    checkpoint: str | Path,
    device: str = "cpu",
    dtype: str = "float32",
    host: str = "127.0.0.1",
    port: int = 0,
    queue: int = 64,
    token: str | None = None,
    threads: int | None = None,
    null_endpoint: bool = False,
    parent_pid: int | None = None,
) -> None:
    """Serves one rung until SIGTERM or SIGINT, then drains: what was admitted is answered, and the call returns.

    Raises ``LabError`` for settings that can't be served and for an arm that can't be loaded.
    """
    settings = Settings(host, port, queue, token, null_endpoint, parent_pid)
    if threads is not None and threads < 1:
        raise LabError(f"--threads is how many CPU threads a forward may use, 1 or more; got {threads}")

    def load() -> tuple[Arm, Prompter]:
        from openjev_lab.rungs import load_arm
        from openjev_lab.tokens import Prompter

        arm = load_arm(rung, checkpoint, device=device, dtype=dtype, threads=threads)
        return arm, Prompter.load(arm.package.tokenizer_dir)

    serve_arm(load, settings)


def serve_arm(load: Callable[[], tuple[Arm, Prompter]], settings: Settings) -> None:
    """``serve`` for anything that loads as an arm and a tokenizer. Wants the main thread: it takes the signals."""
    from openjev_lab.serving.app import create_app
    from openjev_lab.serving.worker import Worker

    listener = bind(settings.host, settings.port)
    failed: list[BaseException] = []

    def on_up(error: BaseException | None) -> None:
        if error is None:
            announce(listener, worker.description)
        else:
            failed.append(error)
            server.should_exit = True

    worker = Worker(load, queue=settings.queue, on_up=on_up)
    server = _server(create_app(worker, token=settings.token, null_endpoint=settings.null_endpoint))
    for number in (signal.SIGINT, signal.SIGTERM):  # before and after uvicorn takes them
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    if settings.parent_pid is not None:
        threading.Thread(target=_end_without, args=(settings.parent_pid,), name="parent", daemon=True).start()
    worker.start()
    server.run(sockets=[listener])
    if failed:
        raise failed[0]
    if not worker.stop(DRAIN_S if worker.ready else 0):
        os._exit(0)  # a load in progress can't be interrupted, and a normal exit would run into it


def _server(app: FastAPI) -> uvicorn.Server:
    """One process, quiet, with nothing between the socket and the application."""
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            self.force_exit = self.should_exit  # uvicorn's own would let a second SIGTERM wait, too
            self.should_exit = True

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
    )
    return Server(config)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises ``LabError`` if the address can't be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise LabError(f"can't listen on {host} port {port}: {error}; --port 0 takes a free one") from error


def announce(listener: socket.socket, description: dict[str, object]) -> None:
    """The ready line; a starter that no longer reads it does not matter."""
    host, port = listener.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"event": "ready", "url": url, **description}), flush=True)


def _end_without(parent_pid: int) -> None:
    """Ends this process soon after ``parent_pid`` stops being its parent."""
    while os.getppid() == parent_pid:
        time.sleep(PARENT_POLL_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(2.0)  # nobody is left to wait for an answer
    os._exit(1)
