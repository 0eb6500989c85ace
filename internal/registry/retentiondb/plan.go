package retentiondb

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/registry"
)

// A node is a manifest of a repo whose images are judged.
type node struct {
	digest, mediaType, artifactType, subject string
	size, time                               int64 // the time is when it was pushed or last tagged
	tags                                     []string
	named                                    bool // by a tag that does not attach it to another manifest
	attached                                 bool // to another manifest of the repo, by its subject or by a tag
	orphan                                   bool // attached to what is not in the repo
	children, parents, referrers             []*node

	kept registry.KeepReason
}

// judged reports whether rules are about n itself. What is attached, and what only an index names, goes with what it
// belongs to.
func (n *node) judged() bool { return !n.belongs() && (n.named || len(n.parents) == 0) }

// belongs reports whether n is attached to something.
func (n *node) belongs() bool { return n.subject != "" || !n.named && (n.attached || n.orphan) }

// A judge decides which manifests of a repo stay.
type judge struct {
	rules  registry.Retention
	frozen func(string) bool
	now    time.Time
	nodes  map[string]*node
}

// link connects what is attached with what it is attached to.
func (j *judge) link() {
	for _, n := range j.nodes {
		slices.Sort(n.tags)
		if n.subject != "" {
			j.attach(n, n.subject)
		}
		for _, tag := range n.tags {
			if subject, _, ok := registry.AttachedTag(tag); ok {
				j.attach(n, subject)
			} else {
				n.named = true
			}
		}
	}
}

func (j *judge) attach(n *node, subject string) {
	to := j.nodes[subject]
	if to == nil {
		n.orphan = true
		return
	}
	n.attached = true
	to.referrers = append(to.referrers, n)
}

// judgeByManifests applies the rules that need nothing but the manifests and tags of the repo.
func (j *judge) judgeByManifests() {
	for _, n := range j.nodes {
		switch {
		case slices.ContainsFunc(n.tags, j.frozen):
			n.kept = registry.KeptImmutable
		case slices.ContainsFunc(n.tags, j.rules.Matches):
			n.kept = registry.KeptMatching
		}
	}
	j.keepNewest()
	j.keepMinors()
	young := j.now.Add(-days(j.rules.KeepYoungerDays)).UnixMilli()
	for _, n := range j.nodes {
		if j.rules.KeepYoungerDays > 0 && n.time > young && n.judged() {
			n.keep(registry.KeptYounger)
		}
		if j.rules.KeepSigned && n.signed() {
			j.keepWith(n, registry.KeptSigned)
		}
	}
}

func days(n int32) time.Duration { return time.Duration(n) * 24 * time.Hour }

// keep notes why n is kept, unless there is a reason already.
func (n *node) keep(why registry.KeepReason) {
	if n.kept == registry.KeptNot {
		n.kept = why
	}
}

// keepWith keeps an image and the indexes that list it.
func (j *judge) keepWith(n *node, why registry.KeepReason) {
	if n.belongs() {
		return
	}
	n.keep(why)
	for _, p := range n.parents {
		j.keepWith(p, why)
	}
}

// signed reports whether a signature is attached to n.
func (n *node) signed() bool {
	return slices.ContainsFunc(n.referrers, func(r *node) bool {
		return registry.IsSignature(r.artifactType) && r.subject == n.digest ||
			slices.ContainsFunc(r.tags, func(tag string) bool {
				subject, suffix, _ := registry.AttachedTag(tag)
				return subject == n.digest && suffix == ".sig"
			})
	})
}

// keepNewest keeps the newest of the tagged images that no index lists.
func (j *judge) keepNewest() {
	if j.rules.KeepNewest == 0 {
		return
	}
	var tagged []*node
	for _, n := range j.nodes {
		if n.judged() && n.named && len(n.parents) == 0 {
			tagged = append(tagged, n)
		}
	}
	slices.SortFunc(tagged, func(a, b *node) int { return -older(a, b) })
	for _, n := range tagged[:min(len(tagged), int(j.rules.KeepNewest))] {
		n.keep(registry.KeptNewest)
	}
}

// older orders nodes by their age, the oldest first.
func older(a, b *node) int {
	return cmp.Or(cmp.Compare(a.time, b.time), strings.Compare(a.digest, b.digest))
}

// keepMinors keeps the images of the last minor versions. A minor version counts when it has a release. Pre-releases are
// kept with theirs, and if they are after all releases.
func (j *judge) keepMinors() {
	if j.rules.KeepMinors == 0 {
		return
	}
	released := map[registry.MinorVersion]bool{}
	for _, n := range j.nodes {
		for _, tag := range n.tags {
			if v, pre, ok := registry.ParseVersionTag(tag); ok && !pre {
				released[v] = true
			}
		}
	}
	last := slices.SortedFunc(maps.Keys(released), func(a, b registry.MinorVersion) int {
		if a.Less(b) {
			return 1
		}
		return -1
	})
	var first registry.MinorVersion // that is kept; with none released, every version is
	if len(last) > 0 {
		first = last[min(len(last), int(j.rules.KeepMinors))-1]
	}
	for _, n := range j.nodes {
		for _, tag := range n.tags {
			if v, _, ok := registry.ParseVersionTag(tag); ok && !v.Less(first) {
				n.keep(registry.KeptMinor)
			}
		}
	}
}

