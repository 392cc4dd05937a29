import itertools, operator
def solve(n): return itertools.accumulate(range(1, n + 1), operator.mul, initial=1)
