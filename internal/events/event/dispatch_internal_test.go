package event

import (
	"slices"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestInterested checks that events wake the workers of their group and of their subject's groups, and that many events
// wake all workers.
func TestInterested(t *testing.T) {
	org, other := resource.NewRoot(), resource.NewRoot()
	folder, sibling := org.NewChild(), org.NewChild()
	d := &Dispatcher{workers: map[resource.UID]*worker{}, byGroup: map[resource.UID][]*worker{}}
	names := map[*worker]string{}
	for name, group := range map[string]resource.UID{"org": org, "folder": folder, "sibling": sibling,
		"other": other} {
		w := &worker{sub: resource.Subscription{UID: group.NewChild()}, stop: func() {}}
		d.workers[w.sub.UID], d.byGroup[group], names[w] = w, []*worker{w}, name
	}
	tests := map[string]struct {
		events []resource.Event
		want   []string
	}{
		"nothing": {nil, nil},
		"of a folder": {[]resource.Event{{Group: folder, Subject: folder.NewChild()}},
			[]string{"folder", "org"}},
		"of an organization": {[]resource.Event{{Group: org, Subject: org}}, []string{"org"}},
		"by its subject": {[]resource.Event{{Group: org, Subject: folder.NewChild().NewChild()}},
			[]string{"folder", "org"}},
		"of nobody here": {[]resource.Event{{Group: "/", Subject: resource.NewRoot()}}, nil},
		"several for one": {[]resource.Event{{Group: folder}, {Group: folder}, {Group: other}},
			[]string{"folder", "org", "other"}},
		"many wake everybody": {make([]resource.Event, wakeAllEvery), []string{"folder", "org", "other", "sibling"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d.sinceWakeAll = 0
			var got []string
			for _, w := range d.interested(tt.events) {
				got = append(got, names[w])
			}
			if slices.Sort(got); !slices.Equal(got, tt.want) {
				t.Errorf("woke %v, want %v", got, tt.want)
			}
		})
	}
	d.stopWorker(d.byGroup[folder][0].sub.UID)
	if got := d.interested([]resource.Event{{Group: folder}}); len(got) != 1 || names[got[0]] != "org" {
		t.Errorf("woke %d workers, want only the organization's worker", len(got))
	}
}
