"""What pages and commands say in the same words."""

import pytest
from pydantic import JsonValue

from rlm_core.phrases import figures_in_words, p_text


@pytest.mark.parametrize(
    ("p", "text"), [(1.0, "= 1.0000"), (0.00005, "= 0.0001"), (0.00004, "< 0.0001"), (0.0, "< 0.0001")]
)
def test_no_p_value_is_written_as_zero(p: float, text: str) -> None:
    assert p_text(p, "= ") == text


def test_a_stages_figures_are_words_and_rounded_numbers() -> None:
    trained: dict[str, JsonValue] = {
        "steps": 6,
        "reward_mean": 0.4583333333,
        "duration_s": 6.013673470006324,
        "losses": [1.0],
    }
    assert figures_in_words(trained) == "steps 6, reward mean 0.458, duration 6.014 s"
    sat: dict[str, JsonValue] = {
        "who": "base",
        "reused": False,
        "pass_at": {"1": 0.16129, "2": 0.25},
        "tokens": 1234567,
        "reward": 4.0,
    }
    assert figures_in_words(sat) == "who base, reused no, pass at 1 = 0.161, 2 = 0.25, tokens 1234567, reward 4"
