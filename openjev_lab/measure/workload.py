"""The requests of an experiment: the 74-length mix in the tiny language, and real cases of the jevbench package.

Takes an experiment's workloads and the tokenizer in use; returns ``WorkItem``s, the same for every arm and every
process that builds them, with a hash over all of it. Apart from ``passes`` because what is sent must not depend on who
sends.
"""

from __future__ import annotations

import csv
import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openjev_lab.contract import DEFAULT_MAX_LENGTH_TOKENS, compile_request
from openjev_lab.errors import LabError
from openjev_lab.evidence.manifest import sha256_of
from openjev_lab.evidence.sums import sha256
from openjev_lab.measure.experiment import Experiment, JevBench, Mix, project_path
from openjev_lab.tiny.language import make_request
from openjev_lab.tokens import Prompter

if TYPE_CHECKING:
    from jevbench.schema import Case

SYNTHETIC = "synthetic:"
SYNTHETIC_TOKENIZER = "checkpoints/tiny"
"""Synthetic weights come with no tokenizer of their own; every known vocabulary holds this one's ids."""
WHOLE_CASE_SUITE, QUESTION_SUITE = "examples", "jevbench-mini"
KINDS = ("noul", "choice", "score")


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One request to send."""

    request_id: str
    request: dict[str, Any]
    """What the client asks; ``body`` is its JSON."""
    question_count: int
    expected_tokens: int
    """Over all candidates, each with its chat template."""
    label: bool | None
    """The right answer of a yes-or-no request, where one is known."""
    body: bytes

    @classmethod
    def of(cls, request_id: str, request: dict[str, Any], label: bool | None, prompter: Prompter) -> WorkItem:
        """Counts tokens as the server will, and serializes once."""
        questions = compile_request(request)
        tokens = sum(len(prompter.encode(prompt)) for question in questions for prompt in question.prompts)
        return cls(request_id, request, len(questions), tokens, label, serialized(request))


@dataclass(frozen=True, slots=True)
class Work:
    """Everything an experiment sends, by workload."""

    items: dict[str, tuple[WorkItem, ...]]

    def inputs(self, checkpoint: str) -> dict[str, Any]:
        """What the manifest knows a run's inputs by; reads every file of the checkpoint."""
        files = checkpoint_files(checkpoint)
        return {
            "checkpoint": {"path": checkpoint, "sha256": sha256_of(files), "files": files},
            "workloads": {name: {"requests": len(own), "sha256": digest(own)} for name, own in self.items.items()},
        }

    def dump(self) -> bytes:
        """One line of JSON a request: what a run keeps of its workload."""
        keys = ("request_id", "question_count", "expected_tokens", "label", "request")
        rows = [
            {"workload": name} | {key: getattr(item, key) for key in keys}
            for name, own in self.items.items()
            for item in own
        ]
        return "".join(json.dumps(row, allow_nan=False, ensure_ascii=False) + "\n" for row in rows).encode()


def build(experiment: Experiment) -> Work:
    """Make the experiment's requests: seconds. Raises LabError where there is no tokenizer or a length can't be met."""
    prompter = Prompter.load(tokenizer_dir(experiment.checkpoint))
    return Work({workload.name: tuple(_items(workload, prompter)) for workload in experiment.workloads})


def read(path: Path) -> Work:
    """The requests that a run was started with. Raises LabError naming the line that is none."""
    items: dict[str, list[WorkItem]] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            row = json.loads(line)
            name, body = row.pop("workload"), serialized(row["request"])
            items.setdefault(name, []).append(WorkItem(**row, body=body))
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            raise LabError(f"{path.name} line {number} is not as it was written: {problem}") from None
    return Work({name: tuple(own) for name, own in items.items()})


def serialized(request: dict[str, Any]) -> bytes:
    """A request as the client sends it."""
    return json.dumps(request, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def digest(items: tuple[WorkItem, ...]) -> str:
    """SHA-256 over ids, bodies, expected tokens and labels, in order."""
    lines = [[item.request_id, item.body.decode(), item.expected_tokens, item.label] for item in items]
    return sha256_of(lines)


def tokenizer_dir(checkpoint: str) -> Path:
    """The folder with the tokenizer of a package, a merged export or synthetic weights."""
    folder = project_path(SYNTHETIC_TOKENIZER if checkpoint.startswith(SYNTHETIC) else checkpoint)
    return folder / "base" if (folder / "base").is_dir() else folder


def checkpoint_files(checkpoint: str) -> dict[str, str]:
    """File -> SHA-256 of everything that a checkpoint's answers depend on; {} if synthetic: its name says it all."""
    if checkpoint.startswith(SYNTHETIC):
        return {}
    root = project_path(checkpoint)
    folders = [root / "base", root / "checkpoint"] if (root / "base").is_dir() else [root]
    paths = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    names = [(path, path.relative_to(root).as_posix()) for path in paths]
    return {name: sha256(path) for path, name in names if not any(part.startswith(".") for part in name.split("/"))}


def _items(workload: Mix | JevBench, prompter: Prompter) -> Iterator[WorkItem]:
    if isinstance(workload, JevBench):
        yield from _jevbench(workload, prompter)
    else:
        yield from _mix(workload, prompter)


def _mix(workload: Mix, prompter: Prompter) -> Iterator[WorkItem]:
    """One yes-or-no request a row of the CSV, of exactly its tokens; each from its own seed, so rows stand alone."""
    path = project_path(workload.file)
    if not path.exists():
        raise LabError(f"workload {workload.name}: {workload.file} is missing")
    with path.open(newline="", encoding="utf-8") as file:
        rows = [(row["id"], int(row["tokens"])) for row in csv.DictReader(file)]
    for request_id, tokens in rows:
        seed = int.from_bytes(hashlib.sha256(f"{workload.seed}/{request_id}".encode()).digest()[:8])
        request, label = make_request(random.Random(seed), tokens=tokens, prompter=prompter, kind="noul")
        item = WorkItem.of(request_id, request, bool(label), prompter)
        if item.expected_tokens != tokens:
            raise LabError(f"workload {workload.name}: {request_id} has {item.expected_tokens} tokens, not {tokens}")
        yield item


def _jevbench(workload: JevBench, prompter: Prompter) -> Iterator[WorkItem]:
    """The hand-written case with all its questions, then one question a domain: noul, choice, score, noul, ..."""
    import jevbench

    whole = jevbench.load_suite(WHOLE_CASE_SUITE).cases[0]
    yield WorkItem.of(whole.id, {"state": whole.state, "questions": whole.questions}, None, prompter)
    suite = jevbench.load_suite(QUESTION_SUITE)
    for index, domain in enumerate(suite.domains[: workload.requests - 1]):
        yield _question(suite.select(domains=[domain]), KINDS[index % len(KINDS)], prompter)


def _question(cases: list[Case], kind: str, prompter: Prompter) -> WorkItem:
    """The first question of that kind, in the order of cases, whose candidates all fit."""
    for case in cases:
        for name, question in case.questions.items():
            request = {"state": case.state, "questions": {name: question}}
            if question["type"] == kind and _longest(request, prompter) <= DEFAULT_MAX_LENGTH_TOKENS:
                return WorkItem.of(f"{case.id}/{name}", request, None, prompter)
    raise LabError(f"jevbench has no {kind} that fits in {DEFAULT_MAX_LENGTH_TOKENS} tokens among {len(cases)} cases")


def _longest(request: dict[str, Any], prompter: Prompter) -> int:
    return max(len(prompter.encode(prompt)) for question in compile_request(request) for prompt in question.prompts)
