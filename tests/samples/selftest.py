"""A self-test that did not hold."""

from rlm_core.selftest import SelfTest, Tried

BROKEN = SelfTest(
    sandbox="paper",
    tried=(
        Tried(name="plain", mode="cases", tries="a loop", must="pass", came="passed", latency_s=0.1),
        Tried(name="fire", mode="cases", tries="[red]", must="fail", came="passed", why_not=("it burns",), latency_s=1),
    ),
    not_looked_at=("water: there is none",),
    duration_s=1.25,
)
