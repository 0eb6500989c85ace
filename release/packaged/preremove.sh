#!/bin/sh
# Stops the server before its program is removed: "remove" is dpkg's word, 0 is rpm's.
set -e
case "${1:-}" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now holdfastd.service
	fi
	;;
esac
