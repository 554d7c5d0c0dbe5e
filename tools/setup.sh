#!/bin/sh
# Makes the project's own environment, `.venv`, and installs what a make target needs into it.
#
#   sh tools/setup.sh demo     the program and the demo's engine
#   sh tools/setup.sh dev      that, and all that checks and tests use
#   sh tools/setup.sh docs     what builds the documentation
#
# Needs Python 3.11 or later, with pip and venv. Where they are missing and this is Debian or Ubuntu with root
# or password-less sudo they are installed, and it says so. Versions come from uv.lock, installed by uv, or by
# pip where uv is not to be had (BRINGUP_INSTALLER=pip asks for that). A second run does nothing and needs no
# network; an interrupted one is repaired. A `.venv` that is a symbolic link is somebody's own: it is used, and
# never changed.

set -eu
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV UV_PYTHON
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

ROOT=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
cd -- "$ROOT"
PYTHON=.venv/bin/python
STAMP=.venv/.bringup-ready    # line 1: what it was made from; then the groups that are installed
UNDER_WAY=.venv/.bringup-busy # there while something is being installed

say() { printf 'setup: %s\n' "$*" >&2; }

fail() {
    say "error: $1"
    [ $# -lt 2 ] || say "hint: $2"
    exit 1
}

# ---- what the machine has ----

# Runs the Python named $1 to see that it is one (a pyenv shim may not be) and new enough; $2: what it must do, too.
is_python() {
    "$1" -c "import ssl, sys, zlib; assert sys.version_info >= (3, 11); $2" >/dev/null 2>&1
}

# Name of the first Python on the path that is new enough and meets $1.
first_python() {
    for name in python3.14 python3.13 python3.12 python3.11 python3 python; do
        if command -v "$name" >/dev/null 2>&1 && is_python "$name" "$1"; then
            echo "$name"
            return 0
        fi
    done
    return 1
}

# How to become root without being asked anything: prints the prefix, fails when there is none.
root_prefix() {
    if [ "$(id -u)" = 0 ]; then
        echo ""
    elif command -v sudo >/dev/null 2>&1 && sudo -n true >/dev/null 2>&1; then
        echo "sudo -n"
    else
        return 1
    fi
}

# Installs Debian packages; fails where this cannot be done without asking.
debian_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    as_root=$(root_prefix) || return 1
    say "installing with apt-get: $*"
    # The package lists of a fresh machine are empty or old: fetch them when the first try fails.
    # shellcheck disable=SC2086 # the prefix is one word, two or none
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null 2>&1 ||
        { $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null >/dev/null &&
            $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null; }
}

# A uv that runs: the environment's own, else one on the path.
find_uv() {
    for name in .venv/bin/uv uv; do
        if command -v "$name" >/dev/null 2>&1 && "$name" --version >/dev/null 2>&1; then
            echo "$name"
            return 0
        fi
    done
    return 1
}

# ---- the environment ----

made_from() {
    printf '%s %s %s\n' "$(cat pyproject.toml uv.lock tools/setup.sh | cksum)" \
        "$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" "$ROOT"
}

is_ready() {
    [ -f "$STAMP" ] && [ ! -e "$UNDER_WAY" ] && grep -qx "$1" "$STAMP" && [ "$(head -n 1 "$STAMP")" = "$(made_from)" ]
}

# Whether `.venv` can be built upon: whole, runs, in the place where it was made.
is_sound() {
    [ -f .venv/pyvenv.cfg ] && [ ! -e "$UNDER_WAY" ] && is_python "$PYTHON" "import sys" || return 1
    # An environment cannot be moved: its scripts name their Python by its full path.
    [ ! -f "$STAMP" ] || [ "$(head -n 1 "$STAMP" | cut -d ' ' -f 4-)" = "$ROOT" ]
}

