package e2e_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const (
	findingOpened = "dev.holdfast.api.findings.finding.opened.v1"
	findingClosed = "dev.holdfast.api.findings.finding.closed.v1"
)

// findingNews is the body of an event about opened or closed findings.
type findingNews struct {
	Findings []struct {
		AdvisoryID, Severity, Score string
		Aliases                     []string
		Packages                    []struct {
			Package      struct{ Purl string }
			FixedVersion string
		}
	}
	Images                              []struct{ RepoUID, Digest string }
	FindingCount, ImageCount, PairCount int
	GroupUID, AdvisoryGroupUID, Source  string
	OwnerUIDs                           []string
}

// findings returns the received events that have this type and subject and are about this advisory.
func (r *receiver) findings(t *testing.T, kind, subject, id string) (news []findingNews) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range r.wrong {
		t.Fatal(err)
	}
	for _, e := range r.events {
		var got struct{ Body findingNews }
		if e.Type() != kind || e.Subject() != subject {
			continue
		}
		if err := e.DataAs(&got); err != nil {
			t.Fatal(err)
		}
		if e.Extensions()["group"] != subject || e.Extensions()["bodytype"] != "holdfast.findings.v1.FindingNews" {
			t.Errorf("extensions = %v", e.Extensions())
		}
		if got.Body.Findings[0].AdvisoryID == id {
			news = append(news, got.Body)
		}
	}
	return news
}

// awaitFindings waits until the receiver has at least n events as findings returns them, and returns these events.
func (r *receiver) awaitFindings(t *testing.T, kind, subject, id string, n int) []findingNews {
	t.Helper()
	procUntil(t, fmt.Sprintf("%s of %s in %s was received %d times", kind, id, subject, n), func() bool {
		return len(r.findings(t, kind, subject, id)) >= n
	})
	return r.findings(t, kind, subject, id)
}

// TestFindingEvents checks that a subscription delivers events about opened and closed findings if its group contains
// both the image and the advisory.
func TestFindingEvents(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGallery(t, url)
		sinks := map[string]*receiver{}
		for _, group := range []string{g.org, g.folder, g.sibling, g.other} {
			sinks[group] = newReceiver(t, g.world, group)
			g.post(t, "/events/v2beta1/subscriptions/"+group, `{"sink":"`+sinks[group].URL+`"}`)
		}
		left := osvOf("GHSA-1", "CVE-3", "npm", "left", "1.3.0")
		g.publish(t, g.folder, left)
		g.publish(t, g.sibling, osvOf("GHSA-2", "CVE-3", "npm", "left", "1.4.0"))
		g.publish(t, g.other, osvOf("GHSA-3", "CVE-3", "npm", "left", "1.5.0"))
		g.publish(t, g.org, osvOf("DSA-1", "CVE-1", "Debian:12", "openssl", "3.0.2-1"))
		sinks[g.folder].awaitFindings(t, findingOpened, g.folder, "CVE-3", 1)
		got := sinks[g.org].awaitFindings(t, findingOpened, g.folder, "CVE-3", 1)[0]
		g.checksNews(t, got)
		sinks[g.org].awaitFindings(t, findingOpened, g.org, "CVE-1", 1)
		// This advisory belongs to a sibling of the folder, so only the organization contains both the image and the
		// advisory.
		sinks[g.org].awaitFindings(t, findingOpened, g.org, "CVE-3", 1)

		gone := bytes.Replace(left, []byte(`"modified":"2026-01-02`),
			[]byte(`"withdrawn":"2026-01-03T00:00:00Z","modified":"2026-01-03`), 1)
		g.publish(t, g.folder, gone)
		sinks[g.folder].awaitFindings(t, findingClosed, g.folder, "CVE-3", 1)
		sinks[g.org].awaitFindings(t, findingClosed, g.folder, "CVE-3", 1)
		g.bundles(t, sinks[g.org])
		g.deletedIsNotClosed(t, sinks[g.org])

		for group, want := range map[string][]string{g.folder: {"CVE-3", "CVE-3"}, g.sibling: nil, g.other: nil} {
			if diff := cmp.Diff(want, sinks[group].advisoryIDs(t)); diff != "" {
				t.Errorf("events for %s: %s", group, diff)
			}
		}
		for _, call := range g.protocols() {
			g.auditsFindings(t, call)
		}
	})
}

// checksNews checks every field of an event about the finding CVE-3.
func (g *gallery) checksNews(t *testing.T, n findingNews) {
	t.Helper()
	f := n.Findings[0]
	// The source is "image" if the inspection matched the image before the import did, as can happen on a busy
	// machine.
	if n.FindingCount != 1 || n.ImageCount != 1 || n.PairCount != 1 ||
		n.GroupUID != g.folder || n.AdvisoryGroupUID != g.folder ||
		n.Source != "import" && n.Source != "image" || n.Images[0].RepoUID != g.repo ||
		n.Images[0].Digest != g.digest || len(n.OwnerUIDs) != 1 {
		t.Errorf("unexpected event %+v", n)
	}
	if f.Severity != "SEVERITY_CRITICAL" || f.Score != "9.8" || !slices.Equal(f.Aliases, []string{"GHSA-1"}) ||
		f.Packages[0].Package.Purl != "pkg:npm/left@1.2.0" || f.Packages[0].FixedVersion != "1.3.0" {
		t.Errorf("unexpected finding %+v", f)
	}
}

