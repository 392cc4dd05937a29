"""The Seatbelt profile: what it says of a table of attempts, and how it is handed to the library of macOS."""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlm_core.sandbox import Limits
from rlm_core.sandbox.backends import seatbelt as backend
from rlm_core.sandbox.inside import seatbelt
from rlm_core.sandbox.inside.errors import LockdownError
from rlm_core.sandbox.interpreter import DEVICES, Interpreter
from rlm_core.sandbox.zygote import _rules

from .profiles import Attempt, allowed, parse

SMALL = {
    "readable": ["/py/lib/python3.12/os.py", "/py/lib/python3.12/json"],
    "listable": ["/py/lib"],
    "devices": ["/dev/null"],
}


def test_the_variable_part_of_the_profile_is_this() -> None:
    text, parameters = seatbelt.profile(SMALL)
    assert (
        text.removeprefix(seatbelt._FIXED)
        == """
(allow file-read* file-map-executable
  (subpath (param "READABLE0"))
  (subpath (param "READABLE1")))

(allow file-read-data file-read-metadata
  (require-all (subpath (param "LISTABLE0")) (vnode-type DIRECTORY)))

(allow file-read* file-write-data
  (require-all (literal (param "DEVICE0")) (vnode-type CHARACTER-DEVICE)))

(allow file-read-metadata
  (literal (param "ANCESTOR0"))
  (literal (param "ANCESTOR1"))
  (literal (param "ANCESTOR2")))
"""
    )
    assert parameters == {
        "READABLE0": "/py/lib/python3.12/os.py",
        "READABLE1": "/py/lib/python3.12/json",
        "LISTABLE0": "/py/lib",
        "DEVICE0": "/dev/null",
        "ANCESTOR0": "/py",
        "ANCESTOR1": "/py/lib",
        "ANCESTOR2": "/py/lib/python3.12",
    }


def test_the_first_rule_denies_everything() -> None:
    assert parse(seatbelt._FIXED)[:2] == [["version", "1"], ["deny", "default"]]


def test_nothing_to_allow_is_not_everything_allowed() -> None:
    """A rule without filters would apply to all paths."""
    text, parameters = seatbelt.profile({"readable": [], "listable": [], "devices": []})
    for operation in ("file-read-data", "file-read-metadata", "file-write-data", "file-map-executable"):
        assert not allowed(text, parameters, Attempt(operation, "/Users/me/secret"))


@pytest.mark.parametrize("path", ['/a") (allow default) ("', "/a\\", "/a\nb", "/ä b;c"])
def test_a_path_cannot_become_a_rule(path: str) -> None:
    text, parameters = seatbelt.profile(SMALL | {"readable": [path]})
    assert text.removeprefix(seatbelt._FIXED).count("READABLE") == 1
    assert parameters["READABLE0"] == path
    assert path not in text
    assert not allowed(text, parameters, Attempt("network-outbound"))
    assert allowed(text, parameters, Attempt("file-read-data", path))


