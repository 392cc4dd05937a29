"""An exam as a deployment runs it."""

from pathlib import Path

import pytest

from flows.exam import exam
from rlm_core.errors import UsageError
from rlm_core.files import read_record
from rlm_core.records import ExamReport
from tests import tiny
from tests.conftest import MakeConfig


def test_the_exam_flow_writes_a_report_and_finds_it_again(make_config: MakeConfig, tmp_path: Path) -> None:
    config = str(make_config())
    suite = tiny.write_problems(tmp_path / "suite.jsonl", tiny.problems(4))
    first = exam(config, policy="base", suite=suite, samples=2)
    report = read_record(Path(first["report"]), ExamReport)
    assert (report.policy, report.suite, report.k) == ("base", suite, 2)
    assert first["pass_at"] == {str(k): share for k, share in report.pass_at.items()}
    assert exam(config, policy="base", suite=suite, samples=2) == first | {"reused": True}


def test_the_exam_flow_fails_with_what_was_wrong(make_config: MakeConfig) -> None:
    with pytest.raises(UsageError, match="there is no policy 'nobody'"):
        exam(str(make_config()), policy="nobody")
