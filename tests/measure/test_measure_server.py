"""A server that gets ready is used and ended; one that does not is an error that says why."""

import os
import sys
import time
import urllib.request

import fake_run
import pytest

from openjev_lab.measure.server import Server, ServerFailed, serve_command

LADDER = fake_run.experiment()


def start(timeout_s: float = 20.0, **options: object) -> Server:
    return Server(fake_run.command(**options)(LADDER, LADDER.arms[1]), timeout_s)


def test_it_waits_for_the_ready_line_and_ends_with_the_block() -> None:
    began = time.monotonic()
    with start(load_s=0.2) as server:
        assert time.monotonic() - began > 0.2
        assert server.description == {"rung": "scalar", "ops": {"head": "fake"}} and server.alive()
        assert urllib.request.urlopen(server.url + "/health").status == 200
    assert not server.alive()


@pytest.mark.parametrize(
    ("options", "timeout_s", "told"),
    [
        ({"refuse": "head.pt is missing"}, 20.0, "ended before it was ready (exit status 2); it said: a warning |"),
        ({"load_s": 30}, 0.4, "was not ready after 0.4 s"),
        ({"unhealthy": True}, 20.0, "GET /health says HTTP Error 503"),
    ],
    ids=["refuses", "too slow", "unhealthy"],
)  # fmt: skip
def test_one_that_does_not_get_ready_is_told_and_ended(options: dict[str, object], timeout_s: float, told: str) -> None:
    before = children()
    with pytest.raises(ServerFailed) as failed:
        start(timeout_s, **options)
    assert told in str(failed.value) and children() == before


def children() -> set[str]:
    """Processes of this process."""
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as file:
        return set(file.read().split())


def test_a_signal_is_told_by_name() -> None:
    with pytest.raises(ServerFailed, match=r"ended before it was ready \(SIGKILL\)"):
        Server([sys.executable, "-S", "-c", "import os; os.kill(os.getpid(), 9)"], 20.0)


def test_one_that_does_not_listen_to_the_request_to_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openjev_lab.measure.server.STOP_S", 0.2)
    stubborn = "import signal, sys, runpy; signal.signal(15, signal.SIG_IGN); sys.argv = sys.argv[1:]; "
    command = fake_run.command()(LADDER, LADDER.arms[0])
    program = stubborn + "runpy.run_path(sys.argv[0], run_name='__main__')"
    with Server([sys.executable, "-S", "-c", program, *command[2:]], 20.0) as server:
        assert server.alive()
    assert not server.alive()


def test_arms_start_with_the_same_command_but_for_the_rung() -> None:
    told = fake_run.experiment(threads=2)
    commands = [serve_command(told, arm) for arm in told.arms]
    for arm, command in zip(told.arms, commands, strict=True):
        assert [word if word != arm.rung else "RUNG" for word in command] == [
            sys.executable, "-m", "openjev_lab", "serve", "--rung", "RUNG", "--checkpoint", "synthetic:tiny?seed=1",
            "--device", "cpu", "--dtype", "float32", "--port", "0", "--null-endpoint", "--parent-pid", str(os.getpid()),
            "--threads", "2",
        ]  # fmt: skip
    assert "--threads" not in serve_command(LADDER, LADDER.arms[0])
