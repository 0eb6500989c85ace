package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/match"
)

const (
	findingsTarget = 0.02 // seconds
	affectedTarget = 0.02
	knownTarget    = 0.05
	groupTarget    = 0.05
	blastTarget    = 0.2
	changedTarget  = 1.5
	perImageTarget = 2_500 // bytes
	manyImages     = 100_000

	changedAtOnce = 10_000
	changedRounds = 3 // and one for warm-up
	newAdvisories = 40
)

// findings measures what is known about many images, and how fast something new is known.
func findings(ctx context.Context, m *measurement) {
	m.pushesIndexed(ctx)
	g := m.gallery(ctx)
	m.over("findings: advisories compared with all packages, a second", float64(g.about)/g.matched.Seconds(), 0)
	limit := map[bool]float64{true: perImageTarget}[g.images >= manyImages] // few images do not make up for the packages
	m.under("findings: bytes of each image", g.bytes(ctx, m.engine)/float64(g.images), limit, wholeBytes)
	s := m.startService(ctx, g.url)
	g.verify(ctx, s.client)
	m.imageFindings(ctx, g, s.client)
	popular := m.affectedImages(ctx, g, s.client)
	m.groupFindings(ctx, g, s.client)
	m.blastRadius(ctx, g, s.client, popular)
	m.oneNewAdvisory(ctx, s)
	check(s.stop())
	m.changedAdvisories(ctx, g, "one of ten about packages that images have", 1)
	m.changedAdvisories(ctx, g, "all about packages that images have", aboutUsed)
}

func wholeBytes(n float64) string { return fmt.Sprintf("%.0f B", n) }

// findingTables are the tables of what images contain.
var findingTables = []string{"images", "image_chunks", "group_images", "packages", "package_images", "inspections", "matches"}

// bytes returns how long these tables and their indexes are.
func (g *gallery) bytes(ctx context.Context, e engine) (all float64) {
	db := e.connect(g.url, 1)
	defer db.Close()
	text := `SELECT pg_total_relation_size($1::regclass)`
	if e.name() == "sqlite" {
		text = `SELECT sum(pgsize) FROM dbstat WHERE aggregate = TRUE AND name IN (SELECT name FROM sqlite_master WHERE tbl_name = $1)`
	}
	for _, t := range findingTables {
		var n float64
		check(db.QueryRowContext(ctx, text, t).Scan(&n))
		all += n
	}
	return all
}

// reference returns the path of an image in the API.
func (g *gallery) reference(of string, i int) string {
	return fmt.Sprintf("/findings/v1/repos/%s/%s/%s", g.repoOf(i), of, url.PathEscape(digestOf(imageBody(i))))
}

// A foundPage is a page of findings, of packages or of images.
type foundPage struct {
	TotalCount    int64 `json:",string"`
	NextPageToken string
	Images        []struct{ Digest string }
	Packages      []struct {
		Location string
		Package  struct{ Ecosystem, Name, Version, Purl, SourceName, SourceVersion string }
	}
	Findings []struct {
		AdvisoryID string
		Package    struct{ Purl string }
	}
}

// verify fails unless the API answers about some images what a join of everything gives.
func (g *gallery) verify(ctx context.Context, c *client) {
	byName := map[string][]vuln.Advisory{}
	for i := range g.about {
		a := aboutOne(i, 0)
		byName[a.Affected[0].Name] = append(byName[a.Affected[0].Name], a)
	}
	for _, i := range []int{0, 1, g.images / 2, g.images - 1} {
		var got foundPage
		check(c.doJSON(ctx, http.MethodGet, g.reference("packages", i)+"?page_size=200", nil, &got))
		var want, have []string
		for _, p := range foundIn(i) {
			want = append(want, strings.Join([]string{p.PURL, p.SourceName, p.SourceVersion, p.Place}, " "))
		}
		for _, p := range got.Packages {
			have = append(have, strings.Join([]string{p.Package.Purl, p.Package.SourceName, p.Package.SourceVersion, p.Location}, " "))
		}
		sameTexts(fmt.Sprintf("packages of image %d", i), want, have)
		want, have = nil, nil
		for path := g.reference("findings", i) + "?page_size=200"; path != ""; {
			got = foundPage{}
			check(c.doJSON(ctx, http.MethodGet, path, nil, &got))
			for _, f := range got.Findings {
				have = append(have, f.AdvisoryID+" "+f.Package.Purl)
			}
			if path = ""; got.NextPageToken != "" {
				path = g.reference("findings", i) + "?page_token=" + url.QueryEscape(got.NextPageToken)
			}
		}
		for _, p := range foundIn(i) {
			for _, a := range byName[orElse(p.SourceName, p.Name)] {
				if fixed := a.Affected[0].Ranges[0].Events[1].Fixed; p.Version < fixed { // they have one digit in the same place
					want = append(want, a.ID+" "+p.PURL)
				}
			}
		}
		sameTexts(fmt.Sprintf("findings of image %d", i), want, have)
	}
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func sameTexts(what string, want, have []string) {
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		check(fmt.Errorf("%s: %d are told, %d expected: %.300q, %.300q", what, len(have), len(want), have, want))
	}
}

