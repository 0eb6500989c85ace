package auth

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
)

// TestSignPullToken: a JWT library accepts the tokens that signPullToken signs without a
// library.
func TestSignPullToken(t *testing.T) {
	claims := map[string]any{"sub": "s", "exp": 1.0}
	for range 1000 { // enough for some numbers with a leading zero, which must not be shortened
		token, text, err := signPullToken(claims)
		if err != nil {
			t.Fatal(err)
		}
		var keys jose.JSONWebKeySet
		if err := json.Unmarshal([]byte(text), &keys); err != nil || !keys.Keys[0].IsPublic() || !keys.Keys[0].Valid() {
			t.Fatalf("keys %s: %v", text, err)
		}
		signed, err := jose.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
		if err != nil {
			t.Fatal(err)
		}
		payload, err := signed.Verify(keys)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]any{}
		if err := json.Unmarshal(payload, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(claims, got); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestSaveDocker(t *testing.T) {
	token := pullToken{Registry: "r.example.com", Username: "u", Password: "hush"}
	entry := `{"auth":"` + base64.StdEncoding.EncodeToString([]byte("u:hush")) + `"}`
	tests := map[string]struct {
		before, after string // contents of the file; if after is "", the file is unchanged
		helped        string
		err           string
	}{
		"a new file": {before: "", after: `{"auths":{"r.example.com":` + entry + `}}`},
		"a file with other keys": {
			before: `{"auths":{"x":{"auth":"y"}},"psFormat":"z"}`,
			after:  `{"auths":{"x":{"auth":"y"},"r.example.com":` + entry + `},"psFormat":"z"}`,
		},
		"a file with nulls": {before: `{"auths":null}`, after: `{"auths":{"r.example.com":` + entry + `}}`},
		"a helper": {
			before: `{"credsStore":"test"}`, helped: `{"Secret":"hush","ServerURL":"r.example.com","Username":"u"}`,
		},
		"a helper for this one": {
			before: `{"credsStore":"x","credHelpers":{"r.example.com":"test"}}`,
			helped: `{"Secret":"hush","ServerURL":"r.example.com","Username":"u"}`,
		},
		"a helper for others": {
			before: `{"credHelpers":{"x":"y"}}`, after: `{"auths":{"r.example.com":` + entry + `},"credHelpers":{"x":"y"}}`,
		},
		"a helper that is none": {before: `{"credsStore":"../evil"}`, err: "contains an invalid name of a credential helper"},
		"a helper that is gone": {before: `{"credsStore":"gone"}`, err: "docker-credential-gone"},
		"no JSON":               {before: `hush`, err: "is not a JSON object"},
		"other JSON":            {before: `{"auths":"hush"}`, err: "auths does not have docker's format"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("DOCKER_CONFIG", dir)
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			helper := "#!/bin/sh\n[ \"$1\" = store ] && cat >" + filepath.Join(dir, "helped") + "\n"
			if err := os.WriteFile(filepath.Join(dir, "docker-credential-test"), []byte(helper), 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "config.json")
			if tt.before != "" {
				if err := os.WriteFile(path, []byte(tt.before), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			saved := token
			err := saveDocker(t.Context(), noun.NewApp(os.Stdin, os.Stdout, os.Stderr), &saved)
			if (err == nil) != (tt.err == "") ||
				(err != nil && (!strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "hush"))) {
				t.Fatalf("error = %v, want %q", err, tt.err)
			}
			if (saved.Password == "") != (err == nil) {
				t.Errorf("the password is %q", saved.Password)
			}
			if tt.after == "" {
				tt.after = tt.before
			}
			text, _ := os.ReadFile(path)
			if got, want := compact(text), compact([]byte(tt.after)); got != want {
				t.Errorf("the file is %s, want %s", got, want)
			}
			if helped, _ := os.ReadFile(filepath.Join(dir, "helped")); string(helped) != tt.helped {
				t.Errorf("the helper was told %s, want %s", helped, tt.helped)
			}
		})
	}
}

// compact returns JSON in a compact form, and any other text unchanged.
func compact(text []byte) string {
	var v any
	if json.Unmarshal(text, &v) != nil {
		return string(text)
	}
	out, _ := json.Marshal(v)
	return string(out)
}
