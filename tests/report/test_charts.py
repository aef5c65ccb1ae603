"""report.charts: what is drawn is what was measured, axes have units and start at zero, ours and theirs stay apart."""

import json
import math

import pytest
from synthetic_run import LADDER, MANIFEST, dump, flipped, resolved, timing_rows, write_run

from openjev_lab.errors import LabError
from openjev_lab.report import charts, facts, source, theme

PLAIN = [name for name in charts.__all__ if name not in ("parity", "saving")]


def spec(run, name, *arguments):
    return getattr(charts, name)(run, *arguments).to_dict()


def walk(value):
    """Every dict inside a spec."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


def rows(chart):
    """Every row of every data set of a spec."""
    return [row for data in chart["datasets"].values() for row in data]


@pytest.fixture(scope="module")
def specs(run_dir):
    """All charts of the complete run by name."""
    run = source.load(run_dir)
    found = {name: spec(run, name) for name in PLAIN}
    found["parity"] = spec(run, "parity", "packed-silu", "raw-hf")
    found["saving"] = spec(run, "saving", "packed-silu", "scalar")
    return found


def test_every_chart_says_what_when_on_what_and_how_many_passes(specs):
    for name, chart in specs.items():
        assert chart["title"]["text"], name
        assert chart["title"]["subtitle"][0] == "Example CPU, 2 CPUs · 2026-10-28 · 2 measured passes", name


def test_quantities_have_titles_with_units(specs):
    for name, chart in specs.items():
        for part in walk(chart):
            for channel in ("x", "y"):
                encoding = part.get(channel, {}) if "type" not in part else {}
                if isinstance(encoding, dict) and encoding.get("type") == "quantitative" and encoding.get("title"):
                    assert any(unit in encoding["title"] for unit in UNITS), f"{name}: {encoding['title']}"


UNITS = ("(ms", "(%", "times as fast", "tokens", "requests", "P(yes)", "|difference|")


def test_no_number_that_is_not_finite_reaches_a_chart(specs):
    for name, chart in specs.items():
        json.dumps(chart, allow_nan=False)
        for row in rows(chart):
            assert all(math.isfinite(value) for value in row.values() if isinstance(value, float)), name


def test_time_starts_at_zero_where_bars_are_drawn(specs):
    for name in ("ladder", "published", "stages"):
        for part in walk(specs[name]):
            mark = part.get("mark")
            if isinstance(mark, dict) and mark["type"] == "bar":
                scale = part["encoding"]["x"]["scale"]
                assert scale.get("zero") is True or scale["domain"][0] == 0, name


def test_every_pass_of_the_ladder_is_a_dot_and_the_skipped_rung_is_words(specs):
    drawn = rows(specs["ladder"])
    assert len([row for row in drawn if "pass_index" in row]) == 6 * 2
    skipped = [row for row in drawn if row["arm"] == "graph-64"]
    assert [row["words"] for row in skipped] == [
        "skipped: CUDA graphs need a CUDA device; this rung has no meaning on a CPU"
    ]
    assert all(row.get("mean_ms") is None for row in skipped)


def test_all_requests_are_drawn_against_tokens(specs):
    assert len([row for row in rows(specs["latency_by_tokens"]) if "request_id" in row]) == 74 * 6


def test_an_arm_keeps_its_colour_when_others_are_left_out(run_dir, specs):
    few = spec(run_dir, "latency_by_tokens", ["packed-silu"])

    def colour(chart):
        scale = next(part["color"]["scale"] for part in walk(chart) if isinstance(part.get("color"), dict))
        return dict(zip(scale["domain"], scale["range"], strict=True))["packed-silu"]

    assert colour(few) == colour(specs["latency_by_tokens"])
    assert {row["arm"] for row in rows(few)} == {"packed-silu"}


def test_colours_and_shapes_are_enough_for_a_ladder_and_all_different():
    assert len(set(theme.ARMS)) == len(theme.ARMS) >= len(LADDER)
    assert len(set(theme.SHAPES)) == len(theme.SHAPES) >= len(LADDER)


def test_unknown_arms_are_refused(run_dir):
    wrong = {"latency_by_tokens": (["fast"],), "parity": ("fast", "raw-hf"), "saving": ("fast", "raw-hf")}
    for name, arguments in wrong.items():
        with pytest.raises(LabError, match="has no arm fast"):
            getattr(charts, name)(run_dir, *arguments)


def test_published_figures_share_an_axis_only_with_their_own_device(tmp_path, specs):
    assert specs["published"]["resolve"]["scale"]["x"] == "independent"
    assert len({row["device"] for row in rows(specs["published"]) if "device" in row}) == 2
    manifest = MANIFEST | {"machine": {"cpu": "c", "gpus": [{"name": "NVIDIA H200"}]}}
    folder = write_run(tmp_path / "run", manifest=manifest)
    dump(folder / "resolved.json", resolved() | {"device": "cuda:0"})
    record = {"arm": "raw-hf", "status": "measured", "reason": None, "describe": {"geometry": "27b"}}
    (folder / "arms.jsonl").write_text(json.dumps(record) + "\n")
    assert facts.same_device(folder)
    assert spec(folder, "published")["resolve"]["scale"]["x"] == "shared"


def test_ours_and_theirs_differ_in_colour_and_in_shape(specs):
    looks = {}
    for panel in specs["published"]["vconcat"]:
        point = next(layer["mark"] for layer in panel["layer"] if layer["mark"]["type"] == "point")
        looks[panel["title"]["text"].split(":")[0]] = (point["color"], point["shape"], point["filled"])
    assert looks == {"THEIRS": (theme.THEIRS, "diamond", False), "OURS": (theme.OURS, "circle", True)}


def test_an_exact_arm_is_said_to_be_equal_instead_of_drawn_at_zero(run_dir):
    chart = spec(run_dir, "parity", "packed-silu", "scalar")
    assert [row["words"] for row in rows(chart)] == ["All 74 requests have the same probability to the last bit."]


def test_a_flip_stands_out(tmp_path):
    found = timing_rows({name: LADDER[name] for name in ("raw-hf", "merged-hf")})
    found = flipped(found, "merged-hf", "r010")
    folder = write_run(tmp_path / "run", found)
    turned = [row for row in rows(spec(folder, "parity", "merged-hf", "raw-hf")) if row.get("decision") == "flipped"]
    assert [row["request_id"] for row in turned] == ["r010"]
