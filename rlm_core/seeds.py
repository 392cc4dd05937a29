"""Seeds that depend on what is sampled, never on when or beside what it is sampled."""

import hashlib


def derive_seed(*path: int | str) -> int:
    """A 63-bit seed from (project seed, iteration, stage, …, sample).

    The same path gives the same seed on every machine; different paths give independent seeds.
    """
    text = "/".join(str(part) for part in path)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
