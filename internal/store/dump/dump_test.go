package dump_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/dump"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

// populate adds resources that refer to each other, so that a snapshot contains rows
// before the rows that they refer to.
func populate(t *testing.T, s *storetest.Store) resource.UID {
	t.Helper()
	testkit.Must(t, s.SetManagedRoles(t.Context(), []resource.Role{iamtest.OwnerRole}))
	org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
	parent := org
	for i := range 12 { // segments are random, so some child is read before its parent
		parent = iamtest.AddGroup(t, s.IAMStore, parent, fmt.Sprintf("folder %d", i)).UID
	}
	role := iamtest.AddRole(t, s.IAMStore, org, "role").UID
	who := iamtest.AddIdentity(t, s.IAMStore, org, "ünïcode \t name").UID
	iamtest.AddBinding(t, s.IAMStore, parent, who, role)
	provider := iamtest.AddProvider(t, s.IAMStore, org, role, "provider").UID
	iamtest.AddMapping(t, s.IAMStore, provider, role, "team")
	iamtest.AddInvite(t, s.IAMStore, org, role)
	iamtest.AddAssociation(t, s.IAMStore, parent, "accounts")
	testkit.Must(t, s.InsertRepo(t.Context(), registry.Repo{UID: org.NewChild(), Name: "app", CreateTime: iamtest.Epoch,
		UpdateTime: iamtest.Epoch}))
	registrytest.AddUpstream(t, s.SourceStore, parent)
	mirrored := registrydb.RepoRef{Group: parent, Name: "app", Create: true}
	// the layer of the image is missing
	testkit.Must(t, testkit.Ignore(s.MirrorManifest(t.Context(), mirrored, registrytest.NewMirroredImage("layer"), "v1",
		nil)))
	for _, e := range []vuln.Exploit{vulntest.NewScore(1, 10), vulntest.NewExploited(1, 5)} {
		_, err := vulntest.ReplaceExploits(t.Context(), s.AdvisoryStore, org, iamtest.Epoch, e)
		testkit.Must(t, err)
	}
	return org
}

// TestDumpAndLoad moves a database from each engine to each. All rows exist afterwards, with
// their types, and new rows are numbered after the last one.
func TestDumpAndLoad(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, from string) {
		source := storetest.Open(t, from)
		org := populate(t, source)
		d, rows, want := dbtest.Dump(t, source.DB)
		if d.Sequences["outbox"] == 0 || len(want["groups"]) != 13 {
			t.Fatalf("%d groups, numbers %v", len(want["groups"]), d.Sequences)
		}
		dbtest.EachEmpty(t, func(t *testing.T, to string) {
			d.Sequences["outbox"] += 100 // as if the newest events were deleted
			testkit.Must(t, dbtest.Load(t.Context(), to, d, rows))
			copied := storetest.Open(t, to)
			again, _, got := dbtest.Dump(t, copied.DB)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rows (-before +after):\n%s", diff)
			}
			if again.Schema != d.Schema || again.Sequences["outbox"] != d.Sequences["outbox"] {
				t.Errorf("schema %d, numbers %v; before %d, %v", again.Schema, again.Sequences, d.Schema, d.Sequences)
			}
			iamtest.AddGroup(t, copied.IAMStore, org, "afterwards")
			if all := dbtest.Events(t, copied.DB); all[len(all)-1].Seq != d.Sequences["outbox"]+1 {
				t.Errorf("the next event has number %d, want %d", all[len(all)-1].Seq, d.Sequences["outbox"]+1)
			}
			dbtest.WantExact(t, copied.DB)
		})
	})
}

// TestLoadRefuses checks that Load writes nothing if the snapshot or the database is not
// acceptable.
func TestLoadRefuses(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		source := storetest.Open(t, url)
		populate(t, source)
		d, rows, want := dbtest.Dump(t, source.DB)
		t.Run("a database that has something", func(t *testing.T) {
			err := dbtest.Load(t.Context(), url, d, rows)
			testkit.WantFault(t, err, fault.FailedPrecondition, fault.Resource{})
			if _, _, got := dbtest.Dump(t, source.DB); cmp.Diff(want, got) != "" {
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
				if err := dbtest.Load(t.Context(), empty, &changed, part); err == nil {
					t.Fatal("loaded")
				}
				testkit.Must(t, dbtest.Load(t.Context(), empty, d,
					rows)) // the failed attempt has left nothing that prevents this one
			})
		}
	})
}

// emptyOf returns the address of an empty database on the same engine as s.
func emptyOf(t *testing.T, s *storetest.Store) string {
	t.Helper()
	if s.Replicated() {
		return dbtest.EmptyPostgres(t)
	}
	return t.TempDir() + "/new.db"
}

// TestOpenToRead checks that OpenToRead reads while another process has the database open, and
// changes nothing.
func TestOpenToRead(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := storetest.Open(t, url)
		populate(t, s)
		beside, err := store.OpenToRead(t.Context(), url)
		testkit.Must(t, err)
		t.Cleanup(func() { testkit.Must(t, beside.Close()) })
		_, _, want := dbtest.Dump(t, s.DB)
		if _, _, got := dbtest.Dump(t, beside); cmp.Diff(want, got) != "" {
			t.Error("the other process reads something else")
		}
		iamtest.AddGroup(t, s.IAMStore, "", "another")
		if _, _, got := dbtest.Dump(t, beside); len(got["groups"]) != len(want["groups"])+1 {
			t.Error("the other process does not see what has changed")
		}
	})
	if _, err := store.OpenToRead(t.Context(), t.TempDir()+"/none.db"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no database: %v", err)
	}
}

// TestGrantHistoryAfterLoad checks that a restored database continues to record.
func TestGrantHistoryAfterLoad(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, from string) {
		source := storetest.Open(t, from)
		org := populate(t, source)
		then := dbtest.LastChange(t, source.DB)
		d, rows, _ := dbtest.Dump(t, source.DB)
		dbtest.EachEmpty(t, func(t *testing.T, to string) {
			testkit.Must(t, dbtest.Load(t.Context(), to, d, rows))
			s := storetest.Open(t, to)
			if n := dbtest.CountRows(t, s.DB, "binding_history", "1 = 1"); n != 1 || !dbtest.LastChange(t, s.DB).Equal(then) {
				t.Errorf("%d rows, dated up to %s, want %s", n, dbtest.LastChange(t, s.DB), then)
			}
			role := iamtest.AddRole(t, s.IAMStore, org, "another").UID
			b := iamtest.AddBinding(t, s.IAMStore, org, iamtest.Alice, role)
			if got := iamtest.PastOn(t, s.GrantLog, org, dbtest.LastChange(t, s.DB)); len(got) != 1 || got[0].UID != b.UID {
				t.Errorf("after the restoration: %v", got)
			}
			testkit.Must(t, s.DeleteBinding(t.Context(), b.UID))
			if got := iamtest.PastOn(t, s.GrantLog, org, dbtest.LastChange(t, s.DB)); len(got) != 0 {
				t.Errorf("after it was taken away: %v", got)
			}
		})
	})
}
