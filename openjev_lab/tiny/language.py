"""Labelled requests in the tiny language: the state settles some attributes among filler, the question asks for one.

Takes a ``random.Random`` and returns requests as a client sends them, with the label that their state settles; the same
generator state gives the same request. ``make_request`` meets an exact number of tokens with whatever tokenizer is in
use. Needs neither numpy nor torch, as it is also the workload of the measurement. What can be said is in ``words`` and
``filler``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import Any

from openjev_lab.contract import KINDS, compile_request
from openjev_lab.errors import LabError
from openjev_lab.tiny.filler import DAYS, FILLER, NAMES, THINGS
from openjev_lab.tiny.words import CASE, RULES, Attribute
from openjev_lab.tokens import Prompter

Label = bool | str | int
"""Of a noul: whether yes is right; of a choice: the option's name; of a score: the level's number."""
FORMS = ("text", "text", "object", "array")
"""Shapes of a state, text twice as often as each other."""
PARAGRAPH_SENTENCES = 6
SHORT_TOKENS, LONG_TOKENS = 110, 1000
"""Below, a state settles one or two attributes, to leave room; above, up to eight."""
ATTEMPTS = 60
CANDIDATES = 40
"""Sentences whose lengths are looked at to meet a length exactly."""
ORDERED = tuple(attribute for attribute in CASE if attribute.ordered)
RULE_SHARE = 0.25
"""Of the questions that are not scores, how many ask for a house rule."""
RIVAL_SHARE = 0.4
"""Of the states that settle several attributes, how many hold one (other) house rule among them."""


@dataclass(slots=True)
class Draft:
    """A state that can still grow: sentences with a place in [0, 1), so that filler falls between facts."""

    form: str
    sentences: list[tuple[float, str]]
    """(place, text): facts first, then filler in the order of its making."""
    facts: int
    """How many of ``sentences`` are facts."""
    author: str
    number: int
    settled: dict[str, str] = field(default_factory=dict)
    """Attribute -> the name of the value that the state settles."""

    def state(self) -> str | dict[str, Any] | list[Any]:
        """The state as a client sends it: text, an object or an array."""
        ordered = [text for _, text in sorted(self.sentences)]
        paragraphs = [
            " ".join(ordered[start : start + PARAGRAPH_SENTENCES])
            for start in range(0, len(ordered), PARAGRAPH_SENTENCES)
        ]
        if self.form == "text":
            return "\n".join(paragraphs)
        if self.form == "object":
            body = {"from": self.author, "ticket": self.number}
            return {**body, "text": paragraphs[0]} if len(paragraphs) == 1 else {**body, "messages": paragraphs}
        return [{"from": self.author, "text": paragraph} for paragraph in paragraphs]


def filled(rng: random.Random, template: str) -> str:
    """A template with its slots filled."""
    if "{" not in template:
        return template
    name, other = rng.sample(NAMES, 2)
    return template.format(
        name=name, other=other, thing=rng.choice(THINGS), day=rng.choice(DAYS), n=rng.randrange(2, 100)
    )


def add_filler(rng: random.Random, draft: Draft, count: int) -> None:
    """Put ``count`` sentences that settle nothing anywhere into the state."""
    draft.sentences += [(rng.random(), filled(rng, rng.choice(FILLER))) for _ in range(count)]


def draft_state(rng: random.Random, target: Attribute, facts: int, rivals: float = RIVAL_SHARE) -> Draft:
    """A state that settles ``target`` and ``facts - 1`` other attributes, without filler yet."""
    others = rng.sample([attribute for attribute in CASE if attribute is not target], facts - 1)
    if others and rng.random() < rivals:
        others[-1] = rng.choice([rule for rule in RULES if rule is not target])
    draft = Draft(rng.choice(FORMS), [], facts, rng.choice(NAMES), rng.randrange(10, 1000))
    for attribute in (target, *others):
        value = rng.choice(attribute.values)
        draft.settled[attribute.name] = value.name
        draft.sentences.append((rng.random(), filled(rng, rng.choice(value.evidence))))
    return draft


def ask(rng: random.Random, draft: Draft, target: Attribute, kind: str, *, brief: bool) -> tuple[dict[str, Any], Label]:
    """A question of ``kind`` about ``target``, and what ``draft`` settles. ``brief`` leaves out what costs tokens."""
    truth = draft.settled[target.name]
    if kind == "noul":
        return _noul(rng, target, truth, brief)
    question: dict[str, Any] = {"type": kind, "instructions": rng.choice(target.which)}
    described = rng.random() < 0.5
    values = list(target.values)
    if kind == "choice":
        wrong = [value for value in values if value.name != truth]
        rng.shuffle(wrong)
        chosen = wrong[: rng.randint(1, len(wrong))] + [value for value in values if value.name == truth]
        rng.shuffle(chosen)
        question["criteria"] = {value.name: value.meaning if described else None for value in chosen}
        return question, truth
    if rng.random() < 0.5:
        values.reverse()
    question["criteria"] = [f"{value.name}: {value.meaning}" if described else value.name for value in values]
    return question, [value.name for value in values].index(truth)


def _noul(rng: random.Random, target: Attribute, truth: str, brief: bool) -> tuple[dict[str, Any], bool]:
    label = rng.random() < 0.5
    asked = truth if label else rng.choice([value.name for value in target.values if value.name != truth])
    question: dict[str, Any] = {"type": "noul", "instructions": rng.choice(target.yes_no).format(v=asked)}
    if not brief and rng.random() < 0.2:
        question["criteria"] = {"true": f"it is {asked}", "false": "it is something else"}
    return question, label


def facts_for(rng: random.Random, tokens: int) -> int:
    """How many attributes a state of about ``tokens`` tokens settles."""
    return rng.randint(1, 2 if tokens < SHORT_TOKENS else 8 if tokens > LONG_TOKENS else 4)


def drafted(
    rng: random.Random, kind: str, tokens: int, rivals: float = RIVAL_SHARE
) -> tuple[Draft, Attribute, dict[str, Any], Label]:
    """A state without filler and a question, sized for about ``tokens`` tokens."""
    if kind == "score":
        target = rng.choice(ORDERED)
    else:
        target = rng.choice(RULES if rng.random() < RULE_SHARE else CASE)
    draft = draft_state(rng, target, facts_for(rng, tokens), rivals)
    return draft, target, *ask(rng, draft, target, kind, brief=tokens < SHORT_TOKENS)


def make_request(
    rng: random.Random, *, tokens: int | None = None, prompter: Prompter | None = None, kind: str = "noul"
) -> tuple[dict[str, Any], Label]:
    """A request of one question, and its label.

    With ``tokens``, its prompt (of a choice or score: its longest candidate's) has exactly that many tokens under
    ``prompter``, chat template included; without, it is short, of whatever length comes. Raises ``LabError`` for an
    unknown kind, for ``tokens`` without a prompter, and for a length too small for a fact and a question.
    """
    if kind not in KINDS:
        raise LabError(f"kind {kind!r} is unknown; one of {', '.join(KINDS)} is right")
    if tokens is None:
        draft, _, question, label = drafted(rng, kind, SHORT_TOKENS)
        add_filler(rng, draft, rng.randint(0, 5))
        return _request(draft, question), label
    if prompter is None:
        raise LabError("an exact number of tokens needs the prompter that counts them")
    for _ in range(ATTEMPTS):
        draft, _, question, label = drafted(rng, kind, tokens)
        if _fit(rng, draft, question, tokens, prompter):
            return _request(draft, question), label
    raise LabError(f"no {kind} request of exactly {tokens} tokens with this tokenizer; ask for more tokens")


def _request(draft: Draft, question: dict[str, Any]) -> dict[str, Any]:
    return {"state": draft.state(), "questions": {"q": question}}


def _longest(draft: Draft, question: dict[str, Any], prompter: Prompter) -> int:
    """Which candidate has the most tokens; the context, which all share, does not change that."""
    lengths = [len(prompter.encode(prompt)) for prompt in compile_request(_request(draft, question))[0].prompts]
    return lengths.index(max(lengths))


def _fit(rng: random.Random, draft: Draft, question: dict[str, Any], tokens: int, prompter: Prompter) -> bool:
    """Add filler until the longest candidate has exactly ``tokens``; False if that did not work out.

    First many sentences at a time, by guess; then one to three whose own lengths add up to what is missing.
    """
    longest = _longest(draft, question, prompter)
    usual = sum(_tokens_of(prompter, filled(rng, rng.choice(FILLER))) for _ in range(8)) // 8 + 1

    def left() -> int:
        return tokens - len(prompter.encode(compile_request(_request(draft, question))[0].prompt(longest)))

    missing = left()
    while missing > 4 * usual:
        add_filler(rng, draft, missing // usual)
        missing = left()
    for _ in range(ATTEMPTS):
        if missing == 0 or _finish(rng, draft, missing, left, prompter):
            return True
        if missing > 4 * usual or (missing > usual and rng.random() < 0.5):
            add_filler(rng, draft, 1)
        elif len(draft.sentences) > draft.facts:
            del draft.sentences[-1]
        else:
            return False
        missing = left()
    return False


def _finish(rng: random.Random, draft: Draft, missing: int, left: Callable[[], int], prompter: Prompter) -> bool:
    """End the state with sentences that add up to what is missing; leaves it as it was if none do.

    They go to the end, since one put in between moves every paragraph after it, and a paragraph's first word has other
    tokens. Even there a new paragraph costs tokens of its own, so what the first try was off by, a second allows for.
    """
    kept, goal = len(draft.sentences), missing
    for _ in range(2):
        draft.sentences += [(1.0, sentence) for sentence in _adding_up(rng, goal, prompter)]
        error = left() if len(draft.sentences) > kept else missing
        if error == 0:
            return True
        del draft.sentences[kept:]
        goal += error
    return False


def _adding_up(rng: random.Random, tokens: int, prompter: Prompter) -> list[str]:
    """One to three sentences of filler with ``tokens`` tokens together, each counted alone; [] if none were found."""
    lengths: dict[int, str] = {}
    for _ in range(CANDIDATES):
        sentence = filled(rng, rng.choice(FILLER))
        lengths.setdefault(_tokens_of(prompter, sentence), sentence)
    for count in (1, 2, 3):
        for chosen in combinations_with_replacement(sorted(lengths), count):
            if sum(chosen) == tokens:
                return [lengths[length] for length in chosen]
    return []


@lru_cache(maxsize=1 << 16)
def _tokens_of(prompter: Prompter, sentence: str) -> int:
    """Tokens of a sentence after another; kept, because fillers come again and again."""
    return len(prompter.encode(f". {sentence}")) - len(prompter.encode("."))
