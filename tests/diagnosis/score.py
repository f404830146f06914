"""The samples scored by kind, for our reading and for what acting on ECS's and EKS's lists alone would have got."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from healthboard.diagnosis.explain import explain_lines

SAMPLES = Path(__file__).parent / "data" / "samples.jsonl"
HARMLESS = {"HEALTHY", "WORKLOAD", "WATCH", "UNKNOWN", "CORRELATED"}
ECS = {46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 136, 140, 142, 143, 151, 155, 156, 158}
EKS = ECS | {63, 119, 120}
_NUMBER = re.compile(r"Xid \((?:PCI:)?[0-9a-fA-F:.]+\): (\d+)")


@dataclass
class Score:
    sure: list[bool] = field(default_factory=list)
    doubted: list[bool] = field(default_factory=list)
    codes: list[bool] = field(default_factory=list)
    actions: list[bool] = field(default_factory=list)
    dangerous: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, sample: dict[str, Any], got: dict[str, Any]) -> None:
        want, doubt = sample["expect"], sample["doubt"]
        good = got.get("verdict") in {want["verdict"], *(sample.get("alt", []) if doubt else [])}
        (self.doubted if doubt else self.sure).append(good)
        if not sample.get("codes_doubt"):
            self.codes.append(set(got.get("codes", [])) == set(want["codes"]))
        if want["verdict"] in ("HARDWARE", "AMBIGUOUS") and not doubt:
            self.actions.append(got.get("action") == want["action"])
        if got.get("verdict") == "HARDWARE" and want["verdict"] in HARMLESS:
            self.dangerous.append(sample["id"])
        if not good or (self.codes and not self.codes[-1]):
            self.wrong.append(sample["id"])


def share(values: list[bool]) -> float:
    return sum(values) / len(values) if values else 1.0


def samples() -> list[dict[str, Any]]:
    return [json.loads(line) for line in SAMPLES.read_text().splitlines() if line.strip()]


def by_kind() -> dict[str, Score]:
    rows = samples()
    scores: dict[str, Score] = defaultdict(Score)
    for sample, (got, _) in zip(rows, explain_lines(json.dumps(row) for row in rows), strict=True):
        scores[sample["kind"]].add(sample, got)
    return dict(scores)


def list_says(text: str, numbers: set[int]) -> bool:
    """What a tool that matches numbers against a list would do: act or not."""
    return any(int(n) in numbers for n in _NUMBER.findall(text))


def table() -> str:
    rows = [f"{'kind':26}{'sure':>10}{'doubted':>10}{'codes':>10}{'actions':>10}  wrong"]
    for kind, score in sorted(by_kind().items()):
        cells = "".join(f"{sum(v)}/{len(v)}".rjust(10) for v in (score.sure, score.doubted, score.codes, score.actions))
        rows.append(f"{kind:26}{cells}  {' '.join(score.wrong)}")
    kernel = [s for s in samples() if s["kind"] == "kernel_xid"]
    found = {s["id"]: got for s, (got, _) in zip(kernel, explain_lines(json.dumps(s) for s in kernel), strict=True)}
    for who, acts in (
        ("ECS's list", lambda s: list_says(s["text"], ECS)),
        ("EKS's list", lambda s: list_says(s["text"], EKS)),
        ("healthboard", lambda s: found[s["id"]]["verdict"] == "HARDWARE"),
    ):
        right = sum(acts(s) == (s["expect"]["verdict"] == "HARDWARE") for s in kernel)
        wrongly = sum(acts(s) and s["expect"]["verdict"] in HARMLESS for s in kernel)
        rows.append(
            f"act or not, kernel_xid: {who:12} {right}/{len(kernel)} right, {wrongly} healthy machines acted on"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
