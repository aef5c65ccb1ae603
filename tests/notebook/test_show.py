"""How a cell ends: the same text everywhere, numbers readable, data beside the words."""

import altair

from openjev_lab.notebook import show


def test_a_table_aligns_and_says_nothing_for_what_is_missing() -> None:
    found = show.table([{"op": "a|b", "MB": 1234.56, "n": 7}, {"op": "c", "MB": None, "n": 12345}])
    assert str(found).splitlines() == [
        "| op   |    MB |      n |",
        "| ---- | ----: | -----: |",
        "| a\\|b | 1,235 |      7 |",
        "| c    |       | 12,345 |",
    ]


def test_truths_are_words_and_not_numbers() -> None:
    assert "| yes" in str(show.table([{"equal bits": True}]))


def test_data_travels_beside_the_words() -> None:
    bundle = show.Text("**fine**", {"verdict": "passed"})._repr_mimebundle_()
    assert bundle["text/plain"] == bundle["text/markdown"] == "**fine**"
    assert bundle["application/vnd.openjev-lab+json"] == {"verdict": "passed"}


def test_a_difference_shows_what_changed_and_says_when_nothing_did() -> None:
    found = str(show.diff("a\nb\n", "a\nc\n", "old", "new"))
    assert found.startswith("```diff\n--- old\n+++ new") and "-b\n+c" in found
    assert "(no difference)" in str(show.diff("a", "a", "old", "new"))


def test_a_chart_is_drawn_in_place_and_fetches_nothing() -> None:
    chart = altair.Chart(altair.Data(values=[{"ms": 3.5}])).mark_bar().encode(x="ms:Q").properties(title="How long")
    bundle = show.Drawing(chart)._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg") and "How long" in bundle["image/svg+xml"]
    assert bundle["text/plain"] == "chart: How long"
    assert not [part for part in bundle.values() if "cdn" in part or "<script" in part]
