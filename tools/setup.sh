#!/bin/sh
# setup: a virtual environment with exactly the locked versions, and fairlead itself in editable form.
# Takes   $1 the folder (.venv); PYTHON, optional, the interpreter to use
# Gives   $1/.ready, newer than the lock, so that make does not ask again
# Needs   Python 3.11 or newer with venv, and a way to the package index (pip's own settings)
set -eu

venv=$1
lock=requirements/dev.txt

usable() { # it runs, is new enough and can make environments (Debian packs venv apart)
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

pick() {
    # Python 3.15 comes last: the locked PostgreSQL wheel has no build for it yet.
    for name in python3.14 python3.13 python3.12 python3.11 python3 python3.15; do
        if usable "$name"; then
            echo "$name"
            return
        fi
    done
}

if [ -n "${PYTHON:-}" ]; then
    if ! usable "$PYTHON"; then
        echo "PYTHON=$PYTHON is not a Python 3.11 or newer with the venv module" >&2
        echo "hint: leave PYTHON out to search, or install python3-venv (Debian, Ubuntu)" >&2
        exit 1
    fi
    python=$PYTHON
else
    python=$(pick)
    if [ -z "$python" ]; then
        echo "no Python 3.11 or newer with the venv module was found" >&2
        echo "hint: apt install python3 python3-venv, brew install python, or make PYTHON=/path/to/python3" >&2
        exit 1
    fi
fi

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    "$python" -m venv --clear "$venv"
fi

echo "installing the locked versions into $venv with $("$venv/bin/python" -V) (once; about a minute)" >&2
if ! "$venv/bin/python" -m pip install -qq --disable-pip-version-check \
    --require-hashes --only-binary :all: -r "$lock"; then
    echo "the locked versions could not be installed" >&2
    echo "hint: check the network and pip's settings; 3.11 to 3.14 are the tested versions of Python" >&2
    exit 1
fi
stale=$("$venv/bin/python" -c "
from tools.packages import LOCK, installed, locked
print(*set(installed()) - {each.name for each in locked(LOCK.read_text('utf-8'))})")
if [ -n "$stale" ]; then # else what left the lock stays
    # shellcheck disable=SC2086 # each word is a package
    "$venv/bin/python" -m pip uninstall -qqy --disable-pip-version-check $stale
fi
# Everything fairlead needs is there already, its build backend too: nothing unlocked is fetched.
"$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
touch "$venv/.ready"