// imageFindings reads the findings of images that nobody has asked for lately.
func (m *measurement) imageFindings(ctx context.Context, g *gallery, c *client) {
	var took []time.Duration
	for i := range 60 {
		took = append(took, timed(ctx, i, c.getter(g.reference("findings", (i*7919)%g.images))))
	}
	m.under("findings: of an image, p50", median(took[5:]).Seconds(), findingsTarget, seconds)
	m.under("findings: of an image, p95", quantile(took[5:], 0.95).Seconds(), 0, seconds)
}

// affectedImages asks for the images of the advisory that affects most, and returns its id.
func (m *measurement) affectedImages(ctx context.Context, g *gallery, c *client) (popular string) {
	most := int64(0)
	for i := 0; i < g.about; i += aboutUsed {
		a := aboutOne(i, 0)
		// The first names of each kind are those that most images have.
		if name := a.Affected[0].Name; len(name) > len("module99") || a.Affected[0].Ranges[0].Events[1].Fixed < "1.4" {
			continue
		}
		var got foundPage
		check(c.doJSON(ctx, http.MethodGet, "/findings/v1/advisories/"+a.ID+"/images?page_size=1", nil, &got))
		if got.TotalCount > most {
			popular, most = a.ID, got.TotalCount
		}
	}
	if popular == "" {
		check(errors.New("no advisory affects an image"))
	}
	var took []time.Duration
	for i := range 60 {
		took = append(took, timed(ctx, i, c.getter("/findings/v1/advisories/"+popular+"/images?page_size=50")))
	}
	m.under(fmt.Sprintf("findings: images of the most popular advisory (%d of %d)", most, g.images), median(took[5:]).Seconds(),
		affectedTarget, seconds)
	return popular
}

// groupFindings asks for the findings of all images of a repo together.
func (m *measurement) groupFindings(ctx context.Context, g *gallery, c *client) {
	var all foundPage
	path := fmt.Sprintf("/findings/v1/groups/%s/findings?page_size=50", g.repos[0])
	check(c.doJSON(ctx, http.MethodGet, path, nil, &all))
	var took []time.Duration
	for i := range 7 {
		took = append(took, timed(ctx, i, c.getter(path)))
	}
	m.under(fmt.Sprintf("findings: of a repo with %d images (%d findings), p50", g.images/len(g.repos), all.TotalCount),
		median(took[2:]).Seconds(), groupTarget, seconds)
}

// blastRadius asks for all stages from the advisory that affects most to those who can fix it.
func (m *measurement) blastRadius(ctx context.Context, g *gallery, c *client, advisory string) {
	var took []time.Duration
	for i := range 12 {
		took = append(took, timed(ctx, i, c.getter("/findings/v1/blast?advisory_id="+advisory)))
	}
	m.under(fmt.Sprintf("findings: blast radius, with %d pulls, p50", g.images*pullsOfImage), median(took[2:]).Seconds(),
		blastTarget, seconds)
}

