"""An experiment: arms, workloads, protocol and gates from one YAML file, checked and filled in before anything runs.

Takes the file (and the name of one of its ``profiles``); returns a frozen ``Experiment``, whose ``resolved()`` is kept
with the evidence and is enough to judge it again. Apart because nothing else reads YAML or knows a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator

from openjev_lab import rungs
from openjev_lab.errors import LabError
from openjev_lab.evidence import NULL_ARM
from openjev_lab.evidence.manifest import ROOT, portable, sha256_of
from openjev_lab.measure.metrics import METRICS

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=64)]
Whole = Annotated[int, Strict()]
Real = Annotated[float, Strict()]
BELOW = "below"
"""As a gate's base: each arm against its own base."""


class Spec(BaseModel):
    """What every part shares: frozen, no unknown keys (the known ones are named), no NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                raise ValueError(f"unknown key {key!r}; known are {', '.join(cls.model_fields)}")
        return data


class Arm(Spec):
    """One server: a rung of the ladder under a name."""

    name: Name
    rung: str
    kind: str
    """hf-raw, hf-merged or native."""
    base: str | None
    """The arm that it is compared with: the nearest rung below that is in the experiment."""
    exact: bool
    """Whether every step from ``base`` to here promises the same bits."""
    hypothesis: str
    """What the rung is expected to save, and why."""


class Mix(Spec):
    """Yes-or-no requests of the lengths in a CSV file (columns id, tokens), in the tiny language, labelled."""

    name: Name
    kind: Literal["mix"]
    file: str
    """From the project's root."""
    seed: Whole = 74


class JevBench(Spec):
    """Requests of the jevbench package's cases: the hand-written one whole, then one question a domain."""

    name: Name
    kind: Literal["jevbench"]
    requests: Annotated[Whole, Field(ge=1, le=13)] = 7


class Protocol(Spec):
    """How an arm is measured: closed loop, one request at a time, in a server process of its own."""

    passes: Annotated[Whole, Field(ge=1)] = 2
    """Measured passes over every workload, after the first inference and one feasibility pass."""
    order: Literal["alternated", "forward"] = "alternated"
    """alternated: every second measured pass runs backwards."""
    concurrency: Annotated[Whole, Field(ge=1, le=1)] = 1
    """Requests under way at a time."""
    client_passes: Annotated[Whole, Field(ge=0)] = 2
    """Passes against the null endpoint, once a run: the client's own cost."""
    startup_timeout_s: Annotated[Real, Field(gt=0)] = 180.0
    """Until a server must have said that it is ready."""
    request_timeout_s: Annotated[Real, Field(gt=0)] = 60.0
    """Without a byte from the server for so long, a request has failed."""


class Gate(Spec):
    """A limit on a metric, for each of ``arms``. What can't be evaluated fails."""

    metric: str
    arms: Annotated[tuple[str, ...], Field(min_length=1)]
    base: str | None = None
    """Another arm, or "below" for each arm's own base."""
    workload: str
    at_most: Real | None = None
    at_least: Real | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.metric not in METRICS:
            raise ValueError(f"no metric {self.metric!r}; there are {', '.join(METRICS)}")
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError(f"{self.metric} wants exactly one of at_most and at_least")
        if METRICS[self.metric].compares != (self.base is not None):
            wants = "a base: an arm or 'below'" if METRICS[self.metric].compares else "no base: it is about one arm"
            raise ValueError(f"{self.metric} wants {wants}")
        return self


