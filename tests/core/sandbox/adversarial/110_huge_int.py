def solve(n): return 1 << 400_000_000
