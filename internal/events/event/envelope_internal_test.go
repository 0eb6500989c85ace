package event

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

func TestHeaderValue(t *testing.T) {
	for in, want := range map[string]string{
		"plain/text-1.0": "plain/text-1.0", "a b": "a%20b", `say "x"`: "say%20%22x%22", "100%": "100%25",
		"é": "%C3%A9", "a\r\nb": "a%0D%0Ab",
	} {
		if got := headerValue(in); got != want {
			t.Errorf("headerValue(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"": 0, "120": 2 * time.Minute, "-5": 0, "soon": 0, "Fri, 02 Jan 2026 03:05:05 GMT": time.Minute,
		"Fri, 02 Jan 2026 03:00:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {in}}, now); got != want {
			t.Errorf("Retry-After %q is %s, want %s", in, got, want)
		}
	}
}

// FuzzRetryAfter checks that for any Retry-After header the wait is not negative and not longer than maxRetryAfter.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"1", "Fri, 02 Jan 2026 03:05:05 GMT", "1e300", "9223372036854775807", "1h5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got := min(maxRetryAfter, retryAfter(http.Header{"Retry-After": {text}}, time.Now())); got < 0 ||
			got > maxRetryAfter {
			t.Errorf("Retry-After %q is %s", text, got)
		}
	})
}

// FuzzSink checks that the server can build a request for every address that it accepts as a sink, and that no part of
// the address escapes its header.
func FuzzSink(f *testing.F) {
	for _, seed := range []string{"https://sink.example/a?b=c", "http://127.0.0.1:9/", "https://[::1%25eth0]/",
		"https://a\r\nb", "https://sink.example:99999/"} {
		f.Add(seed)
	}
	v, err := encode(Names{Prefix: "p", Extension: "x"}, "https://api.test",
		resource.Event{ID: "1", Type: resource.GroupCreated}, Body{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, sink string) {
		sub := resource.Subscription{UID: resource.NewRoot().NewChild(), Sink: sink}
		if sub.Validate() != nil {
			return
		}
		r, err := v.request(t.Context(), sub.Sink, deliveryHeaders(Names{Extension: "x"}, sub), "t")
		if err != nil {
			t.Fatalf("%q: %v", sink, err)
		}
		if got := r.Header.Get("Ce-Xwebhook"); strings.ContainsFunc(got,
			func(c rune) bool { return c <= ' ' || c > '~' }) {
			t.Errorf("%q in a header: %q", sink, got)
		}
	})
}
