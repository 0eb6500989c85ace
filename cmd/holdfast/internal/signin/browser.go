package signin

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// browser is the command that shows an address to the person; nil if nobody is
// there to see it. BROWSER names another, or none.
func browser(system string, getenv func(string) string) []string {
	switch own := getenv("BROWSER"); {
	case own == "none":
		return nil
	case own != "":
		first, _, _ := strings.Cut(own, ":") // a list, best first
		return strings.Fields(first)
	}
	switch system {
	case "darwin":
		return []string{"open"}
	case "windows":
		return []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	if getenv("DISPLAY") == "" && getenv("WAYLAND_DISPLAY") == "" {
		return nil
	}
	return []string{"xdg-open"}
}

// openBrowser shows an address in the person's browser. It tells whether one was
// started; the address is printed too, for when that shows nothing.
func openBrowser(ctx context.Context, address string) bool {
	command := browser(runtime.GOOS, os.Getenv)
	if command == nil {
		return false
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), command[0], append(command[1:], address)...) // it outlives this program
	if cmd.Start() != nil {
		return false
	}
	go func() { _ = cmd.Wait() }() // the browser's own end says nothing of the sign-in
	return true
}
