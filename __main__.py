"""``python -m vsketchdlc`` is the ``vsketchdlc`` command."""

from .cli import main

if __name__ == "__main__":
    main()