# ------------------------------------------------------------------------------------------------------- attempts


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An installed Python with a package, and a secret beside it."""
    library = tmp_path / "py" / "lib" / "python3.12"
    for name in ("os.py", "lib-dynload/_bz2.so", "json/decoder.py", "site-packages/rlm_core/bank/holdout.yaml"):
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).touch()
    (tmp_path / "py" / "secret").touch()
    return library


ATTEMPTS = [
    # Files of the interpreter, of the system, and all others. LIB is the standard library's directory.
    ("file-read-data LIB/os.py", True),
    ("file-read-metadata LIB/os.py", True),
    ("file-read-data LIB/json/decoder.py", True),
    ("file-map-executable LIB/lib-dynload/_bz2.so", True),
    ("file-read-data LIB DIRECTORY", True),
    ("file-read-data LIB/json DIRECTORY", True),
    ("file-read-data LIB/site-packages/rlm_core/bank/holdout.yaml", False),
    ("file-read-metadata LIB/site-packages/rlm_core/bank/holdout.yaml", False),
    ("file-map-executable LIB/site-packages/rlm_core/bank/holdout.yaml", False),
    ("file-read-data LIB/../../secret", False),
    ("file-read-data TMP/py/secret", False),
    ("file-read-metadata TMP/py/secret", False),
    ("file-read-metadata TMP/py DIRECTORY", True),
    ("file-read-data TMP/py DIRECTORY", False),
    ("file-read-data TMP DIRECTORY", False),
    ("file-read-data / DIRECTORY", True),
    ("file-read-data /Users DIRECTORY", False),
    ("file-read-data /Users/me/.ssh/id_ed25519", False),
    ("file-read-metadata /Users/me/.ssh/id_ed25519", False),
    ("file-read-data /private/etc/passwd", False),
    ("file-read-data /Library/Keychains/System.keychain", False),
    ("file-read-data /usr/lib/libSystem.B.dylib", True),
    ("file-map-executable /usr/lib/libSystem.B.dylib", True),
    ("file-read-data /usr/libexec/secret", False),
    ("file-read-data /usr/share/zoneinfo/Europe/Berlin", True),
    ("file-read-data /private/var/db/timezone/tz/2026a.1.0/zoneinfo/Europe/Berlin", True),
    ("file-read-data /private/var/db/dyld/dyld_shared_cache_arm64e", True),
    ("file-read-data /System/Volumes/Preboot/Cryptexes/OS/System/Library/dyld/dyld_shared_cache_arm64e", True),
    ("file-read-metadata /var SYMLINK", True),
    # Writing.
    ("file-write-data /dev/null CHARACTER-DEVICE", True),
    ("file-write-data /dev/null REGULAR-FILE", False),
    ("file-write-data /dev/disk0 BLOCK-DEVICE", False),
    ("file-write-data /dev/ttys000 CHARACTER-DEVICE", False),
    ("file-read-data /dev/urandom CHARACTER-DEVICE", True),
    ("file-write-data LIB/os.py", False),
    ("file-write-create /private/tmp/new", False),
    ("file-write-unlink LIB/os.py", False),
    ("file-write-mode LIB/os.py", False),
    ("file-write-owner LIB/os.py", False),
    ("file-write-times LIB/os.py", False),
    ("file-write-xattr LIB/os.py", False),
    ("file-write-mode /dev/null CHARACTER-DEVICE", False),
    ("file-ioctl /dev/ttys000 CHARACTER-DEVICE", False),
    # All that is not a file.
    ("process-fork", False),
    ("process-exec LIB/os.py", False),
    ("process-exec-interpreter LIB/os.py", False),
    ("network-outbound", False),
    ("network-bind", False),
    ("network-inbound", False),
    ("system-socket", False),
    ("mach-lookup", False),
    ("mach-register", False),
    ("mach-priv-task-port", False),
    ("ipc-posix-shm-write-create", False),
    ("ipc-posix-sem-create", False),
    ("ipc-sysv-shm", False),
    ("iokit-open", False),
    ("iokit-get-properties", False),
    ("nvram-get", False),
    ("user-preference-read", False),
    ("lsopen", False),
    ("appleevent-send", False),
    ("job-creation", False),
]  # fmt: skip


@pytest.fixture
def profile(python: Path) -> tuple[str, dict[str, str]]:
    """The profile that the backend gives a sandbox with that Python."""
    interpreter = Interpreter(python.parents[1] / "bin" / "python3.12", (python.parent,), (python / "site-packages",))
    return seatbelt.profile(_rules(backend.BACKEND.launch(interpreter), Limits(), "code"))


@pytest.mark.parametrize(("attempt", "may"), ATTEMPTS, ids=lambda value: str(value))
def test_an_attempt_is_allowed_or_denied(
    profile: tuple[str, dict[str, str]], python: Path, attempt: str, may: bool
) -> None:
    operation, *rest = attempt.replace("LIB", str(python)).replace("TMP", str(python.parents[2])).split()
    assert allowed(*profile, Attempt(operation, *rest)) == may


@pytest.mark.parametrize("device", DEVICES)
def test_devices_can_be_read_and_written(profile: tuple[str, dict[str, str]], device: str) -> None:
    for operation in ("file-read-data", "file-write-data"):
        assert allowed(*profile, Attempt(operation, device, "CHARACTER-DEVICE"))


def test_a_package_that_is_asked_for_can_be_read(python: Path) -> None:
    interpreter = Interpreter(
        python.parents[1] / "bin" / "python3.12", (python.parent,), (python / "site-packages",),
        (python / "site-packages" / "pluggy",),
    )  # fmt: skip
    profile = seatbelt.profile(_rules(backend.BACKEND.launch(interpreter), Limits(), "tests"))
    assert allowed(*profile, Attempt("file-read-data", f"{python}/site-packages/pluggy/__init__.py"))
    assert allowed(*profile, Attempt("file-read-data", f"{python}/site-packages/pluggy", "DIRECTORY"))
    assert not allowed(*profile, Attempt("file-read-data", f"{python}/site-packages/rlm_core/bank/holdout.yaml"))


@pytest.mark.parametrize(
    ("operation", "target", "may"),
    [
        ("signal", "self", True),
        ("signal", "others", False),
        ("process-info-pidinfo", "self", True),
        ("process-info-pidinfo", "others", False),
        ("process-info-pidfdinfo", "others", False),
        ("process-info-listpids", "others", False),
    ],
)
def test_other_processes_are_out_of_reach(
    profile: tuple[str, dict[str, str]], operation: str, target: str, may: bool
) -> None:
    assert allowed(*profile, Attempt(operation, target=target)) == may


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("hw.ncpu", True),
        ("kern.osrelease", True),
        ("kern.procargs2", False),
        ("kern.procargs2.501", False),
        ("kern.proc.all", False),
        ("kern.proc.pid.1", False),
        ("net.routetable.0", False),
        ("hw.uuid", False),
    ],
)
def test_facts_of_the_kernel_are_told_one_by_one(profile: tuple[str, dict[str, str]], name: str, may: bool) -> None:
    assert allowed(*profile, Attempt("sysctl-read", name=name)) == may


def test_no_rule_covers_a_whole_family_of_facts() -> None:
    """Others measured that one such rule gives away the environment of other processes, whatever is denied beside."""
    rules = [form for form in parse(seatbelt._FIXED) if form[:2] == ["allow", "sysctl-read"]]
    assert rules
    for rule in rules:
        assert {filter_name for filter_name, _name in rule[2:]} == {"sysctl-name"}


def test_objects_of_system_v_are_denied_as_calls() -> None:
    for call in ("SYS_semget", "SYS_shmget", "SYS_msgget"):
        denied = ["syscall-number", "SYS_semget", "SYS_shmget", "SYS_msgget", "SYS_semsys", "SYS_shmsys", "SYS_msgsys"]
        assert ["when", ["defined?", "syscall-unix"], ["deny", "syscall-unix", denied]] in parse(seatbelt._FIXED)
        assert not allowed(seatbelt._FIXED, {}, Attempt("syscall-unix", name=call))


@pytest.mark.parametrize("text", ["(a", "a)", '(a "b)'])
def test_the_reader_of_profiles_is_strict(text: str) -> None:
    with pytest.raises(ValueError, match=r"bracket|token"):
        parse(text)


# ----------------------------------------------------------------------------------------------------- the library

HANDLE, COMPILED = 0x7F00_1234_5678, 0x7F00_8765_4321
"""Addresses that need more than 32 bits, as those of macOS do."""


class Library:
    """C functions of the types that Chromium declares for them, called through the foreign function interface."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.message: bytes | None = None
        self.set_result = self.apply_result = 0
        address, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
        self.sandbox_create_params = ctypes.CFUNCTYPE(address)(lambda: HANDLE)
        self.sandbox_set_param = ctypes.CFUNCTYPE(number, address, text, text)(self._set)
        self.sandbox_free_params = ctypes.CFUNCTYPE(None, address)(lambda handle: self.calls.append(("free", handle)))
        self.sandbox_compile_string = ctypes.CFUNCTYPE(address, text, address, ctypes.POINTER(text))(self._compile)
        self.sandbox_apply = ctypes.CFUNCTYPE(number, address, use_errno=True)(self._apply)

    def _set(self, handle: int, name: bytes, value: bytes) -> int:
        self.calls.append(("set", handle, name, value))
        return self.set_result

    def _compile(self, text: bytes, handle: int, message: Any) -> int | None:
        self.calls.append(("compile", text, handle))
        message[0] = self.message
        return COMPILED if self.message is None else None

    def _apply(self, compiled: int) -> int:
        self.calls.append(("apply", compiled))
        ctypes.set_errno(1)
        return self.apply_result


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    fake = Library()

    def load(path: str, use_errno: bool) -> Library:
        assert (path, use_errno) == ("/usr/lib/libsandbox.1.dylib", True)
        return fake

    monkeypatch.setattr(ctypes, "CDLL", load)
    seatbelt.library.cache_clear()
    yield fake
    seatbelt.library.cache_clear()


