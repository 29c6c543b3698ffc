#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
  systemctl stop squall.service || true
  systemctl disable squall.service || true
fi
