package resource

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

var errNoCredential = errors.New("no credential stands for this relationship")

// maxNearMiss is the greatest cost of a comparison, in steps of a pattern's program, for
// which cause looks for near misses, because that needs dozens of comparisons.
const maxNearMiss = 1 << 17

// cause returns the probable mistake in a claim that does not match. It tries common
// mistakes, one after the other, until the claim matches.
func (w want) cause(received string) string {
	switch {
	case received == "":
		return "the token has no claim " + w.claim + " that can be compared"
	case w.pattern != nil && len(received) > w.longest():
		return fmt.Sprintf("is longer than %d bytes, which no pattern matches", w.longest())
	case w.claim == "aud":
		return w.audienceCause(strings.Split(received, audienceSeparator))
	case w.size*len(received) > maxNearMiss:
		return ""
	case w.folded(received):
		return "differs only in upper and lower case"
	}
	for _, r := range repairs {
		fits := func(changed string) bool { return w.accepts(changed) || w.folded(changed) }
		if slices.ContainsFunc(r.change(received), fits) {
			return r.cause
		}
	}
	return ""
}

func (w want) audienceCause(audience []string) string {
	switch {
	case slices.ContainsFunc(audience, w.accepts):
		return "the token is for others too, who could present it here: ask for a token of one audience"
	case len(audience) == 1 && w.folded(audience[0]):
		return "differs only in upper and lower case"
	}
	return "the token was made for another audience: ask its issuer for one for " + w.expected()
}

// folded reports whether a value matches the requirement if case is ignored.
func (w want) folded(value string) bool {
	if w.pattern != nil {
		re := w.fold()
		return re != nil && len(value) <= w.longest() && re.MatchString(value)
	}
	return slices.ContainsFunc(w.exact, func(e string) bool { return strings.EqualFold(e, value) })
}

// repairs contains common mistakes in claims, and functions that correct them.
var repairs = []struct {
	cause  string
	change func(string) []string
}{
	{"has spaces around it", func(s string) []string { return []string{strings.TrimSpace(s)} }},
	{"has a slash at the end too many or too few", func(s string) []string {
		return []string{s + "/", strings.TrimSuffix(s, "/")}
	}},
	{"the scheme is another", func(s string) []string {
		if rest, ok := strings.CutPrefix(s, "http://"); ok {
			return []string{"https://" + rest, rest}
		}
		return []string{"https://" + s, strings.TrimPrefix(s, "https://")}
	}},
	{"the token has GitHub's newer subject with numeric ids; match both forms", oldSubjects},
	{"the token has GitHub's older subject without numeric ids; match both forms", newSubjects},
	{"the token is for a ref, an environment or a pull request other than the one expected", otherContexts},
}

// GitHub's subjects contain the names of owner and repository. Since 2026 they also contain
// the IDs of both, which are never reused.
var (
	githubNew = regexp.MustCompile(`^repo:([^@/:]+)@\d+/([^@/:]+)@\d+(:.*)$`)
	githubOld = regexp.MustCompile(`^repo:([^@/:]+)/([^@/:]+)(:.*)$`)
)

// oldSubjects returns a newer GitHub subject in the older form.
func oldSubjects(s string) []string {
	if m := githubNew.FindStringSubmatch(s); m != nil {
		return []string{"repo:" + m[1] + "/" + m[2] + m[3]}
	}
	return nil
}

// newSubjects returns an older GitHub subject in the newer form, with arbitrary IDs.
func newSubjects(s string) []string {
	if m := githubOld.FindStringSubmatch(s); m != nil {
		return []string{
			"repo:" + m[1] + "@1/" + m[2] + "@1" + m[3],
			"repo:" + m[1] + "@123456/" + m[2] + "@123456789" + m[3],
		}
	}
	return nil
}

// otherContexts returns the subjects that GitHub uses for other events in the same repository.
func otherContexts(s string) []string {
	parts := strings.SplitN(s, ":", 3)
	if len(parts) != 3 || parts[0] != "repo" {
		return nil
	}
	var all []string
	for _, context := range []string{
		"ref:refs/heads/main", "ref:refs/heads/master", "pull_request",
		"environment:production", "environment:prod", "ref:refs/tags/v1.0.0",
	} {
		all = append(all, parts[0]+":"+parts[1]+":"+context)
	}
	return all
}

const githubIssuer = "https://token.actions.githubusercontent.com"

// Warnings returns descriptions of settings that are valid, but probably not intended.
func (i Identity) Warnings() []string {
	c := i.Relationship.ClaimMatch
	if c == nil || c.Issuer != githubIssuer {
		return nil
	}
	if c.SubjectPattern == "" {
		return githubWarnings(want{exact: []string{c.Subject}}, c.Subject)
	}
	w, err := newPattern("sub", c.SubjectPattern)
	if err != nil {
		return nil
	}
	tree, err := syntax.Parse(c.SubjectPattern, syntax.Perl)
	if err != nil {
		return nil
	}
	subject := ""
	for pick := range 4 {
		for _, filler := range []string{"", "x", "x:x"} {
			s := sample(tree.Simplify(), filler, pick)
			if !w.accepts(s) || !githubNew.MatchString(s) && !githubOld.MatchString(s) {
				continue
			}
			if subject != "" && githubNew.MatchString(s) != githubNew.MatchString(subject) {
				return nil // the pattern matches both forms
			}
			subject = s
		}
	}
	return githubWarnings(w, subject)
}

// githubWarnings returns a warning if a relationship accepts a subject, but not the other form of
// the subject.
func githubWarnings(w want, subject string) []string {
	switch {
	case githubNew.MatchString(subject) && !slices.ContainsFunc(oldSubjects(subject), w.accepts):
		return []string{"claim_match.subject: covers only GitHub's newer subjects with numeric ids; " +
			"repositories that still have the older ones (repo:owner/name:...) will not match"}
	case githubOld.MatchString(subject) && !slices.ContainsFunc(newSubjects(subject), w.accepts):
		return []string{"claim_match.subject: covers only GitHub's older subjects; " +
			"repositories with the newer ones (repo:owner@1/name@2:...) will not match"}
	}
	return nil
}

// sample returns a text that a pattern probably matches. pick selects an alternative and
// whether optional parts are present, and filler replaces parts that match anything.
func sample(re *syntax.Regexp, filler string, pick int) string {
	var b strings.Builder
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCharClass:
		if len(re.Rune) > 0 {
			return string(readable(re.Rune))
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "x"
	case syntax.OpStar, syntax.OpPlus:
		if op := re.Sub[0].Op; op == syntax.OpAnyChar || op == syntax.OpAnyCharNotNL {
			return filler
		}
		if re.Op == syntax.OpPlus {
			return sample(re.Sub[0], filler, pick)
		}
	case syntax.OpQuest:
		if pick%2 == 1 {
			return sample(re.Sub[0], filler, pick)
		}
	case syntax.OpAlternate:
		return sample(re.Sub[pick%len(re.Sub)], filler, pick)
	case syntax.OpCapture:
		return sample(re.Sub[0], filler, pick)
	case syntax.OpRepeat:
		for range min(re.Min, 64) {
			b.WriteString(sample(re.Sub[0], filler, pick))
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			b.WriteString(sample(sub, filler, pick))
		}
	}
	return b.String()
}

// readable returns a character in a class, if possible one that is common in names.
func readable(ranges []rune) rune {
	for _, want := range "x1-" {
		for i := 0; i+1 < len(ranges); i += 2 {
			if ranges[i] <= want && want <= ranges[i+1] {
				return want
			}
		}
	}
	return ranges[0]
}
