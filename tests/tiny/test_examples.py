"""Training examples: the same whatever makes them, answers where they should be, shares that move, labels balanced."""

from pathlib import Path

import numpy as np
import pytest

from openjev_lab.tiny.examples import Course, Writer, batches, digest, make_batch
from openjev_lab.tiny.train import base_courses, decision_courses

BASE = Path(__file__).resolve().parents[2] / "checkpoints" / "tiny" / "base"
WORDS = Course("words", 3, 80, 200, 8, 1200, (("which", 0.5, 0.5), ("claim", 0.5, 0.5)))
DECISIONS = Course("decide", 2, 80, 120, 64, 8192, (("noul", 0.4, 0.4), ("choice", 0.3, 0.3), ("score", 0.3, 0.3)))


@pytest.fixture(scope="module")
def writer() -> Writer:
    return Writer.load(BASE)


def test_processes_make_what_this_one_makes() -> None:
    with batches(BASE, 3, [WORDS, DECISIONS], 0) as here, batches(BASE, 3, [WORDS, DECISIONS], 1) as there:
        pairs = list(zip(here, there, strict=True))
    assert len(pairs) == WORDS.steps + DECISIONS.steps
    for ours, theirs in pairs:
        assert ours.tasks == theirs.tasks
        assert np.array_equal(ours.ids, theirs.ids) and np.array_equal(ours.labels, theirs.labels)


def test_seed_and_step_change_the_batch(writer: Writer) -> None:
    digests = [make_batch(seed, WORDS, step, writer).digests.tolist() for seed, step in ((0, 0), (0, 1), (1, 0))]
    assert len({tuple(one) for one in digests}) == 3


def test_an_answer_in_words_follows_its_prompt_and_ends_the_turn(writer: Writer) -> None:
    batch = make_batch(0, WORDS, 0, writer)
    answers = {tuple(ids) for ids in writer.words.values()}
    assert len(batch.ids) == 8 or len(batch.ids) == 1200 // batch.ids.shape[1]
    for row, start, end, one in zip(batch.ids, batch.prompt_tokens, batch.all_tokens, batch.digests, strict=True):
        assert tuple(row[start:end].tolist()) in answers
        assert not row[end:].any()
        assert digest(row[:start].tolist()) == int(one)


def test_a_decision_has_no_answer_in_words_and_balanced_labels(writer: Writer) -> None:
    made = [make_batch(0, DECISIONS, step, writer) for step in range(12)]
    assert all(np.array_equal(batch.prompt_tokens, batch.all_tokens) for batch in made)
    labels = np.concatenate([batch.labels for batch in made])
    assert 0.42 < labels.mean() < 0.58
    assert {task for batch in made for task in batch.tasks} == {"noul", "choice", "score"}


@pytest.mark.parametrize("course", [*base_courses(), *decision_courses()], ids=lambda course: course.name)
def test_shares_add_up_all_the_way(course: Course) -> None:
    for step in (0, course.steps // 2, course.steps - 1):
        assert sum(course.shares(step).values()) == pytest.approx(1)
