package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"syscall"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const replicaRounds = 10

// replicas starts two servers concurrently on one database. Each server has a data folder of its own.
func replicas(t *testing.T, database string, key secret.Key) (a, b *proc) {
	t.Helper()
	start := func() *proc {
		return procLaunch(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_DATABASE="+database,
			"HOLDFAST_ENCRYPTION_KEY="+key.Text())
	}
	a, b = start(), start()
	a.waitReady()
	b.waitReady()
	return a, b
}

// TestReplicaStart starts two servers concurrently, several times. Both try to create the schema or, if the schema
// exists, the managed roles, the keys and the organization. Afterwards both must have the same organization and keys.
func TestReplicaStart(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, database string){
		"nothing is there":    func(*testing.T, string) {},
		"the schema is there": replicaMigrate,
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			for range replicaRounds {
				database := storetest.Postgres(t)
				prepare(t, database)
				a, b := replicas(t, database, secret.NewKey())
				replicaAgree(t, a, b)
				a.stop()
				b.stop()
				s := storetest.Open(t, database)
				procNoDrift(t, s)
				crashReplay(t, s)
			}
		})
	}
}

func replicaMigrate(t *testing.T, database string) {
	t.Helper()
	s, err := store.Open(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// replicaAgree fails the test unless two servers have the same organization and keys, and accept each other's tokens.
func replicaAgree(t *testing.T, a, b *proc) {
	t.Helper()
	if a.dev.Organization != b.dev.Organization || a.dev.Owner != b.dev.Owner {
		t.Errorf("one replica has %v, the other %v", a.dev, b.dev)
	}
	for _, on := range []*proc{a, b} {
		for _, p := range []*proc{a, b} {
			api := procDial(on.address, p.dev.Token)
			atOnce(t, "the owner the other replica made is known", func() bool {
				return api.code(t.Context(), http.MethodGet, "/iam/v2beta1/groups/"+string(a.dev.Organization),
					nil) == http.StatusOK
			})
			faultMake(t, &proc{address: on.address, dev: p.dev})
		}
	}
	for _, path := range []string{"/.well-known/jwks.json", "/dev/issuer/jwks"} {
		keys := procMust[json.RawMessage](t, a.owner(), http.MethodGet, path, nil)
		if other := procMust[json.RawMessage](t, b.owner(), http.MethodGet, path, nil); string(keys) != string(other) {
			t.Errorf("%s: one replica has %s, the other %s", path, keys, other)
		}
	}
}

// TestReplicaPages checks that a list that began on one replica can be continued on another.
func TestReplicaPages(t *testing.T) {
	a, b := replicas(t, storetest.Postgres(t), secret.NewKey())
	for range 5 {
		faultMake(t, a)
	}
	type list struct {
		Groups        []procGroup
		NextPageToken string
	}
	path := "/iam/v2beta1/groups?order_by=name&page_size=2"
	var got []string
	for on, more := a, ""; ; on, a, b = b, b, a {
		page := procMust[list](t, on.owner(), http.MethodGet, path+"&page_token="+url.QueryEscape(more), nil)
		for _, g := range page.Groups {
			got = append(got, g.Name)
		}
		if more = page.NextPageToken; more == "" {
			break
		}
	}
	// The list contains five groups and the organization itself.
	if len(got) != 6 || !slices.IsSorted(got) || len(slices.Compact(got)) != 6 {
		t.Errorf("the pages of two replicas together are %q", got)
	}
}

// TestReplicaRevocation grants and revokes on one replica, and immediately asks another replica, which must already
// apply the change. It also asks a replica that was paused during the change.
func TestReplicaRevocation(t *testing.T) {
	key, database := secret.NewKey(), storetest.Postgres(t)
	a, b := replicas(t, database, key)
	issuer, err := token.New(t.Context(), storetest.Open(t, database).DB, token.Config{Issuer: procBase, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		take   func(*replicaGuest) string // returns the path of the resource to delete
		status int
	}{
		"a binding": {
			func(g *replicaGuest) string { return "/iam/v2beta1/roleBindings/" + string(g.binding) }, http.StatusForbidden,
		},
		"an identity": {
			func(g *replicaGuest) string { return "/iam/v2beta1/identities/" + string(g.identity) }, http.StatusUnauthorized,
		},
		"the group": {func(g *replicaGuest) string { return g.path }, http.StatusNotFound},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for i := range replicaRounds {
				asleep := i == replicaRounds-1
				g := replicaInvite(t, a, issuer)
				guest := procDial(b.address, g.token)
				if name == "the group" {
					guest = b.owner()
					g.clear(t, a)
				}
				atOnce(t, "the guest is let in",
					func() bool { return guest.code(t.Context(), http.MethodGet, g.path, nil) == http.StatusOK })
				if asleep {
					b.pause(syscall.SIGSTOP)
				}
				procMust[any](t, a.owner(), http.MethodDelete, tt.take(g), nil)
				if asleep {
					b.pause(syscall.SIGCONT)
				}
				if got := guest.code(t.Context(), http.MethodGet, g.path, nil); got != tt.status {
					t.Errorf("paused: %v: status %d, want %d", asleep, got, tt.status)
				}
			}
		})
	}
}

// pause sends a signal that suspends or resumes the process.
func (p *proc) pause(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// A replicaGuest is an identity that may see one group.
type replicaGuest struct {
	identity, binding resource.UID
	path              string // path of the group in the API
	token             string
}

func replicaInvite(t *testing.T, p *proc, issuer *token.Issuer) *replicaGuest {
	t.Helper()
	api, group := p.owner(), faultMake(t, p)
	match := map[string]string{"issuer": "https://issuer.test", "subject": "guest"}
	i := procMust[procGroup](t, api, http.MethodPost, "/iam/v2beta1/identities/"+string(group.UID),
		map[string]any{"name": "guest", "claimMatch": match})
	b := procMust[procGroup](t, api, http.MethodPost, "/iam/v2beta1/roleBindings/"+string(group.UID),
		map[string]any{"identityUid": i.UID, "roleUid": resource.ManagedRoleUID("viewer")})
	raw, err := issuer.Mint(t.Context(), token.Claims{Subject: i.UID, Audience: []string{procBase}})
	if err != nil {
		t.Fatal(err)
	}
	return &replicaGuest{i.UID, b.UID, "/iam/v2beta1/groups/" + string(group.UID), raw}
}

// clear deletes the identity of the guest.
func (g *replicaGuest) clear(t *testing.T, p *proc) {
	t.Helper()
	procMust[any](t, p.owner(), http.MethodDelete, "/iam/v2beta1/identities/"+string(g.identity), nil)
}
