"""The seccomp filter, run in a small BPF machine: what it allows on either processor, without having one."""

import platform
import re
import struct
from pathlib import Path

import pytest

from rlm_core.sandbox.inside import syscalls
from rlm_core.sandbox.inside.seccomp import ALLOW, DENY, KILL_PROCESS, NO_SUCH_CALL, build_filter, prepare

OWN_PID = 4321
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = pytest.mark.parametrize("machine", list(ARCHITECTURE))


def verdict(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the filter says of one call. Understands the instructions that it is made of."""
    data = number.to_bytes(4, "little") + (architecture or ARCHITECTURE[machine]).to_bytes(4, "little") + bytes(8)
    data += b"".join((argument % 2**64).to_bytes(8, "little") for argument in (*arguments, *[0] * (6 - len(arguments))))
    program = build_filter(machine, OWN_PID)
    accumulator = counter = 0
    while True:
        code, if_true, if_false, constant = program[counter]
        counter += 1
        if code == 0x20:
            accumulator = int.from_bytes(data[constant : constant + 4], "little")
        elif code == 0x54:
            accumulator &= constant
        elif code == 0x15:
            counter += if_true if accumulator == constant else if_false
        elif code == 0x25:
            counter += if_true if accumulator > constant else if_false
        elif code == 0x35:
            counter += if_true if accumulator >= constant else if_false
        elif code == 0x45:
            counter += if_true if accumulator & constant else if_false
        else:
            assert code == 0x06
            return constant


@MACHINES
def test_only_listed_calls_are_allowed(machine: str) -> None:
    numbers = syscalls.NUMBERS[machine]
    listed = {numbers[name] for name in [*syscalls.ALLOWED, *syscalls.ALLOWED_X86_64] if name in numbers}
    conditional = {numbers[name] for name in syscalls.CONDITIONAL}
    for number in set(range(600)) - conditional:
        assert verdict(machine, number) == (ALLOW if number in listed else DENY), number
    for number in (1 << 30, 1 << 30 | 1, 2**32 - 1):  # among them the x32 calls, which have a high bit
        assert verdict(machine, number) == DENY


@MACHINES
def test_the_filter_is_short_and_every_jump_fits_and_stays_inside(machine: str) -> None:
    program = build_filter(machine, OWN_PID)
    assert len(program) <= 130
    for place, (code, *jumps, _) in enumerate(program):
        assert code == 0x06 or all(0 <= jump <= 255 and place + 1 + jump < len(program) for jump in jumps)


@MACHINES
def test_another_architecture_ends_the_process(machine: str) -> None:
    for other in (0x40000003, 0x40000028, ARCHITECTURE["aarch64" if machine == "x86_64" else "x86_64"]):
        assert verdict(machine, 1, architecture=other) == KILL_PROCESS


CLONE_OF_A_THREAD, CLONE_OF_FORK, CLONE_OF_VFORK, CLONE_NEWUSER = 0x3D0F00, 0x1200011, 0x4111, 0x10000000
F_SETFD, F_SETOWN, F_SETSIG, F_SETLK = 2, 8, 10, 6
AF_UNIX, AF_INET, STREAM, DATAGRAM, CLOEXEC = 1, 2, 1, 2, 0o2000000


@MACHINES
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("clone", (CLONE_OF_A_THREAD,), ALLOW),
        ("clone", (CLONE_OF_FORK,), DENY),
        ("clone", (CLONE_OF_VFORK,), DENY),
        ("clone", (CLONE_NEWUSER | 17,), DENY),
        ("clone3", (0, 88), NO_SUCH_CALL),
        ("kill", (OWN_PID, 6), ALLOW),
        ("kill", (1, 9), DENY),
        ("kill", (0, 9), DENY),
        ("kill", (-1, 9), DENY),
        ("tgkill", (OWN_PID, OWN_PID, 6), ALLOW),
        ("tgkill", (OWN_PID + 1, OWN_PID, 6), DENY),
        ("prlimit64", (0, 7), ALLOW),
        ("prlimit64", (1, 7), DENY),
        ("prctl", (15,), ALLOW),
        ("prctl", (1, 0), DENY),
        ("prctl", (4, 1), DENY),
        ("ioctl", (1, 0x5401), ALLOW),
        ("ioctl", (1, 0x5412), DENY),
        ("fcntl", (3, F_SETFD, 1), ALLOW),
        ("fcntl", (3, F_SETOWN, 1), DENY),
        ("fcntl", (3, F_SETSIG, 9), DENY),
        ("fcntl", (3, F_SETLK, 0), DENY),
        ("socketpair", (AF_UNIX, STREAM | CLOEXEC), ALLOW),
        ("socketpair", (AF_UNIX, DATAGRAM), DENY),
        ("socketpair", (AF_INET, STREAM), DENY),
        ("sendto", (3, 0, 1, 0, 0, 0), ALLOW),
        ("sendto", (3, 0, 1, 0, 0x7F0000001000, 16), DENY),
        ("sendto", (3, 0, 1, 0, 0x7F00_0000_0000, 16), DENY),
    ],
)
def test_arguments_decide(machine: str, name: str, arguments: tuple[int, ...], expected: int) -> None:
    assert verdict(machine, syscalls.NUMBERS[machine][name], *arguments) == expected


@pytest.mark.parametrize(
    ("machine", "header"),
    [
        ("x86_64", Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")),
        ("aarch64", Path("/usr/include/asm-generic/unistd.h")),
    ],
)
def test_numbers_are_those_of_the_kernel_headers(machine: str, header: Path) -> None:
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    found = re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", header.read_text())
    official = {name: int(number) for name, number in found}
    official.setdefault("newfstatat", official.get("fstatat", -1))
    assert {name: official[name] for name in syscalls.NUMBERS[machine]} == syscalls.NUMBERS[machine]


@MACHINES
def test_every_name_has_a_number(machine: str) -> None:
    names = {*syscalls.ALLOWED, *syscalls.CONDITIONAL, *(syscalls.ALLOWED_X86_64 if machine == "x86_64" else ())}
    assert names <= syscalls.NUMBERS[machine].keys()


def test_nothing_that_makes_or_reaches_others_is_listed() -> None:
    dangerous = "execve execveat fork vfork socket connect bind sendmsg ptrace open_by_handle_at chmod fchmodat unlink"
    dangerous += " unlinkat rename renameat2 truncate mount unshare setns bpf io_uring_setup memfd_create setuid capset"
    assert not set(dangerous.split()) & {*syscalls.ALLOWED, *syscalls.ALLOWED_X86_64, *syscalls.CONDITIONAL}


def test_the_prepared_filter_is_the_one_for_the_process_that_it_gets() -> None:
    if platform.machine() not in syscalls.NUMBERS:
        pytest.skip("there is no filter for this processor")
    packed, places = prepare()
    patched = bytearray(packed)
    for place in places:
        struct.pack_into("=I", patched, place, OWN_PID)
    expected = build_filter(platform.machine(), OWN_PID)
    assert patched == b"".join(struct.pack("=HBBI", *instruction) for instruction in expected)
    assert len(places) == 2  # kill and tgkill
