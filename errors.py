"""The one exception that a user is meant to see."""

from __future__ import annotations


class UserError(Exception):
    """Wrong usage or unusable input: printed as one line, exit status 2.

    The message says what is wrong *and* what to do, in one line, without a traceback.
    """


class BadNews(Exception):
    """The command worked and its answer is bad news (a check failed): printed as one line, exit status 1."""
