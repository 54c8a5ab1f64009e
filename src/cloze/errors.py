"""One small tree of errors: each says what is wrong, then what to do about it."""


class ClozeError(Exception):
    """Base of every error this package raises on purpose."""

    def __init__(self, problem: str, *, fix: str) -> None:
        super().__init__(f"{problem}\n  fix: {fix}")
        self.problem = problem
        self.fix = fix

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (
            type(self),
            self.problem,
            self.fix,
        )  # from worker processes they come pickled


class ConfigError(ClozeError, ValueError):
    """A setting is unknown, missing, out of range, or at odds with another."""


class InputError(ClozeError, ValueError):
    """A text, a row or an argument cannot be worked with."""


class FolderError(ClozeError):
    """A model folder is missing, broken, hostile, or of a kind we do not read."""


class MissingExtraError(ClozeError, ImportError):
    """An optional library is needed for what was asked."""

    def __init__(self, need: str, *, extra: str) -> None:
        super().__init__(
            f"{need} needs a library that is not installed",
            fix=f"pip install 'cloze[{extra}]'",
        )


def _rebuild(kind: type[ClozeError], problem: str, fix: str) -> ClozeError:
    error = kind.__new__(kind)
    ClozeError.__init__(error, problem, fix=fix)
    return error
