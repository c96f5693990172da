"""A table in writing: words for people, Markdown, CSV, LaTeX."""

from __future__ import annotations

import csv
import io
import re

from rivals.experiment.report.tables import Cell, Column, Table

NOTHING = "–"
SCALE = {"megabytes": 1e-6, "kilobytes": 1e-3}
DIGITS = {
    "percent": 1,
    "points": 1,
    "count": 0,
    "seconds": 1,
    "megabytes": 0,
    "kilobytes": 1,
    "loss": 3,
}
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "†": r"$\dagger$", "–": "--", "−": "$-$", "×": r"$\times$", "·": r"$\cdot$",
}  # fmt: skip


def words(cell: Cell, column: Column) -> str:
    """A cell as people read it: `51.6 ± 0.4`, `1.13 × 10¹¹`, or a dash."""
    if cell.text or cell.value is None:
        return cell.text or NOTHING
    scale = SCALE.get(column.style, 1.0)
    value = cell.value * scale
    spread = None if cell.deviation is None else cell.deviation * scale
    if column.style == "flops":
        return _power(value, spread)
    if column.style == "millions":
        return f"{value:g}"
    digits = DIGITS.get(column.style, 1)
    if column.style == "kilobytes" and value >= 100:
        digits = 0
    if column.printed and column.style in ("percent", "points"):
        digits = 2
    text = _number(value, digits)
    if spread is None or round(spread, digits) == 0:
        return text
    return f"{text} ± {_number(spread, digits)}"


def _number(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    return text.replace("-", "−") if float(text.replace(",", "")) else text.lstrip("-")


def _power(value: float, spread: float | None) -> str:
    if value <= 0:
        return "0"
    exponent = int(f"{value:e}".partition("e")[2])
    raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    text = f"{value / 10**exponent:.2f}"
    part = "" if spread is None else f"{spread / 10**exponent:.2f}"
    return f"({text} ± {part}) × 10{raised}" if part.strip("0.") else f"{text} × 10{raised}"


def markdown(tables: list[tuple[str, Table]]) -> str:
    """One page: a heading and a table for each section."""
    lines: list[str] = []
    for title, table in tables:
        first = table.title[:1].lower() + table.title[1:]
        lines += [f"## {_plain(title)}: {first}" if title else f"## {table.title}", ""]
        lines.append("| " + " | ".join(_plain(column.shown) for column in table.columns) + " |")
        rules = ("---" if column.style == "text" else "--:" for column in table.columns)
        lines.append("|" + "|".join(rules) + "|")
        for row in table.rows:
            cells = [
                _bold(_plain(words(cell, column)), cell.best)
                for cell, column in zip(row, table.columns, strict=True)
            ]
            lines.append("| " + " | ".join(cells) + " |")
        lines += ["", *(f"{_plain(note)}\n" for note in [*table.data, *table.notes])]
    return "\n".join(lines).rstrip() + "\n"


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def _plain(text: str) -> str:
    """Nothing in a name can break a table of Markdown, or become HTML."""
    text = " ".join(text.split())
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text)


def comma_separated(tables: list[tuple[str, str, Table]]) -> str:
    """All sections in one file: numbers in full, deviations in columns of their own."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for number, (benchmark, subset, table) in enumerate(tables):
        if number == 0:
            heads = [head for column in table.columns for head in _csv_heads(column)]
            writer.writerow(["benchmark", *heads, "subset"])
        for row in table.rows:
            values = [
                value
                for cell, column in zip(row, table.columns, strict=True)
                for value in _csv_values(cell, column)
            ]
            writer.writerow([benchmark, *values, subset])
    return out.getvalue()


def _measured(column: Column) -> bool:
    return column.style not in ("text", "count") and not column.printed


def _csv_heads(column: Column) -> list[str]:
    head = re.sub(r"\b[kM]B$", "bytes", column.head)
    return [head, f"{head} deviation"] if _measured(column) else [head]


def _csv_values(cell: Cell, column: Column) -> list[str]:
    if column.style == "text":
        return [cell.text]
    value = "" if cell.value is None else f"{cell.value:.10g}"
    spread = "" if cell.deviation is None else f"{cell.deviation:.6g}"
    return [value, spread] if _measured(column) else [value]


def latex(tables: list[tuple[str, Table]], label: str) -> str:
    """One tabular in the manner of booktabs, the sections one below the other."""
    columns = tables[0][1].columns
    align = "".join("l" if column.style == "text" else "r" for column in columns)
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{_tex(tables[0][1].title)}; mean $\\pm$ deviation over seeds}}",
        f"\\label{{{label}}}",
        f"\\begin{{tabular}}{{{align}}}",
        "\\toprule",
        " & ".join(_tex(column.shown) for column in columns) + r" \\",
    ]
    for title, table in tables:
        lines.append("\\midrule")
        if title:
            lines.append(f"\\multicolumn{{{len(columns)}}}{{l}}{{\\textit{{{_tex(title)}}}}} \\\\")
        for row in table.rows:
            cells = [
                rf"\textbf{{{text}}}" if cell.best else text
                for cell, column in zip(row, columns, strict=True)
                for text in [_tex(words(cell, column))]
            ]
            lines.append(" & ".join(cells) + r" \\")
    notes = dict.fromkeys(
        f"{title}: {note}" if title else note
        for title, table in tables
        for note in [*table.data, *table.notes]
    )
    lines += ["\\bottomrule", "\\end{tabular}", *(f"\n{_tex(note)}" for note in notes)]
    return "\n".join([*lines, "\\end{table}"]) + "\n"


def _tex(text: str) -> str:
    escaped = "".join(LATEX.get(character, character) for character in " ".join(text.split()))
    return re.sub(
        r"10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)",
        lambda m: "$10^{" + m[1].translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")) + "}$",
        escaped,
    )
