package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/recount"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

// setBudget sets the budget of a group.
func setBudget(t *testing.T, s *storetest.Store, group resource.UID, limits map[resource.Metric]int64) {
	t.Helper()
	_, err := store.Edit(t.Context(), group, s.Budget, s.UpdateBudget, func(b *resource.Budget) error {
		b.Limits = limits
		return nil
	})
	testkit.Must(t, err)
}

// usageOf returns how much of a metric a group uses.
func usageOf(t *testing.T, s *storetest.Store, group resource.UID, m resource.Metric) int64 {
	t.Helper()
	used, err := s.Usage(t.Context(), group)
	testkit.Must(t, err)
	return used[m]
}

// A pusher performs random writes on the repos of a few groups.
type pusher struct {
	s      *storetest.Store
	groups []resource.UID
	rand   *rand.Rand
}

func (p *pusher) ref() registrydb.RepoRef {
	return registrydb.RepoRef{Group: p.groups[p.rand.IntN(len(p.groups))], Name: fmt.Sprint("r", p.rand.IntN(3)),
		Create: true}
}

// word returns the name of one of a few blobs, which have different sizes.
func (p *pusher) word() string { n := p.rand.IntN(12); return fmt.Sprint(n, strings.Repeat("x", n*n)) }

// act performs one random write. It ignores the error of a write that is not possible at the
// moment.
func (p *pusher) act(ctx context.Context) error {
	ref, word := p.ref(), p.word()
	b := registry.Blob{Digest: registrytest.Digest(word), Size: int64(len(word)), Path: fmt.Sprint("/", p.rand.Uint64())}
	var repo resource.UID
	if all, err := store.ReadColumn[resource.UID](ctx, p.s.Rows, `SELECT uid FROM repos WHERE parent = $1 AND name = $2`,
		store.Segment(ref.Group), ref.Name); err == nil && len(all) == 1 {
		repo = all[0]
	}
	past := time.Now().Add(time.Hour)
	u := registry.Upload{ID: fmt.Sprint("u", p.rand.IntN(4)), Group: ref.Group, Repo: ref.Name, Algorithm: "sha256",
		Size: int64(p.rand.IntN(100))}
	switch n := p.rand.IntN(26); {
	case n >= 24:
		u.ID += fmt.Sprint(" ", p.rand.Uint64())
		if err := p.s.InsertUpload(ctx, u); err != nil {
			return err
		}
		return p.s.SaveUpload(ctx, u, "")
	case n >= 20:
		return p.upload(ctx, u, ref, b)
	case n < 6:
		_, err := p.s.AddBlob(ctx, ref, registry.Upload{}, "", b)
		return err
	case n < 10:
		_, err := p.s.AddBlob(ctx, ref, registry.Upload{}, "", b)
		if err == nil {
			_, err = p.s.PutManifest(ctx, ref, registrytest.NewImage(word), []string{"latest"})
		}
		return err
	case n < 12 && repo != "":
		return p.s.MountBlob(ctx, repo, p.ref(), b.Digest)
	case n < 15 && repo != "":
		return p.s.DeleteManifest(ctx, repo, registrytest.NewImage(word).Digest, nil)
	case n < 16 && repo != "":
		return p.s.DeleteBlob(ctx, repo, b.Digest)
	case n < 18:
		idle, _, err := p.s.IdleBlobs(ctx, nil, past, 100)
		if err == nil {
			err = p.s.MarkIdle(ctx, idle, time.Now())
		}
		if err == nil {
			_, _, err = p.s.UnlinkIdle(ctx, past, 3)
		}
		return err
	case n < 19:
		gone, err := p.s.UnheldBlobs(ctx, "", 100)
		if err == nil {
			_, err = p.s.PurgeUnheld(ctx, gone)
		}
		return err
	case repo != "":
		return p.s.DeleteRepo(ctx, repo)
	}
	return nil
}

