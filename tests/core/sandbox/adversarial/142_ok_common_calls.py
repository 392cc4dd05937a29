# What honest programs do without thinking about it.
import contextlib, getpass, io, os, platform, random, shutil, signal, sys, threading, time, uuid, queue
from concurrent.futures import ThreadPoolExecutor
def solve(n):
    with open(os.devnull, 'w') as null, contextlib.redirect_stdout(null): print('hidden')
    with contextlib.redirect_stdout(io.StringIO()) as out: print('kept')
    assert out.getvalue() == 'kept\n'
    sys.stdout.buffer.write(b'bytes\n'); sys.stdout.flush(); sys.stdout.isatty()
    shutil.get_terminal_size(), os.cpu_count(), os.getpid(), platform.system(), uuid.uuid4(), os.urandom(4), random.random()
    time.sleep(0.001); time.strftime('%c'); os.path.exists('/nonexistent'); os.environ.get('HOME')
    signal.signal(signal.SIGALRM, signal.SIG_DFL); signal.alarm(1); signal.alarm(0)
    with ThreadPoolExecutor(4) as pool: parts = list(pool.map(lambda i: i, range(2, n + 1)))
    r = 1
    for i in parts: r *= i
    return r
