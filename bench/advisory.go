package main

import (
	"archive/zip"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/advisory"
	"github.com/holdfast-dev/holdfast/advisory/format"
	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/advisorydb"
	"github.com/holdfast-dev/holdfast/store/iamdb"
)

const (
	fewAdvisories  = 10_000
	importTarget   = 10_000
	importMemory   = 300e6
	queryTarget    = 5_000
	freeTextTarget = 0.15
)

// advisoriesSection measures an import of very many records, compares pages of them with pages
// of few, and measures free text and queries about versions.
func advisoriesSection(ctx context.Context, b *bench, e engine, r *report) (err error) {
	few, err := b.openAdvisories(ctx, e, fewAdvisories, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, few.store.Close()) }()
	many, err := b.openAdvisories(ctx, e, b.rows*13/10, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, many.store.Close()) }()
	if err := advisoryPages(ctx, few, many, r); err != nil {
		return err
	}
	if err := freeText(ctx, many, r); err != nil {
		return err
	}
	if err := versionQueries(ctx, many, r); err != nil {
		return err
	}
	if e.name() != "sqlite" {
		return nil
	}
	return importInServer(ctx, b, r)
}

// An advisoryStore is a store with advisories, and their service.
type advisoryStore struct {
	*advisory.Service
	store *store.DB
	lists *advisorydb.Store
	org   resource.UID
	ctx   context.Context // an owner's
	rows  int
}

// openAdvisories opens a database with n advisories. If the database is new, it imports them,
// and reports the import.
func (b *bench) openAdvisories(ctx context.Context, e engine, n int, r *report) (o advisoryStore, err error) {
	url, found, err := e.create(ctx, fmt.Sprintf("advisories_%d", n))
	if err != nil {
		return o, err
	}
	if !found {
		err = e.replace(ctx, url)
	}
	if err != nil {
		return o, err
	}
	o = advisoryStore{org: resource.DerivedUID("advisories"), rows: n}
	if o.store, err = store.Open(ctx, url); err != nil {
		return o, err
	}
	o.lists = advisorydb.New(o.store)
	owner := resource.DerivedUID("owner")
	if !found {
		now := time.Now().UTC().Truncate(time.Millisecond)
		_, err = iamdb.New(o.store).InsertGroup(ctx,
			resource.Group{UID: o.org, Name: "advisories", CreateTime: now, UpdateTime: now})
		err = errors.Join(err, iamdb.New(o.store).SetManagedRoles(ctx, authz.ManagedRoles()))
		if err == nil {
			binding := resource.RoleBinding{UID: o.org.NewChild(), Identity: owner, Role: resource.OwnerRole,
				CreateTime: now}
			_, err = iamdb.New(o.store).InsertBindings(ctx, []resource.RoleBinding{binding})
		}
	}
	if err != nil {
		return o, errors.Join(err, o.store.Close())
	}
	checker, err := authz.Load(ctx, o.store, slog.New(slog.DiscardHandler))
	if err != nil {
		return o, errors.Join(err, o.store.Close())
	}
	o.Service = advisory.New(o.store, checker, page.NewTokens([]byte("bench"), time.Now), advisory.Config{})
	o.ctx = authz.WithCaller(ctx, authz.Caller{Identity: owner})
	if found {
		return o, nil
	}
	least := 0.0 // PostgreSQL has no target
	if e.name() == "sqlite" {
		least = importTarget
	}
	if err := b.fillAdvisories(o, r, least); err != nil {
		return o, errors.Join(err, o.store.Close())
	}
	return o, nil
}

// fillAdvisories imports a zip, which was just written and so is in the page cache.
func (b *bench) fillAdvisories(o advisoryStore, r *report, least float64) (err error) {
	path, err := b.archive(o.rows)
	if err != nil {
		return err
	}
	f, size, err := openSized(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b.say("importing %d advisories", o.rows)
	begin := time.Now()
	m, err := o.NewImport(o.ctx, o.org, "bench", nil)
	if err != nil {
		return err
	}
	err = m.Add(varied(format.Read(o.ctx, "all.zip", f, size, format.Limits{})))
	done, closing := m.Close()
	if err := errors.Join(err, closing); err != nil {
		return err
	}
	if done.Created != int64(o.rows) {
		return fmt.Errorf("of %d records %+v", o.rows, done)
	}
	if r != nil {
		r.over("advisories: import of a zip, records a second", float64(o.rows)/time.Since(begin).Seconds(), least)
	}
	return nil
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
				a.Events[0].ReviewState = []resource.ReviewState{resource.ReviewPending,
					resource.ReviewApproved}[i/5%2]
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
func (b *bench) archive(n int) (path string, err error) {
	path = filepath.Join(b.folder, fmt.Sprintf("osv-%d.zip", n))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	real, err := b.records()
	if err != nil {
		return "", err
	}
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buffered := bufio.NewWriterSize(f, 1<<20)
	z := zip.NewWriter(buffered)
	for i := range n {
		id, text, err := multiplied(real[i%len(real)], i/len(real))
		if err != nil {
			return "", err
		}
		w, err := z.Create(id + ".json")
		if err != nil {
			return "", err
		}
		if _, err := w.Write(text); err != nil {
			return "", err
		}
	}
	return path, errors.Join(z.Close(), buffered.Flush())
}

// multiplied returns the k-th copy of a record. A copy has its own IDs and, except for every
// hundredth, its own packages, so that a package does not have a hundred times as many
// advisories among a million as among ten thousand.
func multiplied(r map[string]any, k int) (id string, text []byte, err error) {
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
	text, err = json.Marshal(copied)
	return id, text, err
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
func (b *bench) records() (all []map[string]any, err error) {
	if b.osv == "" {
		var one map[string]any
		err := json.Unmarshal([]byte(ownRecord), &one)
		return []map[string]any{one}, err
	}
	z, err := zip.OpenReader(b.osv)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, z.Close()) }()
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, ".json") {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		var one map[string]any
		if err := json.Unmarshal(text, &one); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// ownRecord is used without -osv. It is about as long as real records.
const ownRecord = `{"schema_version":"1.3.1","id":"BENCH-1","modified":"2026-01-02T03:04:05Z","published":"2026-01-01T00:00:00Z",
"aliases":["CVE-2026-10000","GHSA-2345-6789-cfgh"],"summary":"Reads past the end of what it was given",
"details":"A request that is shorter than it says makes the reader return what was in memory before it. Nothing is written, but what is read may be somebody else's.",
"affected":[{"package":{"name":"stdlib","ecosystem":"Go"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"},{"fixed":"1.20.3"},{"introduced":"1.21.0-0"},{"fixed":"1.21.1"}]}]}],
"references":[{"type":"FIX","url":"https://code.example/change/1234"},{"type":"WEB","url":"https://talk.example/thread/5678"}]}`