// advisoryIDs returns the advisory IDs in all received events about findings.
func (r *receiver) advisoryIDs(t *testing.T) (ids []string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		var got struct{ Body findingNews }
		if e.Type() != findingOpened && e.Type() != findingClosed {
			continue
		}
		if err := e.DataAs(&got); err != nil {
			t.Fatal(err)
		}
		for _, f := range got.Body.Findings {
			ids = append(ids, f.AdvisoryID)
		}
	}
	return ids
}

// bundles checks that a single event covers all images that an advisory affects.
func (g *gallery) bundles(t *testing.T, sink *receiver) {
	t.Helper()
	const more = 21
	for n := range more {
		g.pushImage(t, "dev/folder/app", fmt.Sprint("m", n), "amd64", layerOf(t, map[string]string{
			"app/node_modules/left/package.json": `{"name":"left","version":"1.2.0"}`, "n": fmt.Sprint(n)}))
	}
	opened := sink.awaitFindings(t, findingOpened, g.org, "CVE-3", more+1) // there is one event for each pushed image
	if last := opened[len(opened)-1]; last.Source != "image" || last.ImageCount != 1 {
		t.Errorf("event for a pushed image: %+v", last)
	}
	g.publish(t, g.org, osvOf("GHSA-9", "CVE-9", "npm", "left", "2.0.0"))
	got := sink.awaitFindings(t, findingOpened, g.org, "CVE-9", 1)
	n := got[0]
	if len(got) != 1 || n.ImageCount != more+1 || n.PairCount != more+1 || len(n.Images) != 20 || n.GroupUID != g.folder {
		t.Errorf("%d events; the first counts %d images, lists %d, in %s", len(got), n.ImageCount, len(n.Images), n.GroupUID)
	}
}

// deletedIsNotClosed checks that deleting an image causes no event about closed findings, because nothing was fixed.
func (g *gallery) deletedIsNotClosed(t *testing.T, sink *receiver) {
	t.Helper()
	g.oci(t, g.RegistryToken, "DELETE", "/v2/dev/folder/app/manifests/"+g.digest, "")
	g.publish(t, g.org, osvOf("GHSA-10", "CVE-10", "npm", "left", "2.0.0"))
	if n := sink.awaitFindings(t, findingOpened, g.org, "CVE-10", 1)[0]; n.ImageCount != 21 {
		t.Errorf("%d images after one was deleted, want 21", n.ImageCount)
	}
	for _, id := range []string{"CVE-1", "CVE-9"} {
		if n := len(sink.findings(t, findingClosed, g.org, id)); n != 0 {
			t.Errorf("%d events close %s", n, id)
		}
	}
}

// auditsFindings checks that the audit log shows the events about findings only to callers who may list identities,
// repos, advisories and reports in the group of the event.
func (g *gallery) auditsFindings(t *testing.T, call caller) {
	t.Helper()
	count := func(bearer string) (subjects []string) {
		for _, e := range g.audit(t, call, bearer, &auditpb.ListEntriesRequest{Type: "findings.finding"}) {
			if len(e.GetAfter().GetFields()) == 0 {
				t.Errorf("the entry has no fields: %v", e)
			}
			subjects = append(subjects, e.GetSubject())
		}
		return subjects
	}
	if _, st := call(t, "", &auditpb.ListEntriesRequest{Type: "findings.finding"}); st.Code() != codes.Unauthenticated {
		t.Errorf("without a token: %v", st)
	}
	caps := resource.NewCapabilities(resource.GroupsList, resource.IdentityList)
	for who, bearer := range map[string]string{
		"other":    g.full["other"],
		"sibling":  g.full["sibling"],
		"narrowed": g.mint(t, g.Owner, token.Claims{Caps: &caps}),
	} {
		if n := len(count(bearer)); n != 0 {
			t.Errorf("%s sees %d entries", who, n)
		}
	}
	if diff := cmp.Diff([]string{g.folder, g.folder}, count(g.full["folder"])); diff != "" {
		t.Errorf("entries for a caller with rights on the folder: %s", diff)
	}
	needed := []string{"identity.list", "vuln_report.list", "repo.list", "advisories.list"}
	reader := func(names ...string) string {
		return g.caller(t, g.org, g.role(t, g.org, g.name(), capabilities(names...)...))
	}
	if n := len(count(reader(needed...))); n < 27 || n != len(count(g.full["org"])) {
		t.Errorf("with the required capabilities: %d entries", n)
	}
	for _, missing := range needed {
		rest := slices.DeleteFunc(slices.Clone(needed), func(c string) bool { return c == missing })
		if n := len(count(reader(rest...))); n != 0 {
			t.Errorf("without %s: %d entries", missing, n)
		}
	}
}
