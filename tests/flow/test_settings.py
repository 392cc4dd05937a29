"""Which settings each stage reads: a change of one runs exactly those stages again, and none reads another one."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import BaseModel

import flows.exams
import flows.stages
import rlm_core.evaluate
import rlm_core.filter
import rlm_core.generate
import rlm_core.mutate
import rlm_core.rollout
import rlm_core.train
import rlm_core.verify
from flows.iterate import iterate
from flows.stages import Stages
from rlm_core.config import Config, Section
from rlm_core.exams.order import Order
from rlm_core.iteration import Iteration
from rlm_core.records import FileRef, PolicyRef, StageResult
from rlm_core.rounds import Shard
from tests.conftest import MakeConfig

STAGES = {
    "generate": rlm_core.generate,
    "mutate": rlm_core.mutate,
    "filter": rlm_core.filter,
    "rollout": rlm_core.rollout,
    "verify": rlm_core.verify,
    "train": rlm_core.train,
    "evaluate": rlm_core.evaluate,
}
JUDGES = "filter verify evaluate"
NOBODY = ""

READERS = {
    # What only begins an iteration, decides about it or speeds it up is read by no stage. Another base model has
    # another fingerprint, which every stage that uses the policy is given.
    "project": NOBODY,
    "seed": "generate mutate filter rollout train evaluate",
    "model.base": NOBODY,
    "model.adapter": NOBODY,
    "generate.problems": "generate filter",
    "generate.sources": "generate",
    "generate.difficulty": "generate",
    "generate.bank": "generate mutate filter",
    "generate.choice": "filter",
    "generate.prove_bank": "filter",
    "generate.domains": "generate",
    "generate.solved_examples": "generate",
    "generate.use_recursion": "generate",
    "generate.max_tokens": "generate",
    "generate.temperature": "generate",
    "mutate": "mutate",
    "filter": "filter",
    "rollout.group_size": "rollout",
    "rollout.max_tokens": "filter rollout train",
    "rollout.temperature": "filter rollout train",
    "rollout.top_p": "filter rollout",
    "rollout.top_k": "filter rollout",
    "rollout.shard_problems": "rollout",
    "rollout.batch_size": "filter rollout evaluate",
    "rollout.resample_budget": "filter",
    "rollout.stop_after_code": "filter rollout evaluate",
    "rollout.prompt_suffix": "filter rollout train evaluate",
    "rollout.engine": "rollout",
    "rollout.servers": NOBODY,
    "rollout.server_kind": NOBODY,
    "rollout.trust_servers": NOBODY,
    "rollout.server_model": NOBODY,
    "rollout.server_token_env": NOBODY,
    "rollout.server_patience_s": NOBODY,
    "rollout.fall_back_to_local": NOBODY,
    "verify.sandbox": f"generate {JUDGES}",
    "verify.workers": NOBODY,
    "verify.partial_credit": "filter verify",
    "verify.functions": JUDGES,
    "verify.max_failed_share": "train",
    "verify.limits": f"generate {JUDGES}",
    "verify.container": f"generate {JUDGES}",
    "train": "train",
    "train.rehearsal.corpus_size": NOBODY,
    "evaluate.benchmark": "filter evaluate",
    "evaluate.holdout": "filter evaluate",
    "evaluate.samples": "evaluate",
    "evaluate.temperature": "evaluate",
    "evaluate.top_p": "evaluate",
    "evaluate.max_tokens": "evaluate",
    "gate": NOBODY,
    "prefect": NOBODY,
    "serve": NOBODY,
    "trackers": NOBODY,
    "keep_iterations": NOBODY,
}
"""Stages that read a setting; a section stands for all its settings that are not named themselves."""

HARMLESS = defaultdict(lambda: {"verify.workers"}, evaluate={"verify.workers", "verify.partial_credit"})
"""What stages look at and are not decided by; in an exam nothing is paid, whatever is set."""

OTHER_VALUES: dict[str, Any] = {
    "model.adapter": "elsewhere",
    "generate.bank": "bank:holdout",
    "generate.choice": "uniform",
    "generate.domains": ["maths"],
    "generate.sources": {"procedural": 1.0},
    "generate.difficulty": {"3": 1.0},
    "filter.majority.answers": 5,
    "filter.prompt_chars": [1, 3_000],
    "filter.description_words": [1, 300],
    "filter.cases_chars": [1, 9_000],
    "filter.blocked": ["x"],
    "rollout.prompt_suffix": " Code only.",
    "rollout.engine": "server",
    "rollout.servers": ["http://other:1"],
    "rollout.server_kind": "vllm",
    "verify.sandbox": "landlock",
    "verify.functions": ["json:loads"],
    "verify.container.image": "python:3.13",
    "verify.container.host": "unix:///run/other.sock",
    "train.method": "dapo",
    "train.betas": [0.8, 0.9],
    "train.adapter.kind": "dora",
    "train.adapter.modules": ["mlp"],
    "evaluate.benchmark": "bank:train",
    "evaluate.holdout": "bank:train",
    "gate.rule": "strict",
    "gate.approve": "ask",
    "gate.unanswered": "accept",
    "prefect.verify_runner": "dask",
    "trackers": ["wandb"],
}
"""For settings whose other value cannot be guessed. What only some methods use is tried with one that does."""

SHARD = Shard(number=0, source="problems", first=0, problems=1, of=1)

BESIDE: dict[str, dict[str, Any]] = {
    "train.clip_low": {"train": {"method": "grpo"}},
    "train.overlong_buffer": {"train": {"method": "dapo"}},
    "train.overlong_penalty": {"train": {"method": "dapo"}},
    "prefect.cluster": {"prefect": {"verify_runner": "dask"}},
    "rollout.engine": {"rollout": {"servers": ["http://one:1"]}},
}
NULLS = {
    "train.clip_low": 0.1,
    "train.clip_high": 0.1,
    "train.overlong_buffer": 0.1,
    "train.overlong_penalty": 0.1,
    "prefect.cluster": "node:1",
    "rollout.server_model": "m",
    "rollout.server_token_env": "TOKEN",
}


def leaves(content: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting's name and value."""
    for name in type(content).model_fields:
        value = getattr(content, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def readers(setting: str) -> set[str]:
    """What the table says, by the longest name that fits."""
    parts = setting.split(".")
    names = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return set(READERS[next(name for name in names if name in READERS)].split())


def other(setting: str, value: Any) -> Any:
    """Some other value that is allowed."""
    if setting in OTHER_VALUES:
        return OTHER_VALUES[setting]
    match value:
        case None:
            return NULLS[setting]
        case bool():
            return not value
        case int():
            return value + 1 if setting != "verify.limits.respawns" else 1
        case float():
            return value * 0.99 if value else 0.5
        case str():
            return value + "x"
    raise AssertionError(f"no other value is known for {setting}")


def changed(content: dict[str, Any], setting: str, value: Any) -> dict[str, Any]:
    head, _, rest = setting.partition(".")
    inner = changed(content.get(head, {}), rest, value) if rest else value
    return {**content, head: inner}


class Recorded:
    """In the place of each task: it notes the name of the result that it would look for."""

    def __init__(self, stage: Any, names: dict[str, set[str]]):
        self._stage, self._names = stage, names

    def __call__(self, timeout_s: float, files: dict[str, str], **given: Any) -> dict[str, Any]:
        assert timeout_s
        stage = self._stage.name
        self._names[stage].add(self._stage.cache_policy.result_name(stage, files, given))
        made = FileRef(path="made", sha256="0")
        return StageResult(files={"problems": made}, figures={"problems": 1}).model_dump(mode="json")

    submit = __call__


def result_names(
    config: Config, monkeypatch: pytest.MonkeyPatch, number: int = 1, corpus: FileRef | None = None
) -> dict[str, set[str]]:
    """The names of the results that each stage would look for, all inputs being the same."""
    names: dict[str, set[str]] = defaultdict(set)
    base = PolicyRef(base="b", fingerprint="f")
    iteration = Iteration(
        number=number,
        project="p",
        directory=f"p/runs/{number:04d}",
        base=base,
        incumbent=base,
        learner=base,
        waited=0,
        tries=0,
        seed=config.seed,
        corpus=corpus,
        started=0,
    )
    with monkeypatch.context() as patch:
        patch.setattr(flows.stages, "placed", lambda stage, *_, **__: Recorded(stage, names))
        patch.setattr(flows.exams, "settled", lambda *_: False)
        stages = Stages(iteration, config)
        made = stages.generate()
        problems = stages.filter(made, stages.mutate(made))
        rollouts: Any = stages._rollout(problems, SHARD)
        runner: Any = type("Runner", (), {"section": config.verify, "submit": lambda _, task, **given: task(**given)})()
        verdicts: Any = stages._verify(problems, SHARD, rollouts, runner)
        stages.train([rollouts], [verdicts])
        trained = StageResult(files={"adapters.safetensors": FileRef(path="a/w", sha256="1")})
        stages.evaluate(trained.model_dump(mode="json"))
    return names


@pytest.mark.parametrize("setting", dict(leaves(Config())))
def test_a_changed_setting_asks_exactly_the_stages_again_that_read_it(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = BESIDE.get(setting, {})
    value = dict(leaves(Config.parse(before)))[setting]
    after = Config.parse(changed(before, setting, other(setting, value)))
    names = result_names(Config.parse(before), monkeypatch)
    assert names.keys() == STAGES.keys()
    found = result_names(after, monkeypatch)
    assert {stage for stage in STAGES if names[stage] != found[stage]} == readers(setting)


def test_each_suite_is_an_exam_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names = result_names(Config(), monkeypatch)["evaluate"]
    changed_holdout = result_names(Config.parse({"evaluate": {"holdout": "bank:train"}}), monkeypatch)["evaluate"]
    assert len(names) == len(changed_holdout) == 6
    assert len(names & changed_holdout) == 3


def test_another_corpus_asks_those_stages_again_that_show_or_rehearse_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for content, expected in (
        ({}, {"generate"}),
        ({"generate": {"sources": {"bank": 1}}}, set()),
        ({"generate": {"sources": {"bank": 1}}, "train": {"rehearsal": {"share": 0.2}}}, {"train"}),
    ):
        config = Config.parse(content)
        one, other = (
            result_names(config, monkeypatch, corpus=FileRef(path="corpus.jsonl", sha256=sha)) for sha in "ab"
        )
        assert {stage for stage in STAGES if one[stage] != other[stage]} == expected


def test_another_iteration_finds_nothing_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (result_names(Config(), monkeypatch, number) for number in (1, 2))
    assert first.keys() == second.keys() == STAGES.keys()
    assert all(not first[stage] & second[stage] for stage in STAGES)


def test_each_stage_has_the_time_limit_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, set[float]] = defaultdict(set)
    section = {"rollout_timeout_s": 1.0, "verify_timeout_s": 2.0, "train_timeout_s": 3.0, "evaluate_timeout_s": 4.0}

    def noted(recorded: Recorded, timeout_s: float, files: dict[str, str], **given: Any) -> dict[str, Any]:
        limits[recorded._stage.name].add(timeout_s)
        return call(recorded, timeout_s, files, **given)

    call = Recorded.__call__
    monkeypatch.setattr(Recorded, "__call__", noted)
    monkeypatch.setattr(Recorded, "submit", noted)
    result_names(Config.parse({"prefect": section}), monkeypatch)
    seconds = {"generate": 1, "mutate": 1, "filter": 2, "rollout": 1, "verify": 2, "train": 3, "evaluate": 4}
    assert limits == {stage: {float(limit)} for stage, limit in seconds.items()}


# ---------------------------------------------------------------------------------- what the stages really look at


def recording(section: Section, note: Callable[[str], None], hidden: frozenset[str] = frozenset()) -> Section:
    """The section, but that each look at a setting is noted; not at one that was replaced."""
    kind = type(section)

    class Recording:
        def __getattribute__(self, name: str) -> Any:
            if name in kind.model_fields and name not in hidden:
                note(name)
            return super().__getattribute__(name)

        def model_copy(self, *, update: Any = None, deep: bool = False) -> Any:  # noqa: ARG002
            return recording(section.model_copy(update=update), note, hidden | {*(update or {})})

    recorder: Any = type("Recording", (Recording, kind), {})
    made: Section = recorder.model_construct(**dict(section))
    return made


@contextmanager
def every_look(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, set[str]]]:
    """The settings that each stage looks at, as `section.setting`."""
    sections = {field.annotation: name for name, field in Config.model_fields.items()}
    looks: dict[str, set[str]] = defaultdict(set)

    def watched(stage: str, run: Callable[..., StageResult]) -> Callable[..., StageResult]:
        def recorded(value: Any) -> Any:
            if isinstance(value, Order):
                return Order(**{name: recorded(part) for name, part in value.parameters().items()})
            if not isinstance(value, Section):
                return value
            name = sections[type(value)]
            return recording(value, lambda setting: looks[stage].add(f"{name}.{setting}"))

        return lambda *given: run(*map(recorded, given))

    with monkeypatch.context() as patch:
        for stage, module in STAGES.items():
            patch.setattr(module, "run", watched(stage, module.run))
        yield looks


def test_no_stage_looks_at_a_setting_that_it_is_not_said_to_read(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(verify={"partial_credit": 0.5}, train={"kl_weight": 0.1})
    with every_look(monkeypatch) as looks:
        iterate(str(config))
    assert looks.keys() == STAGES.keys()
    for stage, settings in looks.items():
        assert {setting for setting in settings if stage not in readers(setting)} <= HARMLESS[stage], stage