make_environment() {
    if [ -e .venv ]; then
        [ -f .venv/pyvenv.cfg ] || [ -e "$UNDER_WAY" ] || [ -z "$(find .venv ! -type d ! -type l | head -n 1)" ] ||
            fail "\`.venv\` is there and is no Python environment" "move it away: this project keeps its own there"
        say "the environment in .venv is half-made, moved or broken: making it anew"
        rm -rf .venv
    fi
    if ! python=$(first_python "import ensurepip, venv"); then
        if uv=$(find_uv); then
            say "making .venv with uv"
            "$uv" venv -q --seed --python "$(first_python "" || echo ">=3.11")" .venv && return 0
            rm -rf .venv
        fi
        python=$(python_from_debian) || exit 1
    fi
    say "making .venv with $python ($("$python" -c 'import platform; print(platform.python_version())'))"
    mkdir .venv
    : >"$UNDER_WAY"
    "$python" -m venv .venv || { rm -rf .venv && fail "$python could not make an environment in .venv"; }
}

# A Python with venv and pip, installed by the system's package manager.
python_from_debian() {
    if python=$(first_python ""); then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        what="$python has no venv and pip"
        packages="python$version-venv"
    else
        what="there is no Python 3.11 or later"
        packages="python3-venv python3.13-venv python3.12-venv python3.11-venv" # Ubuntu 22.04 has 3.11 beside 3.10
    fi
    say "$what"
    for package in $packages; do
        debian_install "$package" || continue
        first_python "import ensurepip, venv" && return 0
    done
    if command -v apt-get >/dev/null 2>&1; then
        # Ubuntu 22.04: `python3` is 3.10
        [ "$packages" = "${packages#* }" ] || packages=python3.11-venv
        fail "$what, and installing it needs root" "sudo apt-get update && sudo apt-get install $packages"
    fi
    fail "$what" "install Python 3.11 or later, with pip and venv, and run this again"
}

# ---- what goes into it ----

# Runs a command with its words in a file, and shows the end of them when it fails.
quietly() {
    "$@" >.tools/install.log 2>&1 || {
        grep -v '^WARNING' .tools/install.log | tail -n 5 >&2
        return 1
    }
}

# Whether that command failed for want of a network.
no_network() { grep -qiE 'new connection|name resolution|unreachable|timed out' .tools/install.log; }

install() {
    if [ "${BRINGUP_INSTALLER:-uv}" = uv ]; then
        if ! uv=$(find_uv); then
            say "fetching uv, the installer"
            if quietly "$PYTHON" -m pip install uv; then
                uv=.venv/bin/uv
            elif no_network; then
                return 1
            fi
        fi
        [ -z "$uv" ] || ! install_by_uv "$@" || return 0
    fi
    install_by_pip "$@"
}

# With the uv named $uv. Other packages in the environment stay.
install_by_uv() {
    options=
    for group in "$@"; do
        case $group in
        demo) options="$options --extra demo" ;;
        *) options="$options --group $group" ;;
        esac
    done
    say "installing $* as uv.lock says, with $("$uv" --version | cut -d ' ' -f 1,2)"
    # shellcheck disable=SC2086 # options are words
    UV_PROJECT_ENVIRONMENT="$ROOT/.venv" "$uv" sync --quiet --frozen --inexact --no-default-groups $options
}

install_by_pip() {
    say "installing $* with pip, in the versions of uv.lock; this takes a minute"
    "$PYTHON" -m pip --version >/dev/null 2>&1 || quietly "$PYTHON" -m ensurepip || return 1
    "$PYTHON" - "$@" <<'END' || return 1
"""Writes what pip can read: the wanted packages, and the versions that uv.lock chose."""
import pathlib, sys, tomllib

groups = set(sys.argv[1:])
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())
extra = "[demo]" if "demo" in groups else ""
wanted = [line for group in sorted(groups - {"demo"}) for line in project["dependency-groups"][group]]
versions = {}
for package in tomllib.loads(pathlib.Path("uv.lock").read_text())["package"]:
    if "registry" in package["source"]:
        versions.setdefault(package["name"], set()).add(package["version"])
