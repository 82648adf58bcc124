"""Write the tables of predicted and measured figures into docs/accuracy.md.

    python tools/accuracy.py             writes what is between the markers of the page
    python tools/accuracy.py --check     fails if a table is not up to date
    python tools/accuracy.py --all FILE  writes all tables, also of single predictions

It predicts every row of tests/data/startups, of any engine, from model, GPU and options.
"""

import json
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from startups import Prediction, logged_size, model, predict, startups  # noqa: E402
from training_classes import ROWS, cause_of, class_rows  # noqa: E402

sys.path.insert(0, str(ROOT / "tools"))
import serving_constants  # noqa: E402
import vllm_plans  # noqa: E402
from measurements import examples  # noqa: E402

from attncalc.config.gpus import gpu  # noqa: E402

PAGE = ROOT / "docs" / "accuracy.md"
END = "<!-- end -->"
# The groups of start-ups that were held out, in the order of their collection.
FRESH = ("fresh", *(f"fresh-{number}" for number in range(2, 14)))
# The sets that were predicted with today's rule of the range: it reaches at least as far as what
# the first ten sets had missed.
LATEST = FRESH[10:]
TITLES = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp"}
# GiB: a log prints two decimals.
ROUNDING = 0.006


class Row:
    """A start-up with its prediction.

    Attributes:
        facts: the row of startups.json.
        prediction: what `fit` predicts.
        logged: GiB for the cache in the log, or of llama.cpp's buffers.
        now: the error of today's prediction, of a fresh start-up.
    """

    now = 0.0

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.prediction: Prediction = predict(facts)
        self.logged = logged_size(facts)

    @property
    def error(self) -> float:
        """The predicted memory less the logged one."""
        return self.prediction.kv_memory - self.logged

    @property
    def inside(self) -> bool:
        """Whether the logged memory is in the predicted range."""
        return self.prediction.low - ROUNDING <= self.logged <= self.prediction.high + ROUNDING

    def with_logged_weights(self) -> float | None:
        """Return the error with the log's weights; None if the log has none."""
        weights = self.facts["logged"].get("weights")
        if weights is None:
            return None
        return self.prediction.with_weights(weights).kv_memory - self.logged


def known() -> list[str]:
    """Return the tables of start-ups that are in no group below."""
    rows = [row for row in startups() if "kv_memory" in row["logged"] and row["group"] not in FRESH]
    predicted = [row for row in map(Row, rows) if row.prediction.verdict != "refused"]
    return [*distribution(predicted), "", *every_row(predicted)]


def unseen() -> Iterator[str]:
    """Yield the tables of held-out start-ups, as predicted before anything was mended with them."""
    rows = held_out(FRESH)
    sets = [
        (str(n), [row for row in rows if row.facts["group"] == group])
        for n, group in enumerate(FRESH, 1)
    ]
    yield from fresh_distribution("set", [*sets, ("all", rows)])
    yield ""
    kinds = [
        (
            f"{title}, {memory}",
            [
                r
                for r in rows
                if r.facts["engine"] == engine and gpu(r.facts["gpu"]).unified is is_unified
            ],
        )
        for engine, title in TITLES.items()
        for is_unified, memory in ((False, "own memory"), (True, "unified memory"))
    ]
    yield from fresh_distribution("all sets", kinds)


def rounds() -> Iterator[str]:
    """Yield one line per round of predictions before the outcome was read, of start-ups with all
    facts.
    """
    yield "| rounds | start-ups | mean | median | 90th percentile | largest over | inside | width |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    names = {"1 to 10": FRESH[:10], "11": FRESH[10:11], "12": FRESH[11:12], "13": FRESH[12:]}
    for name, groups in names.items():
        members = [row for row in held_out(groups) if not row.facts.get("doubtful")]
        yield line(name, members, [row.error for row in members])


def held_out(groups: Iterable[str]) -> list[Row]:
    """Return the start-ups of the groups, as predicted before their outcome was read."""
    rows = [Row(row) for row in startups() if row["group"] in groups and "held_out" in row]
    for row in rows:
        low, expected, high = row.facts["held_out"]
        row.now = row.error
        row.prediction = row.prediction._replace(low=low, kv_memory=expected, high=high)
    return rows


