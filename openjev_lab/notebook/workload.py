"""The workload's notebook: lengths, one request from body to ids, and the hashes that say it is always the same.

Takes checked parameters; returns tables, text and a chart. Apart from ``measure.workload``, which builds the requests
and shows nothing.
"""

from __future__ import annotations

import json
from typing import Any

from openjev_lab.contract import compile_request
from openjev_lab.evidence.run import WORKLOAD
from openjev_lab.measure import workload
from openjev_lab.measure.experiment import Mix
from openjev_lab.notebook.checks import geometry_of
from openjev_lab.notebook.parameters import ROOT, Parameters
from openjev_lab.notebook.show import Drawing, Text, code, table
from openjev_lab.tokens import Prompter

SHOWN_CHARACTERS = 600


class Workload:
    """The mix of an experiment."""

    def __init__(self, parameters: Parameters) -> None:
        self.experiment = parameters.load()
        self.mix = next(spec.name for spec in self.experiment.workloads if isinstance(spec, Mix))
        if parameters.by_hand:
            self.work = workload.build(self.experiment)
        else:
            self.work = workload.read(ROOT / parameters.run_dir / WORKLOAD)
        self.items = self.work.items[self.mix]
        self.shortest = min(self.items, key=lambda item: item.expected_tokens)

    def __repr__(self) -> str:
        return f"{self.mix}: {len(self.items)} requests for {self.experiment.checkpoint}"

    def lengths(self) -> Text:
        """Counts and quantiles of the mix's lengths, and its labels."""
        tokens = sorted(item.expected_tokens for item in self.items)
        return table(
            [
                {
                    "requests": len(tokens),
                    "lengths": len(set(tokens)),
                    "shortest": tokens[0],
                    "median": (tokens[(len(tokens) - 1) // 2] + tokens[len(tokens) // 2]) / 2,
                    "mean": sum(tokens) / len(tokens),
                    "longest": tokens[-1],
                    "labelled yes": sum(item.label is True for item in self.items),
                }
            ]
        )

    def lengths_chart(self) -> Drawing:
        """Every request as a dot, by length; the mean as a line."""
        import altair as alt
        import polars as pl

        rows = [{"tokens": item.expected_tokens, "rank": i} for i, item in enumerate(sorted_items(self.items))]
        frame = pl.DataFrame(rows)
        dots = (
            alt.Chart(frame)
            .mark_circle(size=40)
            .encode(
                x=alt.X("tokens:Q", scale=alt.Scale(type="log"), title="input tokens (log scale)"),
                y=alt.Y("rank:Q", title="requests no longer than this"),
                tooltip=["tokens", "rank"],
            )
        )
        mean = alt.Chart(frame).mark_rule(strokeDash=[4, 3]).encode(x="mean(tokens):Q")
        title = f"Lengths of {self.mix}; dashed: mean"
        return Drawing((dots + mean).properties(title=title, width=520, height=220))

    def request(self) -> Text:
        """The shortest request's body."""
        text = json.dumps(self.shortest.request, ensure_ascii=False, indent=1)
        return code(text[:SHOWN_CHARACTERS], "json")

    def prompt(self) -> Text:
        """The one prompt that its question becomes, and the first of its ids."""
        prompter = Prompter.load(workload.tokenizer_dir(self.experiment.checkpoint))
        (question,) = compile_request(self.shortest.request)
        ids = prompter.encode(question.prompts[0])
        return code(f"{question.prompts[0]}\n\n{len(ids)} ids: {' '.join(map(str, ids[:16]))} ...", "text")

    def fingerprint(self) -> Text:
        """Hash of every workload's requests: the same in every process that builds them."""
        rows: list[dict[str, Any]] = [
            {"workload": name, "requests": len(items), "sha256": workload.digest(items)}
            for name, items in self.work.items.items()
        ]
        return table(rows)

    def work_by_op(self) -> Text:
        """Least bytes and FLOPs of the ops of one forward, summed over the mix, in the checkpoint's own geometry."""
        from openjev_lab.notebook.arithmetic import mix_cost

        tokens = [item.expected_tokens for item in self.items]
        return table(mix_cost(geometry_of(self.experiment), tokens, 4 if self.experiment.dtype == "float32" else 2))


def sorted_items(items: tuple[workload.WorkItem, ...]) -> list[workload.WorkItem]:
    """By length, then name."""
    return sorted(items, key=lambda item: (item.expected_tokens, item.request_id))
