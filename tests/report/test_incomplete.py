"""Runs that did not go as planned still get a report, in clear words and without a number that nobody measured."""

import pytest
import synthetic_run
import vl_convert
from synthetic_run import LADDER, TOKENS, write_run

from openjev_lab.report import page, render, source

ANSWER = ("probability", "score", "probabilities", "scores")
SOME_TOKENS = TOKENS[::4]
STAGES = ("queue_ns", "prepare_ns", "execute_ns", "finish_ns")
FEW = {name: LADDER[name] for name in ("raw-hf", "scalar")}


def timing_rows(arms=LADDER, tokens=SOME_TOKENS, **others):
    """Few requests: what is missing is the point here."""
    return synthetic_run.timing_rows(arms, tokens=tokens, **others)


def broken(rows):
    """The last pass of scalar fails from its third request on."""
    for row in rows:
        if row["arm"] == "scalar" and row["pass_index"] == 1 and row["position"] > 2:
            row |= dict.fromkeys(("status", "latency_ns", "tokens", *ANSWER, *STAGES))
            row["error"] = "connection refused"
    return rows


def silent(rows):
    """A server that reports neither stages nor probabilities, for a workload without labels."""
    return [row | dict.fromkeys(("label", *ANSWER, *STAGES)) for row in rows]


CASES = {
    "nothing recorded": ([], {}, ["NOT JUDGED", "No request was measured", "pending"]),
    "feasibility pass only": (timing_rows(passes=(-1,)), {}, ["No request was measured"]),
    "one pass": (timing_rows(passes=(0,)), {}, ["One pass only, so no spread between passes"]),
    "arms missing": (timing_rows(FEW), dict.fromkeys(FEW, "measured"), ["merged-hf has no rows (pending)"]),
    "baseline failed": (
        timing_rows({"scalar": LADDER["scalar"]}),
        {"raw-hf": "failed", "scalar": "measured"},
        ["raw-hf was not measured beside it", "raw-hf has no rows (failed): it broke"],
    ),
    "an arm with errors": (
        broken(timing_rows(FEW)),
        dict.fromkeys(FEW, "measured"),
        ["INVALID", "16 measured requests failed", "connection refused"],
    ),
    "one request": (timing_rows(FEW, tokens=(107,)), dict.fromkeys(FEW, "measured"), ["answers a request of mix74 in"]),
    "no stages, no decisions": (
        silent(timing_rows(FEW)),
        dict.fromkeys(FEW, "measured"),
        ["No server reported its stages", "No two arms answered the same request"],
    ),
    "another workload only": (
        timing_rows(FEW, workload="jevbench", tokens=(90, 120, 400)),
        dict.fromkeys(FEW, "measured"),
        ["answers a request of jevbench in"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_incomplete_run_is_reported_in_words(tmp_path, name):
    rows, statuses, words = CASES[name]
    gates = None if name == "nothing recorded" else []
    folder = write_run(tmp_path / "run", rows, gates=gates, statuses=statuses or {"raw-hf": "pending"})
    run = source.load(folder)
    specs = render.draw(run)
    text = render.html(run, page.frames(run), specs)
    assert all(vl_convert.vegalite_to_vega(spec) for spec in specs.values())
    for sentence in words:
        assert sentence in text, sentence
    visible = text[: text.index("<noscript>")]
    assert ">nan" not in visible.lower() and ">None<" not in visible and ">null<" not in visible
    assert all(f">{arm}<" in visible for arm in LADDER), "every arm has its row"
