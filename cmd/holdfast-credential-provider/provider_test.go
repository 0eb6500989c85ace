package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSplitImage: the name of an image may have a port, a tag and a digest.
func TestSplitImage(t *testing.T) {
	for image, want := range map[string][2]string{
		"r.test/acme/app":                       {"r.test", "acme/app"},
		"r.test/acme/app:v1":                    {"r.test", "acme/app"},
		"r.test:5000/acme/team/app:v1":          {"r.test:5000", "acme/team/app"},
		"r.test:5000/acme/app@sha256:" + digits: {"r.test:5000", "acme/app"},
		"r.test/acme/app:v1@sha256:" + digits:   {"r.test", "acme/app"},
		"":                                      {},
		"app":                                   {},
		"app:v1":                                {},
		"/acme/app":                             {},
		"r.test/":                               {},
		"r.test/:v1":                            {},
		"r.test/a b":                            {},
		"r.test/a?scope=x":                      {},
		"r.test/a%2fb":                          {},
		"r.test/a\nb":                           {},
	} {
		host, repo, err := splitImage(image)
		if host != want[0] || repo != want[1] || (err == nil) != (want[0] != "") {
			t.Errorf("%q: %q %q %v, want %q", image, host, repo, err, want)
		}
	}
}

const digits = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

const question = `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1",` +
	`"image":"IMAGE","serviceAccountToken":"the-secret-token"}`

// TestAnswers: each answer of a server gives credentials or an error that contains no token.
func TestAnswers(t *testing.T) {
	const good = `{"token":"t","expires_in":900,"scope":"repository:acme/app:pull"}`
	for name, tt := range map[string]struct {
		status       int
		answer, want string
	}{
		"a token": {200, good, `"cacheKeyType":"Image","cacheDuration":"13m30s",` +
			`"auth":{"HOST":{"username":"_token","password":"t"}}`},
		"a token without the scope": {200, `{"token":"t","expires_in":900,"scope":""}`, "may not pull from acme/app"},
		"a token for more":          {200, `{"token":"t","scope":"repository:acme/app2:pull"}`, "may not pull from acme/app"},
		"no token":                  {200, `{}`, "status 200"},
		"an error":                  {401, `{"errors":[{"message":"invalid aud"}]}`, "gives no token: invalid aud"},
		"a status":                  {500, `{}`, "status 500"},
		"a page":                    {502, `<html>`, "status 502 and something other than JSON"},
		"nothing":                   {200, ``, "something other than JSON"},
		"a redirect":                {302, ``, "redirects are not followed"},
		"a very long answer":        {200, `{"x":"` + strings.Repeat("x", maxAnswer) + `"}`, "something other than JSON"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, _ := r.BasicAuth(); user != "" || password != "the-secret-token" {
				t.Errorf("%s: the server gets the user %q", name, user)
			}
			if got := r.URL.Query().Get("scope"); got != "repository:acme/app:pull" {
				t.Errorf("%s: the server gets the scope %q", name, got)
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.answer))
		}))
		host := strings.TrimPrefix(s.URL, "http://")
		got := output(t, strings.Replace(question, "IMAGE", host+"/acme/app:v1", 1), "--server", s.URL, "--timeout=1m")
		if want := strings.ReplaceAll(tt.want, "HOST", host); !strings.Contains(got, want) {
			t.Errorf("%s: %.300s, want %s", name, got, want)
		}
		s.Close()
		got = output(t, strings.Replace(question, "IMAGE", host+"/acme/app:v1", 1), "--server", s.URL)
		if !strings.Contains(got, "does not answer") {
			t.Errorf("%s: of a stopped server: %s", name, got)
		}
	}
}

// output returns the answer of the program, or its error.
func output(t *testing.T, in string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	getenv := func(string) string { return "" }
	if err := run(context.Background(), args, getenv, strings.NewReader(in), &out); err != nil {
		out.WriteString(err.Error())
	}
	if strings.Contains(out.String(), "the-secret-token") {
		t.Errorf("the token is in the output: %s", &out)
	}
	return out.String()
}

// TestBadRequests: a request that is not answered leads to no call, and the error says what to correct.
func TestBadRequests(t *testing.T) {
	right := strings.Replace(question, "IMAGE", "r.test/acme/app", 1)
	for name, tt := range map[string]struct {
		in, want string
		args     []string
	}{
		"nothing":             {"", "not a JSON object", nil},
		"no object":           {`["the-secret-token"]`, "not a JSON object", nil},
		"another kind":        {strings.Replace(right, "ProviderRequest", "X", 1), "must send a Credential", nil},
		"an older version":    {strings.Replace(right, "/v1", "/v1beta1", 1), "must send a CredentialProviderRequest", nil},
		"no token":            {strings.Replace(right, "the-secret-token", "", 1), "set tokenAttributes", nil},
		"another registry":    {right, "serves only holdfast.test", []string{"--server=https://holdfast.test"}},
		"no server":           {right, "HOLDFAST_SERVER must be", nil},
		"a server by http":    {right, "with https://", []string{"--server=http://r.test"}},
		"a server with a key": {right, "with https://", []string{"--server=https://a:b@r.test"}},
		"no image": {
			strings.Replace(right, "r.test/acme/app", "app", 1), "not the name of an image", []string{"--server=https://r.test"},
		},
		"a file that lacks": {right, "no such file", []string{"--server=https://r.test", "--ca=/nothing"}},
		"a wrong file":      {right, "no certificate", []string{"--server=https://r.test", "--ca=/dev/null"}},
		"an argument":       {right, "unexpected argument", []string{"get"}},
		"too much":          {right + strings.Repeat(" ", maxRequest), "too large", nil},
	} {
		if got := output(t, tt.in, tt.args...); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %.300s, want %s", name, got, tt.want)
		}
	}
}

// FuzzRequest checks that no request makes the program panic, and that accepted names of images are safe in a scope.
func FuzzRequest(f *testing.F) {
	f.Add(strings.Replace(question, "IMAGE", "r.test/acme/app:v1", 1))
	f.Add(`{"kind":"CredentialProviderRequest","serviceAccountAnnotations":{"holdfast.dev/identity":"x"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		q, err := parseRequest([]byte(text))
		if err != nil {
			return
		}
		if _, repo, err := splitImage(q.Image); err == nil && strings.ContainsAny(repo, " @?#\n") {
			t.Errorf("the repo of %q is %q", q.Image, repo)
		}
	})
}
