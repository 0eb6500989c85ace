package iam_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// backdate sets the age of all resources, and makes the recording of use begin long before their creation.
func (w *world) backdate(age time.Duration) {
	w.t.Helper()
	at := store.MS(time.Now().Add(-age))
	for _, table := range []string{"role_bindings", "identities", "group_invites", "account_associations"} {
		_, err := w.store.Exec(w.t.Context(), `UPDATE `+table+` SET create_ms = $1`, at)
		must(w.t, err)
	}
	_, err := w.store.Exec(w.t.Context(), `UPDATE identities SET last_seen_ms = $1`, at)
	must(w.t, err)
	must(w.t, w.store.SetSetting(w.t.Context(), "use recorded since", []byte("1000")))
}

// unused returns the unused resources that a caller sees, keyed by their names, with the suggested roles.
func (w *world) unused(as context.Context, kind resource.UnusedKind) map[string]string {
	w.t.Helper()
	got, err := w.ListUnused(as, iam.UnusedFilter{Kind: kind, Since: 24 * time.Hour}, page.Params{Size: 200})
	must(w.t, err)
	all := map[string]string{}
	for _, u := range got.Items {
		switch {
		case u.Binding != nil:
			all[u.Binding.IdentityInfo.Name+" "+u.Binding.RoleInfo.Name] = u.Suggestion.Name
		case u.Identity != nil:
			all[u.Identity.Name] = ""
		default:
			all[string(u.UID)] = ""
		}
	}
	return all
}

func TestListUnused(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		w.checker.RecordUses(true)
		c := w.cast()
		big, err := w.CreateIdentity(w.owner, w.acme.UID, person("big", "big"))
		must(t, err)
		_, err = w.CreateBinding(w.owner, w.acme.UID,
			resource.RoleBinding{Identity: big.UID, Role: resource.ManagedRoleUID("editor")})
		must(t, err)
		invite, err := w.CreateInvite(w.owner, w.acme.UID, resource.GroupInvite{Role: c.reader.UID}, time.Hour)
		must(t, err)
		if got := w.unused(w.owner, resource.UnusedBindings); len(got) != 0 {
			t.Errorf("unused, though use is recorded since a moment ago: %v", got)
		}
		w.backdate(48 * time.Hour)
		must(t, w.store.SetSetting(t.Context(), "use recorded since",
			fmt.Append(nil, time.Now().Add(-time.Hour).UnixMilli())))
		if got := w.unused(w.owner, resource.UnusedBindings); len(got) != 0 {
			t.Errorf("unused for a day, though use is recorded since an hour: %v", got)
		}
		w.backdate(48 * time.Hour)
		must(t, w.checker.Require(w.as(big.UID), resource.RepoList, c.prod.UID))
		must(t, w.checker.Require(w.as(big.UID), resource.GroupsList, c.prod.UID))
		must(t, w.checker.Require(w.as(c.ann), resource.GroupsList, c.prod.UID))
		must(t, w.checker.Require(w.as(c.ben), resource.RepoList, c.prod.UID))
		must(t, w.checker.FlushUses(t.Context()))
		got := w.unused(w.owner, resource.UnusedBindings)
		if got["acme owner owner"] == "owner" {
			t.Error("the role itself is suggested")
		}
		delete(got, "acme owner owner")
		// The binding of ann was used. ben has two bindings: the one on the higher group was used, and the other one
		// was not. The role all has both capabilities that big has used.
		if diff := cmp.Diff(map[string]string{"ben all": "", "ben reader": "", "big editor": "all"}, got); diff != "" {
			t.Error(diff)
		}
		if got := w.unused(w.owner, resource.UnusedIdentities); len(got) != 3 {
			t.Errorf("identities that were not seen: %v", got)
		}
		if got := w.unused(w.owner, resource.UnusedInvites); len(got) != 1 {
			t.Errorf("invites %v, want %s", got, invite.UID)
		}
		for _, kind := range []resource.UnusedKind{resource.UnusedBindings, resource.UnusedIdentities,
			resource.UnusedInvites, resource.UnusedAssociations} {
			delete(got, "other owner owner")
			got := w.unused(w.rival, kind)
			delete(got, "other owner owner")
			if len(got) != 0 {
				t.Errorf("the owner of another is told: %v", got)
			}
			if got := w.unused(w.as(resource.NewRoot()), kind); len(got) != 0 {
				t.Errorf("a stranger is told: %v", got)
			}
		}
	})
}

