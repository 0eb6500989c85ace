//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// terminal COMMAND... runs a command whose output is a terminal with lines of 100 cells.
// The output of the script command is the text on the terminal.
func terminal(ts *testscript.TestScript, _ bool, args []string) {
	screen, out, err := openTerminal(100)
	ts.Check(err)
	defer func() { ts.Check(screen.Close()) }()
	program := ""
	for _, dir := range slices.Backward(filepath.SplitList(ts.Getenv("PATH"))) {
		if name := filepath.Join(dir, args[0]); fileExists(name) {
			program = name // the loop runs backward, so the first match in PATH remains
		}
	}
	cmd := exec.CommandContext(ts.Value("test").(*testing.T).Context(), program, args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = ts.MkAbs("."), out, os.Stderr
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	for _, name := range []string{
		"HOLDFAST_API", "HOLDFAST_TOKEN", "HOLDFAST_TOKEN_STORE", "HOLDFAST_CLIENT_CONFIG", "HOME", "GORACE",
	} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	ts.Check(cmd.Start())
	ts.Check(out.Close())
	text, _ := io.ReadAll(screen) // the error only says that the command has ended
	ts.Check(cmd.Wait())
	shown := ts.MkAbs("shown.txt")
	ts.Check(os.WriteFile(shown, []byte(strings.ReplaceAll(string(text), "\r\n", "\n")), 0o600))
	ts.Check(ts.Exec("cat", shown))
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// openTerminal returns a new terminal and the file that programs write to.
func openTerminal(columns uint16) (screen, program *os.File, err error) {
	if screen, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err != nil {
		return nil, nil, err
	}
	fd := int(screen.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: columns})
	}
	if err != nil {
		return nil, nil, err
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	return screen, program, err
}
