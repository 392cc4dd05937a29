"""Where the program keeps what it fetched or compiled, for all projects of a user."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """Where downloads and compiled files are kept: $RLM_CACHE, or the user's cache directory."""
    if chosen := os.environ.get("RLM_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "rlm-flows"
