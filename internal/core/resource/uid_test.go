package resource_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const (
	root  = resource.UID("0123456789abcdef0123456789abcdef01234567")
	child = root + "/00000000000000aa"
	leaf  = child + "/ffffffffffffffff"
)

func TestParseUID(t *testing.T) {
	tests := map[string]struct {
		in string
		ok bool
	}{
		"a root":               {string(root), true},
		"a child":              {string(child), true},
		"a grandchild":         {string(leaf), true},
		"empty":                {"", false},
		"short root":           {string(root[1:]), false},
		"long root":            {string(root) + "0", false},
		"capitals":             {strings.ToUpper(string(root)), false},
		"not hexadecimal":      {"g" + string(root[1:]), false},
		"short segment":        {string(root) + "/aa", false},
		"long segment":         {string(child) + "0", false},
		"slash at the end":     {string(root) + "/", false},
		"slash at the front":   {"/" + string(root), false},
		"two slashes":          {string(root) + "//" + "00000000000000aa", false},
		"no slash":             {string(root) + "x00000000000000aa", false},
		"a path up":            {string(root) + "/../../../../aa", false},
		"as deep as can be":    {string(root) + strings.Repeat("/00000000000000aa", resource.MaxDepth-1), true},
		"one deeper than that": {string(root) + strings.Repeat("/00000000000000aa", resource.MaxDepth), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			uid, err := resource.ParseUID("uid", tt.in)
			if (err == nil) != tt.ok {
				t.Fatalf("ParseUID(%q) error = %v, want ok %v", tt.in, err, tt.ok)
			}
			if !tt.ok && (!errors.Is(err, fault.InvalidArgument) || fault.From(err).Fields[0].Subject != "uid") {
				t.Errorf("error = %#v, want a violation of uid", err)
			}
			if tt.ok && string(uid) != tt.in {
				t.Errorf("uid = %s", uid)
			}
		})
	}
}

func TestPlaces(t *testing.T) {
	if root.Parent() != "" || leaf.Parent() != child || leaf.Root() != root || root.Root() != root {
		t.Error("Parent or Root is wrong")
	}
	if root.Depth() != 1 || leaf.Depth() != 3 || resource.UID("").Depth() != 0 {
		t.Error("Depth is wrong")
	}
	if got := leaf.Ancestors(); len(got) != 2 || got[0] != root || got[1] != child {
		t.Errorf("Ancestors = %v", got)
	}
	if leaf.Ancestor(1) != root || leaf.Ancestor(2) != child || leaf.Ancestor(3) != leaf || leaf.Ancestor(4) != leaf {
		t.Error("Ancestor is wrong")
	}
	if leaf.Segment() != -1 || child.Segment() != 0xaa {
		t.Errorf("Segment = %d, %d", leaf.Segment(), child.Segment())
	}
	covers := map[[2]resource.UID]bool{
		{root, root}: true, {root, leaf}: true, {child, leaf}: true, {leaf, child}: false, {"", root}: false,
		{root[:39], root}: false, {child[:56], child}: false,
	}
	for p, want := range covers {
		if p[0].Covers(p[1]) != want {
			t.Errorf("%q covers %q: want %v", p[0], p[1], want)
		}
	}
}

// TestDerivedUID checks that two lists of words that are equal when joined have different UIDs.
func TestDerivedUID(t *testing.T) {
	a, b := resource.DerivedUID("a", "bc"), resource.DerivedUID("ab", "c")
	if a == b {
		t.Error("(a, bc) and (ab, c) have the same uid")
	}
	if _, err := resource.ParseUID("", string(a)); err != nil || !a.IsRoot() {
		t.Errorf("%q is not a root uid", a)
	}
	if resource.UserUID("accounts.google.com", "1") != resource.UserUID("https://accounts.google.com", "1") {
		t.Error("the issuer without its scheme is another")
	}
}

// TestRisingChildAfterClockWasSetBack checks that the UIDs of one millisecond differ and increase, although UIDs for
// later times were returned before.
func TestRisingChildAfterClockWasSetBack(t *testing.T) {
	now := time.Now()
	root.NewRisingChild(now.Add(time.Hour))
	last := resource.UID("")
	for i := range 20_000 {
		next := root.NewRisingChild(now)
		if next <= last {
			t.Fatalf("UID %d is %s after %s", i, next, last)
		}
		last = next
	}
	if later := root.NewRisingChild(now.Add(time.Millisecond)); later <= last {
		t.Errorf("%s is later than %s", later, last)
	}
}

func FuzzParseUID(f *testing.F) {
	f.Add(string(root))
	f.Add(string(leaf))
	f.Add(string(root) + "/..")
	f.Fuzz(func(t *testing.T, s string) {
		uid, err := resource.ParseUID("uid", s)
		if err != nil {
			return
		}
		if string(uid) != s || strings.Trim(s, "0123456789abcdef/") != "" {
			t.Fatalf("%q passed", s)
		}
		for at, n := uid, 0; at != ""; at, n = at.Parent(), n+1 {
			if n > resource.MaxDepth || !at.Covers(uid) || at.Root() != uid.Root() {
				t.Fatalf("the way up from %q is wrong at %q", uid, at)
			}
		}
	})
}
