#!/usr/bin/env bash
# The Debian package that some peers of the bench need: Redis.
# In:  nothing. Out: it is installed; where that cannot be done it is said, and nothing fails. The bench starts its own, on another port.
set -euo pipefail

command -v redis-server >/dev/null && exit 0
root=(env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1) # the service that comes with it need not start
[ "$(id -u)" = 0 ] || root=(sudo -n "${root[@]}")
if ! command -v apt-get >/dev/null; then
  echo ".ci/redis.sh: no apt-get here, so redis-server is not installed. The bench leaves its rows out." >&2
elif ! "${root[@]}" true 2>/dev/null; then
  echo ".ci/redis.sh: not root, so redis-server is not installed. The bench leaves its rows out." >&2
else
  "${root[@]}" apt-get -qq update
  "${root[@]}" apt-get -qq -o Dpkg::Use-Pty=0 install --yes --no-install-recommends redis-server
fi