// oneNewAdvisory imports one advisory, and asks until it is known which images it affects.
func (m *measurement) oneNewAdvisory(ctx context.Context, s *service) {
	conn := m.dial(s.address)
	dev := devInfo{Token: s.token, Organization: s.org}
	var took []time.Duration
	for i := range newAdvisories {
		id := fmt.Sprintf("NEW-%d-%d", time.Now().UnixNano(), i)
		path := m.writeRecord(advisoryOn(id, "CVE-"+id, "npm", fmt.Sprintf("module%d", i), eachName, 0))
		begin := time.Now()
		if n := sendArchive(ctx, conn, dev, path); n != 1 {
			check(fmt.Errorf("%d advisories were created", n))
		}
		for {
			var got foundPage
			check(s.doJSON(ctx, http.MethodGet, "/findings/v1/advisories/"+id+"/images?page_size=50", nil, &got))
			if got.TotalCount > 0 {
				break
			}
			if time.Since(begin) > time.Minute {
				check(fmt.Errorf("%s is not known after a minute", id))
			}
		}
		took = append(took, time.Since(begin))
		time.Sleep(20 * time.Millisecond) // so that it does not come right after the one before
	}
	m.under("findings: one new advisory, count and first page, p50", median(took[2:]).Seconds(), knownTarget, seconds)
	m.under("findings: one new advisory, count and first page, p95", quantile(took[2:], 0.95).Seconds(), 0, seconds)
}

// record returns an advisory as a record of OSV.
func record(a vuln.Advisory, modified time.Time) []byte {
	about := a.Affected[0]
	events := about.Ranges[0].Events
	return must(json.Marshal(map[string]any{
		"id": a.ID, "modified": modified.UTC().Format(time.RFC3339Nano), "aliases": a.Aliases, "summary": a.Summary,
		"details":  a.Details,
		"severity": []any{map[string]string{"type": "CVSS_V3", "score": a.Severities[0].Score}},
		"affected": []any{map[string]any{"package": map[string]string{"ecosystem": about.Ecosystem, "name": about.Name},
			"ranges": []any{map[string]any{"type": "ECOSYSTEM", "events": []any{
				map[string]string{"introduced": "0"}, map[string]string{"fixed": events[1].Fixed}}}}}},
	}))
}

// changedAdvisories compares an import of many changed advisories, until all of them were
// compared with the packages, with an import alone. Every step-th of them is changed.
func (m *measurement) changedAdvisories(ctx context.Context, g *gallery, what string, step int) {
	db := must(store.Open(ctx, g.url))
	defer func() { check(db.Close()) }()
	owner := resource.NewRoot()
	now := time.Now().UTC().Truncate(time.Millisecond)
	must(iamdb.New(db).InsertBindings(ctx, []resource.RoleBinding{{UID: g.org.NewChild(), Identity: owner,
		Role: resource.OwnerRole, CreateTime: now}}))
	check(db.SetSetting(ctx, "findings.caught_up", []byte("1"))) // as in any database that is not new
	lists := advisorydb.New(db)
	quiet := slog.New(slog.DiscardHandler)
	service := advisory.New(lists, must(authz.Load(ctx, db, quiet)), page.NewTokens([]byte("bench"), time.Now), advisory.Config{})
	ctx = authz.WithCaller(ctx, authz.Caller{Identity: owner})
	var with, without []time.Duration
	edition := int(now.Unix())
	for i := range 2 * (changedRounds + 1) {
		edition++
		packed := g.changed(edition, step)
		matched := i%2 == 0
		matching, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		if matched {
			matcher := match.New(findingdb.New(db), lists, quiet)
			go func() { done <- matcher.Run(matching) }()
			time.Sleep(100 * time.Millisecond) // until it has begun
		}
		begin := time.Now()
		all := must(service.NewImport(ctx, g.org, "bench", nil))
		err := all.Read("all.zip", bytes.NewReader(packed), int64(len(packed)), "")
		result, closing := all.Close()
		check(errors.Join(err, closing))
		if result.Updated+result.Created != int64(min(changedAtOnce, g.about/step)) {
			check(fmt.Errorf("of %d changed records: %+v", changedAtOnce, result))
		}
		if matched {
			check(awaitMatched(ctx, db))
			with = append(with, time.Since(begin))
			stop()
			check(<-done)
			continue
		}
		without = append(without, time.Since(begin))
		stop()
		check(matchAll(ctx, db, match.New(findingdb.New(db), lists, quiet)))
	}
	m.slower("findings: import of changed advisories with comparing, "+what, newPair(median(with[1:]), median(without[1:])),
		changedTarget)
}

// changed returns an archive of advisories of another edition.
func (g *gallery) changed(edition, step int) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := range min(changedAtOnce, g.about/step) {
		a := aboutOne(i*step, edition)
		must(must(z.Create(a.ID + ".json")).Write(record(a, time.Unix(int64(edition), 0))))
	}
	check(z.Close())
	return b.Bytes()
}