// reach adds to seen what belongs to nodes: the manifests that they list, what is attached to them, and so on. It returns
// what it has added.
func reach(seen map[*node]bool, from ...*node) (added []*node) {
	for len(from) > 0 {
		n := from[len(from)-1]
		from = from[:len(from)-1]
		if !seen[n] {
			seen[n] = true
			added = append(added, n)
			from = append(append(from, n.children...), n.referrers...)
		}
	}
	return added
}

// staying returns what stays, if others stay as well: what a rule keeps, and all that belongs to it. So does what belongs
// to nothing that is judged, such as what is attached to something that is not in the repo.
func (j *judge) staying(others ...*node) map[*node]bool {
	stay, roots := map[*node]bool{}, map[*node]bool{}
	for _, n := range j.nodes {
		if n.kept != registry.KeptNot {
			reach(stay, n)
		}
		if n.judged() {
			reach(roots, n)
		}
	}
	reach(stay, others...)
	for _, n := range j.nodes {
		if !roots[n] {
			reach(stay, n)
		}
	}
	return stay
}

// undecided returns the digests of what would go if there were no further rules, and is not attached to anything.
func (j *judge) undecided() (digests []string) {
	stay := j.staying()
	for digest, n := range j.nodes {
		if !stay[n] && !n.belongs() {
			digests = append(digests, digest)
		}
	}
	slices.Sort(digests)
	return digests
}

// Limits on what one transaction deletes, because on SQLite everybody's writes wait for it.
const (
	maxGoing  = 200  // images
	maxThings = 1000 // their manifests and tags
)

// A GoingImage is an image that goes, with its tags and all that belongs to it.
type GoingImage struct {
	Digest, MediaType string
	Tags              []string
	PushTime          time.Time // or when it was last tagged
	Size              int64     // of its manifests, with their blobs, whether or not others need them
	With              []string  // the digests of the manifests that go with it
	LastPull          *registry.Pull
}

// A verdict is what a judge has decided.
type verdict struct {
	images int // that were judged
	kept   map[registry.KeepReason]int
	going  []*node // the images that go, the oldest first
	gone   []*node // all manifests that go, those that list others before these
	more   bool    // others could go
}

// decide returns what goes now: of what no rule keeps the oldest, up to the limits. If only is not nil, it is of that
// selection alone.
func (j *judge) decide(only func(*node) bool) (v verdict) {
	stay := j.staying()
	for _, n := range j.nodes {
		if n.judged() && !stay[n] {
			v.going = append(v.going, n)
		}
	}
	slices.SortFunc(v.going, older)
	left := j.choose(v.going, only)
	v.more = only == nil && len(left) > 0
	v.count(j, stay)
	stay = j.staying(left...)
	v.going = slices.DeleteFunc(v.going, func(n *node) bool { return stay[n] })
	for _, n := range j.nodes {
		if !stay[n] {
			v.gone = append(v.gone, n)
		}
	}
	heights := map[*node]int{}
	slices.SortFunc(v.gone, func(a, b *node) int {
		return cmp.Or(cmp.Compare(height(heights, b), height(heights, a)), older(a, b))
	})
	return v
}

// choose returns those of the images that could go that are left for later: what is not selected, and what exceeds the
// limits. One that exceeds them alone is kept.
func (j *judge) choose(going []*node, only func(*node) bool) (left []*node) {
	images, things := 0, 0
	for _, n := range going {
		weight := weigh(n)
		switch {
		case weight > maxThings:
			n.kept = registry.KeptTooLarge
		case only != nil && !only(n):
			left = append(left, n)
		case images == maxGoing || things+weight > maxThings:
			left = append(left, n)
		default:
			images, things = images+1, things+weight
		}
	}
	return left
}

// count counts the images that were judged, and why they stay.
func (v *verdict) count(j *judge, stay map[*node]bool) {
	v.kept = map[registry.KeepReason]int{}
	for _, n := range j.nodes {
		if !n.judged() {
			continue
		}
		v.images++
		switch {
		case n.kept != registry.KeptNot:
			v.kept[n.kept]++
		case stay[n]:
			v.kept[registry.KeptListed]++
		}
	}
}

// weigh returns how many manifests and tags go with n.
func weigh(n *node) (things int) {
	for _, m := range reach(map[*node]bool{}, n) {
		things += 1 + len(m.tags)
	}
	return things
}

// height returns how many manifests are below n, at most, one below the other.
func height(known map[*node]int, n *node) int {
	h, ok := known[n]
	if !ok {
		for _, c := range n.children {
			h = max(h, 1+height(known, c))
		}
		known[n] = h
	}
	return h
}

// describe returns the images that go. Each manifest that goes is one of them, or goes with the first that it belongs to.
func (v verdict) describe() (images []GoingImage) {
	seen, gone := map[*node]bool{}, map[*node]bool{}
	for _, n := range v.gone {
		gone[n] = true
	}
	for _, n := range v.going {
		seen[n] = true
	}
	for _, n := range v.going {
		image := GoingImage{Digest: n.digest, MediaType: n.mediaType, Tags: n.tags, PushTime: time.UnixMilli(n.time).UTC()}
		for _, m := range reach(seen, append(slices.Clone(n.children), n.referrers...)...) {
			if gone[m] {
				image.With = append(image.With, m.digest)
			}
		}
		slices.Sort(image.With)
		images = append(images, image)
	}
	return images
}
