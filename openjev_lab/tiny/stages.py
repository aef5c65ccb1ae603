"""The two trainings: a base that reads and answers in words, then an adapter and a head that decide over it.

Takes modules and batches, changes the modules in place, returns the curve of losses. The loss of the base is next-token
loss alone, answers weighed 1 and contexts less; that of the decision is binary cross-entropy of the head's score.
AdamW throughout, learning rate up over a few steps and then down in a straight line.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from openjev_lab.tiny.evaluate import Item, Rows, logits
from openjev_lab.tiny.examples import Batch, Course

CONTEXT_WEIGHT = 0.1
"""Weight of the mean next-token loss over contexts beside that over answers."""
CLIP = 1.0
BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.01
WARM_UP_STEPS = 30
LAST_RATE = 0.05
"""Learning rate at the end, as a share of its peak."""
RECORDS = 12
"""Points on a course's curve."""
SCORE_TOKENS = 65536
"""Tokens that are scored at a time, padding included."""

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Stage:
    """One training: its courses, in order, under one optimizer."""

    name: str
    courses: tuple[Course, ...]
    rate: float
    """Peak learning rate."""
    head_rate: float = 0.0
    """Peak learning rate of the head; 0 where there is none."""

    @property
    def steps(self) -> int:
        return sum(course.steps for course in self.courses)


@dataclass(slots=True)
class Watch:
    """What a training tells as it goes, and when it must end."""

    report: Report
    bar: Any
    """A tqdm bar, one tick a step."""
    deadline: float
    """``time.monotonic()`` at which training stops where it is."""
    stopped_early: bool = False
    steps: int = 0
    """Steps taken so far."""


