"""Sample the answers that an iteration learns from."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from rlm_core import progress
from rlm_core.answers import problem_prompt
from rlm_core.config import RolloutSection
from rlm_core.errors import InfrastructureFault
from rlm_core.files import write_jsonl
from rlm_core.model.decoding import Completion, Request
from rlm_core.model.device import device_policy
from rlm_core.model.draws import Sampling
from rlm_core.model.language import Language
from rlm_core.model.loading import load_language
from rlm_core.model.policy import Policy
from rlm_core.problems import Problem
from rlm_core.progress import ProgressMeter
from rlm_core.records import FileRef, PolicyRef, Rollout, StageResult
from rlm_core.rounds import Shard, problems_of
from rlm_core.seeds import derive_seed
from rlm_core.serving.remote import answers_from_servers
from rlm_core.state.run import Run

_log = logging.getLogger(__name__)


def run(
    directory: Path, learner: PolicyRef, problems: FileRef, shard: Shard, section: RolloutSection, seed: int
) -> StageResult:
    """The rollout stage for one shard: sample answers to its problems into `directory/rollouts/`.

    Args:
        problems: the file that the shard is of.
    """
    mine = list(islice(problems_of(problems).values(), shard.first, shard.first + shard.problems))
    rollouts, seconds = _sampled(learner, mine, section, seed, part=shard.name)
    path = write_jsonl(Run(directory).rollouts / f"{shard.name}.jsonl", rollouts)
    return StageResult(
        files={"rollouts": FileRef.of(path)},
        figures={
            "rollouts": len(rollouts),
            "tokens": sum(len(rollout.tokens) for rollout in rollouts),
            "truncated": sum(rollout.truncated for rollout in rollouts),
            "seconds": seconds,
        },
    )


def _sampled(
    learner: PolicyRef, problems: Sequence[Problem], section: RolloutSection, seed: int, part: str
) -> tuple[list[Rollout], float]:
    """The shard's rollouts by the engine that the config names, and the seconds that it took."""
    if section.engine == "server":
        try:
            return _sampled_by_servers(learner, problems, section, seed, part)
        except InfrastructureFault as fault:
            if not section.fall_back_to_local:
                raise
            _log.warning("rollout: shard %s is sampled in this process: %s", part, fault)
    with device_policy(learner.base, learner.adapter) as policy:
        started = time.monotonic()
        rollouts = sample_rollouts(policy, problems, section, seed, part=part)
        return rollouts, time.monotonic() - started


_servers = threading.Lock()
"""One shard at a time asks the servers, as one at a time uses the device: a shard's time limit is for its own work."""


def _sampled_by_servers(
    learner: PolicyRef, problems: Sequence[Problem], section: RolloutSection, seed: int, part: str
) -> tuple[list[Rollout], float]:
    language = load_language(learner.base)
    with progress.in_turn(_servers):
        started = time.monotonic()
        rollouts = _rollouts(
            language,
            problems,
            section,
            seed,
            lambda requests, on_tokens: answers_from_servers(learner, language, requests, section, on_tokens),
            ProgressMeter("rollout", len(problems) * section.group_size, part),
        )
        return rollouts, time.monotonic() - started


def sample_rollouts(
    policy: Policy,
    problems: Sequence[Problem],
    section: RolloutSection,
    seed: int,
    stage: str = "rollout",
    part: str = "",
) -> list[Rollout]:
    """G rollouts of each problem.

    Args:
        seed: of the iteration's rollout stage; each answer's own seed derives from it, its problem and its index.
        stage, part: names in progress reports; a part is a shard or a suite.

    Returns:
        Rollouts in the order of the problems, each problem's group together.
    """
    sampling = Sampling(section.temperature, section.max_tokens, section.top_p, section.top_k, section.stop_after_code)
    return _rollouts(
        policy,
        problems,
        section,
        seed,
        lambda requests, on_tokens: policy.sample(requests, sampling, section.batch_size, on_tokens),
        ProgressMeter(stage, len(problems) * section.group_size, part),
    )


def _rollouts(
    language: Language,
    problems: Sequence[Problem],
    section: RolloutSection,
    seed: int,
    sample: Callable[[Sequence[Request], ProgressMeter], list[Completion]],
    meter: ProgressMeter,
) -> list[Rollout]:
    asked = [(problem, index) for problem in problems for index in range(section.group_size)]
    prompts = {
        problem.id: language.prompt_tokens(problem_prompt(problem, section.prompt_suffix)) for problem in problems
    }
    seeds = [derive_seed(seed, problem.id, index) for problem, index in asked]
    requests = [
        Request(prompts[problem.id], own, problem.only_code_counts)
        for (problem, _), own in zip(asked, seeds, strict=True)
    ]
    completions = sample(requests, meter)
    return [
        Rollout(
            problem_id=problem.id,
            index=index,
            seed=own,
            prompt_tokens=request.prompt_tokens,
            tokens=tuple(completion.tokens),
            logprobs=tuple(completion.logprobs),
            text=language.text(completion.tokens),
            finish_reason=completion.finish_reason,
        )
        for (problem, index), own, request, completion in zip(asked, seeds, requests, completions, strict=True)
    ]
