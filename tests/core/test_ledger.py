"""The ledger: one transaction per gate, all or nothing, and one readable line for every way of being unusable."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlm_core.errors import LedgerError, UsageError
from rlm_core.problems import Case
from rlm_core.records import (
    AdapterRef,
    Lineage,
    PolicyRef,
)
from rlm_core.serving.pointers import Pointers
from rlm_core.state.ledger import Base, Ledger, PointerName, ProblemOutcome, open_ledger
from rlm_core.state.migrations import SCHEMA_VERSION
from rlm_core.state.project import Project
from tests.samples.ledger import BASE, FIRST, adapter, decision, on_probation, outcome, report, state_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of a project that has begun with the base model alone."""
    path = tmp_path / "project" / "ledger.sqlite"
    with open_ledger(path) as ledger:
        ledger.begin(BASE, None)
    return path


# --------------------------------------------------------------------------------------------------- an iteration's end


def test_a_new_project_starts_at_iteration_1_with_the_base_model(path: Path) -> None:
    with open_ledger(path) as ledger:
        assert (ledger.next_iteration(), ledger.incumbent(), ledger.base()) == (1, None, BASE)
        assert (ledger.history(), ledger.tried_problems(before=99), ledger.corpus_size()) == ([], [], 0)
        assert (ledger.past_scores().best, ledger.past_scores().ema) == (None, None)


def test_only_a_commit_advances_the_number(path: Path) -> None:
    with open_ledger(path) as ledger:
        assert [ledger.next_iteration(), ledger.next_iteration()] == [1, 1]
        ledger.save_exam("key", report())
        ledger.begin(BASE, None)
        assert ledger.next_iteration() == 1
        ledger.commit(decision(1, accepted=False), 0.3, [], {})
        assert ledger.next_iteration() == 2
        ledger.commit(decision(2, accepted=False, learnt=False), 0.3, [], {})
        assert ledger.next_iteration() == 3
    with open_ledger(path) as ledger:
        assert ledger.next_iteration() == 3