// upload continues an existing upload: it sends more bytes, finishes it or cancels it.
func (p *pusher) upload(ctx context.Context, u registry.Upload, ref registrydb.RepoRef, b registry.Blob) error {
	ids, err := store.ReadColumn[string](ctx, p.s.Rows, `SELECT id FROM uploads WHERE grp = $1`, string(ref.Group))
	if err != nil || len(ids) == 0 {
		return err
	}
	u.ID = ids[p.rand.IntN(len(ids))]
	switch p.rand.IntN(4) {
	case 0:
		return p.s.SaveUpload(ctx, u, "")
	case 1:
		return p.s.DeleteUpload(ctx, u.ID)
	case 2:
		_, err := p.s.DropUpload(ctx, u.ID, time.Now().Add(time.Hour))
		return err
	}
	_, err = p.s.AddBlob(ctx, ref, u, "", b)
	return err
}

// TestUsage runs random pushes, mounts, deletes and garbage collections
// concurrently. It checks that the usage of groups equals a recount of the rows,
// and does not exceed their budgets.
func TestUsage(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		team := iamtest.AddGroup(t, s.IAMStore, org, "team").UID
		deep := iamtest.AddGroup(t, s.IAMStore, team, "deep").UID
		other := iamtest.AddGroup(t, s.IAMStore, "", "other").UID
		setBudget(t, s, org, map[resource.Metric]int64{resource.StoredBytes: 900, resource.BudgetRepos: 6})
		setBudget(t, s, team, map[resource.Metric]int64{resource.StoredBytes: 500})
		setBudget(t, s, other, map[resource.Metric]int64{resource.BudgetIdentities: 0})
		refused := map[resource.Metric]int{}
		var mu sync.Mutex
		s.BudgetHooks.Refused = func(m resource.Metric) { mu.Lock(); refused[m]++; mu.Unlock() }

		var wg sync.WaitGroup
		for i := range uint64(4) {
			wg.Go(func() {
				p := pusher{s, []resource.UID{org, team, deep, other}, rand.New(rand.NewPCG(i, 1))}
				for range 100 {
					var missing *registrydb.MissingError
					err := p.act(t.Context())
					if f := (*fault.Error)(nil); err != nil && !errors.As(err, &f) && !errors.As(err, &missing) {
						t.Errorf("error = %v", err)
					}
				}
			})
		}
		wg.Wait()
		dbtest.WantExact(t, s.DB)
		for group, limit := range map[resource.UID]int64{org: 900, team: 500} {
			if used := usageOf(t, s, group, resource.StoredBytes); used > limit {
				t.Errorf("%s uses %d of %d bytes", group, used, limit)
			}
		}
		if n := usageOf(t, s, org, resource.BudgetRepos); n > 6 {
			t.Errorf("%d repos of 6", n)
		}
		if refused[resource.StoredBytes] == 0 || refused[resource.BudgetRepos] == 0 {
			t.Errorf("refusals = %v: the budgets were never reached", refused)
		}

		var uploading int64
		testkit.Must(t, s.Row(t.Context(), `SELECT CAST(coalesce(sum(size), 0) AS BIGINT) FROM uploads WHERE grp <> $1`,
			[]any{string(other)}, &uploading))
		d, rows, _ := dbtest.Dump(t, s.DB)
		for name, url := range map[string]func(*testing.T) string{
			"sqlite":   func(t *testing.T) string { return t.TempDir() + "/restored.db" },
			"postgres": func(t *testing.T) string { return storetest.EmptyPostgres(t) },
		} {
			t.Run("restored into "+name, func(t *testing.T) {
				at := url(t)
				testkit.Must(t, dbtest.Load(t.Context(), at, d, rows))
				r := storetest.Open(t, at)
				testkit.Must(t, recount.CorrectBytes(t.Context(),
					r.DB)) // the counters include uploads, which are not part of a back-up
				dbtest.WantExact(t, r.DB)
				if got, want := usageOf(t, r, org, resource.StoredBytes), usageOf(t, s, org,
					resource.StoredBytes)-uploading; got != want {
					t.Errorf("it uses %d bytes, and did %d", got, want)
				}
				if b, err := r.Budget(t.Context(), team); err != nil || b.Limits[resource.StoredBytes] != 500 {
					t.Errorf("the budget is %v, %v", b, err)
				}
			})
		}
	})
}

