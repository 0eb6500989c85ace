package input_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/signin/input"
)

func TestProgram(t *testing.T) {
	tests := map[string]string{
		"":                        "",
		"holdfast/v1.2.0 (linux)": "holdfast/v1.2.0 (linux)",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) " +
			"Chrome/148.0.0.0 Safari/537.36": "Chrome on Linux",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like " +
			"Gecko) Chrome/148.0.0.0 Safari/537.36 Edg/148.0.0.0": "Edge on Windows",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:150.0) Gecko/20100101 " +
			"Firefox/150.0": "Firefox on macOS",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 " +
			"(KHTML, like Gecko) Version/19.0 Mobile Safari/604.1": "Safari on iPhone",
		"Mozilla/5.0 (Linux; Android 16; Pixel 10) AppleWebKit/537.36 (KHTML, like " +
			"Gecko) Chrome/148.0.0.0 Mobile Safari/537.36": "Chrome on Android",
		"Mozilla/5.0 something new": "A browser",
	}
	for agent, want := range tests {
		if got := input.Program(agent); got != want {
			t.Errorf("Program(%q) = %q, want %q", agent, got, want)
		}
	}
}