def test_an_accepted_candidate_becomes_the_incumbent_and_sets_the_scores(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(decision(1, accepted=True, score=0.5), 0.25, [], {})
        assert ledger.incumbent() == adapter(1)
        assert (ledger.past_scores().best, ledger.past_scores().ema) == (0.5, 0.5)
        ledger.commit(decision(2, accepted=True, score=1.0, incumbent=adapter(1)), 0.25, [], {})
        assert ledger.incumbent() == adapter(2)
        assert (ledger.past_scores().best, ledger.past_scores().ema) == (1.0, 0.625)  # 0.25 * 1 + 0.75 * 0.5
        ledger.commit(decision(3, accepted=True, score=0.5, incumbent=adapter(2)), 0.25, [], {})
        assert (ledger.past_scores().best, ledger.past_scores().ema) == (1.0, 0.59375)  # 0.25 * 0.5 + 0.75 * 0.625


def pointed_at(ledger: Ledger) -> dict[str, AdapterRef | None]:
    names: tuple[PointerName, ...] = ("accepted", "trainer", "inference")
    moves = {name: ledger.pointer(name) for name in names}
    return {name: move.adapter for name, move in moves.items() if move}


def test_an_accept_moves_all_pointers_and_a_rejection_none(path: Path) -> None:
    """Versioned, with iteration, time and digest."""
    with open_ledger(path) as ledger:
        assert set(pointed_at(ledger).values()) == {None}
        ledger.commit(decision(1, accepted=True), 0.3, [], {})
        ledger.commit(decision(2, accepted=False, incumbent=adapter(1)), 0.3, [], {})
        assert pointed_at(ledger) == {"accepted": adapter(1), "trainer": adapter(1), "inference": adapter(1)}
        told = [(move.name, move.iteration, move.cause, move.adapter) for move in ledger.moves()]
    names = ("accepted", "trainer", "inference")
    assert told == [(name, 0, "begun", None) for name in names] + [(name, 1, "accepted", adapter(1)) for name in names]


def test_on_probation_the_trainer_goes_on_and_the_incumbent_stays(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(decision(1, accepted=True), 0.3, [], {})
        ledger.commit(decision(2, False, incumbent=adapter(1), outcome="probation"), 0.3, [], {})
        assert pointed_at(ledger) == {"accepted": adapter(1), "trainer": adapter(2), "inference": adapter(1)}
        assert ledger.lineage() == Lineage(adapter(1), adapter(2), 1, 1)
        ledger.commit(decision(3, False, incumbent=adapter(1), outcome="probation", learner=adapter(2)), 0.3, [], {})
        assert ledger.lineage() == Lineage(adapter(1), adapter(3), 2, 2)
        assert ledger.past_scores().best == 0.5  # of the accepted one


def test_an_accept_ends_a_probation(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(on_probation(1), 0.3, [], {})
        ledger.commit(decision(2, accepted=True, learner=adapter(1)), 0.3, [], {})
        assert ledger.lineage() == Lineage(adapter(2), adapter(2), 0, 1)
        assert pointed_at(ledger)["inference"] == adapter(2)


def test_a_rejection_ends_a_probation_and_leads_back_to_the_incumbent(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(on_probation(1), 0.3, [], {})
        ledger.commit(decision(2, accepted=False, learner=adapter(1)), 0.3, [], {})
        assert ledger.lineage() == Lineage(None, None, 0, 2)
        ledger.commit(on_probation(3), 0.3, [], {})
        assert ledger.lineage() == Lineage(None, adapter(3), 1, 3)


def test_an_iteration_that_learnt_nothing_ends_a_probation_and_leads_back_to_the_incumbent(path: Path) -> None:
    """A learner that answers every problem always alike would else be stuck on probation for ever."""
    with open_ledger(path) as ledger:
        ledger.commit(on_probation(1), 0.3, [], {})
        ledger.commit(decision(2, accepted=False, learnt=False, learner=adapter(1)), 0.3, [], {})
        assert ledger.lineage() == Lineage(None, None, 0, 1)
        moves = ledger.moves()
        ledger.commit(decision(3, accepted=False, learnt=False), 0.3, [], {})
        assert ledger.moves() == moves


def test_tries_are_the_candidates_that_were_not_accepted_and_neither_accept_nor_rollback_forgets_them(
    path: Path,
) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(decision(1, accepted=False), 0.3, [], {})
        ledger.commit(decision(2, accepted=True), 0.3, [], {})
        assert ledger.lineage().tries == 1
        ledger.commit(on_probation(3), 0.3, [], {})
        ledger.commit(decision(4, accepted=False, learnt=False, incumbent=adapter(2)), 0.3, [], {})
        assert ledger.lineage().tries == 2
        ledger.roll_back(0)
        assert ledger.lineage().tries == 2


def test_what_is_served_may_lag(path: Path) -> None:
    """By `infer_staleness` iterations."""
    served = []
    with open_ledger(path) as ledger:
        for number, accepted in enumerate((True, True, False, False, False), 1):
            ledger.commit(decision(number, accepted), 0.3, [], {}, infer_staleness=2)
            served.append(pointed_at(ledger)["inference"])
        assert served == [None, None, adapter(1), adapter(2), adapter(2)]
        ledger.roll_back(0)
        ledger.commit(decision(6, False), 0.3, [], {}, infer_staleness=2)
        assert pointed_at(ledger)["inference"] is None


# ----------------------------------------------------------------------------------------------------------- rollback


def test_a_rollback_leads_to_what_an_iteration_accepted_and_its_scores(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(decision(1, accepted=True, score=0.5), 0.5, [], {})
        ledger.commit(decision(2, accepted=True, score=0.7, incumbent=adapter(1)), 0.5, [], {})
        ledger.commit(decision(3, False, incumbent=adapter(2), outcome="probation"), 0.5, [], {})
        ledger.roll_back(1)
        assert ledger.lineage() == Lineage(adapter(1), adapter(1), 0, 1)
        assert set(pointed_at(ledger).values()) == {adapter(1)}
        assert (ledger.past_scores().best, ledger.past_scores().ema) == (0.5, 0.5)
        assert ledger.next_iteration() == 4
        assert len(ledger.history()) == 3
        ledger.commit(decision(4, accepted=True, score=0.7, incumbent=adapter(1)), 0.5, [], {})
        assert (ledger.past_scores().best, ledger.past_scores().ema) == (0.7, 0.6)


def test_a_rollback_is_recorded_and_can_be_taken_back(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(decision(1, accepted=True), 0.3, [], {})
        ledger.roll_back(0)
        assert set(pointed_at(ledger).values()) == {None}
        assert ledger.past_scores().best is None
        assert [(move.name, move.iteration, move.cause) for move in ledger.moves()[-3:]] == [
            (name, 1, "rollback") for name in ("accepted", "trainer", "inference")
        ]
        ledger.roll_back(1)
        assert ledger.incumbent() == adapter(1)


def test_a_rollback_to_what_was_not_accepted_is_refused_with_the_ways_back(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(decision(1, accepted=True), 0.3, [], {})
        ledger.commit(decision(2, accepted=False), 0.3, [], {})
        before = state_of(ledger)
        for iteration in (2, 3, -1):
            with pytest.raises(UsageError, match=rf"iteration {iteration} did not accept .* a way back to 0, 1$"):
                ledger.roll_back(iteration)
        assert state_of(ledger) == before


def test_scores_on_another_suite_do_not_count(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.begin(BASE, None)
        ledger.commit(decision(1, True, score=0.9, suite="old"), 0.25, [], {})
        assert ledger.past_scores("old").best == 0.9
        assert (ledger.past_scores("new").best, ledger.past_scores("new").ema) == (None, None)
        ledger.commit(decision(2, True, score=0.3, suite="new"), 0.25, [], {})
        assert (ledger.past_scores("new").best, ledger.past_scores("new").ema) == (0.3, 0.3)


def test_a_rejection_leaves_incumbent_and_scores(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(decision(1, accepted=True, score=0.5), 0.3, [], {})
        ledger.commit(decision(2, accepted=False, score=0.9, incumbent=adapter(1)), 0.3, [], {})
        ledger.commit(decision(3, accepted=False, learnt=False, incumbent=adapter(1)), 0.3, [], {})
        assert ledger.incumbent() == adapter(1)
        assert (ledger.past_scores().best, ledger.past_scores().ema) == (0.5, 0.5)


def test_committing_an_iteration_again_changes_nothing(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(decision(1, accepted=True, score=0.5), 0.3, [outcome("f")], {"pass_rate": 0.25})
        before = state_of(ledger)
        ledger.commit(decision(1, accepted=True, score=0.9), 0.3, [outcome("g")], {"pass_rate": 0.75})
        ledger.commit(decision(1, accepted=False), 0.3, [outcome("f", passed=0)], {})
        assert state_of(ledger) == before


@pytest.mark.parametrize("step", ["_add_outcomes", "_bound_corpus", "_point", "_add_candidate", "_follow"])
def test_a_commit_that_fails_on_its_way_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(decision(1, accepted=True, score=0.5), 0.3, [outcome("f")], {})
        before = state_of(ledger)
    real = getattr(Ledger, step)

    def fail_after(self: Ledger, *arguments: Any) -> None:
        real(self, *arguments)
        if step != "_point" or arguments[0] == "inference":  # of the pointers, the last that is moved
            raise RuntimeError("the power went out")

    with open_ledger(path) as ledger, monkeypatch.context() as patch:
        patch.setattr(Ledger, step, fail_after)
        with pytest.raises(RuntimeError, match="the power went out"):
            ledger.commit(decision(2, accepted=True, score=0.9), 0.3, [outcome("g")], {})
        assert state_of(ledger) == before
    with open_ledger(path) as ledger:
        assert state_of(ledger) == before
        ledger.commit(decision(2, accepted=True, score=0.9), 0.3, [outcome("g")], {})
        assert (ledger.next_iteration(), ledger.incumbent(), ledger.corpus_size()) == (3, adapter(2), 2)


def test_history_tells_every_iteration_in_order(path: Path) -> None:
    made = [decision(1, accepted=True), decision(2, accepted=False, learnt=False, incumbent=adapter(1))]
    with open_ledger(path) as ledger:
        for each in made:
            ledger.commit(each, 0.3, [], {"number": each.iteration, "text": "ü"})
    with open_ledger(path, create=False) as ledger:
        history = ledger.history()
    assert [entry.number for entry in history] == [1, 2]
    assert [entry.decision for entry in history] == made
    assert [entry.summary for entry in history] == [{"number": 1, "text": "ü"}, {"number": 2, "text": "ü"}]
    assert history[0].ended <= history[1].ended


def test_every_earlier_try_of_a_problem_is_known_and_none_of_the_iteration_itself(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(decision(1, accepted=False), 0.3, [outcome("z"), outcome("a", 8, 0)], {})
        ledger.commit(decision(2, accepted=False), 0.3, [outcome("z", 4, 4)], {})
        told = [
            (known.problem.entry_point, [(t.iteration, t.passed, t.rollouts) for t in known.tries])
            for known in ledger.tried_problems(before=3)
        ]
        assert told == [("z", [(1, 2, 8), (2, 4, 4)]), ("a", [(1, 0, 8)])]
        assert [len(known.tries) for known in ledger.tried_problems(before=2)] == [1, 1]
        assert ledger.tried_problems(before=1) == []
        assert ledger.tried_problems(before=3)[0].problem == outcome("z").problem


def test_passed_answers_go_to_the_corpus_once(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(decision(1, accepted=False), 0.3, [outcome("f"), outcome("g", passed=0)], {})
        assert ledger.corpus_size() == 1
        ledger.commit(decision(2, accepted=False), 0.3, [outcome("f"), outcome("h")], {})
        assert ledger.corpus_size() == 2


def test_the_corpus_has_the_newest_answer_and_the_last_measured_pass_rate_of_each_problem(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(decision(1, accepted=False), 0.3, [outcome("f"), outcome("g"), outcome("h")], {})
        newer = outcome("f", passed=4).model_copy(update={"passed_rollout_id": "newer", "passed_text": "new"})
        ledger.commit(decision(2, accepted=False), 0.3, [newer, outcome("g", passed=0), outcome("h", 0, 0)], {})
        told = [(a.problem.entry_point, a.iteration, a.rollout_id, a.text, a.pass_rate) for a in ledger.corpus(3)]
    assert told == [
        ("f", 2, "newer", "new", 0.5),
        ("h", 1, "rollout-h", "def …", 0.25),  # nothing was measured in iteration 2
        ("g", 1, "rollout-g", "def …", 0.0),
    ]


def test_an_iterations_own_answers_are_not_in_its_corpus(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(decision(1, accepted=False), 0.3, [outcome("f"), outcome("h")], {})
        ledger.commit(decision(2, accepted=False), 0.3, [outcome("g"), outcome("f", passed=0), outcome("h")], {})
        assert ledger.corpus(1) == []
        assert [(a.problem.entry_point, a.pass_rate) for a in ledger.corpus(2) if a.problem.entry_point == "f"] == [
            ("f", 0.25)
        ]
        assert sorted(a.problem.entry_point for a in ledger.corpus(3)) == ["f", "g", "h"]


def names(ledger: Ledger) -> list[str]:
    """Entry points of the corpus, the most useful first."""
    return [answer.problem.entry_point for answer in ledger.corpus(99)]


def test_the_corpus_is_bounded_and_keeps_what_is_solved_sometimes(path: Path) -> None:
    with open_ledger(path) as ledger:
        first = [outcome("easy", passed=8), outcome("hard", passed=1), outcome("even", passed=4)]
        ledger.commit(decision(1, accepted=False), 0.3, first, {}, 3)
        assert names(ledger) == ["even", "hard", "easy"]
        ledger.commit(decision(2, accepted=False), 0.3, [outcome("new", passed=2)], {}, 3)
        assert names(ledger) == ["new", "even", "hard"]
        ledger.commit(decision(3, accepted=False), 0.3, [outcome("solved", passed=8)], {}, 2)
        assert names(ledger) == ["new", "even"]
        ledger.commit(decision(4, accepted=False), 0.3, [outcome(f"f{i}") for i in range(9)], {}, 4)
        assert ledger.corpus_size() == 4
        assert len(ledger.tried_problems(before=99)) == 14  # what was asked before is known all the same


def test_what_is_old_leaves_the_corpus_however_useful_it_was_and_stays_when_it_is_tried_again(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(decision(1, accepted=False), 0.3, [outcome("old", passed=4), outcome("kept", passed=4)], {}, 4)
        for iteration in range(2, 8):
            tried = [outcome("kept", passed=4)] if iteration == 6 else []
            new = [outcome(f"f{iteration}", passed=8), outcome(f"g{iteration}", passed=8)]
            ledger.commit(decision(iteration, accepted=False), 0.3, [*tried, *new], {}, 4)
        assert "old" not in names(ledger)
        assert names(ledger)[0] == "kept"


def test_a_problem_with_other_cases_is_no_second_one_in_the_corpus(path: Path) -> None:
    with open_ledger(path) as ledger:
        before = outcome("f")
        cases = (*before.problem.cases, Case(input=[2], expected=3))
        after = before.model_copy(
            update={"problem": before.problem.model_copy(update={"cases": cases}), "passed_rollout_id": "after"}
        )
        ledger.commit(decision(1, accepted=False), 0.3, [before], {}, 9)
        ledger.commit(decision(2, accepted=False), 0.3, [after], {}, 9)
        assert [answer.rollout_id for answer in ledger.corpus(9)] == ["after"]
        assert ledger.corpus_size() == 1


def test_what_the_corpus_keeps_does_not_depend_on_the_order_of_the_problems(tmp_path: Path) -> None:
    """Nor on whether the bound was there from the start, or comes when all are in."""
    iterations = [[outcome(f"f{i}x{n}", passed=1 + (3 * n + i) % 8) for n in range(12)] for i in range(5)]

    def kept(place: str, bounds: list[int], turn: Callable[[list[ProblemOutcome]], list[ProblemOutcome]]) -> list[str]:
        with open_ledger(tmp_path / place) as ledger:
            ledger.begin(BASE, None)
            for number, (outcomes, bound) in enumerate(zip(iterations, bounds, strict=True), start=1):
                ledger.commit(decision(number, accepted=False), 0.3, turn(outcomes), {}, bound)
            return names(ledger)

    first = kept("a", [10] * 5, list)
    assert len(first) == 10
    assert kept("b", [10] * 5, lambda outcomes: outcomes[::-1]) == first
    assert kept("c", [999] * 4 + [10], list) == first


# -------------------------------------------------------------------------------------------------------- base, exams


def test_a_project_may_start_from_an_adapter(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.begin(BASE, FIRST)
        assert ledger.incumbent() == FIRST
        ledger.commit(decision(1, accepted=True, incumbent=FIRST), 0.3, [], {})
        ledger.begin(BASE, FIRST)
        assert ledger.incumbent() == adapter(1)


def test_another_base_model_is_refused_with_both_names(path: Path) -> None:
    with open_ledger(path) as ledger:
        with pytest.raises(UsageError, match=r"begun with the base model 'model', the config names 'other'"):
            ledger.begin(Base(name="other", fingerprint="g"), None)
        assert ledger.base() == BASE
    with pytest.raises(UsageError, match=r"begun with the base model 'model', the config names 'other'"):
        Pointers(Project(path.parent), PolicyRef(base="other", fingerprint="g"))


def test_the_same_base_model_under_another_name_is_fine(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.begin(Base(name="a copy of it", fingerprint="f"), None)
        assert ledger.base() == BASE


def test_an_exam_is_found_again_by_its_key_alone(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.save_exam("key", report())
    with open_ledger(path) as ledger:
        assert ledger.exam("key") == report()
        assert ledger.exam("other") is None
        ledger.save_exam("key", report(k=2, samples=2))
        assert ledger.exam("key") == report(k=2, samples=2)


def test_an_incomplete_exam_is_never_kept(path: Path) -> None:
    with open_ledger(path) as ledger:
        with pytest.raises(AssertionError):
            ledger.save_exam("key", report(samples=3))
        assert ledger.exam("key") is None


# ------------------------------------------------------------------------------------------------------ not to be used


def test_a_missing_ledger_is_not_made_for_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "ledger.sqlite"
    with (
        pytest.raises(LedgerError, match="does not exist: no iteration was run") as caught,
        open_ledger(path, create=False),
    ):
        pass
    assert caught.value.exit_code == 5
    assert not path.parent.exists()


def test_a_ledger_of_a_newer_version_is_left_alone(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    with (
        pytest.raises(LedgerError, match=r"newer version of rlm-flows \(schema 3, this one knows 2\)"),
        open_ledger(path),
    ):
        pass
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["garbage", "cut"])
def test_a_damaged_ledger_is_named(path: Path, damage: str) -> None:
    content = path.read_bytes()
    path.write_bytes(b"no database at all " * 100 if damage == "garbage" else content[: len(content) // 3])
    with pytest.raises(LedgerError, match=r"ledger\.sqlite.* is damaged"), open_ledger(path) as ledger:
        state_of(ledger)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE pointers SET adapter = '{'",
        "UPDATE iterations SET summary = '3'",
        "UPDATE iterations SET ended = x'00'",
        "DROP TABLE pointers",
        "DROP TABLE state",
    ],
)
def test_what_cannot_be_read_is_damage_with_its_way_out(path: Path, change: str) -> None:
    with open_ledger(path) as ledger:
        ledger.commit(decision(1, accepted=True), 0.3, [], {})
    connection = sqlite3.connect(path)
    connection.execute(change)
    connection.commit()
    connection.close()
    with (
        pytest.raises(LedgerError, match=r"ledger\.sqlite.* is damaged.*--rebuild-ledger"),
        open_ledger(path) as ledger,
    ):
        state_of(ledger)
        ledger.history()


def test_a_ledger_without_its_tables_is_damage_with_its_way_out(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.close()
    with pytest.raises(LedgerError, match=r"is damaged: no such table.*--rebuild-ledger"), open_ledger(path):
        pass


def test_a_locked_ledger_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, timeout: connect(path, timeout=timeout / 1_000))
    with open_ledger(path) as other:
        other._connection.execute("BEGIN EXCLUSIVE")
        with (
            pytest.raises(LedgerError, match=r"ledger\.sqlite: database is locked.*another process"),
            open_ledger(path),
        ):
            pass
    with open_ledger(path) as ledger:
        assert ledger.base() == BASE


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    inside_a_file = tmp_path / "file" / "ledger.sqlite"
    with pytest.raises(LedgerError, match=r"file/ledger\.sqlite cannot be opened: "), open_ledger(inside_a_file):
        pass


def test_a_directory_is_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="unable to open database file"), open_ledger(tmp_path):
        pass


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file"), UsageError("other"), ValueError("other")])
def test_what_others_do_wrong_while_it_is_open_is_not_the_ledgers_fault(path: Path, error: Exception) -> None:
    with pytest.raises(type(error)) as caught, open_ledger(path):
        raise error
    assert caught.value is error
