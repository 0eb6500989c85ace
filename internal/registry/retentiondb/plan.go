package retentiondb

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/registry"
)

// A node is a manifest of a repo to which retention rules are applied.
type node struct {
	digest, mediaType, artifactType, subject string
	size                                     int64 // bytes of the manifest
	time                                     int64 // time of the push or of the last tagging, in milliseconds
	tags                                     []string
	named                                    bool // has a tag that does not attach it to another manifest
	attached                                 bool // is attached to another manifest of the repo (subject or tag)
	orphan                                   bool // is attached to a manifest that is not in the repo
	children, parents, referrers             []*node

	kept registry.KeepReason
}

// judged reports whether the rules apply to n itself. A manifest that is attached to another manifest, or that has no
// tag and is listed by an index, is kept or deleted together with that manifest.
func (n *node) judged() bool { return !n.belongs() && (n.named || len(n.parents) == 0) }

// belongs reports whether n is attached to another manifest.
func (n *node) belongs() bool { return n.subject != "" || !n.named && (n.attached || n.orphan) }

// A judge decides which manifests of a repo are kept.
type judge struct {
	rules  registry.Retention
	frozen func(string) bool
	now    time.Time
	nodes  map[string]*node
}

// link connects each attached manifest with the manifest to which it is attached.
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

// judgeByManifests applies the rules that depend only on the manifests and tags of the repo.
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

// keep sets the reason for which n is kept, unless it already has one.
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

// keepNewest keeps the newest tagged images that no index lists.
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

// keepMinors keeps the images of the newest minor versions. It counts only minor versions that have a release.
// Pre-releases are kept if their minor version is kept, or if it is newer than all releases.
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
	var first registry.MinorVersion // lowest version that is kept; if there are no releases, all versions are kept
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

// reach adds nodes to seen, with everything that belongs to them: the manifests that they list and the manifests that
// are attached to them, recursively. It returns the nodes that were not in seen before.
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

// staying returns the nodes that are kept: those that a rule keeps, the extra nodes, and everything that belongs to
// them. It also returns nodes that belong to no judged node, such as a node that is attached to a manifest outside of
// the repo.
func (j *judge) staying(extra ...*node) map[*node]bool {
	stay, roots := map[*node]bool{}, map[*node]bool{}
	for _, n := range j.nodes {
		if n.kept != registry.KeptNot {
			reach(stay, n)
		}
		if n.judged() {
			reach(roots, n)
		}
	}
	reach(stay, extra...)
	for _, n := range j.nodes {
		if !roots[n] {
			reach(stay, n)
		}
	}
	return stay
}

// undecided returns the sorted digests of the manifests that no rule has kept so far. It leaves out manifests that
// are attached to others.
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

// Limits on the rows that one transaction deletes, because on SQLite all other writes wait for it.
const (
	maxGoing  = 200  // images that are deleted
	maxThings = 1000 // manifests and tags that are deleted with the images
)

// A GoingImage is an image that is deleted, with its tags and everything that belongs to it.
type GoingImage struct {
	Digest, MediaType string
	Tags              []string
	PushTime          time.Time // time of the push or of the last change of a tag
	Size              int64     // bytes of its manifests and their blobs, including blobs that other images need, too
	With              []string  // digests of the manifests that are deleted with it
	LastPull          *registry.Pull
}

// A verdict is the decision of a judge.
type verdict struct {
	images int // number of images to which the rules were applied
	kept   map[registry.KeepReason]int
	going  []*node // images that are deleted, the oldest first
	gone   []*node // all manifests that are deleted; an index comes before the manifests that it lists
	more   bool    // whether another run could delete more images
}

// decide selects the images that are deleted now: the oldest that no rule keeps, up to the limits maxGoing and
// maxThings. If only is not nil, it selects only images for which only reports true.
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

// choose returns the images that are left for a later run, because only does not select them or because they exceed
// the limits. An image that alone exceeds the limits is never deleted: choose marks it as KeptTooLarge.
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

// count counts the images to which the rules were applied, and the kept images by reason.
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

// weigh returns the number of manifests and tags that are deleted with n, including n.
func weigh(n *node) (things int) {
	for _, m := range reach(map[*node]bool{}, n) {
		things += 1 + len(m.tags)
	}
	return things
}

// height returns the length of the longest chain of manifests below n. known caches the results.
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

// describe returns the images that are deleted. Each of the other deleted manifests is in With of the first image to
// which it belongs.
func (v verdict) describe() (images []GoingImage) {
	seen, gone := map[*node]bool{}, map[*node]bool{}
	for _, n := range v.gone {
		gone[n] = true
	}
	for _, n := range v.going {
		seen[n] = true
	}
	for _, n := range v.going {
		image := GoingImage{
			Digest: n.digest, MediaType: n.mediaType, Tags: n.tags, PushTime: time.UnixMilli(n.time).UTC(),
		}
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
