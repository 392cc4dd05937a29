"""Bars in the UI: one artifact for each long stage of a run, as far as the stage is, and never in the way."""

from collections.abc import Callable

import pytest
from prefect import flow, get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.objects import Artifact

from flows import progress_bars
from flows.progress_bars import progress_in_ui
from rlm_core.progress import report


def run_in_a_flow(work: Callable[[], None], project: str) -> None:
    @flow(name="bars")
    def bars() -> None:
        with progress_in_ui(project):
            work()

    bars()


def artifacts(key: str) -> list[Artifact]:
    with get_client(sync_client=True) as client:
        return client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key])))


def test_all_shards_are_one_bar_and_each_stage_has_its_own() -> None:
    def work() -> None:
        report("rollout", 0, 6, "000")
        report("rollout", 6, 6, "000")
        report("rollout", 3, 6, "001", tokens=20.0)
        report("train", 2, 8)
        report("evaluate", 1, 4)

    run_in_a_flow(work, "/some/My project")
    [answers], [steps] = artifacts("rollout-my-project"), artifacts("train-my-project")
    assert (answers.type, answers.data, steps.data) == ("progress", 75.0, 25.0)
    assert answers.description is not None
    assert answers.description.startswith("rollout (answers): 9 of 12")
    assert answers.flow_run_id == steps.flow_run_id is not None
    assert artifacts("evaluate-my-project") == []


def test_a_bar_is_told_of_at_intervals_however_often_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []

    def tell(percent: float, _key: str, _line: str) -> None:
        told.append(percent)

    monkeypatch.setattr(progress_bars, "create_progress_artifact", tell)

    def work() -> None:
        for done in range(1_000):
            report("train", done + 1, 1_000)

    run_in_a_flow(work, "often")
    assert told[-1] == 100.0
    assert len(told) <= 3


def test_a_server_that_takes_no_artifacts_does_not_disturb(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("gone")

    monkeypatch.setattr(progress_bars, "create_progress_artifact", refuse)
    run_in_a_flow(lambda: report("train", 1, 2), "refused")
