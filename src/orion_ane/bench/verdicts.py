"""What speed is asked for, and whether it is met: a table of rows with a must and an aim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from orion_ane.bench.harness import RATIO, Row


@dataclass(frozen=True)
class Target:
    """What a row is to be.

    Attributes:
        what: in words.
        row: the name of the measured row, after the model's.
        must: what its median has to reach.
        aim: where it is going.
        is_cost: whether the row is told upside down, as a time or a size, and less is better.
        scale: what the row is divided by first, such as the number of threads.
    """

    what: str
    row: str
    must: float
    aim: float
    is_cost: bool = False
    scale: float = 1.0


@dataclass(frozen=True)
class Verdict:
    """A target beside what was measured.

    Attributes:
        target: what was asked for.
        where: the model's shape; empty where there is none.
        median, p10, p90: as the target counts.
        unit: of them.
        runs: how many counted.
    """

    target: Target
    where: str
    median: float
    p10: float
    p90: float
    unit: str
    runs: int

    @property
    def is_met(self) -> bool:
        """Whether the median reaches the must."""
        return self._reaches(self.target.must)

    @property
    def is_aim_met(self) -> bool:
        """Whether it reaches the aim."""
        return self._reaches(self.target.aim)

    def _reaches(self, bound: float) -> bool:
        return self.median <= bound if self.target.is_cost else self.median >= bound

    def document(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return asdict(self) | {"met": self.is_met, "aim_met": self.is_aim_met}


def judge(targets: Iterable[Target], rows: Iterable[Row], where: str) -> list[Verdict]:
    """The targets whose rows were measured, in their order."""
    named = {row.name: row for row in rows}
    prefix = f"{where}: " if where else ""
    found = []
    for target in targets:
        if (row := named.get(prefix + target.row)) is not None:
            median, p10, p90 = (x / target.scale for x in (row.median, row.p10, row.p90))
            if target.is_cost:
                median, p10, p90 = 1 / median, 1 / p90, 1 / p10  # the slowest is now the largest
            unit = "" if row.unit == RATIO else row.unit
            found.append(Verdict(target, where, median, p10, p90, unit, row.runs))
    return found


def unmeasured(targets: Iterable[Target], verdicts: Iterable[Verdict], where: str) -> list[str]:
    """What to say of the targets that have no row."""
    told = {verdict.target for verdict in verdicts if verdict.where == where}
    place = f" ({where})" if where else ""
    return [f"not measured: {t.what}{place}" for t in targets if t not in told]


def markdown(
    verdicts: Iterable[Verdict], rows: Iterable[Row], notes: Iterable[str], about: Mapping[str, str]
) -> str:
    """The targets, then every row, then what could not be had, as a page shows them."""
    lines = [f"{key}: {value}  " for key, value in about.items()]
    lines += ["", "| target | shape | measured (10th to 90th percentile) | must | aim | met |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for v in verdicts:
        sign = "≤" if v.target.is_cost else "≥"
        met = "aim" if v.is_aim_met else "must" if v.is_met else "**no**"
        figure = f"{v.median:.3g} ({v.p10:.3g} to {v.p90:.3g}) {v.unit}".rstrip()
        bounds = f"{sign} {v.target.must:g} | {sign} {v.target.aim:g}"
        lines.append(f"| {v.target.what} | {v.where or '-'} | {figure} | {bounds} | {met} |")
    lines += [
        "",
        "| row | median | p10 | p90 | unit | runs |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for r in rows:
        figures = " | ".join(f"{x:.4g}" for x in (r.median, r.p10, r.p90))
        lines.append(f"| {r.name} | {figures} | {r.unit} | {r.runs} |")
    told = [f"- {note}" for note in notes]
    return "\n".join([*lines, "", *told] if told else lines)
