"""Files are whole or absent, and records come back as they were written."""

import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_core.errors import StageFailed
from rlm_core.files import (
    digest,
    read_jsonl,
    read_record,
    remove_partial_files,
    sha256_if_written,
    sha256_of,
    write_atomic,
    write_json,
    write_jsonl,
    write_record,
    write_text,
)
from rlm_core.records import CaseResult, Rejection

RECORD = Rejection(stage="filter", rule="duplicate", reason="ü", value="f of the bank", limit="none", proposal="{}")


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_writer_that_raises_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.txt", "old")

    def write(temporary: Path) -> None:
        temporary.write_text("half of the n")
        raise RuntimeError("the writer broke")

    with pytest.raises(RuntimeError, match="the writer broke"):
        write_atomic(path, write)
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["a.txt"]


def test_a_full_disk_while_writing_fails_the_stage_and_keeps_the_old_content(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.txt", "old")
    with pytest.raises(StageFailed, match=r"cannot write .*a\.txt: No space left on device") as caught:
        write_atomic(path, no_space)
    assert caught.value.exit_code == 6
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["a.txt"]


def test_a_full_disk_while_flushing_fails_the_stage_and_keeps_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_text(tmp_path / "a.txt", "old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        with pytest.raises(StageFailed, match=r"cannot write .*a\.txt: No space left on device"):
            write_text(path, "new")
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["a.txt"]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StageFailed, match=r"cannot write .*/file/deep/a\.json: "):
        write_json(tmp_path / "file" / "deep" / "a.json", {})


def test_missing_directories_are_made_and_the_file_is_readable_for_all(tmp_path: Path) -> None:
    path = write_json(tmp_path / "new" / "deep" / "a.json", {"b": "ü", "a": 1})
    assert path.read_text(encoding="utf-8") == '{\n  "a": 1,\n  "b": "ü"\n}\n'
    assert path.stat().st_mode & 0o777 == 0o644


def test_the_temporary_file_keeps_the_suffix_and_stands_beside_the_target(tmp_path: Path) -> None:
    seen: list[Path] = []

    def write(temporary: Path) -> None:
        seen.append(temporary)
        temporary.write_bytes(b"x")

    write_atomic(tmp_path / "weights.safetensors", write)
    assert (seen[0].parent, seen[0].suffix) == (tmp_path, ".safetensors")


@settings(max_examples=40)
@given(texts=st.lists(st.text(), max_size=5))
def test_json_lines_come_back_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip.jsonl"
    records = [RECORD.model_copy(update={"proposal": text}) for text in texts]
    write_jsonl(path, records)
    assert list(read_jsonl(path, Rejection)) == records


def test_unusual_line_ends_inside_a_text_do_not_end_a_line(tmp_path: Path) -> None:
    record = RECORD.model_copy(update={"proposal": "a\nb\rc\x0bd\x0ce\x1cf\x85g\u2028h\u2029i"})
    path = write_jsonl(tmp_path / "a.jsonl", [record, record])
    assert list(read_jsonl(path, Rejection)) == [record, record]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "Invalid JSON"),
        ('{"outcome": "passed", "detail": 3}', "detail: Input should be a valid string"),
        ('{"outcome": "passed", "extra": 1}', "extra: Extra inputs are not permitted"),
        ("", "Invalid JSON"),
    ],
)
def test_a_broken_line_is_named_by_its_number(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"outcome": "passed"}\n' + line + '\n{"outcome": "failed"}\n')
    with pytest.raises(StageFailed, match=r"a\.jsonl:2 is not a readable CaseResult: .*" + reason):
        list(read_jsonl(path, CaseResult))


def test_lines_before_a_broken_one_are_still_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"outcome": "passed"}\n{')
    lines = read_jsonl(path, CaseResult)
    assert next(lines) == CaseResult(outcome="passed")
    with pytest.raises(StageFailed):
        next(lines)


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    assert read_record(write_record(tmp_path / "a.json", RECORD), Rejection) == RECORD


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageFailed, match=r"none\.json is not a readable Rejection: .*No such file"):
        read_record(tmp_path / "none.json", Rejection)
    with pytest.raises(StageFailed, match=r"cannot read .*none\.jsonl: No such file"):
        list(read_jsonl(tmp_path / "none.jsonl", Rejection))


def test_digests_never_change_between_versions() -> None:
    # printf '["a",1]' | sha256sum; printf '[{"a":1,"b":[2,"é"]}]' | sha256sum
    assert digest("a", 1) == "135f17a475a61afd"
    assert digest({"b": [2, "é"], "a": 1}) == "8ecfabbc5d4ede0b"


def test_a_digest_depends_on_values_types_and_places_but_not_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": {"c": 2, "d": 3}}) == digest({"b": {"d": 3, "c": 2}, "a": 1})
    different = [("a", "b"), ("b", "a"), ("ab",), (["a", "b"],), (1,), (1.0,), (True,), ("1",), (None,), ()]
    assert len({digest(*parts) for parts in different}) == len(different)


def test_a_lone_surrogate_has_a_digest() -> None:
    assert digest("\ud800") != digest("\ud801")


@pytest.mark.parametrize("content", [b"", b"abc", bytes(range(256)) * 5_000], ids=len)
def test_the_sha256_of_a_file_is_that_of_its_bytes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(content)
    assert sha256_of(path) == hashlib.sha256(content).hexdigest()


def test_a_large_file_is_read_again_only_when_it_was_written_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = tmp_path / "a.bin", list[Path]()

    def noted(path: Path) -> str:
        read.append(path)
        return sha256_of(path)

    monkeypatch.setattr("rlm_core.files.sha256_of", noted)
    path.write_bytes(b"abc")
    assert sha256_if_written(path) == sha256_if_written(path) == sha256_of(path)
    assert len(read) == 1
    before = path.stat()
    path.write_bytes(b"abd")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sha256_if_written(path) == sha256_of(path)
    assert len(read) == 2


def test_what_a_living_writer_has_not_finished_stays(tmp_path: Path) -> None:
    """Exams and reports are written without holding the project."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from rlm_core.files import write_atomic\n"
        "def write(temporary):\n"
        "    with temporary.open('w') as file:\n"
        "        print('writing', flush=True)\n"
        "        file.write(sys.stdin.readline())\n"
        "write_atomic(Path(sys.argv[1]), write)"
    )
    path = tmp_path / "report.html"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        remove_partial_files(tmp_path)
        writer.communicate("whole")
    assert writer.returncode == 0
    assert path.read_text() == "whole"


def test_the_entries_of_directories_that_are_made_reach_the_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, flushed = os.fsync, list[int]()

    def fsync(handle: int) -> None:
        flushed.append(os.fstat(handle).st_ino)
        flush(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    path = write_text(tmp_path / "runs" / "0002" / "a.json", "{}")
    places = [tmp_path, tmp_path / "runs", path, path.parent]
    assert flushed == [place.stat().st_ino for place in places]


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    kept = write_text(tmp_path / "runs" / "a.jsonl", "whole")
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from rlm_core.files import write_atomic\n"
        "write_atomic(Path(sys.argv[1]), lambda temporary: os.kill(os.getpid(), 9))"
    )
    assert subprocess.run([sys.executable, "-c", script, str(kept)], check=False).returncode == -9
    assert len(names_in(kept.parent)) == 2
    remove_partial_files(tmp_path)
    assert names_in(kept.parent) == ["a.jsonl"]
    assert kept.read_text() == "whole"
