package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dump"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// A rowSet contains the rows of each table, as sorted texts.
type rowSet map[string][]string

// dumped returns a snapshot of a database, and its rows as values and as texts.
func dumped(t *testing.T, s *store.DB) (d *dump.Snapshot, rows map[string][][]any, texts rowSet) {
	t.Helper()
	rows, texts = map[string][][]any{}, rowSet{}
	must(t, dump.Read(t.Context(), s, func(got *dump.Snapshot) error {
		d = got
		for _, table := range got.Tables {
			if err := got.Rows(t.Context(), table, func(row []any) error {
				row = slices.Clone(row)
				rows[table.Name] = append(rows[table.Name], row)
				named := map[string]string{}
				for i, c := range table.Columns {
					named[c.Name] = fmt.Sprintf("%T %v", row[i], row[i])
				}
				texts[table.Name] = append(texts[table.Name], fmt.Sprint(named))
				return nil
			}); err != nil {
				return err
			}
			slices.Sort(texts[table.Name])
		}
		return nil
	}))
	return d, rows, texts
}

// load fills a database with rows.
func load(ctx context.Context, url string, d *dump.Snapshot, rows map[string][][]any) error {
	return dump.Load(ctx, url, d, func(l *dump.Loader) error {
		for _, table := range d.Tables {
			left := rows[table.Name]
			_, err := l.Fill(ctx, table, func() ([]any, error) {
				if len(left) == 0 {
					return nil, io.EOF
				}
				row := left[0]
				left = left[1:]
				return row, nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// populate adds resources that refer to each other, so that a snapshot contains rows
// before the rows that they refer to.
func populate(t *testing.T, s *storetest.Store) resource.UID {
	t.Helper()
	must(t, s.SetManagedRoles(t.Context(), []resource.Role{ownerRole}))
	org := addGroup(t, s, "", "org").UID
	parent := org
	for i := range 12 { // segments are random, so some child is read before its parent
		parent = addGroup(t, s, parent, fmt.Sprintf("folder %d", i)).UID
	}
	role := addRole(t, s, org, "role").UID
	who := addIdentity(t, s, org, "ünïcode \t name").UID
	addBinding(t, s, parent, who, role)
	provider := addProvider(t, s, org, role, "provider").UID
	addMapping(t, s, provider, role, "team")
	addInvite(t, s, org, role)
	addAssociation(t, s, parent, "accounts")
	must(t, s.InsertRepo(t.Context(), registry.Repo{UID: org.NewChild(), Name: "app", CreateTime: epoch,
		UpdateTime: epoch}))
	addUpstream(t, s, parent)
	mirrored := registrydb.RepoRef{Group: parent, Name: "app", Create: true}
	// the layer of the image is missing
	must(t, ignore(s.MirrorManifest(t.Context(), mirrored, mirroredImage("layer"), "v1", nil)))
	for _, e := range []vuln.Exploit{score(1, 10), exploited(1, 5)} {
		_, err := replace(t.Context(), s, org, epoch, e)
		must(t, err)
	}
	return org
}

// TestDumpAndLoad moves a database from each engine to each. All rows exist afterwards, with
// their types, and new rows are numbered after the last one.
func TestDumpAndLoad(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, from string) {
		source := storetest.Open(t, from)
		org := populate(t, source)
		d, rows, want := dumped(t, source.DB)
		if d.Sequences["outbox"] == 0 || len(want["groups"]) != 13 {
			t.Fatalf("%d groups, numbers %v", len(want["groups"]), d.Sequences)
		}
		storetest.EachEmpty(t, func(t *testing.T, to string) {
			d.Sequences["outbox"] += 100 // as if the newest events were deleted
			must(t, load(t.Context(), to, d, rows))
			copied := storetest.Open(t, to)
			again, _, got := dumped(t, copied.DB)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rows (-before +after):\n%s", diff)
			}
			if again.Schema != d.Schema || again.Sequences["outbox"] != d.Sequences["outbox"] {
				t.Errorf("schema %d, numbers %v; before %d, %v", again.Schema, again.Sequences, d.Schema, d.Sequences)
			}
			addGroup(t, copied, org, "afterwards")
			if all := events(t, copied); all[len(all)-1].Seq != d.Sequences["outbox"]+1 {
				t.Errorf("the next event has number %d, want %d", all[len(all)-1].Seq, d.Sequences["outbox"]+1)
			}
			wantExact(t, copied)
		})
	})
}

// TestLoadRefuses checks that Load writes nothing if the snapshot or the database is not
// acceptable.
func TestLoadRefuses(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		source := storetest.Open(t, url)
		populate(t, source)
		d, rows, want := dumped(t, source.DB)
		t.Run("a database that has something", func(t *testing.T) {
			err := load(t.Context(), url, d, rows)
			wantFault(t, err, fault.FailedPrecondition, fault.Resource{})
			if _, _, got := dumped(t, source.DB); cmp.Diff(want, got) != "" {
				t.Error("it was changed")
			}
		})
		for name, change := range map[string]func(*dump.Snapshot, map[string][][]any){
			"a schema of a later version": func(d *dump.Snapshot, _ map[string][][]any) { d.Schema += 1000 },
			"a table that is not there": func(d *dump.Snapshot, _ map[string][][]any) {
				d.Tables = append(slices.Clone(d.Tables), dump.Table{Name: "more"})
			},
			"a column that is not there": func(d *dump.Snapshot, _ map[string][][]any) {
				d.Tables = slices.Clone(d.Tables)
				d.Tables[0].Columns = append(slices.Clone(d.Tables[0].Columns), dump.Column{Name: "x", Type: dump.Text})
			},
			"a reference to nothing": func(_ *dump.Snapshot, rows map[string][][]any) { rows["roles"] = nil },
			"a row twice": func(_ *dump.Snapshot, rows map[string][][]any) {
				rows["groups"] = append(rows["groups"], rows["groups"][0])
			},
		} {
			t.Run(name, func(t *testing.T) {
				changed, part := *d, map[string][][]any{}
				for table := range rows {
					part[table] = slices.Clone(rows[table])
				}
				change(&changed, part)
				empty := emptyOf(t, source)
				if err := load(t.Context(), empty, &changed, part); err == nil {
					t.Fatal("loaded")
				}
				must(t, load(t.Context(), empty, d, rows)) // the failed attempt has left nothing that prevents this one
			})
		}
	})
}

// emptyOf returns the address of an empty database on the same engine as s.
func emptyOf(t *testing.T, s *storetest.Store) string {
	t.Helper()
	if s.Replicated() {
		return storetest.EmptyPostgres(t)
	}
	return t.TempDir() + "/new.db"
}

// TestOpenToRead checks that OpenToRead reads while another process has the database open, and
// changes nothing.
func TestOpenToRead(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		s := storetest.Open(t, url)
		populate(t, s)
		beside, err := store.OpenToRead(t.Context(), url)
		must(t, err)
		t.Cleanup(func() { must(t, beside.Close()) })
		_, _, want := dumped(t, s.DB)
		if _, _, got := dumped(t, beside); cmp.Diff(want, got) != "" {
			t.Error("the other process reads something else")
		}
		addGroup(t, s, "", "another")
		if _, _, got := dumped(t, beside); len(got["groups"]) != len(want["groups"])+1 {
			t.Error("the other process does not see what has changed")
		}
	})
	if _, err := store.OpenToRead(t.Context(), t.TempDir()+"/none.db"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no database: %v", err)
	}
}
