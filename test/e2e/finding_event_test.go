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

// findingNews is what a sink is told of findings.
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

// findings returns what a sink was told about an advisory, by events of a type with a subject.
func (r *receiver) findings(t *testing.T, kind, subject, id string) (all []findingNews) {
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
			all = append(all, got.Body)
		}
	}
	return all
}

// awaitFindings waits until there are so many.
func (r *receiver) awaitFindings(t *testing.T, kind, subject, id string, n int) []findingNews {
	t.Helper()
	procUntil(t, fmt.Sprintf("%s of %s in %s is told %d times", kind, id, subject, n), func() bool {
		return len(r.findings(t, kind, subject, id)) >= n
	})
	return r.findings(t, kind, subject, id)
}

// TestFindingEvents: sinks are told what was opened and closed, if both the image and the
// advisory are in their group.
func TestFindingEvents(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
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
		sinks[g.folder].awaitFindings(t, findingOpened, g.folder, "GHSA-1", 1)
		got := sinks[g.org].awaitFindings(t, findingOpened, g.folder, "GHSA-1", 1)[0]
		g.tellsAll(t, got)
		sinks[g.org].awaitFindings(t, findingOpened, g.org, "DSA-1", 1)
		sinks[g.org].awaitFindings(t, findingOpened, g.org, "GHSA-2", 1) // of a sibling: seen by those who see both

		gone := bytes.Replace(left, []byte(`"modified":"2026-01-02`),
			[]byte(`"withdrawn":"2026-01-03T00:00:00Z","modified":"2026-01-03`), 1)
		g.publish(t, g.folder, gone)
		sinks[g.folder].awaitFindings(t, findingClosed, g.folder, "GHSA-1", 1)
		sinks[g.org].awaitFindings(t, findingClosed, g.folder, "GHSA-1", 1)
		g.bundles(t, sinks[g.org])
		g.deletedIsNotClosed(t, sinks[g.org])

		for group, want := range map[string][]string{g.folder: {"GHSA-1", "GHSA-1"}, g.sibling: nil, g.other: nil} {
			if diff := cmp.Diff(want, sinks[group].told(t)); diff != "" {
				t.Errorf("what is told in %s: %s", group, diff)
			}
		}
		for _, call := range g.protocols() {
			g.auditsFindings(t, call)
		}
	})
}

// tellsAll checks everything that an event tells.
func (g *gallery) tellsAll(t *testing.T, n findingNews) {
	t.Helper()
	f := n.Findings[0]
	// On a busy machine the image may be compared once more after it was inspected, and before the import is.
	if n.FindingCount != 1 || n.ImageCount != 1 || n.PairCount != 1 ||
		n.GroupUID != g.folder || n.AdvisoryGroupUID != g.folder ||
		n.Source != "import" && n.Source != "image" || n.Images[0].RepoUID != g.repo ||
		n.Images[0].Digest != g.digest || len(n.OwnerUIDs) != 1 {
		t.Errorf("the event is %+v", n)
	}
	if f.Severity != "SEVERITY_CRITICAL" || f.Score != "9.8" || !slices.Equal(f.Aliases, []string{"CVE-3"}) ||
		f.Packages[0].Package.Purl != "pkg:npm/left@1.2.0" || f.Packages[0].FixedVersion != "1.3.0" {
		t.Errorf("the finding is %+v", f)
	}
}

// told returns the advisories of all events about findings.
func (r *receiver) told(t *testing.T) (all []string) {
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
			all = append(all, f.AdvisoryID)
		}
	}
	return all
}

// bundles: an advisory about many images is told of once.
func (g *gallery) bundles(t *testing.T, sink *receiver) {
	t.Helper()
	const more = 21
	for n := range more {
		g.pushImage(t, "dev/folder/app", fmt.Sprint("m", n), "amd64", layerOf(t, map[string]string{
			"app/node_modules/left/package.json": `{"name":"left","version":"1.2.0"}`, "n": fmt.Sprint(n)}))
	}
	all := sink.awaitFindings(t, findingOpened, g.org, "GHSA-2", more+1) // one for each that is pushed
	if last := all[len(all)-1]; last.Source != "image" || last.ImageCount != 1 {
		t.Errorf("an image was pushed: %+v", last)
	}
	g.publish(t, g.org, osvOf("GHSA-9", "CVE-9", "npm", "left", "2.0.0"))
	got := sink.awaitFindings(t, findingOpened, g.org, "GHSA-9", 1)
	n := got[0]
	if len(got) != 1 || n.ImageCount != more+1 || n.PairCount != more+1 || len(n.Images) != 20 || n.GroupUID != g.folder {
		t.Errorf("%d events, the first is of %d images and has %d, in %s", len(got), n.ImageCount, len(n.Images), n.GroupUID)
	}
}

// deletedIsNotClosed: nothing is fixed when an image is deleted, and no event says so.
func (g *gallery) deletedIsNotClosed(t *testing.T, sink *receiver) {
	t.Helper()
	g.oci(t, g.RegistryToken, "DELETE", "/v2/dev/folder/app/manifests/"+g.digest, "")
	g.publish(t, g.org, osvOf("GHSA-10", "CVE-10", "npm", "left", "2.0.0"))
	if n := sink.awaitFindings(t, findingOpened, g.org, "GHSA-10", 1)[0]; n.ImageCount != 21 {
		t.Errorf("%d images after one was deleted", n.ImageCount)
	}
	for _, id := range []string{"DSA-1", "GHSA-9"} {
		if n := len(sink.findings(t, findingClosed, g.org, id)); n != 0 {
			t.Errorf("%d events close %s", n, id)
		}
	}
}

// auditsFindings: the audit log shows them to those who may list people, repos, advisories and
// reports, where the events are.
func (g *gallery) auditsFindings(t *testing.T, call caller) {
	t.Helper()
	count := func(bearer string) (all []string) {
		for _, e := range g.audit(t, call, bearer, &auditpb.ListEntriesRequest{Type: "findings.finding"}) {
			if len(e.GetAfter().GetFields()) == 0 {
				t.Errorf("the entry is %v", e)
			}
			all = append(all, e.GetSubject())
		}
		return all
	}
	if _, st := call(t, "", &auditpb.ListEntriesRequest{Type: "findings.finding"}); st.Code() != codes.Unauthenticated {
		t.Errorf("a stranger: %v", st)
	}
	caps := resource.NewCapabilities(resource.GroupsList, resource.IdentityList)
	for who, bearer := range map[string]string{"other": g.full["other"], "sibling": g.full["sibling"],
		"narrowed": g.mint(t, g.Owner, token.Claims{Caps: &caps})} {
		if n := len(count(bearer)); n != 0 {
			t.Errorf("%s sees %d entries", who, n)
		}
	}
	if diff := cmp.Diff([]string{g.folder, g.folder}, count(g.full["folder"])); diff != "" {
		t.Errorf("of the folder: %s", diff)
	}
	needed := []string{"identity.list", "vuln_report.list", "repo.list", "advisories.list"}
	reader := func(of ...string) string {
		return g.caller(t, g.org, g.role(t, g.org, g.name(), capabilities(of...)...))
	}
	if n := len(count(reader(needed...))); n < 27 || n != len(count(g.full["org"])) {
		t.Errorf("who has what it needs sees %d entries", n)
	}
	for _, missing := range needed {
		rest := slices.DeleteFunc(slices.Clone(needed), func(c string) bool { return c == missing })
		if n := len(count(reader(rest...))); n != 0 {
			t.Errorf("without %s: %d entries", missing, n)
		}
	}
}
