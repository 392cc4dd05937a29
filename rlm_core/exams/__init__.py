"""Exams: a policy on a suite, scored by the unbiased pass@k. docs/exams.md tells how to sit one."""
