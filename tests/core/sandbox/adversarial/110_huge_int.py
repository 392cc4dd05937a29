def solve(n): return 1 << 100_000_000
