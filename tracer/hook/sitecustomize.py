"""Runs at the start of every Python of a traced rank: installs the hook, then the user's own sitecustomize."""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (pathlib costs start-up time)


def _run_the_users_own() -> None:
    """Run the sitecustomize that this one hides, if there is one: the next on the path."""
    places = [os.path.abspath(place or ".") for place in sys.path]  # noqa: PTH100
    path = sys.path[places.index(_HERE) + 1 :] if _HERE in places else sys.path
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    if os.environ.get("VSKETCH_DIR"):
        import _vsketch_hook

        _vsketch_hook.install()
except Exception as error:  # the training must start whatever is wrong with the tracer
    print(f"vsketchdlc: no marks of steps and layers in this process: {error}", file=sys.stderr)
_run_the_users_own()
