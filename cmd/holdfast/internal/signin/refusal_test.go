package signin

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// TestUnanswered tests the errors that gRPC creates itself, because the test scripts
// cannot produce them.
func TestUnanswered(t *testing.T) {
	tests := map[string]struct {
		code   codes.Code
		text   string
		want   string
		exit   int
		advice string
	}{
		"too slow": {
			codes.DeadlineExceeded, "context deadline exceeded", "no answer from https://h.example.com in time",
			problem.ExitUnreachable, "--timeout",
		},
		"interrupted": {codes.Canceled, "context canceled", "interrupted", problem.ExitInterrupted, ""},
		"an old server": {
			codes.Unimplemented, "unknown service x", "unknown service x", problem.ExitError, "holdfast version",
		},
		"a proxy's page": {
			codes.Unknown, "unexpected content-type \"text/html\"", "unexpected content-type \"text/html\"", problem.ExitError,
			"",
		},
		"cut off": {
			codes.Unavailable, "error reading from server: EOF",
			"cannot reach https://h.example.com: error reading from server: EOF", problem.ExitUnreachable, "config view",
		},
		"a name that is not in DNS": {
			codes.Unavailable, "dns: A record lookup error: lookup h.example.com on 127.0.0.53:53: no such host",
			"cannot reach https://h.example.com: its name has no address", problem.ExitUnreachable, "config view",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := refusal{api: "https://h.example.com", err: status.Error(tt.code, tt.text)}.problem()
			if p.Text != tt.want || p.Code != tt.exit {
				t.Errorf("got %q, exit code %d; want %q, %d", p.Text, p.Code, tt.want, tt.exit)
			}
			if !strings.Contains(strings.Join(p.Hints, "\n"), tt.advice) {
				t.Errorf("hints %q do not say %q", p.Hints, tt.advice)
			}
		})
	}
}
