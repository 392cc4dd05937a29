"""Seeds depend on their path alone, on every machine."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from rlm_core.seeds import derive_seed


def test_seeds_never_change_between_versions() -> None:
    # printf '7/3/rollout' | b2sum -l 64, without its last bit
    assert derive_seed(7, 3, "rollout") == 0x5FCA04588CBE78CA >> 1
    assert derive_seed(7, 3, "rollout", "abc", 0) == 0x19A6A16AC77AA6C2 >> 1


@given(path=st.lists(st.integers() | st.text(), max_size=5))
def test_a_seed_fits_where_seeds_are_taken(path: list[int | str]) -> None:
    assert 0 <= derive_seed(*path) < 2**63
    assert derive_seed(*path) == derive_seed(*path)


def test_different_paths_give_different_seeds() -> None:
    paths = [
        (seed, iteration, stage, i) for seed in range(5) for iteration in range(5) for stage in "ab" for i in range(20)
    ]
    assert len({derive_seed(*path) for path in paths}) == len(paths)
    assert len({derive_seed(*path) for path in permutations("1abc")}) == 24
    assert len({derive_seed(1, 11), derive_seed(11, 1), derive_seed(111), derive_seed(1, 1, 1)}) == 4


def test_the_bits_of_neighbouring_seeds_are_unrelated() -> None:
    flipped = [(derive_seed(0, i) ^ derive_seed(0, i + 1)).bit_count() for i in range(200)]
    assert 28 < sum(flipped) / len(flipped) < 35  # 31.5 of 63 on average
