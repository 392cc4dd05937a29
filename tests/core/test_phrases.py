"""What pages and commands say in the same words."""

import pytest

from rlm_core.phrases import p_text


@pytest.mark.parametrize(
    ("p", "text"), [(1.0, "= 1.0000"), (0.00005, "= 0.0001"), (0.00004, "< 0.0001"), (0.0, "< 0.0001")]
)
def test_no_p_value_is_written_as_zero(p: float, text: str) -> None:
    assert p_text(p, "= ") == text