def test_a_profile_is_compiled_with_its_parameters_and_applied(library: Library) -> None:
    compiled = seatbelt.compile_profile(SMALL)
    seatbelt.restrict(compiled)
    text, parameters = seatbelt.profile(SMALL)
    assert library.calls == [
        *(("set", HANDLE, name.encode(), path.encode()) for name, path in parameters.items()),
        ("compile", text.encode(), HANDLE),
        ("free", HANDLE),
        ("apply", COMPILED),
    ]


def test_a_path_that_is_no_text_is_handed_over_as_its_bytes(library: Library) -> None:
    seatbelt.compile_profile(SMALL | {"readable": ["/py/\udcff"]})
    assert ("set", HANDLE, b"READABLE0", b"/py/\xff") in library.calls


def test_a_profile_that_does_not_compile_says_why_in_one_line(library: Library) -> None:
    library.message = b"<input string>:7:2:\n\tunbound variable: nvram*"
    with pytest.raises(LockdownError, match=r"does not compile: <input string>:7:2: unbound variable: nvram\*$"):
        seatbelt.compile_profile(SMALL)
    assert library.calls[-1] == ("free", HANDLE)


def test_a_parameter_that_is_refused_stops_everything(library: Library) -> None:
    library.set_result = -1
    with pytest.raises(LockdownError, match="cannot have the parameter"):
        seatbelt.compile_profile(SMALL)
    assert not any(call[0] == "compile" for call in library.calls)


def test_a_profile_that_is_not_applied_stops_everything(library: Library) -> None:
    library.apply_result = -1
    with pytest.raises(LockdownError, match="sandbox_apply: Operation not permitted"):
        seatbelt.restrict(COMPILED)


def test_a_library_without_a_function_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    seatbelt.library.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda _path, use_errno: SimpleNamespace())  # noqa: ARG005
    with pytest.raises(LockdownError, match="sandbox_create_params"):
        seatbelt.library()
