# !/bin/sh Stops the server before its program is removed. dpkg passes "remove" then, and
# rpm passes 0.
set -e
case "${1:-}" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now holdfastd.service
	fi
	;;
esac
