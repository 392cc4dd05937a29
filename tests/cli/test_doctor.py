"""`rlm doctor` tries the sandbox and tells what came of it."""

from collections.abc import Callable, Iterator

import pytest

from rlm_cli import doctor
from rlm_core.errors import SandboxUnavailable
from rlm_core.selftest import SelfTest
from tests.samples.selftest import BROKEN


def findings(monkeypatch: pytest.MonkeyPatch, outcome: Callable[[str], SelfTest]) -> Iterator[doctor.Finding]:
    monkeypatch.setattr(doctor, "available", lambda: [("paper", None)])
    monkeypatch.setattr(doctor, "AUTOMATIC", ("paper",))
    monkeypatch.setattr(doctor, "try_sandbox", outcome)
    return doctor._sandbox_findings()


def test_the_doctor_says_whether_the_sandbox_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    good = BROKEN.model_copy(update={"tried": BROKEN.tried[:1]})
    *_, finding = findings(monkeypatch, lambda _name: good)
    assert (finding.what, finding.found) == ("sandbox self-test", "holds, 1 answers judged by cases in paper, 1.2 s")
    assert finding.good
    *_, finding = findings(monkeypatch, lambda _name: BROKEN)
    assert finding.found == "does not hold: fire (cases): it burns, 2 answers judged by cases in paper, 1.2 s"
    assert finding.needed
    assert not finding.good


def test_the_doctor_survives_a_self_test_that_cannot_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_name: str) -> SelfTest:
        raise SandboxUnavailable("it went away")

    *_, finding = findings(monkeypatch, fail)
    assert finding.found == "could not be tried: it went away"
    assert not finding.good
