package main

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestExitCodes(t *testing.T) {
	var lc net.ListenConfig
	taken, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tests := map[string]struct {
		args []string
		want int
	}{
		"version":           {[]string{"version"}, 0},
		"version, a flag":   {[]string{"--version"}, 0},
		"the manual page":   {[]string{"man"}, 0},
		"help":              {[]string{"--help"}, 0},
		"an unknown flag":   {[]string{"--no-such"}, 2},
		"a bad setting":     {[]string{"--log-level", "loud"}, 2},
		"an address in use": {[]string{"--data-dir", t.TempDir(), "--listen", taken.Addr().String()}, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := run(t.Context(), tt.args); got != tt.want {
				t.Errorf("exit code = %d, want %d", got, tt.want)
			}
		})
	}
}

func TestRunsUntilToldToStop(t *testing.T) {
	var lc net.ListenConfig
	free, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"--data-dir", t.TempDir(), "--listen", address}) }()
	for !isReady(t, address) {
		if len(code) > 0 {
			t.Fatalf("ended with code %d before it was ready", <-code)
		}
	}
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("exit code = %d, want 0", got)
	}
}

func isReady(t *testing.T, address string) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func TestCountWords(t *testing.T) {
	const id = "-iyHXSu_z961rcA8Pgx9mh2YKt5OaZBWcYXYpgg123s"
	tests := map[string]int{
		"":                                    0,
		"keys rotate":                         2,
		"keys rotate --database x":            2,
		"gc --dry-run -data_dir x":            1,
		"keys drop " + id:                     3,
		"keys drop " + id + " --database x":   3,
		"keys drop -data_dir /var/lib/x":      2,
		"keys list " + id:                     2,
		"keys drop -" + id[1:42] + " -config": 2,
	}
	for line, want := range tests {
		if got := countWords(strings.Fields(line)); got != want {
			t.Errorf("%q: %d words, want %d", line, got, want)
		}
	}
}
