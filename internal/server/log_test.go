package server

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestLogTellsOfPanics: panics are logged at every log level. Panics that abort a
// response on purpose are not logged.
func TestLogTellsOfPanics(t *testing.T) {
	for value, want := range map[any]bool{"no such thing": true, http.ErrAbortHandler: false} {
		var b bytes.Buffer
		h := reportPanics(Config{Stderr: &b, LogLevel: slog.LevelError}.Logger(),
			func(http.ResponseWriter, *http.Request) { panic(value) })
		func() {
			defer func() {
				if v := recover(); v != http.ErrAbortHandler {
					t.Errorf("panic(%v) went on as %v", value, v)
				}
			}()
			h(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v2/?secret", nil))
		}()
		told := strings.Contains(b.String(), "no such thing") && strings.Contains(b.String(), "log_test.go") &&
			strings.Contains(b.String(), `"path":"/v2/"`)
		if told != want || !want && b.Len() > 0 || strings.Contains(b.String(), "secret") {
			t.Errorf("panic(%v): log = %s", value, b.String())
		}
	}
}
