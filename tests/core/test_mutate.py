"""The mutate stage: who is varied by the model, how often, and what is known of where a mutant comes from."""

from pathlib import Path

import pytest

from rlm_core import mutate
from rlm_core.config import MutateSection
from rlm_core.examples import problem_json
from rlm_core.files import write_jsonl
from rlm_core.model.policy import Policy
from rlm_core.records import FileRef, PolicyRef
from tests import tiny

PARENTS = tiny.problems(3)
CHOSEN = [PARENTS[0], PARENTS[0], PARENTS[1], PARENTS[1]]


def test_the_first_parents_are_varied_so_many_times_each(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(_policy: Policy, turns: list[list[str]], *_: object) -> list[str]:
        asked.extend(each[-1] for each in turns)
        return [problem_json(PARENTS[2])] * (len(turns) - 1) + ["nothing of use"]

    monkeypatch.setattr(mutate, "ask", answer)
    mutants, rejections = mutate.mutate(policy, PARENTS, MutateSection(parents=2, per_problem=2), seed=1)
    assert [problem_json(parent) in request for request, parent in zip(asked, CHOSEN, strict=True)] == [True] * 4
    origins = [(mutant.provenance.source, mutant.provenance.parent) for mutant in mutants]
    assert origins == [("mutation", parent.id) for parent in CHOSEN[:3]]
    assert [rejection.stage for rejection in rejections] == ["mutate"]


@pytest.mark.parametrize("changes", [{"parents": 0}, {"per_problem": 0}])
def test_without_a_use_for_it_the_model_is_not_loaded(tmp_path: Path, changes: dict[str, int]) -> None:
    proposals = FileRef.of(write_jsonl(tmp_path / "proposals.jsonl", PARENTS))
    bank = tiny.write_problems(tmp_path / "bank.jsonl", PARENTS)
    nobody = PolicyRef(base=str(tmp_path / "no model"), fingerprint="f")
    made = mutate.run(tmp_path, nobody, proposals, bank, MutateSection(of_solutions=0, **changes), 1, 1)
    assert made.figures == {"problems": 0, "rejections": 0, "asked": 0}
