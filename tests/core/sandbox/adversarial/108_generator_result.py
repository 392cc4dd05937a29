def solve(n):
    r = 1
    for i in range(2, n + 1): r *= i
    yield r
