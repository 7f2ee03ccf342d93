# shellcheck shell=bash disable=SC2034
# Debian packages for ./demo and ./test, which source this file. Installs only what is missing.

# A word is a package, or command=package where the command may also have come from elsewhere (Node.js from its makers).
missing_packages() {
    local word
    for word in "$@"; do
        case "$word" in
            *=*) command -v "${word%%=*}" >/dev/null || echo "${word#*=}" ;;
            *) [ "$(dpkg-query -W -f '${db:Status-Status}' "$word" 2>/dev/null)" = installed ] || echo "$word" ;;
        esac
    done
}

# install_packages WORD...: 0 when all are there in the end. What apt says is shown only when it fails.
install_packages() {
    local missing log rc=0
    mapfile -t missing < <(missing_packages "$@")
    [ "${#missing[@]}" -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ]; then
        echo "missing Debian packages: ${missing[*]}; as root: apt-get install ${missing[*]}" >&2
        return 1
    fi
    log=$(mktemp)
    echo "installing ${missing[*]}"
    without_starting_services apt_install "$log" "${missing[@]}" || rc=$?
    [ "$rc" = 0 ] || { echo "cannot install ${missing[*]}:" >&2; tail -n 5 "$log" >&2; }
    rm -f "$log"
    return "$rc"
}

apt_install() {
    local log=$1
    shift
    export DEBIAN_FRONTEND=noninteractive
    if [ -z "${APT_LISTS_FRESH:-}" ]; then
        apt-get -qq -o DPkg::Lock::Timeout=300 update >>"$log" 2>&1 || return
        APT_LISTS_FRESH=1
    fi
    apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1 </dev/null
}

# Debian starts a server when its package is installed: nobody asked for a web server on port 80.
without_starting_services() {
    local policy=/usr/sbin/policy-rc.d rc=0
    if [ -e "$policy" ]; then
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    "$@" || rc=$?
    rm -f "$policy"
    return "$rc"
}

# What the build needs besides Rust, and what the labs run.
BUILD_PACKAGES=(gcc libc6-dev make clang libelf-dev zlib1g-dev pkg-config)
LAB_PACKAGES=(nginx libnginx-mod-http-lua lua-resty-core)

# require_rust: a message instead of a page of errors from an old cargo.
require_rust() {
    local version
    version=$(cargo --version 2>/dev/null | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
    [ "${version:-0}" -ge 95 ] && return
    if [ -n "$version" ]; then
        echo "cargo 1.$version is too old: throughline is built with Rust 1.95 or newer" >&2
    else
        echo "there is no cargo: throughline is built with Rust 1.95 or newer" >&2
    fi
    echo "install it with rustup (https://rustup.rs), then run this again" >&2
    return 1
}
