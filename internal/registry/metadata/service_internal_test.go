package metadata

import (
	"testing"
	"time"
)

func TestUntagged(t *testing.T) {
	for ref, want := range map[string]string{
		"acme/app": "acme/app", "acme/app:1": "acme/app", "host:5000/acme/app": "host:5000/acme/app",
		"host:5000/acme/app:1@sha256:ab": "host:5000/acme/app",
		"acme/app@sha256:ab":             "acme/app", "": "", ":": "", "@": "",
	} {
		if got := untagged(ref); got != want {
			t.Errorf("%q: %q, want %q", ref, got, want)
		}
	}
}

func TestReadConfig(t *testing.T) {
	c := readConfig([]byte(`{"created":"2026-01-02T03:04:05Z","config":{"User":"me",` +
		`"Env":["A=b"],"Cmd":["x"],"ExposedPorts":{"80/tcp":{}},"Labels":{"a":"b"}}}`))
	if !c.Created.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) || c.User != "me" || len(c.ExposedPorts) != 1 ||
		c.Labels["a"] != "b" {
		t.Errorf("read %+v", c)
	}
	c = readConfig([]byte(`{"created":7,"config":{"User":["me"],"Env":"x","Cmd":["y"]}}`))
	if !c.Created.IsZero() || c.User != "" || len(c.Cmd) != 1 {
		t.Errorf("of wrong types read %+v", c)
	}
}

// FuzzReadConfig checks that times in the configuration of an image, which is untrusted, are always read as valid or
// zero.
func FuzzReadConfig(f *testing.F) {
	f.Add([]byte(`{"created":"2026-01-02T03:04:05Z","config":{"User":"me"}}`))
	f.Add([]byte(`{"created":"9999-12-31T23:59:59-23:59"}`))
	f.Add([]byte(`{"config":{"Labels":{"\ud800":"x"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if y := readConfig(text).Created.UTC().Year(); y < 1 || y > 9999 {
			t.Errorf("%q was made in the year %d", text, y)
		}
	})
}
