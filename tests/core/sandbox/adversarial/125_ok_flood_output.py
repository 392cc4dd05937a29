import os, sys
def solve(n):
    for _ in range(2000): print('x' * 1000); sys.stderr.write('y' * 1000)
    os.write(1, b'z' * 100000)
    r = 1
    for i in range(2, n + 1): r *= i
    return r
