"""What can go wrong in here that the parent has to know of."""


class LockdownError(Exception):
    """A restriction could not be applied. Untrusted code must not run."""
