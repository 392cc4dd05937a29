"""The system calls that a child may still make: a seccomp filter, an allow-list, default "operation not permitted".

The filter is a classic BPF program over `struct seccomp_data` (nr, arch, instruction pointer, six 64-bit arguments):
man seccomp(2), linux/filter.h. Calls that are refused fail with an error that Python raises as an OSError, so honest
code that tries something forbidden gets an exception, not a dead process.
"""

import ctypes
import errno
import os
import platform
import struct
from functools import cache

from . import syscalls
from .errors import LockdownError
from .kernel import no_new_privileges, syscall

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
DENY = _ERRNO | errno.EPERM
NO_SUCH_CALL = _ERRNO | errno.ENOSYS

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQUAL, _JUMP_ABOVE, _JUMP_AT_LEAST, _JUMP_ANY_BIT = 0x15, 0x25, 0x35, 0x45
_OFFSET_NR, _OFFSET_ARCH, _OFFSET_ARGUMENTS = 0, 4, 16
_SET_MODE_FILTER = 1

_CLONE_THREAD = 0x00010000
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE_MASK = 1, 1, 0xF
_PRCTL_NAMES = (15, 16)
"""PR_SET_NAME and PR_GET_NAME: what naming a thread needs."""
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX: isatty, terminal size, flags of one's own descriptors."""
_FCNTLS = (0, 1, 2, 3, 4, 1030, 1032)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_GETPIPE_SZ. Not F_SETOWN and F_SETSIG, with which a
process has the kernel send any signal to another process of its user."""

_Instruction = tuple[int, int, int, int]
"""Operation code, jump when true, jump when false, constant."""
_SOME_PID = 0x7FFFFFFE
"""Stands for the process id in the filter that is prepared; no process has it, and no other constant is the same."""
_ALLOW, _DENY = -1, -2
"""Jumps to the two last instructions, wherever they come to stand; others are so many instructions forward."""


def build_filter(machine: str, own_pid: int) -> list[_Instruction]:
    """The filter's instructions for a machine ("x86_64" or "aarch64") and the process that it will hold.

    Short, because every child pays for it: the kernel takes 0.1 ms for some 100 instructions and 0.6 for 300.
    """
    numbers = syscalls.NUMBERS[machine]
    unconditional = [*syscalls.ALLOWED, *(syscalls.ALLOWED_X86_64 if machine == "x86_64" else ())]
    program = [
        _load(_OFFSET_ARCH),
        # Another architecture's numbers would mean other calls (32-bit code on x86_64): no further than here.
        (_JUMP_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        _return(KILL_PROCESS),
        _load(_OFFSET_NR),
    ]
    for name, body in _conditions(own_pid).items():
        program += [(_JUMP_EQUAL, 0, len(body), numbers[name]), *body]
    # glibc tries clone3, whose flags are in memory where no filter can see them, and falls back to clone on this error.
    program += [(_JUMP_EQUAL, 0, 1, numbers["clone3"]), _return(NO_SUCH_CALL)]
    program += _allow_numbers(sorted(numbers[name] for name in unconditional))
    program += [_return(DENY), _return(ALLOW)]
    return [_resolved(instruction, place, len(program)) for place, instruction in enumerate(program)]


def _allow_numbers(numbers: list[int]) -> list[_Instruction]:
    """Allow calls by their numbers, which are ascending; runs of them take two instructions, single ones one."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    program: list[_Instruction] = []
    for low, high in runs:
        if low == high:
            program.append((_JUMP_EQUAL, _ALLOW, 0, low))
        else:  # above the run: look further; else it is in the run, or below it and above the one before
            program += [(_JUMP_ABOVE, 1, 0, high), (_JUMP_AT_LEAST, _ALLOW, _DENY, low)]
    return program


def _resolved(instruction: _Instruction, place: int, length: int) -> _Instruction:
    """The instruction with its jumps counted from where it stands."""
    code, if_true, if_false, constant = instruction
    ends = {_ALLOW: length - 2 - place, _DENY: length - 3 - place}
    return code, ends.get(if_true, if_true), ends.get(if_false, if_false), constant


def _conditions(own_pid: int) -> dict[str, list[_Instruction]]:
    """For each call that is allowed with some arguments only: instructions that end with a jump to allow or deny."""
    return {
        "clone": [_load_argument(0), (_JUMP_ANY_BIT, _ALLOW, _DENY, _CLONE_THREAD)],
        "kill": _allow_if_argument(0, own_pid),
        "tgkill": _allow_if_argument(0, own_pid),
        "prlimit64": _allow_if_argument(0, 0),
        "prctl": _allow_if_argument(0, *_PRCTL_NAMES),
        "ioctl": _allow_if_argument(1, *_IOCTLS),
        "fcntl": _allow_if_argument(1, *_FCNTLS),
        # A connected pair of streams can reach nobody else; asyncio makes one to wake itself up.
        "socketpair": [
            _load_argument(0),
            (_JUMP_EQUAL, 0, _DENY, _AF_UNIX),
            _load_argument(1),
            (_AND, 0, 0, _SOCK_TYPE_MASK),
            (_JUMP_EQUAL, _ALLOW, _DENY, _SOCK_STREAM),
        ],
        # Only without a destination address.
        "sendto": [
            _load_argument(4),
            (_JUMP_EQUAL, 0, _DENY, 0),
            _load_argument(4, high=True),
            (_JUMP_EQUAL, _ALLOW, _DENY, 0),
        ],
    }


def _allow_if_argument(index: int, *values: int) -> list[_Instruction]:
    *others, last = values
    checks = [(_JUMP_EQUAL, _ALLOW, 0, value) for value in others]
    return [_load_argument(index), *checks, (_JUMP_EQUAL, _ALLOW, _DENY, last)]


def _load(offset: int) -> _Instruction:
    return (_LOAD, 0, 0, offset)


def _load_argument(index: int, high: bool = False) -> _Instruction:
    """Load 32 bits of an argument; both machines are little-endian. An int's value is in the low half."""
    return _load(_OFFSET_ARGUMENTS + 8 * index + (4 if high else 0))


def _return(verdict: int) -> _Instruction:
    return (_RETURN, 0, 0, verdict)


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def unsupported() -> str | None:
    """Why there can be no filter on this machine, or None."""
    machine = platform.machine()
    return None if machine in syscalls.NUMBERS else f"the seccomp filter is not written for {machine} processors"


@cache
def prepare() -> tuple[bytearray, list[int]]:
    """The filter for this machine, packed, and where in it the process id belongs; for all children."""
    packed = bytearray()
    places = []
    for code, if_true, if_false, constant in build_filter(platform.machine(), _SOME_PID):
        packed += struct.pack("=HBBI", code, if_true, if_false, constant)
        if constant == _SOME_PID:
            places.append(len(packed) - struct.calcsize("=I"))
    return packed, places


def restrict() -> None:
    """Put the calling thread, and all that it starts, under the filter for good.

    Raises:
        LockdownError: the kernel refused.
    """
    packed, places = prepare()
    for place in places:
        struct.pack_into("=I", packed, place, os.getpid())
    instructions = (ctypes.c_char * len(packed)).from_buffer(packed)
    program = _Program(len(packed) // struct.calcsize("=HBBI"), ctypes.addressof(instructions))
    no_new_privileges()
    number = syscalls.NUMBERS[platform.machine()]["seccomp"]
    if syscall(number, _SET_MODE_FILTER, 0, ctypes.byref(program)) != 0:
        raise LockdownError(f"seccomp: {os.strerror(ctypes.get_errno())}")
