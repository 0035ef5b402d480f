"""Every error that the compiler raises.

AssayError
├── OptionError (also ValueError)        an option that does not exist or a value that it does not take
├── Unsupported (also NotImplementedError)   a program that the compiler cannot take; the message says what and why
├── BuildError (also RuntimeError)       the system's C++ compiler failed on generated code
├── InputMismatch (also RuntimeError)    a compiled graph was called with inputs that it was not compiled for
├── VerifyError (also AssertionError)    an intermediate state broke its own rules: a bug of the compiler
└── CacheError (also RuntimeError)       the cache directory cannot be used
"""

from __future__ import annotations


class AssayError(Exception):
    """Base of all errors that the compiler raises."""


class OptionError(AssayError, ValueError):
    """An option that does not exist, or a value that it does not take."""


class Unsupported(AssayError, NotImplementedError):
    """A program that the compiler cannot take."""


class BuildError(AssayError, RuntimeError):
    """The system's C++ compiler failed on generated code."""


class InputMismatch(AssayError, RuntimeError):
    """A compiled graph was called with inputs that it was not compiled for."""


class VerifyError(AssayError, AssertionError):
    """An intermediate state broke its own rules: a bug of the compiler, never of the user's program."""


class CacheError(AssayError, RuntimeError):
    """The cache directory cannot be used."""
