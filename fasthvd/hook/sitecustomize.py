"""Start-up hook in the ranks of the user's own command: another program instead of the script, or a watch.

The folder is on PYTHONPATH of the ranks only while `tune`, `replay --live` or `doctor` need it:

* FASTHVD_INSTEAD names a module of vsketchdlc whose `main` runs in place of the user's script;
* FASTHVD_WATCH (see `_fasthvd_watch`) has rank 0 hold its first steps against their prediction.

Whatever other sitecustomize there is (the tracer's, the user's own) runs first.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (pathlib costs start-up time)


def _run_the_next() -> None:
    """Run the sitecustomize that this one hides, if there is one."""
    places = [os.path.abspath(place or ".") for place in sys.path]  # noqa: PTH100
    path = sys.path[places.index(_HERE) + 1 :] if _HERE in places else sys.path
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _run_instead(name: str) -> None:
    """Run `main` of the module and leave; the user's script is not started."""
    try:
        main = importlib.import_module(name).main
    except ImportError as error:
        print(
            f"vsketchdlc: the ranks' Python ({sys.executable}) cannot import vsketchdlc: {error}",
            file=sys.stderr,
        )
        os._exit(3)
    try:
        main()
    except SystemExit as error:
        if error.code not in (None, 0):
            print(error, file=sys.stderr)
            os._exit(3)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(3)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


_run_the_next()
if os.environ.get("FASTHVD_INSTEAD"):
    _run_instead(os.environ["FASTHVD_INSTEAD"])
elif os.environ.get("FASTHVD_WATCH"):
    try:
        import _fasthvd_watch

        _fasthvd_watch.install()
    except Exception as problem:  # the training must start whatever is wrong with the watch
        print(f"vsketchdlc: the first steps are not compared: {problem}", file=sys.stderr)
