import sys
sys.setrecursionlimit(20000)
def _down(k): return 0 if k == 0 else _down(k - 1)
def solve(n): return (1 if n < 2 else n * solve(n - 1)) + _down(9000)