def by_weights() -> Iterator[str]:
    """Yield one line per kind of weights and memory of the latest sets' start-ups of vLLM and
    SGLang with all facts.
    """
    rows = [
        row
        for row in held_out(LATEST)
        if row.facts["engine"] != "llamacpp" and not row.facts.get("doubtful")
    ]
    yield (
        "| weights | memory | starts | mean | median | 90th percentile | largest over | inside | "
        "width |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for weights in ("16 bits", "8 bits", "4 bits", "all"):
        for is_unified, memory in ((False, "own"), (True, "unified")):
            members = [
                row
                for row in rows
                if weights in (kind_of_weights(row.facts), "all")
                and gpu(row.facts["gpu"]).unified is is_unified
            ]
            if members:
                yield line(f"{weights} | {memory}", members, [row.error for row in members])


def kind_of_weights(facts: dict[str, Any]) -> str:
    """Return '16 bits', '8 bits' or '4 bits', of most weights of a start-up."""
    spec = model(facts["model"])
    dtype = facts.get("weights_dtype") or spec.experts_dtype or spec.weights_dtype
    if dtype is None:
        return "16 bits"
    return "8 bits" if dtype.endswith("8") else "4 bits"


def fresh_distribution(title: str, groups: list[tuple[str, list[Row]]]) -> Iterator[str]:
    """Yield one line per group and whether all facts of its start-ups are known; `now` is the
    median error today.
    """
    yield (
        f"| {title} | facts | starts | mean | median | 90th percentile | largest over | inside | "
        "width | now |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for name, group in groups:
        for is_doubtful, words in ((False, "all"), (True, "some missing")):
            members = [row for row in group if bool(row.facts.get("doubtful")) is is_doubtful]
            if members:
                now = median(abs(row.now) for row in members)
                yield (
                    f"{line(f'{name} | {words}', members, [row.error for row in members])} "
                    f"{now:.2f} |"
                )


def where(facts: dict[str, Any]) -> str:
    """Return the GPUs of a start-up: '2 x h100-80gb'."""
    devices = facts["tp"] * facts["pp"]
    if devices > 1:
        return f"{devices} x {facts['gpu']}"
    return str(facts["gpu"])


def distribution(rows: list[Row]) -> Iterator[str]:
    """Yield one line per engine and group."""
    yield (
        "| engine | logs | mean error | median | 90th percentile | largest over | inside the "
        "range | its width |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for engine, title in TITLES.items():
        for group in ("controlled", "public"):
            members = [
                row
                for row in rows
                if (row.facts["engine"], row.facts["group"]) == (engine, group)
                and not row.facts.get("doubtful")
            ]
            if members:
                yield line(f"{title}, {group}", members, [row.error for row in members])
                errors = [
                    error for row in members if (error := row.with_logged_weights()) is not None
                ]
                if errors:
                    yield line(f"{title}, {group}, with the log's weights", members, errors)


def line(title: str, rows: list[Row], errors: list[float]) -> str:
    """Return the line of one group: errors in GiB, and how often the log is inside the range."""
    sizes = sorted(map(abs, errors))
    inside = sum(row.inside for row in rows)
    width = median(row.prediction.high - row.prediction.low for row in rows)
    own = len(errors) == len(rows) and errors == [row.error for row in rows]
    last = f"{inside} of {len(rows)} | {width:.2f}" if own else " | "
    return (
        f"| {title} | {len(errors)} | {mean(sizes):.2f} | {median(sizes):.2f} | "
        f"{sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]:.2f} | {max(errors):+.2f} | {last} |"
    )


def every_row(rows: list[Row]) -> Iterator[str]:
    """Yield one line per start-up, by engine and version."""
    yield (
        "| start-up | engine | GPU | logged | predicted | range | error | with the log's weights |"
    )
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    for row in sorted(
        rows, key=lambda row: (row.facts["engine"], numbers(row.facts["version"]), row.facts["id"])
    ):
        facts = row.facts
        prediction = row.prediction
        error = row.with_logged_weights()
        doubtful = " (doubtful)" if facts.get("doubtful") else ""
        yield (
            f"| {facts['id']}{doubtful} | {TITLES[facts['engine']]} {facts['version']} | "
            f"{where(facts)} | "
            f"{row.logged:.2f} | {prediction.kv_memory:.2f} | {prediction.low:.2f} to "
            f"{prediction.high:.2f} | "
            f"{row.error:+.2f} | {'' if error is None else f'{error:+.2f}'} |"
        )


def named() -> Iterator[str]:
    """Yield one line per start-up whose quantized checkpoint is known by its name: weights and
    memory for the cache, predicted from the dtype alone and from the checkpoint.
    """
    yield (
        "| start-up and its checkpoint | weights | by dtype | by name | error | by name | width | "
        "by name |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    off: list[tuple[float, ...]] = []
    of_weights: list[tuple[float, ...]] = []
    for facts in startups():
        if "checkpoint" not in facts:
            continue
        by_dtype = Row({field: facts[field] for field in facts if field != "checkpoint"})
        rows = (by_dtype, Row(facts))
        logged = facts["logged"].get("weights")
        if logged is not None:
            of_weights.append(tuple(abs(row.prediction.weights - logged) for row in rows))
        off.append((*(abs(row.error) for row in rows), *(width_of(row) for row in rows)))
        cells = [f"{facts['id']}: {facts['checkpoint']}", "" if logged is None else f"{logged:.2f}"]
        cells += [f"{row.prediction.weights:.2f}" for row in rows]
        cells += [f"{row.error:+.2f}" for row in rows]
        cells += [f"{width_of(row):.2f}" for row in rows]
        yield f"| {' | '.join(cells)} |"
    medians = [f"{median(column):.2f}" for column in zip(*of_weights, strict=True)]
    medians += [f"{median(column):.2f}" for column in zip(*off, strict=True)]
    yield f"| median error or width | | {' | '.join(medians)} |"


def width_of(row: Row) -> float:
    """Return the GiB between the ends of the predicted range."""
    return row.prediction.high - row.prediction.low


def constants() -> Iterator[str]:
    """Yield one line per family of GPUs and models, with its constants."""
    yield (
        "| GPUs | model | runs | publishers | of the bandwidth | of the peak | us per layer | us "
        "per request | range of tokens/s |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for row in json.loads(serving_constants.TABLE.read_text(encoding="utf-8"))["families"]:
        yield (
            f"| {row['gpus']} | {row['model']} | {row['runs']} | {len(row['sources'])} | "
            f"{row['memory']:.2f} | {row['compute']:.2f} | {row['layer'] * 10**6:.0f} | "
            f"{row['request'] * 10**6:.0f} | {row['low']:.2f} to {row['high']:.2f} |"
        )


def served() -> Iterator[str]:
    """Yield one line per class of published runs: what each publisher measured of what the
    constants of all others plan.
    """
    classes: dict[str, list[float]] = {}
    models: dict[str, list[float]] = {}
    for run, of_planned in serving_constants.held_out(serving_constants.own_runs()):
        classes.setdefault(serving_constants.load_of(run), []).append(of_planned)
        models.setdefault(run.family[1], []).append(of_planned)
    yield "| each publisher, by the constants of the others | runs | measured / planned: median |"
    yield "|---|---:|---:|"
    for name, ratios in sorted(classes.items()):
        yield f"| {name} | {len(ratios)} | {median(ratios):.2f} |"
    yield ""
    yield "| model | runs | median | 85 % of the runs | largest / smallest |"
    yield "|---|---:|---:|---:|---:|"
    for name, ratios in sorted(models.items()):
        low, high = serving_constants.range_of(ratios)
        yield (
            f"| {name} | {len(ratios)} | {median(ratios):.2f} | {low:.2f} to {high:.2f} | "
            f"{high / low:.1f} |"
        )


def planned() -> Iterator[str]:
    """Yield one line per example of aiconfigurator: its estimate, and the bound and the planning
    figure here.
    """
    yield (
        "| example | TTFT | bound | TPOT | bound | planning | tokens/s | bound | planning | of "
        "the planning figure |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for row, bounds in examples():
        dtype = row["weights_dtype"] or "bf16"
        what = f"{dtype}, tp {row['tp']}, {row['requests']} x ({row['input']:,} + {row['output']})"
        planning = float(bounds.planning_tokens_per_second or 0)
        yield (
            f"| {row['page']}: {what} | {row['ttft_ms']:.0f} ms | "
            f"{float(bounds.ttft) * 1000:.0f} | "
            f"{row['tpot_ms']:.1f} ms | {float(bounds.tpot or 0) * 1000:.1f} | "
            f"{float(bounds.planning_tpot or 0) * 1000:.1f} | {row['tokens_per_s']:,.0f} | "
            f"{float(bounds.tokens_per_second or 0):,.0f} | {planning:,.0f} | "
            f"{row['tokens_per_s'] / planning:.2f} |"
        )


def plans_of_vllm() -> Iterator[str]:
    """Yield how many plans of vLLM's planner equal attncalc's."""
    planned = [row for row in _plan_rows() if vllm_plans.is_planned(row)]
    plans = [row for row in planned if "error" not in row]
    models = {row["model"] for row in planned}
    versions = ", ".join(vllm_plans.VERSIONS)
    text = (
        f"Of {len(plans):,} plans of vLLM's own planner (versions {versions}) for {len(models)} "
        "models, all are equal to attncalc's: blocks, tokens and concurrency. In "
        f"{len(planned) - len(plans)} other cases vLLM does not start, and `fit` says so or "
        "refuses the model."
    )
    yield textwrap.fill(text, 120)


def plans_left_out() -> Iterator[str]:
    """Yield why rows of the tables of vLLM's planner are not compared."""
    yield "| left out | rows |"
    yield "|---|---:|"
    reasons = Counter(vllm_plans.why_not(row) for row in _plan_rows())
    for reason, number in sorted(reasons.items()):
        if reason:
            yield f"| {reason} | {number} |"


def _plan_rows() -> list[dict[str, Any]]:
    return [row for version in vllm_plans.VERSIONS for row in vllm_plans.rows(version)]


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers, so that 0.9 sorts before 0.10."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def training() -> list[str]:
    """Return the tables of training runs."""
    from training_tables import lines  # without `train` there are none

    return lines()


def training_by_publisher() -> list[str]:
    """Return one line per publisher of training runs."""
    from training_tables import by_publisher  # without `train` there are none

    return by_publisher()


def held_out_training() -> list[str]:
    """Return one line per publisher of training runs that were predicted before their outcome was
    read.
    """
    from training_tables import held_out  # without `train` there are none

    return held_out()


def classes() -> list[str]:
    """Return what transformers' classes save: which save exactly what the formulas say, and why
    others do not.
    """
    exact: list[str] = []
    others: dict[str, list[str]] = {}
    whole = {name: row for name, row in ROWS.items() if "," not in name}
    for name, row in whole.items():
        cause = cause_of(name)
        if not cause:
            exact.append(row["class"])
            continue
        if "not known" in cause or "cannot be cut" in cause:
            error = ""
        else:
            error = worst_error(name)
        others.setdefault(cause, []).append(f"{row['class']}{error}")
    return [
        f"Of {len(whole)} classes, the layers of {len(exact)} save exactly what the formulas say:",
        "",
        textwrap.fill(", ".join(map(short_name, exact)) + ".", 120, break_on_hyphens=False),
        "",
        "| others, with the error of a layer | why |",
        "|---|---|",
        *(f"| {', '.join(map(short_name, names))} | {cause} |" for cause, names in others.items()),
    ]


def short_name(name: str) -> str:
    """Return the name of a class without what it is for: 'Llama', 'MiniMaxM3VL -27%'."""
    return re.sub(r"For(CausalLM|ConditionalGeneration)|LMHeadModel", "", name)


def worst_error(name: str) -> str:
    """Return the largest relative error of a layer of a class, if the class has as many layers as
    the formulas.
    """
    row = next(class_rows(name))
    if len(row.measured) != len(row.predicted):
        return ""
    errors = [p / m - 1 for m, p in zip(row.measured, row.predicted, strict=True)]
    return f" {max(errors, key=abs):+.0%}"


# The lines of a table of the page, by the name in its marker.
SECTIONS: dict[str, Callable[[], Iterable[str]]] = {
    "vllm": plans_of_vllm,
    "rounds": rounds,
    "weights": by_weights,
    "training": training_by_publisher,
    "held_out_training": held_out_training,
    "served": served,
}
# Further tables, which only --all writes.
DETAILS: dict[str, Callable[[], Iterable[str]]] = {
    "Start-ups": known,
    "Checkpoints that are known by name": named,
    "Start-ups that were predicted before their outcome was read": unseen,
    "Training runs": training,
    "Classes of transformers": classes,
    "Constants of plan": constants,
    "Examples of aiconfigurator": planned,
    "Plans of vLLM that are not compared": plans_left_out,
}


def main() -> None:
    if "--all" in sys.argv:
        path = Path(sys.argv[sys.argv.index("--all") + 1])
        path.write_text("\n".join(every_table()), encoding="utf-8")
        return
    text = PAGE.read_text(encoding="utf-8")
    written = re.sub(
        rf"(<!-- tools/accuracy.py writes (\S+) -->\n).*?{END}",
        lambda match: "\n".join([match[1], *SECTIONS[match[2]](), "", END]),
        text,
        flags=re.DOTALL,
    )
    if "--check" not in sys.argv:
        PAGE.write_text(written, encoding="utf-8")
    elif written != text:
        sys.exit(f"{PAGE.name} is not up to date: run python tools/accuracy.py")


def every_table() -> Iterator[str]:
    """Yield the lines of all tables, each with its heading."""
    for title, lines in (SECTIONS | DETAILS).items():
        yield f"## {title}"
        yield ""
        yield from lines()
        yield ""


if __name__ == "__main__":
    main()
