#!/bin/sh
# Puts "anabranch serve" in front of arguments that are meant for it, gives /data to the server's
# user when started as root, and becomes the command itself, so that it gets the signals.
set -eu

# docker run anabranch --port 6380    or    docker run anabranch /data/my.conf
case "${1:-}" in
  -* | *.conf) set -- anabranch serve "$@" ;;
esac

# Data is nobody else's business, unless a umask was chosen.
if [ "$(umask)" = "0022" ]; then
  umask 0077
fi

is_server=no
if [ "${1:-}" = anabranch-server ] || { [ "${1:-}" = anabranch ] && [ "${2:-}" = serve ]; }; then
  is_server=yes
fi

if [ "$is_server" = yes ] && [ "$(id -u)" = 0 ]; then
  # Some volumes (NFS, some NAS systems) refuse; then the permissions must already be right.
  find . \! -user 999 -exec chown 999:999 '{}' + 2>/dev/null ||
    echo "anabranch: cannot give $(pwd) to user 999; going on" >&2
  exec setpriv --reuid=999 --regid=999 --clear-groups -- "$0" "$@"
fi

if [ "$is_server" = yes ] && [ ! -w . ]; then
  echo "anabranch: $(pwd) is not writable for user $(id -u); run 'chown $(id -u) DIRECTORY'" \
    "on the host, or start with --user and the owner's number" >&2
  exit 1
fi

exec "$@"
