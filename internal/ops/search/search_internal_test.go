package search

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestBest checks that a resource is returned once with its best match, and that there are at most five
// results of each kind and fifty together.
func TestBest(t *testing.T) {
	uid := resource.NewRoot()
	found := func(kind Kind, match Match, name string) Result {
		return Result{Kind: kind, Match: match, UID: uid, Name: name}
	}
	got := best([]Result{
		found(Repo, ByNamePrefix, "ab"), found(Group, ByNamePrefix, "a"), found(Repo, ByName, "a"),
		found(Group, ByPath, "a"), found(Repo, ByName, "a"),
	}, 10)
	want := []Result{found(Group, ByPath, "a"), found(Repo, ByName, "a"), found(Repo, ByNamePrefix, "ab")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var many []Result
	for kind := Group; kind <= AuditEntry; kind++ {
		for i := range 2 * perKind {
			many = append(many, found(kind, ByNamePrefix, fmt.Sprint(i)))
		}
	}
	if n := len(best(many[:30], maxResults)); n != 3*perKind {
		t.Errorf("%d of three kinds, want %d", n, 3*perKind)
	}
	if n := len(best(many, maxResults)); n != maxResults {
		t.Errorf("%d of all kinds, want %d", n, maxResults)
	}
}

func TestCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		size int
		err  error
	}{
		"one byte":        {"a", 0, nil},
		"256 bytes":       {strings.Repeat("a", 256), 50, nil},
		"257 bytes":       {strings.Repeat("a", 257), 0, fault.InvalidArgument},
		"nothing":         {"", 0, fault.InvalidArgument},
		"NUL":             {"a\x00", 0, fault.InvalidArgument},
		"no UTF-8":        {"a\xff", 0, fault.InvalidArgument},
		"half a rune":     {"é"[:1], 0, fault.InvalidArgument},
		"a negative size": {"a", -1, fault.InvalidArgument},
		"bidi":            {"\u202ea", 0, nil},
		"other wildcards": {`%_*\`, 0, nil},
	} {
		if err := check(tt.text, tt.size); !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, want %v", name, err, tt.err)
		}
	}
}
