package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/server/config"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A tenant is what other organizations must not learn about an organization: its name, the names of its people and
// workloads, and the address from which they pull.
type tenant struct {
	name, workload, person, email, address string
}

// hidden returns the texts that no answer to another organization may contain.
func (c tenant) hidden() []string { return []string{c.name, c.workload, c.person, c.email, c.address} }

var (
	rival = tenant{"zz-rival", "zz-workload", "zz-person", "zz-person@rival.test", "203.0.113.77"}
	host  = tenant{"", "yy-workload", "", "", "203.0.113.66"}

	rivalGroup    = resource.DerivedUID("zz-rival")
	rivalWorkload = rivalGroup.NewChild()
	rivalPerson   = resource.UserUID("https://rival.test", "zz-person")
)

// seedRival creates an organization with a workload and a person, whom the owner of the first organization cannot see.
func seedRival(t *testing.T) func(*storetest.Store) {
	return func(s *storetest.Store) {
		seedAda(t)(s)
		now := time.Now().UTC().Truncate(time.Millisecond)
		if _, err := s.InsertGroup(t.Context(),
			resource.Group{UID: rivalGroup, Name: rival.name, CreateTime: now, UpdateTime: now}); err != nil {
			t.Fatal(err)
		}
		for _, i := range []resource.Identity{
			{UID: rivalWorkload, Name: rival.workload}, {UID: rivalPerson, Name: rival.person, Email: rival.email},
		} {
			i.CreateTime, i.UpdateTime, i.LastSeenTime, i.Realm = now, now, now, "https://rival.test"
			i.Relationship.ClaimMatch = &resource.ClaimMatch{Issuer: "https://rival.test", Subject: i.Name}
			if err := s.InsertIdentity(t.Context(), i); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// pullEverything makes all repos of the organization public, and pulls all their tags with a token and from an address.
func (w *world) pullEverything(t *testing.T, org string, identity resource.UID, address string) {
	t.Helper()
	must[*ocipb.Settings](t, w.overGRPC, w.Token,
		&ocipb.UpdateSettingsRequest{Settings: &ocipb.Settings{Uid: org, Public: true}})
	bearer := w.mint(t, identity, token.Claims{Audience: []string{w.RegistryHost}})
	owner := w.mint(t, w.Owner, token.Claims{Audience: []string{w.RegistryHost}})
	var list struct{ Repositories, Tags []string }
	if err := json.Unmarshal([]byte(w.oci(t, owner, "GET", "/v2/_catalog?n=1000", "").body), &list); err != nil {
		t.Fatal(err)
	}
	pulled := 0
	for _, repo := range list.Repositories {
		list.Tags = nil
		_ = json.Unmarshal([]byte(w.oci(t, owner, "GET", "/v2/"+repo+"/tags/list", "").body), &list)
		for _, tag := range list.Tags {
			got := w.oci(t, bearer, "GET", "/v2/"+repo+"/manifests/"+tag, "", "X-Forwarded-For", address)
			if got.status == http.StatusOK {
				pulled++
			}
		}
	}
	if pulled == 0 {
		t.Fatal("nothing was pulled")
	}
	procUntil(t, fmt.Sprintf("the pulls of %s are recorded", identity), func() bool {
		return must[*ocipb.ListPullsResponse](t, w.overGRPC, w.Token,
			&ocipb.ListPullsRequest{IdentityUid: string(identity)}).GetTotalCount() > 0
	})
}

// registryHides checks that no answer of the registry to a caller of the API contains a hidden text.
func (w *world) registryHides(t *testing.T, who, bearer string, hidden []string) {
	t.Helper()
	switch who {
	case "the owner":
		bearer = w.mint(t, w.Owner, token.Claims{Audience: []string{w.RegistryHost}})
	case "nobody":
	default:
		bearer = w.mint(t, rivalWorkload, token.Claims{Audience: []string{w.RegistryHost}})
	}
	for path, status := range map[string]int{
		"manifests/v2": http.StatusOK, "tags/list": http.StatusOK, "manifests/none": http.StatusNotFound,
		"referrers/sha256:" + strings.Repeat("0", 64): http.StatusOK,
	} {
		got := w.oci(t, bearer, "GET", "/v2/dev/folder/kept/"+path, "")
		if got.status != status {
			t.Errorf("%s gets %d for %s of a public repo, want %d", who, got.status, path, status)
		}
		for _, text := range hidden {
			if strings.Contains(got.body, text) || strings.Contains(fmt.Sprint(got.header), text) {
				t.Errorf("%s learns %q from %s of the registry: %.500s", who, text, path, got.body)
			}
		}
	}
}

// TestAttackNamesOfOthers calls every method as the owner of an organization from whose public repos people and
// workloads of another organization have pulled, and as a member of that other organization, and without a token. No
// answer may contain a name or an address that the caller may not see. The owner must see the names and addresses of
// their own workloads.
func TestAttackNamesOfOthers(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		proxies := config.Prefixes{netip.MustParsePrefix("127.0.0.0/8")}
		w := serve(t, url, server.Config{InspectWorkers: 1, TrustedProxies: proxies}, seedRival(t))
		x := w.makeThings(t)
		var doc document
		if err := json.Unmarshal([]byte(w.send(t, "", "GET", "/openapi.json", "").body), &doc); err != nil {
			t.Fatal(err)
		}
		examples := doc.examples(t, w, x)
		sink, watch := w.collectEvents(t, x.org), w.watchOverHTTP(t, w.Token, &auditpb.WatchEntriesRequest{GroupUid: x.org})
		position := watch.begun()
		t.Run("UIDs of others", func(t *testing.T) { w.hidesUIDs(t, x, doc, examples) })
		t.Run("narrowed tokens", func(t *testing.T) { w.narrows(t, x, doc, examples) })
		kept := w.repo(t, x.folder, "kept")
		for _, tag := range []string{"v1", "v2"} {
			w.pushImage(t, "dev/folder/kept", tag, "amd64", tag)
		}
		w.retain(t, kept, &ocipb.Retention{KeepNewest: 1})
		preview := "RetentionService_PreviewRetention"
		examples[preview] = append(examples[preview], example{uid: kept})
		own := w.robot(t, x.org, host.workload)
		w.bind(t, x.org, own, string(resource.ManagedRoleUID("registry.pull")))
		w.bind(t, x.folder, string(rivalWorkload), x.role)
		w.bind(t, x.folder, string(rivalPerson), x.role)
		w.pullEverything(t, x.org, resource.UID(own), host.address)
		w.pullEverything(t, x.org, rivalWorkload, rival.address)
		w.pullEverything(t, x.org, rivalPerson, rival.address)
		procUntil(t, "the preview has an image that was last pulled by a stranger", func() bool {
			plan := must[*ocipb.RetentionPlan](t, w.overGRPC, w.Token, &ocipb.PreviewRetentionRequest{Uid: kept})
			return len(plan.GetGoing()) == 1 && plan.GetGoing()[0].GetPullerUid() == string(rivalPerson)
		})
		seen := strings.Builder{}
		for _, pass := range []struct {
			who, bearer string
			hidden      []string
		}{
			{"nobody", "", append(rival.hidden(), host.workload, host.address)},
			{"a member of the other organization", w.mint(t, rivalWorkload, token.Claims{}),
				[]string{host.workload, host.address, rival.person, rival.email}},
			{"the owner", w.Token, rival.hidden()},
		} {
			for _, id := range inOrder(examples) {
				path, verb, op, ok := doc.find(id)
				if !ok || strings.HasSuffix(path, ":watch") { // a watch returns entries of the audit log, which are listed
					continue
				}
				for _, e := range examples[id] {
					bearer := pass.bearer
					if e.as != "" && bearer != w.Token {
						continue // the example is about its caller
					}
					if e.as != "" {
						bearer = e.as
					}
					got := w.send(t, bearer, strings.ToUpper(verb), e.target(t, path, op, x), e.body)
					for _, text := range pass.hidden {
						if strings.Contains(got.body, text) || strings.Contains(fmt.Sprint(got.header), text) {
							t.Errorf("%s learns %q from %s: %.500s", pass.who, text, id, got.body)
						}
					}
					if pass.who != "the owner" {
						continue
					}
					seen.WriteString(got.body)
					if succeeds := got.status == http.StatusOK; succeeds == e.fails {
						t.Errorf("%s by the owner: %d %.300s", id, got.status, got.body)
					}
				}
			}
			w.registryHides(t, pass.who, pass.bearer, pass.hidden)
		}
		for _, text := range []string{host.workload, host.address} {
			if !strings.Contains(seen.String(), text) {
				t.Errorf("the owner does not see %q", text)
			}
		}
		w.child(t, x.org, "last-group")
		for way, text := range map[string]string{
			"a watch":   w.watchUntil(t, x.org, position, "last-group"),
			"a webhook": sink.until(t, "last-group"),
			"an export": w.send(t, w.Token, "GET", "/advisories/v1/export?group_uid="+x.org, "").body,
			"a secdb":   w.send(t, w.Token, "GET", "/advisories/v1/secdb/"+x.org, "").body,
		} {
			for _, hidden := range rival.hidden() {
				if strings.Contains(text, hidden) {
					t.Errorf("the owner learns %q from %s", hidden, way)
				}
			}
		}
	})
}

// A bodies collects the bodies of requests.
type bodies struct {
	mu   sync.Mutex
	text strings.Builder
}

// collectEvents subscribes to the events of a group and collects them.
func (w *world) collectEvents(t *testing.T, group string) *bodies {
	t.Helper()
	b := &bodies{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		fmt.Fprintln(&b.text, r.Header)
		_, _ = io.Copy(&b.text, r.Body)
	}))
	t.Cleanup(s.Close)
	body := fmt.Sprintf(`{"sink":%q}`, s.URL)
	if r := w.send(t, w.Token, "POST", "/events/v2beta1/subscriptions/"+group, body); r.status != http.StatusOK {
		t.Fatalf("subscribe: %d %s", r.status, r.body)
	}
	return b
}

// until waits until a body contains the text, and returns all bodies. They must contain the name of our workload.
func (b *bodies) until(t *testing.T, last string) (all string) {
	t.Helper()
	procUntil(t, "an event with "+last, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		all = b.text.String()
		return strings.Contains(all, last) && strings.Contains(all, host.workload)
	})
	return all
}

// watchUntil returns the entries of the audit log after a position, up to the first entry that contains a text. They
// must contain the name of our workload.
func (w *world) watchUntil(t *testing.T, group, position, last string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), procPatience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.BaseURL+"/audit/v1/entries:watch?group_uid="+group, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.Token)
	r.Header.Set("Last-Event-ID", position)
	resp, err := w.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all := strings.Builder{}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		all.WriteString(lines.Text())
		if strings.Contains(lines.Text(), last) {
			break
		}
	}
	if text := all.String(); strings.Contains(text, last) && strings.Contains(text, host.workload) {
		return text
	}
	t.Fatalf("the watch ended with %v before the entry with %s: %.2000s", lines.Err(), last, all.String())
	return ""
}
