"""System call numbers by name, for the machines that the seccomp filter supports.

Only what a program needs that computes: memory, time, threads, reading files, and its own descriptors and signals. A
call that is missing here cannot be made at all, which includes every call that Linux is yet to invent.
"""

from .words import words


def _numbers(table: str) -> dict[str, int]:
    return {name: int(number) for name, number in (entry.split("=") for entry in table.split())}


ALLOWED = words("""
    read write readv writev pread64 pwrite64 preadv pwritev lseek close fstat newfstatat statx openat getdents64
    faccessat faccessat2 readlinkat getcwd chdir fchdir dup dup3 pipe2 ppoll pselect6 eventfd2
    epoll_create1 epoll_ctl epoll_pwait ftruncate fsync fdatasync statfs fstatfs
    brk mmap munmap mprotect mremap madvise msync
    futex set_robust_list rseq set_tid_address exit exit_group restart_syscall
    sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait sigaltstack
    getitimer setitimer timer_create timer_settime timer_gettime timer_getoverrun timer_delete
    timerfd_create timerfd_settime timerfd_gettime
    clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday times getrusage getcpu
    getpid getppid gettid getuid geteuid getgid getegid getgroups getresuid getresgid getpgid getsid umask
    uname sysinfo getrandom getrlimit wait4 waitid recvfrom shutdown
""")
"""Calls that may be made with any arguments."""

ALLOWED_X86_64 = words("""
    stat lstat open access readlink getdents dup2 pipe poll select epoll_create epoll_wait eventfd time alarm pause
    getpgrp
""")
"""Older calls that exist only on x86_64 and that C libraries still use there."""

CONDITIONAL = words("clone clone3 kill tgkill prlimit64 prctl ioctl fcntl socketpair sendto")
"""Calls whose arguments decide; see seccomp.py."""

X86_64 = _numbers(
    """
    read=0 write=1 open=2 close=3 stat=4 fstat=5 lstat=6 poll=7 lseek=8 mmap=9 mprotect=10 munmap=11 brk=12
    rt_sigaction=13 rt_sigprocmask=14 rt_sigreturn=15 ioctl=16 pread64=17 pwrite64=18 readv=19 writev=20 access=21
    pipe=22 select=23 sched_yield=24 mremap=25 msync=26 madvise=28 dup=32 dup2=33 pause=34 nanosleep=35 getitimer=36
    alarm=37 setitimer=38 getpid=39 sendto=44 recvfrom=45 shutdown=48 socketpair=53 clone=56 exit=60 wait4=61
    kill=62 uname=63 fcntl=72 fsync=74 fdatasync=75 ftruncate=77 getdents=78 getcwd=79 chdir=80 fchdir=81
    readlink=89 umask=95 gettimeofday=96 getrlimit=97 getrusage=98 sysinfo=99 times=100 getuid=102 getgid=104
    geteuid=107 getegid=108 getppid=110 getpgrp=111 getgroups=115 getresuid=118 getresgid=120 getpgid=121 getsid=124
    rt_sigpending=127 rt_sigtimedwait=128 rt_sigsuspend=130 sigaltstack=131 statfs=137 fstatfs=138
    sched_getparam=143 sched_getscheduler=145 sched_get_priority_max=146 sched_get_priority_min=147 prctl=157
    gettid=186 time=201 futex=202 sched_getaffinity=204 epoll_create=213 getdents64=217 set_tid_address=218
    restart_syscall=219 timer_create=222 timer_settime=223 timer_gettime=224 timer_getoverrun=225 timer_delete=226
    clock_gettime=228 clock_getres=229 clock_nanosleep=230 exit_group=231 epoll_wait=232 epoll_ctl=233 tgkill=234
    waitid=247 openat=257 newfstatat=262 readlinkat=267 faccessat=269 pselect6=270 ppoll=271 set_robust_list=273
    epoll_pwait=281 timerfd_create=283 eventfd=284 timerfd_settime=286 timerfd_gettime=287 eventfd2=290
    epoll_create1=291 dup3=292 pipe2=293 preadv=295 pwritev=296 prlimit64=302 getcpu=309 seccomp=317 getrandom=318
    statx=332 rseq=334 clone3=435 faccessat2=439 landlock_create_ruleset=444 landlock_add_rule=445
    landlock_restrict_self=446
    """
)

AARCH64 = _numbers(
    """
    getcwd=17 eventfd2=19 epoll_create1=20 epoll_ctl=21 epoll_pwait=22 dup=23 dup3=24 fcntl=25 ioctl=29 statfs=43
    fstatfs=44 ftruncate=46 faccessat=48 chdir=49 fchdir=50 openat=56 close=57 pipe2=59 getdents64=61 lseek=62
    read=63 write=64 readv=65 writev=66 pread64=67 pwrite64=68 preadv=69 pwritev=70 pselect6=72 ppoll=73
    readlinkat=78 newfstatat=79 fstat=80 fsync=82 fdatasync=83 timerfd_create=85 timerfd_settime=86
    timerfd_gettime=87 exit=93 exit_group=94 waitid=95 set_tid_address=96 futex=98 set_robust_list=99 nanosleep=101
    getitimer=102 setitimer=103 timer_create=107 timer_gettime=108 timer_getoverrun=109 timer_settime=110
    timer_delete=111 clock_gettime=113 clock_getres=114 clock_nanosleep=115 sched_getscheduler=120
    sched_getparam=121 sched_getaffinity=123 sched_yield=124 sched_get_priority_max=125 sched_get_priority_min=126
    restart_syscall=128 kill=129 tgkill=131 sigaltstack=132 rt_sigsuspend=133 rt_sigaction=134 rt_sigprocmask=135
    rt_sigpending=136 rt_sigtimedwait=137 rt_sigreturn=139 getresuid=148 getresgid=150 times=153 getpgid=155
    getsid=156 getgroups=158 uname=160 getrlimit=163 getrusage=165 umask=166 prctl=167 getcpu=168 gettimeofday=169
    getpid=172 getppid=173 getuid=174 geteuid=175 getgid=176 getegid=177 gettid=178 sysinfo=179 socketpair=199
    sendto=206 recvfrom=207 shutdown=210 brk=214 munmap=215 mremap=216 clone=220 mmap=222 mprotect=226 msync=227
    madvise=233 wait4=260 prlimit64=261 seccomp=277 getrandom=278 statx=291 rseq=293 clone3=435 faccessat2=439
    landlock_create_ruleset=444 landlock_add_rule=445 landlock_restrict_self=446
    """
)

NUMBERS = {"x86_64": X86_64, "aarch64": AARCH64}
