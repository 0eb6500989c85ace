package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What cannot be made to happen in a story.
func TestUnanswered(t *testing.T) {
	tests := map[string]struct {
		code   codes.Code
		text   string
		want   string
		exit   int
		advice string
	}{
		"too slow":       {codes.DeadlineExceeded, "context deadline exceeded", "no answer from https://h.example.com in time", exitUnreachable, "--timeout"},
		"interrupted":    {codes.Canceled, "context canceled", "interrupted", exitInterrupted, ""},
		"an old server":  {codes.Unimplemented, "unknown service x", "unknown service x", exitError, "holdfast version"},
		"a proxy's page": {codes.Unknown, "unexpected content-type \"text/html\"", "unexpected content-type \"text/html\"", exitError, ""},
		"cut off":        {codes.Unavailable, "error reading from server: EOF", "cannot reach https://h.example.com: error reading from server: EOF", exitUnreachable, "config view"},
		"a name that is not in DNS": {
			codes.Unavailable, "dns: A record lookup error: lookup h.example.com on 127.0.0.53:53: no such host",
			"cannot reach https://h.example.com: its name has no address", exitUnreachable, "config view",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := refusal{api: "https://h.example.com", err: status.Error(tt.code, tt.text)}.problem()
			if p.text != tt.want || p.code != tt.exit {
				t.Errorf("got %q, exit code %d; want %q, %d", p.text, p.code, tt.want, tt.exit)
			}
			if !strings.Contains(strings.Join(p.hints, "\n"), tt.advice) {
				t.Errorf("hints %q do not say %q", p.hints, tt.advice)
			}
		})
	}
}

func TestProblemOf(t *testing.T) {
	inner := &problem{text: "no", hints: []string{"try"}, code: exitNotFound}
	if p := problemOf(t.Context(), fmt.Errorf("--role: %w", inner)); p.text != "--role: no" || p.code != exitNotFound || len(p.hints) != 1 {
		t.Errorf("a wrapped problem = %+v", p)
	}
	if p := problemOf(t.Context(), errors.New("disk full")); p.text != "disk full" || p.code != exitError {
		t.Errorf("any other error = %+v", p)
	}
}
