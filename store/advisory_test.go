package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// newAdvisory is one as a public database has it.
func newAdvisory(id string) resource.Advisory {
	return resource.Advisory{
		ID: id, Author: "db", ArtifactName: "example.test/pkg", ArtifactType: "golang", Summary: "Reads past the end",
		Aliases: []string{"CVE-2026-" + id},
		Affected: []resource.Affected{{
			Ecosystem: "Go", Name: "example.test/pkg",
			Ranges: []resource.AffectedRange{{Type: "SEMVER", Events: []resource.RangeEvent{{Introduced: "0"}, {Fixed: "1.2.3"}}}},
		}},
		Events: []resource.AdvisoryEvent{{
			CreateTime: epoch, Author: "db", ReviewState: resource.ReviewApproved, Type: resource.EventDetection,
			Detection: &resource.Detection{Manual: true},
		}},
		Source: resource.AdvisorySource{Format: "osv", Name: id + ".json", Published: epoch, Digest: []byte("1")},
	}
}

func addAdvisory(t *testing.T, s *store.Store, group resource.UID, id string) resource.Advisory {
	t.Helper()
	a, err := s.InsertAdvisory(t.Context(), group, newAdvisory(id))
	must(t, err)
	return a
}

func newFeed(group resource.UID, name string) resource.AdvisoryFeed {
	return resource.AdvisoryFeed{
		UID: group.NewChild(), Name: name, Address: "https://feeds.test/" + name, Interval: time.Hour, CreateTime: epoch, UpdateTime: epoch,
	}
}

func addFeed(t *testing.T, s *store.Store, group resource.UID, name string) resource.AdvisoryFeed {
	t.Helper()
	f := newFeed(group, name)
	must(t, s.InsertFeed(t.Context(), f))
	return f
}

// actsOnAdvisories are all that writes advisories and feeds.
func (st stage) actsOnAdvisories() map[string]act {
	none, f := st.org.UID.NewChild(), newFeed(st.org.UID, "new")
	insert := func(id string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.InsertAdvisory(ctx, st.org.UID, newAdvisory(id))
			return err
		}
	}
	update := func(uid resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.UpdateAdvisory(ctx, uid, func(a *resource.Advisory) error { a.ArtifactName, a.Aliases = "other", nil; return nil })
			return err
		}
	}
	updateFeed := func(uid resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.UpdateFeed(ctx, uid, func(f *resource.AdvisoryFeed) error { f.Name = "other"; return nil })
			return err
		}
	}
	return map[string]act{
		"InsertAdvisory": {insert("A-2"), insert("A-1")},
		"UpdateAdvisory": {update(st.adv.UID), update(none)},
		"DeleteAdvisory": {
			func(ctx context.Context) error { return st.DeleteAdvisory(ctx, st.adv.UID) },
			func(ctx context.Context) error { return st.DeleteAdvisory(ctx, none) },
		},
		"ImportAdvisories": {func(ctx context.Context) error {
			changed := newAdvisory("A-1")
			changed.Source.Digest = []byte("2")
			_, err := st.ImportAdvisories(ctx, st.org.UID, "test", []resource.Advisory{changed, newAdvisory("A-3")})
			return err
		}, func(ctx context.Context) error {
			_, err := st.ImportAdvisories(ctx, none, "test", []resource.Advisory{newAdvisory("A-3")})
			return err
		}},
		"InsertFeed": {
			func(ctx context.Context) error { return st.InsertFeed(ctx, f) },
			func(ctx context.Context) error { return st.InsertFeed(ctx, newFeed(st.org.UID, "feed")) },
		},
		"UpdateFeed": {updateFeed(st.feed.UID), updateFeed(none)},
		"DeleteFeed": {
			func(ctx context.Context) error { return st.DeleteFeed(ctx, st.feed.UID) },
			func(ctx context.Context) error { return st.DeleteFeed(ctx, none) },
		},
		"TakeDueFeed": {func(ctx context.Context) error {
			_, _, err := st.TakeDueFeed(ctx, time.Now().Add(time.Hour))
			return err
		}, nil},
	}
}
