# !/bin/sh Creates the user that the server runs as and its folder, and lets it read the
# settings. It does not start the server, because its address must be set first.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers holdfast.conf
elif ! getent passwd holdfast >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/holdfast --no-create-home --shell /usr/sbin/nologin holdfast
fi
for settings in /etc/holdfast/holdfastd.yaml /etc/holdfast/holdfastd.env; do
	if [ "$(stat -c %G "$settings" 2>/dev/null)" = root ]; then
		chgrp holdfast "$settings"
		chmod g+r "$settings"
	fi
done
# Also needed by commands that run before the first start, such as holdfastd restore.
if [ ! -e /var/lib/holdfast ]; then
	install -d -o holdfast -g holdfast -m 0700 /var/lib/holdfast
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# After an upgrade, restart the server. The command returns when the server serves.
	systemctl try-restart holdfastd.service || echo "holdfastd did not start; see journalctl -u holdfastd" >&2
fi
