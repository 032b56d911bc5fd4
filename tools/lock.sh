#!/bin/sh
# lock: resolve pyproject.toml (with every extra that tests and demo need) into requirements/dev.txt, and uv,
#       which does that, into requirements/lock-tool.txt: from there it is installed, by hash, the next time.
# Takes   UPGRADE=1 to take newer versions; else pinned versions stay while they still fit
#         COOL_DOWN how old a newer version has to be (7 days): most that were tampered with are found by then;
#         "0 days" for a mend that cannot wait
# Gives   files for Linux and macOS and all our versions of Python: exact versions, hashes of every
#         wheel, markers, and no address of a package index
# Why uv and not pip-compile: a dependency that only Python 3.11.0-3.11.2 needs (async-timeout) must be in
# the lock made on any Python; pip-compile resolves for the interpreter it runs on alone.
set -eu

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"${PYTHON:-python3}" -m venv "$tools/venv"
"$tools/venv/bin/pip" install -qq --disable-pip-version-check \
    --require-hashes --only-binary :all: -r requirements/lock-tool.txt

resolve() { # what to resolve, into which file; more options
    from=$1 into=$2
    shift 2
    "$tools/venv/bin/uv" pip compile "$from" -o "$into" "$@" \
        --universal --python-version 3.11 --fork-strategy fewest --generate-hashes --no-annotate \
        --custom-compile-command "make lock" --quiet ${UPGRADE:+--upgrade "--exclude-newer=${COOL_DOWN:-7 days}"}
}
resolve pyproject.toml requirements/dev.txt --extra dev
echo 'uv>=0.13,<0.14' | resolve - requirements/lock-tool.txt
