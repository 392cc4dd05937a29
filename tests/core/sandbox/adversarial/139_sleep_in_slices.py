import time
def solve(n):
    while True: time.sleep(0.001)
