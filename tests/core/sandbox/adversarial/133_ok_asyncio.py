import asyncio, math
async def _f(n):
    await asyncio.sleep(0)
    return math.factorial(n)
def solve(n): return asyncio.run(_f(n))
