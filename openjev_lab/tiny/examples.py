"""Training examples of the tiny language as token ids, made by several processes ahead of the training that eats them.

Takes a ``Course`` (what to draw, how long, how much) and yields one ``Batch`` of numpy arrays a step. A step's examples
depend on (split, seed, course, step) alone, so the number of processes changes nothing. Apart from ``train`` because
the worker processes import this module and must not import torch.

Tasks of the base, answered in words: ``which`` ("What is this about?" -> "billing") and ``claim`` ("This is about
billing." -> "true"). Tasks of the decision, answered by the head: the contract's ``noul``, ``choice`` and ``score``.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openjev_lab.contract import compile_request, render
from openjev_lab.tiny.language import RIVAL_SHARE, add_filler, drafted
from openjev_lab.tiny.tokenizer import TURN_END
from openjev_lab.tiny.words import CASE, RULES
from openjev_lab.tokens import Prompter

WORD_PROMPT = "Context:\n{state}\n\nQuestion: {question}\nAnswer with one word."
CLAIM_PROMPT = "Context:\n{state}\n\nStatement: {claim}\nIs this statement true or false? Answer with one word."
WORD_RIVAL_SHARE = 0.8
"""House rules stand beside each other more often while the base learns, as telling them apart is learned last."""
FRAME_TOKENS, SENTENCE_TOKENS = 55, 10.0
"""About what a prompt costs without filler, and a sentence of filler: lengths here need not be exact."""


@dataclass(frozen=True, slots=True)
class Course:
    """One stretch of training."""

    name: str
    steps: int
    shortest_tokens: int
    longest_tokens: int
    """A step's length is drawn log-uniformly between the two; all its examples have about that length."""
    most_examples: int
    most_tokens: int
    """A batch has as many examples as both allow."""
    tasks: tuple[tuple[str, float, float], ...]
    """(task, share at the first step, share at the last)."""

    def shares(self, step: int) -> dict[str, float]:
        """Task -> its share at ``step``."""
        way = step / max(1, self.steps - 1)
        return {task: first + (last - first) * way for task, first, last in self.tasks}


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples padded on the right, which a causal model never sees from the left."""

    ids: NDArray[np.int16]
    """(examples, tokens)."""
    prompt_tokens: NDArray[np.int64]
    """(examples,): where the prompt ends, answer in words excluded."""
    all_tokens: NDArray[np.int64]
    """(examples,): where the example ends."""
    labels: NDArray[np.bool_]
    """(examples,): whether yes is right; False and unused for an answer in words."""
    tasks: tuple[str, ...]
    digests: NDArray[np.uint64]
    """A hash of each prompt's ids, to tell whether a held-out prompt was trained on."""


def digest(ids: list[int]) -> int:
    """64 bits of BLAKE2b over a prompt's ids."""
    raw = np.asarray(ids, dtype=np.int16).tobytes()
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class Writer:
    """Text to ids: prompts as a server writes them, and the words that the base answers with."""

    prompter: Prompter
    words: dict[str, list[int]]
    """Answer -> its ids and the end of the turn. The leading space makes it the word that the context and the
    question hold too."""

    @classmethod
    def load(cls, base_dir: Path) -> Writer:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(base_dir / "tokenizer.json"))
        answers = ["true", "false", *(value.name for attribute in (*CASE, *RULES) for value in attribute.values)]
        return cls(
            Prompter.load(base_dir),
            {word: tokenizer.encode(f" {word}{TURN_END}", add_special_tokens=False).ids for word in answers},
        )


def example(rng: random.Random, task: str, tokens: int, writer: Writer) -> tuple[list[int], list[int], bool]:
    """(prompt ids, ids of the answer in words or [], label) of an example of about ``tokens`` tokens."""
    kind = task if task in ("choice", "score") else "noul"
    rivals = WORD_RIVAL_SHARE if task in ("which", "claim") else RIVAL_SHARE
    draft, target, question, label = drafted(rng, kind, tokens, rivals)
    add_filler(rng, draft, max(0, round((tokens - FRAME_TOKENS) / SENTENCE_TOKENS - draft.facts + rng.uniform(-1, 1))))
    state, truth = draft.state(), draft.settled[target.name]
    if task == "which":
        prompt = WORD_PROMPT.format(state=render(state), question=rng.choice(target.which))
        return writer.prompter.encode(prompt), writer.words[truth], False
    if task == "claim":
        right = rng.random() < 0.5
        said = truth if right else rng.choice([value.name for value in target.values if value.name != truth])
        prompt = CLAIM_PROMPT.format(state=render(state), claim=rng.choice(target.claims).format(v=said))
        return writer.prompter.encode(prompt), writer.words["true" if right else "false"], False
    compiled = compile_request({"state": state, "questions": {"q": question}})[0]
    if kind == "noul":
        return writer.prompter.encode(compiled.prompt(0)), [], bool(label)
    right = rng.random() < 0.5  # candidates that are right as often as not, so that chance is a half here too
    best = label if isinstance(label, int) else compiled.keys.index(str(label))
    index = best if right else rng.choice([i for i in range(len(compiled.keys)) if i != best])
    return writer.prompter.encode(compiled.prompt(index)), [], right


def make_batch(seed: int, course: Course, step: int, writer: Writer) -> Batch:
    """The batch of one step."""
    rng = random.Random(f"train/{seed}/{course.name}/{step}")
    low, high = math.log(course.shortest_tokens), math.log(course.longest_tokens)
    tokens = round(math.exp(rng.uniform(low, high)))
    count = max(1, min(course.most_examples, course.most_tokens // tokens))
    shares = course.shares(step)
    tasks = rng.choices(list(shares), weights=list(shares.values()), k=count)
    rows = [example(rng, task, tokens, writer) for task in tasks]
    ids = np.zeros((count, max(len(prompt) + len(answer) for prompt, answer, _ in rows)), dtype=np.int16)
    for place, (prompt, answer, _) in enumerate(rows):
        ids[place, : len(prompt) + len(answer)] = prompt + answer
    return Batch(
        ids,
        np.array([len(prompt) for prompt, _, _ in rows], dtype=np.int64),
        np.array([len(prompt) + len(answer) for prompt, answer, _ in rows], dtype=np.int64),
        np.array([label for _, _, label in rows], dtype=np.bool_),
        tuple(tasks),
        np.array([digest(prompt) for prompt, _, _ in rows], dtype=np.uint64),
    )


_worker: Writer  # of a worker process, set when it starts


def _start(base_dir: str) -> None:
    global _worker
    _worker = Writer.load(Path(base_dir))


def _make(job: tuple[int, Course, int]) -> Batch:
    return make_batch(*job, _worker)


@contextmanager
def batches(base_dir: Path, seed: int, courses: list[Course], workers: int) -> Iterator[Iterator[Batch]]:
    """Every batch of ``courses`` in order, made by ``workers`` processes ahead of time (0: here, when asked for).

    Prompts are small, so nothing bounds how far ahead: a whole training is some hundred MB.
    """
    jobs = [(seed, course, step) for course in courses for step in range(course.steps)]
    if workers == 0:
        writer = Writer.load(base_dir)
        yield (make_batch(*job, writer) for job in jobs)
        return
    with get_context("spawn").Pool(workers, _start, (str(base_dir),)) as pool:
        yield pool.imap(_make, jobs)
