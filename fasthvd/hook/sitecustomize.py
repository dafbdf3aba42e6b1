"""Start-up hook of a lane probe: in the ranks of the user's own command, probe the lanes and leave.

The user's script is not started. The folder is on PYTHONPATH of the ranks only while `tune` probes.
"""

import os
import sys


def _probe_and_leave() -> None:
    try:
        from vsketchdlc.fasthvd.probe_worker import main
    except ImportError as error:
        print(
            f"vsketchdlc: the ranks' Python ({sys.executable}) cannot import vsketchdlc: {error}",
            file=sys.stderr,
        )
        os._exit(3)
    try:
        main()
    except SystemExit as error:
        print(error, file=sys.stderr)
        os._exit(3)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(3)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if os.environ.get("FASTHVD_PROBE"):
    _probe_and_leave()
