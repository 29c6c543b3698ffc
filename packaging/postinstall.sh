#!/bin/sh
# systemd reads the unit; the service is neither enabled nor started.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
fi
if [ -t 1 ]; then
  echo "squall: try 'squall demo', then 'squall doctor'. Interfaces need root or a capability:"
  echo "  sudo setcap cap_net_raw+ep /usr/bin/squall     (read /usr/share/doc/squall/README.Debian first)"
fi
