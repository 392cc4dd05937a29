"""Whether the loop learns: arms of several iterations with the default model, and one whose rewards are shuffled.

    make learn              # the arm seed-1, in under an hour on two cores
    make learn ARM=control

An arm is a project with configs/learn.yaml and what ARMS says; an arm that was interrupted goes on where it was. In the
control arm each group's rewards are dealt to its answers at random, so what it gains is not learnt from rewards. The
holdout is composed problems that are no part of any training, the benchmark people's; at the end the base model and the
last policy also sit both, and people's holdout, without any chance: greedy, one answer each. When the arm is done, all
arms that are done are reported and drawn. Exits 1 when one of them missed its goal.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from figures import Figure, finish, print_machine

from rlm_cli.embedded import run_iterations
from rlm_cli.exam import sit
from rlm_cli.status import show_outcome
from rlm_core.comparison import ExamPair, compare
from rlm_core.config_file import load_config
from rlm_core.exams.order import order_exam
from rlm_core.files import read_record, write_jsonl
from rlm_core.records import ExamReport, SuiteComparison
from rlm_core.sandbox import open_sandbox
from rlm_core.sources.procedural import problems
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project
from rlm_core.summary import Summary

CONFIG = Path("configs/learn.yaml")
PICTURE = Path("docs/learning.svg")
ITERATIONS = 6
ARMS: dict[str, dict[str, Any]] = {
    "seed-1": {"seed": 1},
    "seed-2": {"seed": 2},
    "control": {"seed": 1, "train": {"shuffle_rewards": True}},
}
GAIN, MINUTES, CONFIDENCE = 0.2, 60, 0.95
UNSEEN, UNSEEN_SEED = 60, 2_026
"""Composed problems of the holdout, and their seed; the filter keeps their like out of every training."""
PEOPLES = "bank:holdout[starter]"
"""Problems that people wrote, which only the last exams are on."""


@dataclass(frozen=True)
class Arm:
    """A finished arm: the exams on the holdout before its first iteration and after each, and how long it took."""

    name: str
    reports: list[ExamReport]
    summaries: list[Summary]

    @cached_property
    def gain(self) -> SuiteComparison:
        """The last policy against the base model, paired over problems."""
        return compare(ExamPair(self.reports[0], self.reports[-1]), seed=0, confidence=CONFIDENCE)

    @property
    def minutes(self) -> float:
        return sum(summary.duration_s for summary in self.summaries) / 60


def settings_of(arm: str) -> Path:
    """The arm's config file, made of CONFIG and what is special about the arm."""
    content = yaml.safe_load(CONFIG.read_text())
    root = Path(content["project"], arm)
    for name, value in ARMS[arm].items():
        content[name] = content.get(name, {}) | value if isinstance(value, dict) else value
    path = root.with_suffix(".yaml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content | {"project": str(root)}, sort_keys=False))
    return path


def run(arm: str) -> None:
    """Run the iterations that the arm still lacks."""
    config = settings_of(arm)
    settings = load_config(config)
    project = Project(Path(settings.project))
    if not (unseen := Path(settings.evaluate.holdout)).exists():
        with open_sandbox() as sandbox:
            write_jsonl(unseen, problems(UNSEEN, UNSEEN_SEED, 1, settings.generate.difficulty, sandbox))
    with open_ledger(project.ledger) as ledger:
        lacking = ITERATIONS + 1 - ledger.next_iteration()
    for result in run_iterations(config, lacking):
        show_outcome(result, project)


def finished_arms() -> Iterator[Arm]:
    for name in ARMS:
        settings = load_config(settings_of(name))
        project = Project(Path(settings.project))
        runs = [project.run(number + 1) for number in range(ITERATIONS)]
        if all((run / "decision.json").is_file() for run in runs):
            exams = [_report(runs[0], "base", settings.evaluate.holdout)]
            exams += [_report(run, "candidate", settings.evaluate.holdout) for run in runs]
            yield Arm(name, exams, [read_record(run / "summary.json", Summary) for run in runs])


def _report(run: Path, who: str, suite: str) -> ExamReport:
    reports = [read_record(path, ExamReport) for path in (run / "exams").glob(f"{who}-*.json")]
    return next(report for report in reports if report.suite == suite)


def print_greedy(arm: Arm) -> None:
    """Base model and last policy on three suites, one greedy answer to each problem."""
    settings = load_config(settings_of(arm.name))
    print("\ngreedy, base model → last policy")
    for suite in (settings.evaluate.benchmark, settings.evaluate.holdout, PEOPLES):
        paths = [sit(order_exam(settings, who, suite, temperature=0))[0] for who in ("base", str(ITERATIONS))]
        base, last = (read_record(path, ExamReport) for path in paths)
        gain = compare(ExamPair(base, last), seed=0, confidence=CONFIDENCE)
        print(
            f"{suite}: pass@1 {base.pass_at[1]:.3f} → {last.pass_at[1]:.3f} ({CONFIDENCE:.0%} interval of the gain "
            f"{gain.interval[0]:+.3f} to {gain.interval[1]:+.3f}), cut off {base.truncated_share:.3f} → "
            f"{last.truncated_share:.3f}, unusable {base.unusable_share:.3f} → {last.unusable_share:.3f}"
        )


def print_arm(arm: Arm) -> None:
    exam = arm.reports[0]
    print(f"\n{arm.name}: {exam.suite}, {len(exam.problems)} problems, {exam.k} answers each")
    print("iteration  pass@1  cut off  unusable  wrong  tokens/answer  passed in training")
    for number, report in enumerate(arm.reports):
        answers = report.k * len(report.problems)
        trained = f"{arm.summaries[number - 1].pass_rate:18.3f}" if number else ""
        print(
            f"{number:9}  {report.pass_at[1]:6.3f}  {report.truncated_share:7.3f}  {report.unusable_share:8.3f}  "
            f"{report.wrong_share:5.3f}  {report.tokens / answers:13.1f}  {trained}"
        )


def draw(arms: list[Arm]) -> None:
    """The holdout's pass@1 of every arm with its interval, and what became of the answers of the first."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (curves, shares) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for arm in arms:
        passed = np.array([report.pass_at[1] for report in arm.reports])
        low, high = np.array([report.intervals[1] for report in arm.reports]).T
        [line] = curves.plot(passed, marker="o", label=arm.name, linestyle="--" if arm.name == "control" else "-")
        curves.fill_between(range(len(passed)), low, high, alpha=0.12, color=line.get_color())
    curves.set(xlabel="iteration", ylabel="pass@1 on the holdout", ylim=(0, None), title="95 % intervals over problems")
    curves.legend(loc="upper left")
    first = arms[0]
    parts = {
        "passed": [report.pass_at[1] for report in first.reports],
        "runs, wrong": [report.wrong_share for report in first.reports],
        "does not run": [report.unusable_share for report in first.reports],
    }
    shares.stackplot(range(len(first.reports)), *parts.values(), labels=parts.keys(), alpha=0.8)
    shares.plot([report.truncated_share for report in first.reports], "k:", label="cut off")
    shares.set(xlabel="iteration", ylim=(0, 1), title=f"what became of the answers, {first.name}")
    shares.legend(loc="upper right")
    figure.savefig(PICTURE, metadata={"Date": None})
    print(f"\n{PICTURE} shows {', '.join(arm.name for arm in arms)}")


def goals(arm: Arm) -> list[Figure]:
    low, high = arm.gain.interval
    if arm.name == "control":
        return [Figure("control: lower end of its gain's 95 % interval", low, 0, "at most")]
    return [
        Figure(
            f"{arm.name}: gain in pass@1 over the base model (95 % interval {low:+.3f} to {high:+.3f})",
            arm.gain.difference,
            GAIN,
        ),
        Figure(f"{arm.name}: lower end of the interval", low, 0.001),
        Figure(f"{arm.name}: minutes", arm.minutes, MINUTES, "at most"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("arm", choices=[*ARMS, "none"], help="none only reports what is finished")
    chosen = parser.parse_args().arm
    print_machine()
    if chosen != "none":
        run(chosen)
    arms = list(finished_arms())
    if not arms:
        sys.exit("no arm is finished")
    for arm in arms:
        print_arm(arm)
        print_greedy(arm)
    draw(arms)
    finish([figure for arm in arms for figure in goals(arm)])


if __name__ == "__main__":
    main()