def to_device(batch: Batch, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(ids, prompt_tokens, all_tokens, labels) of a batch; ids padded on to a multiple of 8."""
    pad = -batch.ids.shape[1] % 8
    ids = F.pad(torch.from_numpy(batch.ids).to(device).long(), (0, pad))
    others = (batch.prompt_tokens, batch.all_tokens, batch.labels)
    return ids, *(torch.from_numpy(part).to(device) for part in others)


def hidden_at(text: nn.Module, ids: Tensor, places: Tensor) -> Tensor:
    """Final-norm hidden states (rows, hidden) at one place a row of ids (rows, tokens)."""
    states = text(input_ids=ids, use_cache=False).last_hidden_state
    return states[torch.arange(len(ids), device=ids.device), places]


def base_loss(base: Any, batch: Batch, device: str) -> tuple[Tensor, Tensor]:
    """(loss, which answers' first words are right)."""
    ids, prompt, end, _ = to_device(batch, device)
    logits = base(input_ids=ids, use_cache=False).logits[:, :-1].float()
    losses = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    place = torch.arange(1, ids.shape[1], device=device)  # of the token that is predicted
    context = (place < prompt[:, None]).float()
    answer = ((place >= prompt[:, None]) & (place < end[:, None])).float()
    loss = (losses * answer).sum() / answer.sum() + CONTEXT_WEIGHT * (losses * context).sum() / context.sum()
    rows = torch.arange(len(ids), device=device)
    first = prompt - 1
    return loss, logits[rows, first].argmax(-1) == ids[rows, prompt]


def decision_loss(model: Any, head: nn.Linear, batch: Batch, device: str) -> tuple[Tensor, Tensor]:
    """(loss, which decisions are right)."""
    ids, prompt, _, labels = to_device(batch, device)
    scores = head(hidden_at(model, ids, prompt - 1).float())[:, 0]
    return F.binary_cross_entropy_with_logits(scores, labels.float()), (scores > 0) == labels


def rate_at(step: int, steps: int) -> float:
    """Learning rate as a share of its peak."""
    up = min(1.0, (step + 1) / WARM_UP_STEPS)
    return up * (LAST_RATE + (1 - LAST_RATE) * (1 - step / steps))


def train(
    stage: Stage,
    groups: list[dict[str, Any]],
    loss_of: Callable[[Batch], tuple[Tensor, Tensor]],
    stream: Iterable[Batch],
    watch: Watch,
) -> list[dict[str, Any]]:
    """Train the parameters in ``groups`` on the stage's batches; the curve, ``RECORDS`` points a course.

    A point is the mean since the last one: loss, and the share of right answers by task. As every batch is new, that is
    accuracy on unseen examples already.
    """
    optimizer = torch.optim.AdamW(groups, betas=BETAS, weight_decay=WEIGHT_DECAY)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, stage.steps))
    parameters = [parameter for group in groups for parameter in group["params"]]
    curve: list[dict[str, Any]] = []
    batches = iter(stream)
    for course in stage.courses:
        tally = Tally()
        for step, batch in enumerate(itertools.islice(batches, course.steps)):
            if time.monotonic() > watch.deadline:
                watch.stopped_early = True
                return curve
            loss, right = loss_of(batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, CLIP)
            optimizer.step()
            scheduler.step()
            tally.add(loss.detach(), right, batch.tasks)
            watch.bar.update()
            watch.steps += 1
            if (step + 1) % max(1, course.steps // RECORDS) == 0 or step + 1 == course.steps:
                curve.append({"course": course.name, "step": step + 1, **tally.means()})
                watch.report(curve[-1])
                tally = Tally()
    return curve


class Tally:
    """Means since the last record. Stays on the device, so that a step does not wait for it."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._losses: list[Tensor] = []
        self._right: list[Tensor] = []
        self._tasks: list[str] = []

    def add(self, loss: Tensor, right: Tensor, tasks: Sequence[str]) -> None:
        """One step's loss, and which of its examples were answered right."""
        self._losses.append(loss)
        self._right.append(right)
        self._tasks += tasks

    def means(self) -> dict[str, Any]:
        """Mean loss, accuracy by task, seconds a step."""
        right = torch.cat(self._right).tolist()
        by_task: dict[str, list[bool]] = {}
        for task, one in zip(self._tasks, right, strict=True):
            by_task.setdefault(task, []).append(one)
        return {
            "loss": round(float(torch.stack(self._losses).mean()), 4),
            "accuracy": {task: round(sum(ones) / len(ones), 4) for task, ones in sorted(by_task.items())},
            "step_s": round((time.monotonic() - self._started) / len(self._losses), 4),
        }


def scores(model: Any, head: nn.Linear, prompts: Sequence[list[int]], device: str) -> list[float]:
    """Score of each prompt, in order; scored by length, so that little is padded."""
    found = [0.0] * len(prompts)
    with torch.inference_mode():
        for group in _by_length(prompts):
            longest = len(prompts[group[-1]])
            ids = torch.zeros((len(group), longest), dtype=torch.long)
            for row, index in enumerate(group):
                ids[row, : len(prompts[index])] = torch.tensor(prompts[index])
            places = torch.tensor([len(prompts[index]) - 1 for index in group], device=device)
            states = hidden_at(model, ids.to(device), places).double()
            values = states @ head.weight[0].double() + head.bias.double()
            for index, value in zip(group, values.tolist(), strict=True):
                found[index] = value
    return found


def rows_by(text: Any, head: nn.Linear, device: str) -> Rows:
    """The logits of items by this model; without the adapter, its head reads the plain base."""

    def rows(items: Sequence[Item], adapter: bool) -> list[list[float]]:
        with nullcontext() if adapter else text.disable_adapter():
            return logits(items, lambda prompts: scores(text, head, prompts, device))

    return rows


def _by_length(prompts: Sequence[list[int]]) -> Iterator[list[int]]:
    """Indices in groups of rising length, each within ``SCORE_TOKENS``."""
    group: list[int] = []
    for index in sorted(range(len(prompts)), key=lambda i: len(prompts[i])):
        if group and (len(group) + 1) * len(prompts[index]) > SCORE_TOKENS:
            yield group
            group = []
        group.append(index)
    if group:
        yield group
