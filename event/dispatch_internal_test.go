package event

import (
	"slices"
	"testing"

	"github.com/holdfast-dev/holdfast/resource"
)

// TestConcerned has couriers posted at groups: those that an event is for are
// roused, by its group or its subject, and the others only now and then.
func TestConcerned(t *testing.T) {
	org, other := resource.NewRoot(), resource.NewRoot()
	folder, sibling := org.NewChild(), org.NewChild()
	d := &Dispatcher{couriers: map[resource.UID]*stoppable{}, posted: map[resource.UID][]*courier{}}
	names := map[*courier]string{}
	for name, group := range map[string]resource.UID{"org": org, "folder": folder, "sibling": sibling, "other": other} {
		c := &courier{sub: resource.Subscription{UID: group.NewChild()}}
		d.couriers[c.sub.UID], d.posted[group], names[c] = &stoppable{courier: c}, []*courier{c}, name
	}
	tests := map[string]struct {
		events []resource.Event
		want   []string
	}{
		"nothing":                        {nil, nil},
		"of a folder":                    {[]resource.Event{{Group: folder, Subject: folder.NewChild()}}, []string{"folder", "org"}},
		"of an organization":             {[]resource.Event{{Group: org, Subject: org}}, []string{"org"}},
		"by its subject":                 {[]resource.Event{{Group: org, Subject: folder.NewChild().NewChild()}}, []string{"folder", "org"}},
		"of nobody here":                 {[]resource.Event{{Group: "/", Subject: resource.NewRoot()}}, nil},
		"several for one":                {[]resource.Event{{Group: folder}, {Group: folder}, {Group: other}}, []string{"folder", "org", "other"}},
		"many: everybody passes on once": {make([]resource.Event, strollEach), []string{"folder", "org", "other", "sibling"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d.passed = 0
			var got []string
			for _, c := range d.concerned(tt.events) {
				got = append(got, names[c])
			}
			if slices.Sort(got); !slices.Equal(got, tt.want) {
				t.Errorf("roused %v, want %v", got, tt.want)
			}
		})
	}
	d.dismiss(d.posted[folder][0])
	if got := d.concerned([]resource.Event{{Group: folder}}); len(got) != 1 || names[got[0]] != "org" {
		t.Errorf("%d were roused, want that of the organization alone", len(got))
	}
}
