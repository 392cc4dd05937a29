# Announces more than it sends, more than is allowed, and less than it sends.
import os
def solve(n):
    os.write(3, {0: b'\0\x10\0\0[', 5: b'\xff\xff\xff\xff[', 7: b'\0\0\0\1[]]]]]'}[n])
    os._exit(0) if n == 0 else None
    return 0
