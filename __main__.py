"""``python -m vsketchdlc`` and the ``vsketchdlc`` command: the front door, so that Ctrl-C is quiet from the start."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still being read in ends with status 130, as later."""
    try:
        from .cli import main as command_line
    except KeyboardInterrupt:
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()