// TestBudgets checks that, for each metric, the tightest budget of the groups above limits
// additions.
func TestBudgets(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		team := iamtest.AddGroup(t, s.IAMStore, org, "team").UID
		role := iamtest.AddRole(t, s.IAMStore, org, "r").UID
		add := map[resource.Metric]func(context.Context, resource.UID) error{
			resource.BudgetRepos: func(ctx context.Context, g resource.UID) error {
				return s.InsertRepo(ctx, registrytest.NewRepo(g, fmt.Sprint("r", rand.Uint64())))
			},
			resource.BudgetIdentities: func(ctx context.Context, g resource.UID) error {
				return s.InsertIdentity(ctx, resource.Identity{UID: g.NewChild(), Name: "i", CreateTime: iamtest.Epoch,
					UpdateTime: iamtest.Epoch})
			},
			resource.Webhooks: func(ctx context.Context, g resource.UID) error {
				return s.InsertSubscription(ctx, resource.Subscription{UID: g.NewChild(), Sink: "https://sink.test",
					CreateTime: iamtest.Epoch})
			},
			resource.BudgetGroups: func(ctx context.Context, g resource.UID) error {
				_, err := s.InsertGroup(ctx, iamtest.NewGroup(g, fmt.Sprint("g", rand.Uint64())))
				return err
			},
			resource.BudgetBindings: func(ctx context.Context, g resource.UID) error {
				_, err := s.InsertBinding(ctx, iamtest.NewBinding(g, resource.NewRoot(), role))
				return err
			},
			resource.BudgetAdvisories: func(ctx context.Context, g resource.UID) error {
				_, err := s.InsertAdvisory(ctx, g, vulntest.NewAdvisory(fmt.Sprint("A-", rand.Uint64())))
				return err
			},
		}
		for m, one := range add {
			t.Run(string(m), func(t *testing.T) {
				before := usageOf(t, s, org, m)
				setBudget(t, s, org, map[resource.Metric]int64{m: before + 3})
				setBudget(t, s, team, map[resource.Metric]int64{m: 1})
				wantOver := func(group resource.UID) {
					t.Helper()
					for _, ctx := range []context.Context{t.Context(), resource.WithDryRun(t.Context())} {
						err := one(ctx, group)
						if f := fault.From(err); f.Code != fault.FailedPrecondition || f.Quota == nil || f.Quota.Metric != string(m) {
							t.Errorf("over the budget: %v", err)
						}
					}
				}
				testkit.Must(t, one(t.Context(), team))
				wantOver(team)
				testkit.Must(t, one(t.Context(), org))
				testkit.Must(t, one(t.Context(), org))
				wantOver(org)
				wantOver(team)
				setBudget(t, s, org, map[resource.Metric]int64{m: before + 4})
				wantOver(team)
				testkit.Must(t, one(t.Context(), org))
				testkit.Must(t, s.DeleteBudget(t.Context(), org))
				testkit.Must(t, one(t.Context(), org))
				wantOver(team)
				if used := usageOf(t, s, org, m); used != before+5 {
					t.Errorf("used = %d", used)
				}
				dbtest.WantExact(t, s.DB)
			})
		}
	})
}

