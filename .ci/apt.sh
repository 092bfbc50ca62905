#!/usr/bin/env bash
# The Debian packages that tests need: a browser, and fonts with every sign that our pictures use.
# In:  names of more packages, as `nodejs golang-go` at night. Out: what was missing is installed; where that cannot be done it is said,
# and nothing fails.
set -euo pipefail

missing=()
command -v chromium >/dev/null || missing+=(chromium)
for each in fonts-dejavu-core fonts-symbola "$@"; do
  dpkg-query --show --showformat='${db:Status-Status}' "$each" 2>/dev/null | grep -qx installed || missing+=("$each")
done
[ ${#missing[@]} -gt 0 ] || exit 0

root=(env DEBIAN_FRONTEND=noninteractive)
[ "$(id -u)" = 0 ] || root=(sudo -n "${root[@]}")
if ! command -v apt-get >/dev/null; then
  echo ".ci/apt.sh: no apt-get here, so not installed: ${missing[*]}. Tests need them." >&2
elif ! "${root[@]}" true 2>/dev/null; then
  echo ".ci/apt.sh: not root, so not installed: ${missing[*]}. Tests need them." >&2
else
  "${root[@]}" apt-get -qq update
  "${root[@]}" apt-get -qq -o Dpkg::Use-Pty=0 install --yes --no-install-recommends "${missing[@]}"
fi
