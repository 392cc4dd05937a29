"""The stages as Prefect tasks: thin twins of the modules of the same name in `rlm_core`."""
