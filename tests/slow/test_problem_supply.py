"""How long 500 problems take from nothing to what an iteration trains on, without the model."""

import time
from pathlib import Path

from rlm_core import filter as filtering
from rlm_core import generate, mutate
from rlm_core.config import FilterSection, GenerateSection, MutateSection, RolloutSection, VerifySection
from rlm_core.files import read_jsonl
from rlm_core.problems import Problem
from rlm_core.records import PolicyRef

NOBODY = PolicyRef(base="none", fingerprint="none")


def test_500_problems_are_made_proved_and_filtered_in_five_minutes(tmp_path: Path) -> None:
    section = GenerateSection(problems=450, sources={"procedural": 1}, difficulty={1: 1.0, 2: 1.0, 3: 1.0})
    no_model = MutateSection(parents=0, per_problem=0, of_solutions=50)
    verify = VerifySection()
    started = time.perf_counter()
    made = generate.run(tmp_path, NOBODY, section, verify, 2, 1).files["problems"]
    mutants = mutate.run(tmp_path, NOBODY, made, section.bank, no_model, 2, 1).files["problems"]
    result = filtering.run(
        tmp_path,
        tmp_path / "project",
        [made, mutants],
        section.model_copy(update={"problems": 1}),  # nothing of the bank
        {"benchmark": "bank:benchmark", "holdout": "bank:holdout"},
        FilterSection(),
        verify,
        project_seed=2,
        iteration=1,
        learner=NOBODY,
        rollout=RolloutSection(),
    )
    seconds = time.perf_counter() - started
    offered = [problem for file in (made, mutants) for problem in read_jsonl(Path(file.path), Problem)]
    kept = list(read_jsonl(Path(result.files["problems"].path), Problem))
    assert len(offered) == 500
    assert result.figures["rejections"] == 500 - len(kept)
    assert len(kept) >= 350
    assert seconds < 300
