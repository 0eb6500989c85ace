#!/bin/sh
# Creates the user that the server runs as, and lets it read the settings. The server is
# not started before somebody has decided how it is to be reached.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers holdfast.conf
elif ! getent passwd holdfast >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/holdfast --no-create-home --shell /usr/sbin/nologin holdfast
fi
settings=/etc/holdfast/holdfastd.yaml
if [ "$(stat -c %G "$settings" 2>/dev/null)" = root ]; then
	chgrp holdfast "$settings"
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart holdfastd.service # after an upgrade
fi
