"""What runs inside a sandbox: the zygote, its children, and what they are locked down with.

Only the standard library may be imported here. The package is started by itself (`python -m inside`), so it never sees
`rlm_core`; the trusted parent imports the same modules as `rlm_core.sandbox.inside`.
"""
