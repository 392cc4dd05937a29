"""The defaults that `rlm init --from` takes for mlxsmith's are those of mlxsmith."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rlm_core.mlxsmith.keys import KEYS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_every_key_has_the_default_that_it_has_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path)]
    subprocess.run([*command, "mlxsmith==0.1.0"], check=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        source = archive.read("mlxsmith/config_models.py")
    names: dict[str, Any] = {"__name__": "config_models"}
    exec(compile(source.replace(b"from __future__ import annotations", b""), "config_models.py", "exec"), names)
    sections = names["ProjectConfig"]().to_dict()
    theirs = {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}
    assert {name: key.default for name, key in KEYS.items()} == theirs
