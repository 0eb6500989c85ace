package client

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runner returns a server that answers as a GitHub Actions runner does.
func runner(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer secret-of-the-run":
			http.Error(w, "who are you, secret-of-the-run?", http.StatusUnauthorized)
		case r.URL.Path == "/page":
			fmt.Fprint(w, "<html>secret")
		case r.URL.Path == "/elsewhere":
			http.Redirect(w, r, "/token?secret=1", http.StatusFound)
		default:
			fmt.Fprintf(w, `{"value": "token-for-%s-%s"}`, r.URL.Query().Get("audience"), r.URL.Query().Get("api-version"))
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestPlatforms(t *testing.T) {
	dir := t.TempDir()
	agent := filepath.Join(dir, "buildkite-agent")
	script := `#!/bin/sh
[ "$1 $2 $3" = 'oidc request-token --audience' ] || { echo 'oh dear' >&2; exit 1; }
echo "from-agent-$4"
`
	if err := os.WriteFile(agent, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	pod := filepath.Join(dir, "token")
	if err := os.WriteFile(pod, []byte("from-pod\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	github := map[string]string{
		"ACTIONS_ID_TOKEN_REQUEST_URL":   runner(t).URL + "/token?api-version=2.0",
		"ACTIONS_ID_TOKEN_REQUEST_TOKEN": "secret-of-the-run",
	}
	noToken := filepath.Join(dir, "words")
	if err := os.WriteFile(noToken, []byte("no token"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		env        map[string]string
		kubernetes string
		want, err  string
	}{
		"GitHub Actions":                {github, "", "token-for-aud-2.0", ""},
		"GitLab CI":                     {map[string]string{"HOLDFAST_ID_TOKEN": "from-gitlab"}, "", "from-gitlab", ""},
		"Buildkite":                     {map[string]string{"BUILDKITE_JOB_ID": "1"}, "", "from-agent-aud", ""},
		"a pod":                         {nil, pod, "from-pod", ""},
		"a pipeline that runs in a pod": {github, pod, "token-for-aud-2.0", ""},
		"no platform":                   {nil, "", "", ErrNoPlatform.Error()},
		"a job without a token": {
			map[string]string{"HOLDFAST_ID_TOKEN": "two words"}, pod, "", "ask GitLab CI for a token: the answer is not a token",
		},
		"a pod without a token": {
			nil, noToken, "", "ask Kubernetes for a token: " + noToken + " does not contain a token",
		},
		"AWS without a secret": {
			map[string]string{"AWS_ACCESS_KEY_ID": "id"}, "", "", "ask AWS for a token: AWS_SECRET_ACCESS_KEY is not set",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			getenv := func(k string) string { return tt.env[k] }
			got, err := platformToken(t.Context(), platforms(tt.kubernetes), getenv, purpose{audience: "aud"})
			if got != tt.want || (err == nil) != (tt.err == "") || (err != nil && err.Error() != tt.err) {
				t.Errorf("token %q, %v; want %q, %s", got, err, tt.want, tt.err)
			}
		})
	}
}

// TestGitHubRefuses: errors quote neither the request nor the answer.
func TestGitHubRefuses(t *testing.T) {
	s := runner(t)
	tests := map[string]struct{ url, bearer, want string }{
		"a wrong token": {s.URL + "/token?secret=1", "secret-but-wrong", "it answers 401 Unauthorized"},
		"a page":        {s.URL + "/page?secret=1", "secret-of-the-run", "its answer is not JSON"},
		"a redirection": {s.URL + "/elsewhere?secret=1", "secret-of-the-run", "it answers 302 Found"},
		"unencrypted": {
			"http://runner.example.com/?secret=1", "secret", "ACTIONS_ID_TOKEN_REQUEST_URL is not an https address",
		},
		"no address":         {"secret:%", "secret", "ACTIONS_ID_TOKEN_REQUEST_URL is not an https address"},
		"nobody there":       {"http://127.0.0.1:1/?secret=1", "secret", "connection refused"},
		"a token of 2 lines": {s.URL + "/token?secret=1", "secret\nX: y", "invalid header field value"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{"ACTIONS_ID_TOKEN_REQUEST_URL": tt.url, "ACTIONS_ID_TOKEN_REQUEST_TOKEN": tt.bearer}
			got, err := githubToken(t.Context(), func(k string) string { return env[k] }, purpose{audience: "aud"})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%q, %v; want an error that says %q and no secret", got, err, tt.want)
			}
		})
	}
}

func TestBuildkiteRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := buildkiteToken(context.WithoutCancel(t.Context()), os.Getenv, purpose{audience: "aud"}); err == nil ||
		!strings.Contains(err.Error(), "buildkite-agent") {
		t.Errorf("without an agent: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "buildkite-agent"),
		[]byte("#!/bin/sh\necho 'no job' >&2\necho 'more' >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := buildkiteToken(t.Context(), os.Getenv, purpose{audience: "aud"}); err == nil ||
		err.Error() != "buildkite-agent: no job" {
		t.Errorf("an agent that fails: %v", err)
	}
}
