# Local sockets, by path and by abstract name, connected or not.
import socket
_ok = False
for _address in ('/tmp/rlm_canary/host.sock', '\0rlm_canary_abstract'):
    for _make in (lambda: socket.socket(socket.AF_UNIX), lambda: socket.socketpair()[0],
                  lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0], lambda: socket.socket(fileno=3)):
        for _use in (lambda s: (s.connect(_address), s.send(b'leak')), lambda s: s.sendto(b'leak', _address)):
            try:
                s = _make(); _use(s); _ok = True
            except OSError: pass
            finally:
                try: s.detach() if s.fileno() == 3 else s.close()
                except NameError: pass
def _f(n):
    r = 1
    for i in range(2, n + 1): r *= i
    return r
def solve(n): return _f(n) if _ok else -1
