"""The errors of this package: each says what is wrong and how to fix it."""

from cloze.terminal import escape_control_characters, shorten_message

MAX_MESSAGE = 2000  # characters of a problem, and of a fix


class ClozeError(Exception):
    """Base class of all errors of this package.

    Messages name files, labels and tensors that others named: they are shortened, and control
    characters are escaped.
    """

    def __init__(self, problem: str, *, fix: str) -> None:
        problem, fix = _clean(problem), _clean(fix)
        super().__init__(f"{problem}\n  fix: {fix}")
        self.problem = problem
        self.fix = fix

    def __reduce__(self) -> tuple[object, ...]:
        return _restore_error, (type(self), self.problem, self.fix)  # worker processes pickle it


class ConfigError(ClozeError, ValueError):
    """A setting is unknown, missing, out of range, or inconsistent with another."""


class MissingSettingError(ConfigError):
    """A required setting is missing, of a recipe unless the fix is replaced."""

    def __init__(self, name: str) -> None:
        fix = f"set it with --set {name}=VALUE, or in the TOML file"
        super().__init__(f"{name} is missing", fix=fix)


class InputError(ClozeError, ValueError):
    """A text, a row or an argument is invalid."""


class FolderError(ClozeError):
    """A model folder is missing, damaged, malicious or not supported."""


class MissingExtraError(ClozeError, ImportError):
    """An optional library is required but not installed."""

    def __init__(self, feature: str, *, extra: str) -> None:
        super().__init__(
            f"{feature} requires a library that is not installed",
            fix=f"pip install 'cloze[{extra}]' (in a checkout: pip install '.[{extra}]')",
        )


class MissingLibraryError(ClozeError, ImportError):
    """A library that is no extra of this package is required but not installed."""

    def __init__(self, feature: str, *, library: str) -> None:
        super().__init__(
            f"{feature} requires {library}, which is not installed", fix=f"pip install {library}"
        )


class TruncationWarning(UserWarning):
    """Texts were longer than a model reads, and truncated by default."""


def _clean(message: str) -> str:
    return escape_control_characters(shorten_message(message, MAX_MESSAGE), keep="\n\t")


def _restore_error(kind: type[ClozeError], problem: str, fix: str) -> ClozeError:
    error = kind.__new__(kind)
    ClozeError.__init__(error, problem, fix=fix)
    return error