// TestBudgetRace checks that concurrent writers do not exceed a budget.
func TestBudgetRace(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		setBudget(t, s, org, map[resource.Metric]int64{resource.BudgetRepos: 10})
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				err := s.InsertRepo(t.Context(), registrytest.NewRepo(org, fmt.Sprint("r", i)))
				if err != nil && !errors.Is(err, fault.FailedPrecondition) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := usageOf(t, s, org, resource.BudgetRepos); n != 10 {
			t.Errorf("%d repos of 10", n)
		}
	})
}

// TestOverBudget checks that a refusal contains the usage only for callers who may know it,
// and nothing about the group for other callers.
func TestOverBudget(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		team := iamtest.AddGroup(t, s.IAMStore, org, "team").UID
		setBudget(t, s, team, map[resource.Metric]int64{resource.BudgetRepos: 0})
		err := s.InsertRepo(t.Context(), registrytest.NewRepo(team, "r"))
		if f := fault.From(err); f.Quota == nil || f.Quota.Known || strings.Contains(f.Error(), string(team)) ||
			len(f.Metadata) != 1 {
			t.Errorf("to a stranger: %+v", f)
		}
		s.BudgetHooks.Visible = func(_ context.Context, g resource.UID) bool { return g == team }
		err = s.InsertRepo(t.Context(), registrytest.NewRepo(team, "r"))
		f := fault.From(err)
		want := fmt.Sprintf("Precondition failed: the group %s has used 0 of its budget of 0 repos, "+
			"and this request needs 1 more; people who may update the group above it, %s, can raise it", team, org)
		if f.Message != want || f.Metadata["used"] != "0" || f.Metadata["limit"] != "0" {
			t.Errorf("to a member: %+v, want %s", f, want)
		}
		setBudget(t, s, org, map[resource.Metric]int64{resource.BudgetRepos: 0})
		s.BudgetHooks.Visible = func(context.Context, resource.UID) bool { return true }
		if err := s.InsertRepo(t.Context(), registrytest.NewRepo(org, "r")); !strings.HasSuffix(err.Error(),
			"the operator of the installation can raise it") {
			t.Errorf("of an organization: %v", err)
		}
	})
}

// TestUploadsGoWithTheirGroup checks that a group with an upload can be deleted, and
// that the bytes of the upload are then no longer counted. It also checks that an
// upload that began while its group was deleted can be deleted.
func TestUploadsGoWithTheirGroup(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		for _, left := range []bool{false, true} {
			team := iamtest.AddGroup(t, s.IAMStore, org, "team").UID
			u := registrytest.AddUpload(t, s.RegistryStore, team, "app")
			u.Size = 100
			testkit.Must(t, s.SaveUpload(t.Context(), u, ""))
			if used := usageOf(t, s, org, resource.StoredBytes); used != 100 {
				t.Errorf("with an upload the organization uses %d bytes", used)
			}
			testkit.Must(t, s.DeleteGroup(t.Context(), team, iamtest.Alice))
			if left {
				testkit.Must(t, s.InsertUpload(t.Context(), registry.Upload{ID: "left", Group: team, Repo: "app",
					Algorithm: "sha256"}))
				_, err := s.Exec(t.Context(), `UPDATE uploads SET size = 50 WHERE id = 'left'`)
				testkit.Must(t, err)
				u.ID, u.Size = "left", 60
				testkit.WantFault(t, s.SaveUpload(t.Context(), u, ""), fault.NotFound, fault.Resource{Type: "upload", Name: "left"})
				testkit.Must(t, s.DeleteUpload(t.Context(), "left"))
			}
			dbtest.WantExact(t, s.DB)
		}
	})
}

// TestBudgetsAtOnce: many goroutines find the cache empty and read the budgets
// concurrently. The test checks that none of them waits forever for a connection that
// another one holds.
func TestBudgetsAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		setBudget(t, s, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, map[resource.Metric]int64{resource.Webhooks: 1})
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if b, err := s.Budgets(ctx); err != nil || len(b.All()) != 1 {
					t.Errorf("budgets: %v", err)
				}
			})
		}
		wg.Wait()
	})
}