class Experiment(Spec):
    """Everything that decides what a run does, with no default left open."""

    name: Name
    title: str
    hypothesis: str
    profile: str | None = None
    checkpoint: str
    """A package or merged export from the project's root, or synthetic:GEOMETRY?seed=N."""
    device: Literal["cpu", "cuda"]
    dtype: Literal["float32", "bfloat16"]
    threads: Annotated[Whole, Field(ge=1)] | None = None
    """CPU threads of each server; null leaves it to the server."""
    arms: Annotated[tuple[Arm, ...], Field(min_length=1)]
    workloads: Annotated[tuple[Annotated[Mix | JevBench, Field(discriminator="kind")], ...], Field(min_length=1)]
    protocol: Protocol = Protocol()
    gates: tuple[Gate, ...] = ()

    @model_validator(mode="after")
    def _names(self) -> Self:
        for what, names in (("arm", [a.name for a in self.arms]), ("workload", [w.name for w in self.workloads])):
            twice = sorted({name for name in names if names.count(name) > 1 or name == NULL_ARM})
            if twice:
                raise ValueError(f"{what} {twice[0]!r} is declared twice or means something else already")
        for gate in self.gates:
            self._check(gate)
        return self

    def _check(self, gate: Gate) -> None:
        arms, workloads = {arm.name: arm for arm in self.arms}, [workload.name for workload in self.workloads]
        for name in (*gate.arms, *([gate.base] if gate.base not in (None, BELOW) else [])):
            if name not in arms:
                raise ValueError(f"gate {gate.metric}: no arm {name!r}; there are {', '.join(arms)}")
        for name in gate.arms if gate.base == BELOW else ():
            if arms[name].base is None:
                raise ValueError(f"gate {gate.metric}: arm {name!r} has no arm below it here")
        if gate.workload not in workloads:
            raise ValueError(f"gate {gate.metric}: no workload {gate.workload!r}; there are {', '.join(workloads)}")

    def arm(self, name: str) -> Arm:
        """The arm of that name; LabError with the names there are."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise LabError(f"experiment {self.name} has no arm {name!r}; it has {', '.join(a.name for a in self.arms)}")

    def resolved(self) -> dict[str, Any]:
        """The whole experiment as JSON-able values; ``Experiment.model_validate`` takes it back."""
        return self.model_dump(mode="json")

    @property
    def config_hash(self) -> str:
        """SHA-256 of the resolved experiment."""
        return sha256_of(self.resolved())


def load(path: Path | str, profile: str | None = None) -> Experiment:
    """Read, apply the profile, fill in, check. Raises LabError in one line that names the file and the key."""
    file = Path(path)
    told = portable(str(file))
    raw = _yaml(file, told)
    profiles = raw.pop("profiles", {})
    if profile is not None:
        if profile not in profiles:
            raise LabError(f"{told} has no profile {profile!r}; it has {', '.join(profiles) or 'none'}")
        raw = _merged(raw, profiles[profile]) | {"profile": profile}
    try:
        raw["arms"] = filled(raw.get("arms"))
        return Experiment.model_validate(raw)
    except ValidationError as problem:
        raise LabError(f"{told}: {_one_line(problem)}") from None
    except LabError as problem:
        raise LabError(f"{told}: {problem}") from None


def project_path(path: str) -> Path:
    """A path of an experiment: from the project's root, wherever the process was started."""
    return ROOT / path


class _Loader(yaml.SafeLoader):
    """Refuses a key given twice, of which YAML keeps the last."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]
    twice = [key for key in keys if keys.count(key) > 1]
    if twice:
        raise yaml.constructor.ConstructorError(None, None, f"key {twice[0]!r} is given twice", node.start_mark)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _yaml(file: Path, told: str) -> dict[str, Any]:
    try:
        raw = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        raise LabError(f"{told} is missing; experiments are YAML files, those of the project in experiments/") from None
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise LabError(f"{told} is not YAML: {' '.join(str(problem).split())}") from None
    if not isinstance(raw, dict):
        raise LabError(f"{told} must hold a mapping with name, arms, workloads, protocol and gates")
    return raw


def _merged(base: Any, over: Any) -> Any:
    """``over`` laid on ``base``: mappings key by key, anything else replaced."""
    if isinstance(base, dict) and isinstance(over, Mapping):
        return base | {key: _merged(base.get(key), value) for key, value in over.items()}
    return over


def filled(entries: Any) -> list[dict[str, Any]]:
    """Arms as declared (a rung's name, or name and rung) with everything that the ladder says about their rungs."""
    if not isinstance(entries, list):
        raise LabError("arms must be a list of rungs, each a name or a mapping with name and rung")
    declared = [{"name": entry, "rung": entry} if isinstance(entry, str) else entry for entry in entries]
    for entry in declared:
        if not isinstance(entry, dict) or set(entry) != {"name", "rung"}:
            raise LabError(f"arms: {entry!r} must be a rung's name, or a mapping with name and rung")
    served = {entry["rung"]: entry["name"] for entry in reversed(declared)}
    arms = []
    for entry in declared:
        rung = rungs.get(entry["rung"])
        below, exact = rung.base, rung.exact
        while below is not None and below not in served:
            skipped = rungs.get(below)
            below, exact = skipped.base, exact and skipped.exact
        told = {"kind": rung.kind, "base": served.get(below or ""), "hypothesis": rung.hypothesis}
        arms.append(entry | told | {"exact": exact and below is not None})
    return arms


def _one_line(problem: ValidationError) -> str:
    first, *others = problem.errors()
    where = ".".join(str(part) for part in first["loc"] if part not in ("mix", "jevbench"))
    message = first["msg"].removeprefix("Value error, ")
    shown = "" if first["type"] == "value_error" else f" (got {str(first['input'])[:60]!r})"
    more = f" (and {len(others)} more)" if others else ""
    return f"{where + ': ' if where else ''}{message}{shown}{more}"
