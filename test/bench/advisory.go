package main

import (
	"archive/zip"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
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
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
)

const (
	fewAdvisories  = 10_000
	importTarget   = 10_000
	importMemory   = 300e6
	queryTarget    = 5_000
	freeTextTarget = 0.15
)

// advisories measures an import of very many records, compares pages of them with pages of
// few, and measures free text and queries about versions.
func advisories(ctx context.Context, m *measurement) {
	few, many := m.openAdvisories(ctx, fewAdvisories), m.openAdvisories(ctx, m.bench.rows*13/10)
	m.advisoryPages(ctx, few, many)
	m.freeText(ctx, many)
	m.versionQueries(ctx, many)
	if m.engine.name() == "sqlite" {
		m.importInServer(ctx)
	}
}

// An advisoryStore is a store with advisories, and their service.
type advisoryStore struct {
	*advisory.Service
	lists *advisorydb.Store
	org   resource.UID
	ctx   context.Context // an owner's
	rows  int
}

// openAdvisories opens a database with n advisories. If the database is new, it imports them,
// and reports the import.
func (m *measurement) openAdvisories(ctx context.Context, n int) advisoryStore {
	o, found := m.openAdvisoryStore(ctx, fmt.Sprintf("advisories_%d", n))
	if o.rows = n; !found {
		m.fillAdvisories(o)
	}
	return o
}

// openAdvisoryStore opens a database of that name. If it is new, it has no advisories.
func (m *measurement) openAdvisoryStore(ctx context.Context, name string) (o advisoryStore, found bool) {
	url, found := m.engine.create(ctx, name)
	if !found {
		m.engine.replace(ctx, url)
	}
	db := must(store.Open(ctx, url))
	m.atEnd(db.Close)
	o = advisoryStore{lists: advisorydb.New(db), org: resource.DerivedUID("advisories")}
	owner := resource.DerivedUID("owner")
	if !found {
		now := time.Now().UTC().Truncate(time.Millisecond)
		s := iamdb.New(db)
		must(s.InsertGroup(ctx, resource.Group{UID: o.org, Name: "advisories", CreateTime: now, UpdateTime: now}))
		check(s.SetManagedRoles(ctx, authz.ManagedRoles()))
		must(s.InsertBindings(ctx, []resource.RoleBinding{
			{UID: o.org.NewChild(), Identity: owner, Role: resource.OwnerRole, CreateTime: now},
		}))
	}
	checker := must(authz.Load(ctx, db, slog.New(slog.DiscardHandler)))
	o.Service = advisory.New(o.lists, checker, page.NewTokens([]byte("bench"), time.Now), advisory.Config{})
	o.ctx = authz.WithCaller(ctx, authz.Caller{Identity: owner})
	return o, found
}

// fillAdvisories imports a zip, which was just written and so is in the page cache.
func (m *measurement) fillAdvisories(o advisoryStore) {
	f, size := openSized(m.archive(o.rows))
	m.atEnd(f.Close)
	m.say("importing %d advisories", o.rows)
	begin := time.Now()
	all := must(o.NewImport(o.ctx, o.org, "bench", nil))
	err := all.Add(varied(format.Read(o.ctx, "all.zip", f, size, format.Limits{})))
	done, closing := all.Close()
	check(errors.Join(err, closing))
	if done.Created != int64(o.rows) {
		check(fmt.Errorf("of %d records %+v", o.rows, done))
	}
	least := map[string]float64{"sqlite": importTarget}[m.engine.name()] // PostgreSQL has no target
	if o.rows > fewAdvisories {
		m.over("advisories: import of a zip, records a second", float64(o.rows)/time.Since(begin).Seconds(), least)
	}
}

