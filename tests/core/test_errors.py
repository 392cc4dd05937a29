"""What others say becomes part of a line of ours."""

import pytest

from rlm_core.errors import one_line


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("two\n  lines\r\n", "two lines"),
        ("API request to https://me:pa@ss@host/api failed", "API request to https://…@host/api failed"),
        ("http://token@a:1 and http://b/?user=c@d", "http://…@a:1 and http://b/?user=c@d"),
        (ValueError("postgresql+asyncpg://u:p@h/db"), "postgresql+asyncpg://…@h/db"),
    ],
)
def test_it_is_one_line_without_passwords_in_addresses(said: object, line: str) -> None:
    assert one_line(said) == line


def test_a_password_is_not_shown_by_being_cut_in_the_middle() -> None:
    assert one_line("to http://user:password@host", 20) == "to http://…@host"
