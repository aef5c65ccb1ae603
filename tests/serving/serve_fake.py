"""A served process over the fake arm, for tests that need one: python serve_fake.py SETTINGS_AS_JSON

``load_s`` delays the load; ``fail`` makes it raise; ``forward_s`` is what a forward of a request takes; ``orphan``
starts the server from a process that then dies, as a measurement that is killed does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from serving_fakes import FakeArm, FakePrompter

from openjev_lab.errors import LabError
from openjev_lab.serving.run import Settings, serve_arm


def main(settings: dict[str, Any]) -> None:
    """Serves until told to end; a ``LabError`` is one line and status 2, as on the command line."""
    if settings.pop("orphan", False):
        settings["parent_pid"] = os.getpid()
        child = subprocess.Popen([sys.executable, __file__, json.dumps(settings)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        print(json.dumps({"pid": child.pid, **json.loads(child.stdout.readline())}), flush=True)
        os._exit(9)  # without a word to the child
    load_s, forward_s, fail = (settings.pop(key, 0) for key in ("load_s", "forward_s", "fail"))

    class Arm(FakeArm):
        def score(self, ids: Any) -> float:
            if self.seen:
                time.sleep(forward_s)
            return super().score(ids)

    def load() -> Any:
        time.sleep(load_s)
        if fail:
            raise LabError("head.pt is missing")
        return Arm(), FakePrompter()

    try:
        serve_arm(load, Settings(**settings))
    except LabError as error:
        print(f"openjev-lab: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