// varied adds to records what those of the public databases do not have: components,
// architectures, and reviewers.
func varied(records iter.Seq[format.Record]) iter.Seq[format.Record] {
	return func(yield func(format.Record) bool) {
		i := 0
		for r := range records {
			i++
			a := &r.Advisory
			a.ArtifactArchitecture = []string{"", "x86_64", "aarch64"}[i%3]
			if i%4 == 0 {
				a.ComponentName, a.ComponentType = "part"+strconv.Itoa(i%100), "go-module"
				a.ComponentLocation = "/usr/bin/" + a.ComponentName
			}
			if len(a.Events) > 0 && i%5 == 0 {
				a.Events[0].Author, a.Events[0].Reviewer = "author"+strconv.Itoa(i/5%7), "reviewer"+strconv.Itoa(i/5%3)
				a.Events[0].ReviewState = []vuln.ReviewState{vuln.ReviewPending,
					vuln.ReviewApproved}[i/5%2]
			}
			if i%11 == 0 {
				a.LegacyID = "OLD-" + a.ID
			}
			if !yield(r) {
				return
			}
		}
	}
}

// archive writes a zip of n OSV records, which are copies of those of -osv, or of ownRecord.
func (b *bench) archive(n int) (path string) {
	path = filepath.Join(b.folder, fmt.Sprintf("osv-%d.zip", n))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	real := b.records()
	f := must(os.Create(path))
	buffered := bufio.NewWriterSize(f, 1<<20)
	z := zip.NewWriter(buffered)
	for i := range n {
		id, text := multiplied(real[i%len(real)], i/len(real))
		must(must(z.Create(id + ".json")).Write(text))
	}
	check(errors.Join(z.Close(), buffered.Flush(), f.Close()))
	return path
}

// multiplied returns the k-th copy of a record. A copy has its own IDs and, except for every
// hundredth, its own packages, so that a package does not have a hundred times as many
// advisories among a million as among ten thousand.
func multiplied(r map[string]any, k int) (id string, text []byte) {
	copied := maps.Clone(r)
	suffix := "-" + strconv.Itoa(k)
	id = fmt.Sprint(r["id"]) + suffix
	copied["id"] = id
	var aliases []string
	all, _ := r["aliases"].([]any)
	for _, a := range all {
		aliases = append(aliases, fmt.Sprint(a)+suffix)
	}
	copied["aliases"] = aliases
	if k%100 != 0 {
		copied["affected"] = renamed(r["affected"], suffix)
	}
	return id, must(json.Marshal(copied))
}

// renamed returns the affected packages of a record with other names.
func renamed(affected any, suffix string) []any {
	var out []any
	all, _ := affected.([]any)
	for _, v := range all {
		entry, _ := v.(map[string]any)
		copied := maps.Clone(entry)
		p, _ := entry["package"].(map[string]any)
		copied["package"] = map[string]any{"ecosystem": p["ecosystem"], "name": fmt.Sprint(p["name"]) + suffix}
		out = append(out, copied)
	}
	return out
}

// records reads the records of -osv.
func (b *bench) records() (all []map[string]any) {
	if b.osv == "" {
		var one map[string]any
		check(json.Unmarshal([]byte(ownRecord), &one))
		return []map[string]any{one}
	}
	z := must(zip.OpenReader(b.osv))
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, ".json") {
			continue
		}
		r := must(f.Open())
		var one map[string]any
		if err := errors.Join(json.NewDecoder(r).Decode(&one), r.Close()); err != nil {
			check(fmt.Errorf("%s: %w", f.Name, err))
		}
		all = append(all, one)
	}
	check(z.Close())
	return all
}

// ownRecord is used without -osv. It is about as long as real records.
const ownRecord = `{"schema_version":"1.3.1","id":"BENCH-1","modified":"2026-01-02T03:04:05Z","published":"2026-01-01T00:00:00Z",
"aliases":["CVE-2026-10000","GHSA-2345-6789-cfgh"],"summary":"Reads past the end of what it was given",
"details":"A request that is shorter than it says makes the reader return what was in memory before it. Nothing is written, but what is read may be somebody else's.",
"affected":[{"package":{"name":"stdlib","ecosystem":"Go"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"},{"fixed":"1.20.3"},{"introduced":"1.21.0-0"},{"fixed":"1.21.1"}]}]}],
"references":[{"type":"FIX","url":"https://code.example/change/1234"},{"type":"WEB","url":"https://talk.example/thread/5678"}]}`
