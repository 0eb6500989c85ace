# !/bin/sh The data in /var/lib/holdfast stays, even if the package is purged.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
