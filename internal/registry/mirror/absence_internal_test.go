package mirror

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
)

// TestAbsences checks that absences are remembered separately for each upstream, repo and kind of content, and that
// the number of entries is bounded.
func TestAbsences(t *testing.T) {
	now := time.Now()
	of := func(uid resource.UID, repo string) *Source {
		return &Source{registry.Upstream{UID: uid, UpdateTime: now}, []string{repo}}
	}
	a, gone := newAbsences(), &upstream.Error{Status: http.StatusNotFound}
	a.note(of("a1/u1", "app").key("manifest", "v1"), gone, now)
	a.note(of("a1/u1", "app").key("manifest", "v2"), &upstream.Error{Status: http.StatusForbidden}, now)
	for name, tt := range map[string]struct {
		key  absenceKey
		want bool
	}{
		"it":               {of("a1/u1", "app").key("manifest", "v1"), true},
		"another upstream": {of("b1/u2", "app").key("manifest", "v1"), false},
		"another repo":     {of("a1/u1", "other").key("manifest", "v1"), false},
		"another kind":     {of("a1/u1", "app").key("blob", "v1"), false},
		"one refused":      {of("a1/u1", "app").key("manifest", "v2"), false},
	} {
		if got := upstream.NotFound(a.err(tt.key, now)); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for i := range absencesCached + 100 {
		a.note(of("a1/u1", "app").key("manifest", fmt.Sprint(i)), gone, now)
	}
	if n := a.until.Len(); n != absencesCached {
		t.Errorf("%d are remembered", n)
	}
}
