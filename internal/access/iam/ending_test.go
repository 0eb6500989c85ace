package iam_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestListEnding checks that callers see the bindings that end soon and that they may list, ordered by their end.
func TestListEnding(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		c := w.cast()
		give := func(group, who resource.UID, in time.Duration) resource.UID {
			b := resource.RoleBinding{Identity: who, Role: c.reader.UID}
			if in > 0 {
				b.ExpireTime = time.Now().Add(in)
			}
			made, err := w.CreateBinding(w.owner, group, b)
			must(t, err)
			return made.UID
		}
		late := give(c.prod.UID, c.ann, 48*time.Hour)
		next := give(w.acme.UID, c.ann, time.Hour)
		give(w.acme.UID, c.ben, 30*24*time.Hour)
		over := give(c.prod.UID, c.ben, 2*time.Hour)
		_, err := w.store.Exec(t.Context(), `UPDATE role_bindings SET expire_ms = 1000 WHERE uid = $1`, string(over))
		must(t, err)
		for name, tt := range map[string]struct {
			group resource.UID
			size  int32
			want  []resource.UID
			more  bool
		}{
			"all":     {want: []resource.UID{next, late}},
			"below":   {group: c.prod.UID, want: []resource.UID{late}},
			"one":     {size: 1, want: []resource.UID{next}, more: true},
			"another": {group: w.other.UID},
		} {
			got, more, err := w.ListEnding(w.owner, 0, tt.group, tt.size)
			must(t, err)
			var uids []resource.UID
			for _, b := range got {
				uids = append(uids, b.UID)
			}
			if !slices.Equal(uids, tt.want) || more != tt.more {
				t.Errorf("%s: %v, more %t, want %v, %t", name, uids, more, tt.want, tt.more)
			}
		}
		for name, as := range map[string]context.Context{"the owner of another": w.rival,
			"a stranger": w.as(resource.NewRoot())} {
			if got, _, err := w.ListEnding(as, 0, "", 0); len(got) != 0 || err != nil {
				t.Errorf("%s is told %v, %v", name, got, err)
			}
		}
		_, _, err = w.ListEnding(t.Context(), 0, "", 0)
		want(t, "nobody", err, fault.Unauthenticated)
		_, _, err = w.ListEnding(w.owner, -time.Second, "", 0)
		want(t, "the past", err, fault.InvalidArgument)
		_, _, err = w.ListEnding(w.owner, 10*366*24*time.Hour, "", 0)
		want(t, "ten years", err, fault.InvalidArgument)
		_, _, err = w.ListEnding(w.owner, 0, "", -1)
		want(t, "a negative size", err, fault.InvalidArgument)
	})
}