# A package with two versions has one for some machines only: pip chooses there.
pins = [f"{name}=={chosen.pop()}" for name, chosen in sorted(versions.items()) if len(chosen) == 1]
pathlib.Path(".tools/wanted.txt").write_text("\n".join([f"-e .{extra}", *wanted]) + "\n")
pathlib.Path(".tools/versions.txt").write_text("\n".join(pins) + "\n")
END
    quietly "$PYTHON" -m pip install -r .tools/wanted.txt -c .tools/versions.txt && return 0
    no_network && return 1
    say "those versions are not to be had here, installing the newest that fit pyproject.toml"
    quietly "$PYTHON" -m pip install -r .tools/wanted.txt
}

# What the demo's engine links to and its wheel does not bring: a minimal Debian lacks OpenMP's run-time library.
system_libraries() {
    case $("$PYTHON" -c "import xllamacpp" 2>&1) in
    *libgomp.so.1*) ;;
    *) return 0 ;; # it loads, or the demo itself says why it does not
    esac
    say "the demo's engine needs libgomp.so.1"
    debian_install libgomp1 || fail "libgomp.so.1 is not here, and installing it needs root" "sudo apt-get install libgomp1"
}

# Programs that some tests use. Without one of them those tests are skipped, and say so.
system_packages() {
    PATH="$PATH:/usr/sbin:/sbin"
    missing=
    for pair in ssh:openssh-client sshd:openssh-server busybox:busybox ip:iproute2 git:git; do
        command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair#*:}"
    done
    [ -n "$missing" ] || return 0
    # With a service manager an installed sshd would be started, which is not ours to do.
    # shellcheck disable=SC2086 # package names are words
    if [ "$(id -u)" = 0 ] && { [ "${CI:-}" = true ] || [ ! -d /run/systemd/system ]; }; then
        debian_install $missing && return 0
    fi
    say "not installed:$missing; the tests that use them are skipped"
}

# Somebody's own environment, linked to: used as it is.
check_borrowed() {
    is_python "$PYTHON" "import sys" || fail "\`.venv\` is a link to something that is no Python 3.11 or later"
    modules="click httptools huggingface_hub jinja2 msgspec packaging prometheus_client rich uvloop"
    case $1 in
    demo) modules="$modules xllamacpp" ;;
    dev) modules="$modules hypothesis importlinter pyright pytest ruff codespell_lib" ;;
    docs) modules="$modules zensical" ;;
    esac
    for module in $modules; do
        "$PYTHON" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$module') is None)" ||
            fail "\`.venv\` is a link to an environment without \`$module\`" "install it there, or remove the link"
    done
    say "using the environment that .venv links to, as it is"
}

main() {
    case ${1:-} in
    demo | dev | docs) ;;
    *) fail "which group? demo, dev or docs" "sh tools/setup.sh dev" ;;
    esac
    if [ -L .venv ]; then
        check_borrowed "$1"
        return
    fi
    mkdir -p .tools
    if command -v flock >/dev/null 2>&1; then # two makes at once: the second waits and finds it done
        exec 9>.tools/setup.lock
        flock -n 9 || { say "waiting for another set-up in this folder" && flock 9; }
    fi
    [ "$1" != dev ] || system_packages
    if is_ready "$1"; then
        say ".venv is ready"
        return
    fi
    is_sound || make_environment
    groups=$1
    [ "$1" != dev ] || groups="demo dev" # the tests run the demo's engine
    # shellcheck disable=SC2086 # group names are words
    [ ! -f "$STAMP" ] || groups=$(printf '%s\n' $groups "$(sed 1d "$STAMP")" | sort -u)
    : >"$UNDER_WAY"
    rm -f "$STAMP"
    # shellcheck disable=SC2086 # group names are words
    if install $groups; then
        rm -f "$UNDER_WAY"
        case $groups in *demo*) system_libraries ;; esac
        { made_from && printf '%s\n' $groups; } >"$STAMP.part"
        mv "$STAMP.part" "$STAMP"
        say ".venv is ready"
    else
        rm -f "$UNDER_WAY" # it ended by itself: what is there is whole, and the next run goes on from it
        fail "the packages could not be installed (see above)" "the first run needs a Python package source"
    fi
}

main "$@"
