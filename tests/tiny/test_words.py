"""The tiny language's data: no two values share a sentence, filler settles nothing, every slot gets filled."""

import re
import string

import pytest

from openjev_lab.tiny.filler import FILLER
from openjev_lab.tiny.words import CASE, RULES, Attribute

EVERY = (*CASE, *RULES)
SLOTS = {"name", "other", "thing", "day", "n"}


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


def test_a_sentence_of_evidence_belongs_to_one_value() -> None:
    said = [sentence for attribute in EVERY for value in attribute.values for sentence in value.evidence]
    assert len(said) == len(set(said))
    assert not set(said) & set(FILLER)


def test_filler_names_no_value_but_by_words_of_every_day() -> None:
    named = {value.name.lower() for attribute in EVERY for value in attribute.values} | {rule.name for rule in RULES}
    assert not {sentence for sentence in FILLER if words(sentence) & named}


@pytest.mark.parametrize("attribute", EVERY, ids=lambda attribute: attribute.name)
def test_templates_have_the_slots_that_are_filled(attribute: Attribute) -> None:
    def slots(template: str) -> set[str]:
        return {slot for _, slot, _, _ in string.Formatter().parse(template) if slot is not None}

    assert all(slots(sentence) <= SLOTS for value in attribute.values for sentence in value.evidence)
    assert all(slots(template) == {"v"} for template in (*attribute.yes_no, *attribute.claims))
    assert all(slots(template) == set() for template in attribute.which)
    assert len({value.name for value in attribute.values}) == len(attribute.values) >= 2
