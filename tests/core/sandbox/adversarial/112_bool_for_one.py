def solve(n): return True if n == 0 else {5: 120, 7: 5040}[n]
