"""The paper's tables for our runs: accuracy, retained weights, cost, forgetting, effect of J.

A table knows values, not words: formats.py writes it as Markdown, CSV or LaTeX. Columns of the
paper's printed figures are marked so; they are never mixed with ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rivals.experiment.report import paper_values as paper
from rivals.experiment.report.groups import Group, Section, Spread, rank
from rivals.experiment.report.labels import differences, pretrained
from rivals.experiment.report.report_runs import FinishedRun


@dataclass(frozen=True)
class Column:
    """A head, what its numbers are, and whether they are the paper's."""

    head: str
    style: str = (
        "percent"  # text | percent | points | count | flops | seconds | megabytes | millions | loss
    )
    printed: bool = False  # in the paper
    better: str = ""  # high or low, where one system can be the best
    about: str = ""
    subset: bool = False  # its numbers are on a subset of the data

    @property
    def shown(self) -> str:
        return f"{self.head} †" if self.subset else self.head


@dataclass(frozen=True)
class Cell:
    """A value with its deviation over seeds, or a text."""

    value: float | None = None
    deviation: float | None = None
    text: str = ""
    best: bool = False


@dataclass
class Table:
    """Rows of cells under columns."""

    name: str  # of its files
    title: str
    columns: list[Column]
    rows: list[list[Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)  # which subsets it is on


SYSTEM = Column("method", "text")
SEEDS = Column("seeds", "count", about="runs that mean ± deviation are taken over")
PRINTED = "as printed in the paper, on complete data and other networks"


def accuracy(section: Section) -> Table:
    """Table 1: accuracy with the task known and unknown, and what a task keeps."""
    columns = [
        SYSTEM, SEEDS,
        Column("task known %", better="high", about="mean accuracy over tasks after the last one"),
        Column("task unknown %", better="high", about="the task is inferred from the image"),
        Column("paper %", printed=True, about=PRINTED),
        Column("kept, nominal %", about="as the paper counts: 1/J for TWTA"),
        Column("kept, effective %", about="counted in the network that is cut out"),
        Column("weights per task", "count", about="mean over tickets"),
        Column("paper, millions", "millions", printed=True, about="retained weights as printed"),
    ]  # fmt: skip
    table = Table("accuracy", "Accuracy and retained weights", columns)
    for group in section.groups:
        share = group.mean(lambda run: run.summary["retained"]["nominal"]) or 0.0
        table.rows.append([
            *_who(group),
            _cell(group, lambda run: run.summary["accuracy"]["task_known"]),
            _cell(group, lambda run: run.summary["accuracy"]["task_inferred"]),
            Cell(paper.accuracy(section.benchmark, group.method, share)),
            _cell(group, lambda run: run.summary["retained"]["nominal"]),
            _cell(group, lambda run: run.summary["retained"]["effective"]),
            _cell(group, lambda run: run.summary["retained"].get("weights")),
            Cell(paper.millions(group.method, share)),
        ])  # fmt: skip
    printed = [row[4].value for row in table.rows if row[0].text.startswith("TWTA")]
    if any(value is not None for value in printed):
        table.notes.append(
            "The paper heads its TWTA figures J = 32, yet they equal J = 8 in its Table 4 where "
            "both are printed."
        )
    table.notes += _settings(section)
    return finished(table, section)


def cost(section: Section) -> Table:
    """Table 2: training FLOPs and measured seconds, memory, and the size of what is deployed."""
    columns = [
        SYSTEM, SEEDS,
        Column("training FLOPs", "flops", about="counted, everything charged"),
        Column("paper FLOPs", "flops", printed=True, about=PRINTED),
        Column("seconds", "seconds", about="of training, measured"),
        Column("peak memory MB", "megabytes", about="of the process that trained"),
        Column("ticket kB", "kilobytes", about="deployed for one task, as a file; mean over tasks"),
        Column("MACs per image", "count", about="of a ticket"),
        Column("to continue kB", "kilobytes", about="all that must be kept to learn further tasks"),
    ]  # fmt: skip
    table = Table("cost", "Cost of training and size of what is deployed", columns)
    for group in section.groups:
        share = group.mean(lambda run: run.summary["retained"]["nominal"]) or 0.0
        table.rows.append([
            *_who(group),
            _cell(group, lambda run: run.summary["flops"]),
            Cell(paper.figure("flops", section.benchmark, group.method, share)),
            _cell(group, lambda run: run.seconds),
            _cell(group, lambda run: run.peak_memory),
            _cell(group, lambda run: run.of_tickets("bytes")),
            _cell(group, lambda run: run.of_tickets("macs")),
            _cell(group, lambda run: sum((run.summary.get("bytes") or {}).values()) or None),
        ])  # fmt: skip
    hosts = sorted({str(run.measured["host"]) for run in section.runs if "host" in run.measured})
    if hosts:
        table.notes.append(f"Seconds and memory were measured on {', '.join(hosts)}.")
    table.notes += _settings(section)
    return finished(table, section)


def bti(section: Section) -> Table:
    """Table 3: what is forgotten."""
    columns = [
        SYSTEM, SEEDS,
        Column("when learned %", about="each task just after it was learned"),
        Column("at the end %", about="all tasks after the last one"),
        Column("BTI", "points", better="low", about="points lost since learned"),
        Column("paper BTI", "points", printed=True, about=PRINTED),
        Column("from the best", "points", about="points lost since a task was at its best"),
    ]  # fmt: skip
    table = Table("bti", "Forgetting", columns)
    for group in section.groups:
        share = group.mean(lambda run: run.summary["retained"]["nominal"]) or 0.0
        table.rows.append([
            *_who(group),
            _cell(group, lambda run: run.summary["accuracy"].get("when_learned")),
            _cell(group, lambda run: run.summary["accuracy"]["task_known"]),
            _cell(group, lambda run: run.summary["bti"]),
            Cell(paper.figure("bti", section.benchmark, group.method, share)),
            _cell(group, lambda run: run.summary.get("forgetting")),
        ])  # fmt: skip
    return finished(table, section)


def blocks(section: Section) -> Table:
    """Table 4: the effect of the block size J on TWTA."""
    columns = [
        SYSTEM, Column("J", "count", about="rivals in a block"), SEEDS,
        Column("kept, nominal %"), Column("kept, effective %"),
        Column("task known %", better="high"), Column("task unknown %", better="high"),
        Column("paper %", printed=True, about=PRINTED),
        Column("training FLOPs", "flops"), Column("seconds", "seconds"),
        Column("paper seconds", "seconds", printed=True, about=PRINTED),
    ]  # fmt: skip
    table = Table("blocks", "Effect of the block size J", columns)
    competing = [g for g in section.groups if g.method == "twta" and g.runs[0].units]
    for group in sorted(competing, key=lambda group: group.runs[0].units or 0):
        units = group.runs[0].units or 0
        printed = paper.block_size(section.benchmark, units)
        table.rows.append([
            Cell(text=group.label), Cell(float(units)), Cell(float(len(group.runs))),
            _cell(group, lambda run: run.summary["retained"]["nominal"]),
            _cell(group, lambda run: run.summary["retained"]["effective"]),
            _cell(group, lambda run: run.summary["accuracy"]["task_known"]),
            _cell(group, lambda run: run.summary["accuracy"]["task_inferred"]),
            Cell(printed.get("accuracy")),
            _cell(group, lambda run: run.summary["flops"]),
            _cell(group, lambda run: run.seconds),
            Cell(printed.get("seconds")),
        ])  # fmt: skip
    return finished(table, section)


OVERVIEWS = {
    "overview": ("Accuracy %, task known", "task_known", "high"),
    "overview-unknown": ("Accuracy %, task unknown", "task_inferred", "high"),
    "overview-calibration": ("Calibration error %, task unknown", "calibration_error", "low"),
}


def overview(found: list[Section], name: str = "overview") -> Table:
    """Every method on every benchmark, one number each."""
    title, key, better = OVERVIEWS[name]
    columns = [SYSTEM, *(Column(s.title, better=better, subset=bool(s.subset)) for s in found)]
    table = Table(name, title, columns)
    every = sorted((group for s in found for group in s.groups), key=rank)
    labels = dict.fromkeys(group.label for group in every)
    by_label = [{group.label: group for group in section.groups} for section in found]
    for text in labels:
        cells = [
            _cell(groups[text], lambda run: run.summary["accuracy"].get(key))
            if text in groups else Cell() for groups in by_label
        ]  # fmt: skip
        table.rows.append([Cell(text=text), *cells])
    table.data = [f"† {s.title}: {s.subset}." for s in found if s.subset]
    table.notes += pretrained(every)
    return _best(table, every)


def _who(group: Group) -> list[Cell]:
    return [Cell(text=group.label), Cell(float(len(group.runs)))]


def _settings(section: Section) -> list[str]:
    found = differences(section.groups)
    return [f"Settings that most systems here do not have: {' '.join(found)}"] if found else []


def _cell(group: Group, of: Callable[[FinishedRun], Any]) -> Cell:
    found: Spread | None = group.spread(of)
    return Cell(found.mean, found.deviation) if found else Cell()


def finished(table: Table, section: Section) -> Table:
    """With its subset, a word about the paper's columns, and the best marked."""
    if section.subset:
        table.data = [f"On a subset. {section.subset}."]
    if _printed(table):
        table.notes.append("Columns headed paper: as printed there, for complete data.")
    table.notes += pretrained(section.groups)
    return _best(table, section.groups)


def _printed(table: Table) -> bool:
    at = [i for i, column in enumerate(table.columns) if column.printed]
    return any(row[i].value is not None for row in table.rows for i in at)


def _best(table: Table, groups: list[Group]) -> Table:
    """Mark the best of a column; none where all are equal.

    Reference lines do not compete, nor do pretrained systems with those from random weights.
    """
    systems = [group for group in groups if not group.reference]
    scratch = [group for group in systems if not group.ancestor]
    competing = {group.label for group in scratch or systems}
    for i, column in enumerate(table.columns):
        rivals = [row for row in table.rows if row[0].text in competing]
        values = [row[i].value for row in rivals if row[i].value is not None]
        if not column.better or len({round(v, 1) for v in values if v is not None}) < 2:
            continue
        best = (max if column.better == "high" else min)(v for v in values if v is not None)
        for row in rivals:
            cell = row[i]
            if cell.value is not None and round(cell.value, 1) == round(best, 1):
                row[i] = Cell(cell.value, cell.deviation, cell.text, best=True)
    return table
