package resource

import (
	"errors"
	"regexp/syntax"
	"strings"
	"testing"
	"time"
)

// programOf returns the number of instructions to which a pattern is compiled.
func programOf(t *testing.T, pattern string) int {
	t.Helper()
	tree, err := syntax.Parse(`\A(?:`+pattern+`)\z`, syntax.Perl)
	if err != nil {
		t.Fatalf("%q: %v", pattern, err)
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		t.Fatalf("%q: %v", pattern, err)
	}
	return len(prog.Inst)
}

// anchors is the number of instructions that the anchors of a pattern need.
const anchors = 8

func TestPatternSize(t *testing.T) {
	tests := map[string]struct {
		pattern string
		err     error
	}{
		"nothing":                       {"", nil},
		"a usual subject":               {`repo:org(@\d+)?/app(@\d+)?:ref:refs/heads/main`, nil},
		"as long as can be":             {strings.Repeat("a", maxPattern), nil},
		"a list as long as can be":      {strings.Repeat("ab|", 340) + "c", nil},
		"ids of thirty-two digits":      {`https://oidc\.eks\.[a-z0-9-]+\.amazonaws\.com/id/[A-F0-9]{32}`, nil},
		"any letters":                   {`[\pL\pN_-]+@example\.com`, nil},
		"case ignored":                  {`(?i)[a-z0-9-]+@example\.com`, nil},
		"stars as many as can be":       {strings.Repeat(".*", maxPattern/2), errTooLarge},
		"repetitions":                   {strings.Repeat("[a-z]{0,999}", 8), errTooLarge},
		"repetitions of anything":       {strings.Repeat(".{0,999}", 16), errTooLarge},
		"repetitions of repetitions":    {"((a{1,10}){1,10}){1,10}b{500}", errTooLarge},
		"a repetition of much":          {"(" + strings.Repeat("a", 900) + "){1000}", errTooLarge},
		"a repetition without end":      {strings.Repeat("a{1000,}", 2), errTooLarge},
		"Unicode classes":               {strings.Repeat(`\pL`, 340), errTooLarge},
		"Unicode classes, case ignored": {"(?i)" + strings.Repeat(`\P{Greek}`, 100), errTooLarge},
		"wide ranges, case ignored":     {"(?i)" + strings.Repeat(`[B-\x{1e942}]`, 70), errTooLarge},
		"the same, written out":         {"(?i)" + strings.Repeat("[B-\U0001e942]", 100), errTooLarge},
		"too long":                      {strings.Repeat("a", maxPattern+1), errTooLarge},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, size, err := compile(tt.pattern)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error = %v, want %v", err, tt.err)
			}
			if n := 0; err == nil {
				if n = programOf(t, tt.pattern); n > size+anchors {
					t.Errorf("its program has %d instructions, more than the %d it was taken for", n, size)
				}
			}
		})
	}
}

// FuzzPatternSize checks that an accepted pattern compiles and is not larger than
// estimated, and that a pattern above the limit is never accepted.
func FuzzPatternSize(f *testing.F) {
	for _, pattern := range []string{
		".*", "repo:[a-z]+/x", "(?i)a|b|c", `(a{0,30}b?){0,30}`, `[^\pL]{7}`, "[a-z]{0,999}[a-z]{0,999}",
		"(?s:.)*|^$", "a{1000}", `\Q..\E`, "(((((a)))))*",
	} {
		f.Add(pattern)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f.Fuzz(func(t *testing.T, pattern string) {
		for _, c := range []ClaimMatch{
			{Issuer: "https://issuer.example", SubjectPattern: pattern},
			{IssuerPattern: pattern, Subject: "job"},
			{Issuer: "https://issuer.example", Subject: "job",
				ClaimPatterns: map[string]string{"a": pattern, "b": pattern, "c": pattern}},
		} {
			r := Relationship{ClaimMatch: &c}
			accepted := Identity{Name: "x", Relationship: r}.Validate(at) == nil
			m, err := NewMatcher(r, nil)
			if err == nil && m.Size() > maxPrograms {
				t.Fatalf("%q is matched with, and has a size of %d", pattern, m.Size())
			}
			if accepted && (err != nil || r.PatternsTooLarge()) {
				t.Fatalf("%q is valid and is not matched with: %v", pattern, err)
			}
			if accepted && programOf(t, pattern) > maxProgram+anchors {
				t.Fatalf("%q is valid, and its program has %d instructions", pattern, programOf(t, pattern))
			}
		}
	})
}

// BenchmarkWorstPatterns matches the most expensive patterns and values that are allowed.
func BenchmarkWorstPatterns(b *testing.B) {
	for name, tt := range map[string]struct {
		claim, pattern string
	}{
		"an issuer":  {"iss", "https://" + strings.Repeat(".*", 160) + "b"},
		"one claim":  {"x", strings.Repeat(".*", 395) + "b"},
		"an honest":  {"iss", `https://oidc\.eks\.[a-z0-9-]+\.amazonaws\.com/id/[A-F0-9]{32}`},
		"a subject":  {"sub", `repo:org(@\d+)?/app(@\d+)?:ref:refs/heads/main`},
		"more words": {"x", "(" + strings.Repeat("a|", 250) + "b)*c"},
	} {
		w, err := newPattern(tt.claim, tt.pattern)
		if err != nil {
			b.Fatal(name, err)
		}
		value := "https://" + strings.Repeat("a", w.longest()-len("https://"))
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				w.accepts(value)
			}
		})
	}
}
