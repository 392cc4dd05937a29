"""A decision as a page that a person can judge it by, in Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlm_core.approval import waits_for_answer
from rlm_core.comparison import ExamPair
from rlm_core.config import GateSection, TrainSection
from rlm_core.pages.exam_answers import Answers
from rlm_core.pages.markdown import columns, fenced, side_by_side, wrapped
from rlm_core.phrases import number_of, p_text
from rlm_core.records import AdapterRef, ExamReport, GateDecision, ProblemScore, SuiteComparison, TrainReport

SHOWN_OF_ID = 8
"""Characters of a problem's id, which tells apart those with the same entry point."""
_SHOWN = 5
"""Problems gained and lost whose answers are shown, of each suite."""


_WHAT_FOLLOWS = {
    "accepted": "With an accept the candidate becomes the incumbent: exams, reports and what is served follow it.",
    "probation": "The incumbent stays, in reports and in what is served. Training goes on from the candidate, and what "
    "comes of it is compared with the same incumbent, until the gain is sure or patience is used up.",
    "rejected": "The incumbent stays, and training goes on from it.",
}


@dataclass(frozen=True)
class SuiteShown:
    """What there is to show of one suite."""

    name: str
    comparison: SuiteComparison
    exams: ExamPair
    base: ExamReport
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Of the problems, by their ids."""
    incumbent: Answers = field(default_factory=dict)
    candidate: Answers = field(default_factory=dict)


def page(
    decision: GateDecision,
    suites: Sequence[SuiteShown],
    gate: GateSection,
    trained: TrainReport,
    train: TrainSection,
) -> str:
    """The numbers, the problems gained and lost with answers side by side, and where the candidate comes from."""
    parts = [
        *heading(decision, "accept proposed" if waits_for_answer(decision, gate) else decision.outcome),
        _WHAT_FOLLOWS[decision.outcome],
        *([columns({suite.name: _numbers(suite, gate.confidence) for suite in suites})] if suites else []),
        _origin(decision, gate, trained, train),
        *(_changes(suite) for suite in suites),
    ]
    return "\n\n".join(parts) + "\n"


def heading(decision: GateDecision, outcome: str) -> list[str]:
    """How a page about this iteration begins."""
    return [
        f"# Iteration {decision.iteration}: {outcome}",
        f"{decision.reason[:1].upper()}{decision.reason[1:]}.",
    ]


def compared(found: SuiteComparison, confidence: float) -> dict[str, str]:
    """The numbers of one suite, by what they are called: a column of a page's table."""
    low, high = found.interval
    return {
        "incumbent": f"{found.incumbent:.3f}",
        "candidate": f"{found.candidate:.3f}",
        "difference": f"{found.difference:+.3f}",
        f"{confidence:.0%} interval": f"{low:+.3f} to {high:+.3f}",
        "p if no better": p_text(found.p_value),
        "p if no worse": "–" if found.p_worse is None else p_text(found.p_worse),
        "problems gained": str(found.better),
        "problems lost": str(found.worse),
    }


def _numbers(suite: SuiteShown, confidence: float) -> dict[str, str]:
    answers = sum(problem.samples for problem in suite.base.problems)
    base = sum(problem.correct for problem in suite.base.problems) / answers
    return {
        "problems × answers": f"{len(suite.exams.incumbent.problems)} × {suite.exams.incumbent.k}",
        "base": f"{base:.3f}",
        **compared(suite.comparison, confidence),
    }


def _origin(decision: GateDecision, gate: GateSection, trained: TrainReport, train: TrainSection) -> str:
    rows = {
        "candidate": _adapter(decision.candidate, "none"),
        "incumbent": _adapter(decision.incumbent, "the base model"),
        "trained from": "the incumbent"
        if decision.learner == decision.incumbent
        else f"{_adapter(decision.learner, 'the base model')}, "
        f"on probation for {number_of(decision.waited, 'iteration')}",
        "training": f"{train.method}, learning rate {train.learning_rate:g}, {number_of(trained.steps, 'step')} on "
        f"{trained.tokens} tokens from {number_of(trained.useful_groups, 'useful group')} of {trained.groups}, "
        f"mean reward {trained.reward_mean:.3f}",
        "rule": gate.rule if gate.rule != "paired" else _paired(gate, decision.tries),
        "holdout's margin": f"{gate.holdout_margin:g}",
    }
    if decision.candidate is not None and decision.holdout is None:
        rows["holdout's margin"] += "; not sat, as it can veto an accept only, and by the benchmark this is none"
    return "\n".join(["## Where it comes from", "", *(f"- {name}: {text}" for name, text in rows.items())])


def _paired(gate: GateSection, tries: int) -> str:
    return (
        f"paired, confidence {gate.confidence:g} over {gate.horizon} iterations: p at most {gate.level(tries):.3g} "
        f"(candidates before that were not accepted: {tries}); patience {gate.patience}"
    )


def _adapter(adapter: AdapterRef | None, otherwise: str) -> str:
    return f"`{adapter.path}` ({adapter.sha256[:12]})" if adapter else otherwise


def _changes(suite: SuiteShown) -> str:
    incumbent, candidate = suite.exams.counts()
    problems = suite.exams.incumbent.problems
    order = sorted(range(len(problems)), key=lambda i: -abs(candidate[i] - incumbent[i]))
    gained = [i for i in order if candidate[i] > incumbent[i]]
    lost = [i for i in order if candidate[i] < incumbent[i]]
    parts = [f"## {suite.name.capitalize()}: {len(gained)} gained, {len(lost)} lost"]
    for title, changed in (("Gained", gained), ("Lost", lost)):
        for i in changed[:_SHOWN]:
            counts = f"{incumbent[i]} → {candidate[i]} of {suite.exams.incumbent.k}"
            parts.append(_changed(suite, f"{title}: {_named(problems[i])}, {counts}", problems[i].problem_id))
        if rest := changed[_SHOWN:]:
            named = (f"{_named(problems[i])} {incumbent[i]} → {candidate[i]}" for i in rest)
            parts.append(f"{title} too: {', '.join(named)}.")
    return "\n\n".join(parts)


def _named(problem: ProblemScore) -> str:
    return f"`{problem.entry_point}` ({problem.problem_id[:SHOWN_OF_ID]})"


def _changed(suite: SuiteShown, title: str, problem: str) -> str:
    gained = title.startswith("Gained")
    left = _pick(suite.incumbent, problem, passed=not gained)
    right = _pick(suite.candidate, problem, passed=gained)
    verbs = ("failed", "passed") if gained else ("passed", "failed")
    text = side_by_side(f"incumbent, {verbs[0]}\n\n{left}", f"candidate, {verbs[1]}\n\n{right}")
    parts = [f"### {title}"]
    if problem in suite.prompts:
        parts.append(wrapped(suite.prompts[problem]))
    return "\n\n".join([*parts, fenced(text)])


def _pick(answers: Answers, problem: str, passed: bool) -> str:
    given = answers.get(problem, [])
    return next((answer.text for answer in given if answer.passed is passed), "(this answer was not kept)")
