# Raises audit events of its own with hostile arguments, and puts too much among the notes of what was blocked.
import gc, sys
class Path(str):
    def startswith(self, *a): return False
    def __format__(self, spec): return '\0\ud800' * 999
def solve(n):
    for i in range(30):
        for about in (Path(i), i, None, 'x' * 9999):
            try: sys.audit('open', about, None, 'flags')
            except Exception: pass
    for each in gc.get_objects():
        if type(each).__name__ == '_Watch': each._new += [None, {'a': 1}, ['open'], '\0\ud800' * 999] * 99
    return 0
