"""`rlm report` and `rlm show`: from a project's files alone, and safe to open whatever a model wrote."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlm_core.files import write_json, write_jsonl, write_record
from rlm_core.records import Rollout, Verdict
from rlm_core.state.ledger import Base, open_ledger
from rlm_core.state.project import Project
from rlm_core.state.run import Run
from tests import tiny
from tests.command import Rlm
from tests.samples.ended import TIMEOUT, answer, decision, summary
from tests.samples.holder import holder

CONFIG = ("--config", "config.yaml")
EVIL = "</pre></details><script>alert(1)</script><img src=http://example.org/x.png>\n![x](http://example.org/y.png)"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Two iterations, an answer of the second of which is hostile; the first one's answers were pruned."""
    made = Project(tmp_path / "quick")
    problem = tiny.problem(1)
    with open_ledger(made.ledger) as ledger:
        ledger.begin(Base(name="tiny", fingerprint="f"), None)
        for number, found in ((1, decision(1, "rejected", 0.2, 0.1)), (2, decision(2, "rejected", 0.2, 0.21))):
            ledger.commit(found, 0.3, [], summary(number).model_dump(mode="json"))
            write_record(made.run(number) / "summary.json", summary(number))
            write_record(made.run(number) / "decision.json", found)
            write_jsonl(made.run(number) / "problems.jsonl", [problem])
    rollouts: list[Rollout] = []
    verdicts: list[Verdict] = []
    judged: list[dict[str, Any]] = [{"cases": (TIMEOUT,)}, {"reason": EVIL}]
    for index, content in enumerate(judged):
        rollout, verdict = answer(problem, index, EVIL, 0.0, **content)
        rollouts.append(rollout)
        verdicts.append(verdict)
    write_jsonl(made.run(2) / "rollouts" / "000.jsonl", rollouts)
    write_jsonl(made.run(2) / "verdicts" / "000.jsonl", verdicts)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"project": str(made.root)}))
    return made


class Elements(HTMLParser):
    """Every element of a document, with its attributes."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_report_is_one_file_that_fetches_and_runs_nothing(project: Project, rlm: Rlm) -> None:
    path = Path(rlm("report", "--html", *CONFIG).out.strip())
    assert path == project.root / "report.html"
    text = path.read_text()
    elements = Elements(text).found
    tags = [tag for tag, _ in elements]
    assert not {"script", "img", "link", "iframe", "a"} & set(tags)
    assert not [given for _, given in elements if {"src", "href", "onload"} & given.keys()]
    assert tags.count("svg") == 1
    assert tags.count("details") == 2
    assert "light-dark(" in text
    assert "alert(1)" in text, "the answer is shown, as text"
    assert "were pruned" in text


@pytest.mark.usefixtures("project")
def test_status_and_history_say_why_the_gate_decided_so(rlm: Rlm) -> None:
    said = rlm("status", *CONFIG).out
    reason = decision(2, "rejected", 0.2, 0.21).reason
    assert f"iteration 2, rejected: {reason}" in said
    assert "iteration 3, begun by `rlm run`" in said
    table = rlm("history", *CONFIG).out
    assert "pass@1 of the incumbent → of the candidate" in " ".join(table.split())
    assert re.search(r"│ 2 +│ \d\d-\d\d \d\d:\d\d +│", table)


@pytest.mark.usefixtures("project")
def test_a_narrow_terminal_has_an_iteration_a_line(rlm: Rlm, monkeypatch: pytest.MonkeyPatch) -> None:
    for width, reasons in ((80, False), (140, True)):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = rlm("history", *CONFIG).out.splitlines()
        rows = [line for line in lines if line.startswith("│ ")]
        assert [row.split("│")[1].strip() for row in rows if row.split("│")[1].strip()] == ["1", "2"]
        assert (decision(2, "rejected", 0.2, 0.21).reason in "".join(rows)) == reasons
        assert len(rows) == 2 or reasons, "a reason may take two lines, where it has a column"


def test_status_knows_of_an_iteration_that_is_at_work_and_of_one_that_was_stopped(rlm: Rlm, project: Project) -> None:
    with holder(project) as process:
        said = " ".join(rlm("status", *CONFIG).out.split())
        assert f"iteration 3; the project is in use by process {process.pid} since" in said
    write_json(Run(project.run(3)).config, {})
    assert "iteration 3, continued by `rlm run`" in rlm("status", *CONFIG).out


@pytest.mark.usefixtures("project")
def test_an_iteration_is_shown_with_its_suspects(rlm: Rlm) -> None:
    printed = rlm("show", "2", "--markdown", *CONFIG).out
    assert printed.startswith("# Iteration 2: rejected")
    assert "| ran out of time | 1 |" in printed
    assert "ran out of time" in rlm("show", "2", *CONFIG).out


def test_an_iteration_that_has_not_ended_is_not_shown(project: Project, rlm: Rlm) -> None:
    done = rlm("show", "3", *CONFIG)
    assert done.code == 2
    assert done.err == f"rlm: iteration 3 has not ended in {project.root}; those that have: 1 to 2\n"


def test_a_damaged_iteration_does_not_keep_the_others_from_being_reported(project: Project, rlm: Rlm) -> None:
    (project.run(1) / "summary.json").write_text("{")
    text = Path(rlm("report", "--html", *CONFIG).out.strip()).read_text()
    assert re.search(r"Iteration 1: rejected</summary><p>[^<]*summary\.json", text)
    assert "2 iterations, 0 accepted" in rlm("report", *CONFIG).out
