"""Which proposals become problems. Every rejection is kept with its rule and reason; nothing unfiltered passes."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from rlm_core import progress
from rlm_core.choice import longest_unasked_first, most_useful_first
from rlm_core.config import FilterSection, GenerateSection, RolloutSection, VerifySection
from rlm_core.errors import InfrastructureFault, StageFailed
from rlm_core.files import read_jsonl, write_jsonl
from rlm_core.judging import open_bench
from rlm_core.model.device import device_policy
from rlm_core.problems import Problem
from rlm_core.proposals.bank_proofs import Answerer, Prove, open_bank_proofs, trusted
from rlm_core.proposals.claims import Claims, with_reference_values
from rlm_core.proposals.known import KnownProblems, repeats
from rlm_core.proposals.majority import Ask, with_majority_solutions
from rlm_core.proposals.parse import SHOWN_CHARS
from rlm_core.proposals.proof import Prover, open_prover
from rlm_core.proposals.rules import WITHOUT_OUTPUTS, broken_rule
from rlm_core.proposals.twins import twin
from rlm_core.records import FileRef, PolicyRef, Refusal, Rejection, StageResult
from rlm_core.rollout import sample_rollouts
from rlm_core.sandbox import Sandbox
from rlm_core.seeds import derive_seed
from rlm_core.sources import read_problems
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project
from rlm_core.state.run import Run
from rlm_core.usefulness import TriedProblem
from rlm_core.verifiers import prepare
from rlm_core.written import written


def run(
    directory: Path,
    project: Path,
    proposals: Sequence[FileRef],
    generate: GenerateSection,
    suites: Mapping[str, str],
    section: FilterSection,
    verify: VerifySection,
    project_seed: int,
    iteration: int,
    learner: PolicyRef,
    rollout: RolloutSection,
    reserve: int = 0,
) -> StageResult:
    """The filter stage: proposals and mutants in, `directory/problems.jsonl` out, filled up from the bank.

    Args:
        suites: name of each exam suite by its group, `benchmark` and `holdout`.
        learner, rollout: who answers proposals that have no solution, and how.
        reserve: how many problems that come next are written to `directory/reserve.jsonl`.
    """
    offered = [problem for file in proposals for problem in read_jsonl(Path(file.path), Problem)]
    own = read_problems(generate.bank)
    with open_ledger(Project(project).ledger) as ledger:
        tried = ledger.tried_problems(before=iteration)
    known = _known(own, tried, suites)
    bank = _in_order(own, tried, generate, project_seed, iteration)
    asking = partial(_answers_of, learner, rollout, section.majority.answers)
    # A problem of the bank may come up in several iterations; the same learner is asked the same about it.
    answerer = Answerer(learner.name, asking(derive_seed(project_seed, "bank majority")))
    doubted = own if generate.proves_bank else []
    worth, hopeless = _worth_a_run(offered, known, section)
    with (
        open_prover(verify) as prover,
        open_bank_proofs(doubted, verify, section, answerer, Project(project).proofs) as proofs,
    ):
        ask = asking(derive_seed(project_seed, iteration, "majority"))
        solved = with_majority_solutions(worth, ask, section.majority, prover.hasty)
        answered = [with_reference_values(proposal, prover.hasty) for proposal in solved.proposals]
        chosen = partial(filter_proposals, known=known, section=section, prover=prover, prove=proofs.proved)
        problems, rejections = chosen(answered, bank, generate.problems)
        spare, passed_over = chosen([], _without(bank, problems), reserve)
    problems, spare = _prepared(verify, problems, spare)
    figures = {"reserve": len(spare), "invented": _invented(answered, problems)}
    figures |= Claims.of(solved.proposals, answered).figures | solved.figures | proofs.figures
    refused = [*hopeless, *(_rejection(*each) for each in solved.refused), *rejections, *_new(passed_over, rejections)]
    made = written(directory, "problems", problems, refused, **figures)
    if not problems:
        raise _nothing_left(generate, made)
    return _with_reserve(made, directory, spare)


def _prepared(verify: VerifySection, *lists: Sequence[Problem]) -> list[list[Problem]]:
    """The lists with all that the judges of their answers need to know."""
    with open_bench(verify, [problem for each in lists for problem in each]) as bench:
        return [prepare(each, bench, trivial=verify.partial_credit > 0) for each in lists]


def _with_reserve(made: StageResult, directory: Path, spare: Sequence[Problem]) -> StageResult:
    """The stage's result with one file more."""
    files = {"reserve": FileRef.of(write_jsonl(Run(directory).reserve, spare))}
    return made.model_copy(update={"files": made.files | files})


def _known(bank: Sequence[Problem], tried: Sequence[TriedProblem], suites: Mapping[str, str]) -> KnownProblems:
    """What no proposal may repeat."""
    exams = {group: read_problems(suite) for group, suite in suites.items()}
    return KnownProblems(exams | {"bank": [*bank], "corpus": [each.problem for each in tried]})


def _new(rejections: Iterable[Rejection], already: Iterable[Rejection]) -> list[Rejection]:
    """Those whose proposals are not among those that were rejected already."""
    written_already = {rejection.proposal for rejection in already}
    return [rejection for rejection in rejections if rejection.proposal not in written_already]


