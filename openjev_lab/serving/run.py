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
from pathlib import Path
from typing import TYPE_CHECKING

from openjev_lab.errors import LabError

if TYPE_CHECKING:
    from openjev_lab.rungs import Arm
    from openjev_lab.tokens import Prompter

KEEP_ALIVE_S = 120
"""Longer than clients keep an idle connection (``typesafe-sdk``: 30 s): the client is the one to close it."""
DRAIN_S = 30
"""How long requests that were admitted may go on after the first signal; a second one ends them."""
PARENT_POLL_S = 0.5


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
    """Serves one rung until SIGTERM or SIGINT, then drains: what was admitted is answered, then the process goes on.

    ``port`` 0 takes a free one. ``queue`` requests may wait beside the running one. ``parent_pid``: also end when that
    process is no longer our parent, so that a measurement that is killed leaves no server behind. Raises ``LabError``
    for settings that can't be served and for an arm that can't be loaded.
    """
    check_settings(host, queue, token)

    def load() -> tuple[Arm, Prompter]:
        from openjev_lab.rungs import load_arm
        from openjev_lab.tokens import Prompter

        arm = load_arm(rung, checkpoint, device=device, dtype=dtype, threads=threads)
        return arm, Prompter.load(arm.package.tokenizer_dir)

    serve_arm(load, host=host, port=port, queue=queue, token=token, null_endpoint=null_endpoint, parent_pid=parent_pid)


def serve_arm(
    load: Callable[[], tuple[Arm, Prompter]],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    queue: int = 64,
    token: str | None = None,
    null_endpoint: bool = False,
    parent_pid: int | None = None,
) -> None:
    """``serve`` for anything that loads as an arm and a tokenizer. Wants the main thread: it takes the signals."""
    import uvicorn

    from openjev_lab.serving.app import create_app
    from openjev_lab.serving.worker import Worker

    check_settings(host, queue, token)
    listener = bind(host, port)
    failed: list[BaseException] = []

    def on_up(error: BaseException | None) -> None:
        if error is None:
            announce(listener, worker.description)
        else:
            failed.append(error)
            server.should_exit = True

    worker = Worker(load, queue=queue, on_up=on_up)
    config = uvicorn.Config(
        create_app(worker, token=token, null_endpoint=null_endpoint),
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
    )
    server = uvicorn.Server(config)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises what it caught again once it has drained
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    if parent_pid is not None:
        threading.Thread(target=_end_without, args=(parent_pid,), name="parent", daemon=True).start()
    worker.start()
    server.run(sockets=[listener])
    if not worker.stop(DRAIN_S if worker.ready else 0) and not failed:
        os._exit(0)  # a load in progress can't be interrupted, and a normal exit would run into it
    if failed:
        raise failed[0]


def check_settings(host: str, queue: int, token: str | None) -> None:
    """Raises ``LabError`` for what must not or can't be served."""
    if queue < 0:
        raise LabError(f"--queue is how many requests may wait, 0 or more; got {queue}")
    if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
        raise LabError("--token must be printable ASCII without spaces, and not empty: it travels in a header")
    if token is None and not is_loopback(host):
        raise LabError(
            f"--host {host} can be reached from other machines and wants a --token; without one bind 127.0.0.1"
        )


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