func TestListUnusedRefuses(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		for name, tt := range map[string]struct {
			as   context.Context
			f    iam.UnusedFilter
			p    page.Params
			code fault.Code
		}{
			"nobody": {
				t.Context(), iam.UnusedFilter{Kind: resource.UnusedBindings}, page.Params{}, fault.Unauthenticated,
			},
			"no kind":        {w.owner, iam.UnusedFilter{}, page.Params{}, fault.InvalidArgument},
			"an unknown one": {w.owner, iam.UnusedFilter{Kind: 99}, page.Params{}, fault.InvalidArgument},
			"a second": {
				w.owner, iam.UnusedFilter{Kind: resource.UnusedBindings, Since: time.Second}, page.Params{}, fault.InvalidArgument,
			},
			"a century": {
				w.owner, iam.UnusedFilter{Kind: resource.UnusedBindings, Since: 100 * 365 * 24 * time.Hour}, page.Params{},
				fault.InvalidArgument,
			},
			"the past": {
				w.owner, iam.UnusedFilter{Kind: resource.UnusedBindings, Since: -time.Hour}, page.Params{}, fault.InvalidArgument,
			},
			"a bad token": {
				w.owner, iam.UnusedFilter{Kind: resource.UnusedBindings}, page.Params{Token: "x"}, fault.InvalidArgument,
			},
			"a bad order": {
				w.owner, iam.UnusedFilter{Kind: resource.UnusedBindings}, page.Params{OrderBy: "name"}, fault.InvalidArgument,
			},
			"what is no uid": {
				w.owner, iam.UnusedFilter{Kind: resource.UnusedBindings, UIDs: resource.UIDFilter{DescendantsOf: "x"}},
				page.Params{}, fault.InvalidArgument,
			},
		} {
			_, err := w.ListUnused(tt.as, tt.f, tt.p)
			want(t, name, err, tt.code)
		}
	})
}

// TestListUnusedPages checks that the token alone is enough to read all pages, in both directions, and that another
// caller gets nothing with the token.
func TestListUnusedPages(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		w.cast()
		w.backdate(48 * time.Hour)
		for _, kind := range []resource.UnusedKind{resource.UnusedBindings, resource.UnusedIdentities} {
			for _, order := range []string{"uid", "uid desc"} {
				f := iam.UnusedFilter{Kind: kind, Since: time.Hour, UIDs: resource.UIDFilter{DescendantsOf: w.acme.UID}}
				all, err := w.ListUnused(w.owner, f, page.Params{Size: 200, OrderBy: order})
				must(t, err)
				var one []resource.UID
				p := page.Params{Size: 1, OrderBy: order}
				for more := true; more; more = p.Token != "" {
					got, err := w.ListUnused(w.owner, f, p)
					must(t, err)
					for _, u := range got.Items {
						one = append(one, u.UID)
					}
					f, p = iam.UnusedFilter{}, page.Params{Size: 1, Token: got.Next}
					if stolen, err := w.ListUnused(w.rival, f, p); got.Next != "" && (err != nil || len(stolen.Items) != 0) {
						t.Errorf("the token gives something to the owner of another: %v, %v", stolen, err)
					}
				}
				var want []resource.UID
				for _, u := range all.Items {
					want = append(want, u.UID)
				}
				if diff := cmp.Diff(want, one); diff != "" || len(want) < 2 {
					t.Errorf("%d by %s: %d at once%s", kind, order, len(want), diff)
				}
			}
		}
	})
}

// TestUnusedReport checks that the weekly report counts the resources that the owner would see in a list, and names no
// identities.
func TestUnusedReport(t *testing.T) {
	each(t, iam.Config{}, func(t *testing.T, w *world) {
		c := w.cast()
		_, err := w.CreateInvite(w.owner, w.acme.UID, resource.GroupInvite{Role: c.reader.UID}, time.Hour)
		must(t, err)
		w.backdate(iam.DefaultUnused + time.Hour)
		sub := resource.Subscription{UID: w.acme.UID.NewChild(), Sink: "https://sink.test/x",
			CreateTime: time.Now().Add(-8 * 24 * time.Hour)}
		must(t, w.store.InsertSubscription(t.Context(), sub))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx, slog.New(slog.DiscardHandler)) }()
		var got []resource.Event
		testkit.Until(t, func() bool {
			all, err := outbox.Read(t.Context(), w.store.DB, 0, 1000)
			must(t, err)
			for _, e := range all {
				if e.Type == resource.AccessUnused {
					got = append(got, e)
				}
			}
			return len(got) > 0
		})
		stop()
		must(t, <-done)
		if len(got) != 1 || got[0].Group != w.acme.UID {
			t.Fatalf("told: %+v", got)
		}
		var r resource.UnusedReport
		must(t, json.Unmarshal(got[0].After, &r))
		for i, kind := range []resource.UnusedKind{
			resource.UnusedBindings, resource.UnusedIdentities, resource.UnusedInvites, resource.UnusedAssociations,
		} {
			f := iam.UnusedFilter{Kind: kind, UIDs: resource.UIDFilter{DescendantsOf: w.acme.UID}}
			listed, err := w.ListUnused(w.owner, f, page.Params{Size: 200})
			must(t, err)
			want := resource.UnusedTotal{Kind: kind, Looked: listed.Total, Unused: int64(len(listed.Items))}
			if r.Totals[i] != want || kind != resource.UnusedAssociations && want.Unused == 0 {
				t.Errorf("the report has %+v, the list %+v", r.Totals[i], want)
			}
		}
		if strings.Contains(string(got[0].After), "ann") || len(r.First) == 0 || r.First[0].Capabilities == 0 {
			t.Errorf("the report: %s", got[0].After)
		}
	})
}
