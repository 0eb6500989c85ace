package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestIssuersFile checks that the server exchanges tokens of issuers without a discovery document, if the issuers
// file says where the keys are.
func TestIssuersFile(t *testing.T) {
	dir := t.TempDir()
	f := newFakeIssuer(t, &world{AuthURL: "http://issuer.test"})
	file := filepath.Join(dir, "issuers.yaml")
	text := fmt.Sprintf(`
- {issuer: "https://by-address.example", jwks_uri: "%s/keys"}
- {issuer: "https://by-file.example", jwks_file: keys.json}
- {issuer: "https://by-text.example", jwks: '%s'}
`, f.url, fakeKeySet())
	for name, content := range map[string]string{file: text, filepath.Join(dir, "keys.json"): string(fakeKeySet())} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := serve(t, storetest.SQLite(t), server.Config{IssuersFile: file}, nil)
	for issuer, asked := range map[string]int32{
		"https://by-address.example": 1, "https://by-file.example": 0, "https://by-text.example": 0,
	} {
		before := f.asked.Load()
		w.exchange(t, f.token(map[string]any{"iss": issuer}), w.workload(t, issuer, nil))
		if n := f.asked.Load() - before; n != asked {
			t.Errorf("%s: %d requests for keys, want %d", issuer, n, asked)
		}
	}
	bad := filepath.Join(dir, "bad.yaml")
	mistakes := `
- {issuer: "https://a.example"}
- {issuer: "https://b.example", jwks_uri: "https://b.example/keys", jwks: "{}"}
- {jwks_uri: "https://c.example/keys"}
- {issuer: "https://d.example", jwks_file: gone.json}
- {issuer: "https://e.example", jwks: '{"keys":[{"kty":"oct","k":"AAAA"}]}'}
`
	if err := os.WriteFile(bad, []byte(mistakes), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := server.New(t.Context(), server.Config{
		Listen: "127.0.0.1:0", DataDir: t.TempDir(), IssuersFile: bad, Stderr: &syncBuffer{},
	})
	for _, part := range []string{"issuer 1", "issuer 2", "issuer 3", "issuer 4", "issuer 5"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not mention %s: %v", part, err)
		}
	}
}
