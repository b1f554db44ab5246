"""Whether a night is worse: the tests, their correction, the verdict."""