def _in_order(
    bank: Sequence[Problem],
    tried: Sequence[TriedProblem],
    generate: GenerateSection,
    project_seed: int,
    iteration: int,
) -> list[Problem]:
    """The bank, with earlier problems where these may come again, in the order in which it fills up."""
    if generate.choice == "useful":
        return most_useful_first(bank, tried, project_seed, iteration)
    return longest_unasked_first(bank, tried, project_seed)


def _without(bank: Sequence[Problem], taken: Iterable[Problem]) -> list[Problem]:
    """What is left of a bank, in its order."""
    gone = {problem.id for problem in taken}
    return [problem for problem in bank if problem.id not in gone]


def _nothing_left(generate: GenerateSection, made: StageResult) -> StageFailed:
    """That there is nothing to train on, and where it says why."""
    unproved = made.figures["bank_refused"]
    trust = "; generate.prove_bank: false takes the bank as it is" if unproved else ""
    return StageFailed(
        f"filter: no problem is left of the proposals and of {generate.bank}: "
        f"{made.files['rejections'].path} says why{trust}"
    )


def _worth_a_run(
    offered: Sequence[Problem], known: KnownProblems, section: FilterSection
) -> tuple[list[Problem], list[Rejection]]:
    """The proposals that may yet become problems, and rejections of those that cannot, whatever a solution returns.

    Nothing of these is run, and the model is not asked for answers to them.
    """
    worth, rejections = [], []
    for proposal in offered:
        refused = broken_rule(proposal, section, WITHOUT_OUTPUTS)
        if refused is None and proposal.reference is None and section.majority.answers:
            refused = repeats(proposal, known, known.names, section)
        if refused:
            rejections.append(_rejection(proposal, refused))
        else:
            worth.append(proposal)
    return worth, rejections


def _invented(proposals: Sequence[Problem], problems: Sequence[Problem]) -> int:
    """How many problems are new ones of the model; it may have written some of what fills up, too, earlier."""
    own = {proposal.id for proposal in proposals if proposal.provenance.written_by_model}
    return sum(problem.id in own for problem in problems)


def _answers_of(learner: PolicyRef, section: RolloutSection, count: int, seed: int) -> Ask:
    """What asks the learner for so many answers to each problem, as it is asked in the rollout stage."""

    def ask(problems: Sequence[Problem]) -> list[list[str]]:
        with device_policy(learner.base, learner.adapter) as policy:
            grouped = section.model_copy(update={"group_size": count})
            texts = [rollout.text for rollout in sample_rollouts(policy, problems, grouped, seed, stage="majority")]
        return [texts[start : start + count] for start in range(0, len(texts), count)]

    return ask


def filter_proposals(
    proposals: Sequence[Problem],
    bank: Sequence[Problem],
    wanted: int,
    known: KnownProblems,
    section: FilterSection,
    prover: Prover,
    prove: Prove = trusted,
) -> tuple[list[Problem], list[Rejection]]:
    """The iteration's problems: every proposal that passes all rules, then bank problems up to `wanted`.

    Of proposals that repeat each other the one with the lowest id stays, whatever the order in which they come.

    Args:
        proposals: of the model, mutants included; each passes or is rejected with a reason.
        bank: curated problems, and earlier ones, in the order in which they are to be used. They may come back in later
            iterations, so only likeness to the suites and to this batch counts against them.
        known: problems of earlier iterations (`corpus`), of the `bank` and of both suites.
        prove: what becomes of one of those, or what there is against it.
    """
    refusals: dict[int, Refusal] = {}
    for done, number in enumerate(sorted(range(len(proposals)), key=lambda number: proposals[number].id), 1):
        if refused := refusal(proposals[number], section, known, prover):
            refusals[number] = refused
        else:
            known.add("batch", proposals[number])
        progress.report("filter", done, len(proposals))
    problems = [proposal for number, proposal in enumerate(proposals) if number not in refusals]
    rejections = [_rejection(proposals[number], refusals[number]) for number in sorted(refusals)]
    others = ["batch", *known.exams]
    for problem in bank:
        if len(problems) >= wanted:
            break
        found = repeats(problem, known, others, section) or prove(problem)
        if isinstance(found, Refusal):
            rejections.append(_rejection(problem, found))
        else:
            problems.append(found)
            known.add("batch", found)
    return problems, rejections


def refusal(problem: Problem, section: FilterSection, known: KnownProblems, prover: Prover) -> Refusal | None:
    """The first rule that refuses a proposal; None when it may become a problem."""
    return (
        broken_rule(problem, section)
        or repeats(problem, known, known.names, section)
        or prover.refusal(problem, section)
        or _asked_before(problem, known, prover.sandbox)
    )


def _asked_before(problem: Problem, known: KnownProblems, sandbox: Sandbox) -> Refusal | None:
    """Refuse what a known problem asks for in other words."""
    try:
        for group in known.names:
            if found := twin(problem, known.problems(group), sandbox):
                reason = f"its own solution passes every case of {found.entry_point} of the {group}"
                return Refusal(rule="twin", reason=reason, value=f"{found.entry_point} of the {group}", limit="none")
    except InfrastructureFault as fault:
        return Refusal.of_error("infrastructure", fault)
    return None


def _rejection(problem: Problem, refused: Refusal) -> Rejection:
    return Rejection(**dict(refused), stage="filter", proposal=problem.model_dump_json()[:SHOWN_CHARS])
