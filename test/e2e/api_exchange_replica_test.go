package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// order runs a holdfastd command and returns its output. The command talks to the server that uses the data folder.
func order(t *testing.T, data, database string, key secret.Key, args ...string) string {
	t.Helper()
	binary := testprogram.Holdfastd(t)
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = []string{
		"HOLDFAST_DATA_DIR=" + data, "HOLDFAST_DATABASE=" + database,
		"HOLDFAST_ENCRYPTION_KEY=" + key.Text(), "HOLDFAST_BASE_URL=" + procBase,
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("holdfastd %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// exchangeAt exchanges a token at a server. It returns the status and the new token.
func exchangeAt(ctx context.Context, p *proc, bearer string, identity resource.UID) (status int, issued string) {
	path := "/sts/exchange?" + url.Values{"aud": {procBase}, "identity": {string(identity)}}.Encode()
	a, err := procDial(p.address, bearer).call(ctx, http.MethodPost, path, nil)
	if err != nil {
		return 0, ""
	}
	var raw struct{ Token string }
	_ = json.Unmarshal(a.body, &raw) // fails for an error, whose body has no token
	return a.status, raw.Token
}

// atOnce fails the test unless ok returns true at the first call, because a change that one replica has confirmed
// must take effect on the other replica immediately.
func atOnce(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !ok() {
		t.Errorf("not in effect immediately: %s", what)
	}
}

// TestReplicaExchange changes and deletes an identity on one replica, and rotates and deletes signing keys. The other
// replica must apply each change to its next exchange and to the next use of a token.
func TestReplicaExchange(t *testing.T) {
	t.Parallel() // it waits for replicas most of its time
	database, key := storetest.Postgres(t), secret.NewKey()
	a, b := replicas(t, database, key)
	f := newFakeIssuer(t, &world{AuthURL: procBase})
	match := func(subject string) map[string]any {
		return map[string]any{"name": "guest", "claimMatch": map[string]string{"issuer": f.url, "subject": subject}}
	}
	i := procMust[procGroup](t, a.owner(), http.MethodPost,
		"/iam/v2beta1/identities/"+string(a.dev.Organization), match("job"))
	tries := func(want int) func() bool {
		return func() bool {
			status, _ := exchangeAt(t.Context(), b, f.token(nil), i.UID)
			return status == want
		}
	}
	atOnce(t, "the identity is known", tries(http.StatusOK))
	for range 3 {
		procMust[any](t, a.owner(), http.MethodPatch, "/iam/v2beta1/identities/"+string(i.UID), match("other"))
		atOnce(t, "the change is known", tries(http.StatusForbidden))
		procMust[any](t, a.owner(), http.MethodPatch, "/iam/v2beta1/identities/"+string(i.UID), match("job"))
		atOnce(t, "the change back is known", tries(http.StatusOK))
	}
	_, issued := exchangeAt(t.Context(), b, f.token(nil), i.UID)
	use := func(on *proc, want int) func() bool {
		return func() bool {
			return procDial(on.address, issued).code(t.Context(), http.MethodGet, "/iam/v2beta1/groups", nil) == want
		}
	}
	atOnce(t, "the other replica accepts the token", use(a, http.StatusOK))

	keys := func(on *proc) (ids []string) {
		set := procMust[struct{ Keys []struct{ Kid, Alg string } }](t,
			on.owner(), http.MethodGet, "/.well-known/jwks.json", nil)
		for _, k := range set.Keys {
			// Every replica also publishes a key pair for RS256.
			if k.Alg == "ES256" {
				ids = append(ids, k.Kid)
			}
		}
		return ids
	}
	old := keys(b)[0]
	next := order(t, a.data(), database, key, "keys", "rotate")
	atOnce(t, "the other replica publishes the new key", func() bool { return len(keys(b)) == 2 })
	if _, again := exchangeAt(t.Context(), b, f.token(nil), i.UID); keyOf(t, again) != old {
		t.Errorf("the new key signs before other servers can have read it")
	}
	atOnce(t, "a token of the old key is still valid", use(b, http.StatusOK))
	list := order(t, b.data(), database, key, "keys", "list")
	if !strings.Contains(list, old) || !strings.Contains(list, next) {
		t.Errorf("keys list prints %s", list)
	}
	order(t, a.data(), database, key, "keys", "drop", old)
	atOnce(t, "the replica that deleted the key refuses its tokens", use(a, http.StatusUnauthorized))
	atOnce(t, "the other replica refuses tokens of the deleted key", use(b, http.StatusUnauthorized))
	if _, again := exchangeAt(t.Context(), b, f.token(nil), i.UID); keyOf(t, again) != next {
		t.Error("the only remaining key does not sign")
	}
	s := storetest.Open(t, database)
	if err := s.DeleteIdentity(t.Context(), i.UID); err != nil {
		t.Fatal(err)
	}
	atOnce(t, "the deletion is known", tries(http.StatusForbidden))
}

// TestVerifyOrder checks that the operator, but not the owner, can verify the name of an organization.
func TestVerifyOrder(t *testing.T) {
	database, key := storetest.Postgres(t), secret.NewKey()
	a, b := replicas(t, database, key)
	path := "/iam/v2beta1/groups/" + string(a.dev.Organization)
	code := a.owner().code(t.Context(), http.MethodPatch, path, map[string]any{"verified": true})
	if code != http.StatusBadRequest {
		t.Errorf("the owner verifies the name: status %d", code)
	}
	type organization struct {
		Name     string
		Verified bool
	}
	is := func(want bool) {
		t.Helper()
		if g := procMust[organization](t, b.owner(), http.MethodGet, path, nil); g.Verified != want {
			t.Errorf("on the other replica verified = %v", g.Verified)
		}
	}
	is(false)
	name := procMust[organization](t, a.owner(), http.MethodGet, path, nil).Name
	if uid := order(t, a.data(), database, key, "organizations", "verify", name); uid != string(a.dev.Organization) {
		t.Errorf("verify prints %q", uid)
	}
	is(true)
	order(t, b.data(), database, key, "organizations", "unverify", string(a.dev.Organization))
	is(false)
	// This command runs without a server, because no server uses this data folder.
	order(t, t.TempDir(), database, key, "organizations", "verify", name)
	is(true)
	binary := testprogram.Holdfastd(t)
	for bad, want := range map[string]string{
		"nobody":                              "Not found: organization nobody",
		"":                                    "organization: name one",
		string(a.dev.Organization.NewChild()): "organization: is a group below one",
	} {
		cmd := exec.CommandContext(t.Context(), binary, "organizations", "verify", bad)
		cmd.Env = []string{"HOLDFAST_DATA_DIR=" + a.data(), "HOLDFAST_BASE_URL=" + procBase}
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("verify %q: %s, want %q", bad, out, want)
		}
	}
}

// keyOf returns the ID of the key with which a token was signed.
func keyOf(t *testing.T, raw string) string {
	t.Helper()
	head, _, _ := strings.Cut(raw, ".")
	kid, _ := said(t, "x."+head+".x")["kid"].(string)
	return kid
}

// data returns the data folder of a server.
func (p *proc) data() string {
	for _, line := range p.cmd.Env {
		if value, ok := strings.CutPrefix(line, "HOLDFAST_DATA_DIR="); ok {
			return value
		}
	}
	return "data"
}
