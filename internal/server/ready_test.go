package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestReadinessNamesWhatIsMissing(t *testing.T) {
	s, err := New(
		t.Context(), Config{Listen: "127.0.0.1:0", DataDir: t.TempDir(), Stdout: io.Discard, Stderr: io.Discard},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }() // may fail, because a step of the test closes the store
	h := s.routes()
	steps := []struct {
		name   string
		spoil  func()
		status int
		body   string
	}{
		{"at first", func() {}, http.StatusOK, `{"status":"ready"}` + "\n"},
		{"draining", func() { s.draining.Store(true) }, http.StatusServiceUnavailable,
			`{"missing":{"server":"shutting down"},"status":"not ready"}` + "\n"},
		{"without a database", func() { s.draining.Store(false); _ = s.store.Close() }, http.StatusServiceUnavailable,
			`{"missing":{"database":"cannot be reached"},"status":"not ready"}` + "\n"},
	}
	for _, step := range steps {
		step.spoil()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
		if w.Code != step.status || w.Body.String() != step.body {
			t.Errorf("%s: %d %s", step.name, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil))
	if w.Code != http.StatusOK {
		t.Errorf("without a database the process is not alive: %d", w.Code)
	}
}
