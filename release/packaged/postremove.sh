#!/bin/sh
# The data stays, also when the package is purged: it is in /var/lib/holdfast.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
