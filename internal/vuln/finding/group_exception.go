package finding

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// An exceptionIndex finds the exceptions that may be about a finding, as far as its names and
// its package tell. Most findings have none, and then nobody has to look at their images.
type exceptionIndex struct {
	named    map[string][]heldException // by the name of the finding
	packages map[string][]heldException // by the name of the package, those of packages alone
}

// index returns an index of the set, or nil if it is empty.
func (x *exceptionSet) index() *exceptionIndex {
	if len(x.named)+len(x.rest) == 0 {
		return nil
	}
	all := &exceptionIndex{map[string][]heldException{}, map[string][]heldException{}}
	for _, byName := range x.named {
		for name, of := range byName {
			all.named[name] = append(all.named[name], of...)
		}
	}
	for _, of := range x.rest {
		for _, e := range of {
			all.packages[e.purl.name] = append(all.packages[e.purl.name], e)
		}
	}
	return all
}

// about returns the exceptions that may be about a package under one of the names.
func (x *exceptionIndex) about(p registry.Package, called []string) (all []heldException) {
	add := func(some []heldException) {
		for _, e := range some {
			if e.purl == nil || e.purl.has(p) {
				all = append(all, e)
			}
		}
	}
	for _, name := range called {
		add(x.named[name])
	}
	add(x.packages[p.Name])
	if p.SourceName != p.Name {
		add(x.packages[p.SourceName])
	}
	return all
}

// suspects returns the exceptions that may be about a finding, or nil if it is open whatever
// image has it: an exception has to hold for each of its claims.
func (x *exceptionIndex) suspects(v Finding) *exceptionSet {
	var all []heldException
	for _, called := range v.claims {
		some := x.about(v.Package.Package, called)
		if len(some) == 0 {
			return nil
		}
		all = append(all, some...)
	}
	return setOf(all)
}

// setOf returns the set of exceptions, some of which may be given more than once.
func setOf(all []heldException) *exceptionSet {
	x := &exceptionSet{named: map[resource.UID]map[string][]heldException{}, rest: map[resource.UID][]heldException{}}
	seen := map[resource.UID]bool{}
	for _, e := range all {
		if !seen[e.UID] {
			seen[e.UID] = true
			x.add(e)
		}
	}
	return x
}

// narrow reports whether some of the exceptions are about single images of a repo.
func (x *exceptionSet) narrow(repo resource.UID) bool {
	isNarrow := func(e heldException) bool { return e.TagPattern != "" || e.Digest != "" }
	for _, of := range x.named[repo] {
		if slices.ContainsFunc(of, isNarrow) {
			return true
		}
	}
	return slices.ContainsFunc(x.rest[repo], isNarrow)
}

// A groupJudge sets the states of findings of a group.
type groupJudge struct {
	*Service
	at     time.Time
	images map[int64]imagedb.TaggedImage        // by number
	tags   map[resource.UID]map[string][]string // by repo and digest
}

// judgeGroup sets the states of findings of a group at a time, and how many images each is
// excepted in.
func (s *Service) judgeGroup(ctx context.Context, c *census, all []Finding, at time.Time) error {
	for i := range all {
		all[i].State = StateOpen
	}
	x, err := exceptionsOn(ctx, s.packages, c.repos(), at, at)
	if err != nil {
		return err
	}
	index := x.index()
	if index == nil {
		return nil
	}
	suspects := map[int]*exceptionSet{} // by the index of the finding
	var packages []int64
	for i, v := range all {
		if held := index.suspects(v); held != nil {
			suspects[i], packages = held, append(packages, v.number)
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	j := groupJudge{s, at, map[int64]imagedb.TaggedImage{}, map[resource.UID]map[string][]string{}}
	var numbers []int64
	for _, i := range c.images {
		if c.counts(i) {
			j.images[i.Number], numbers = i, append(numbers, i.Number)
		}
	}
	slices.Sort(packages)
	having, err := s.packages.HavingEach(ctx, numbers, slices.Compact(packages))
	if err != nil {
		return err
	}
	for i, held := range suspects {
		if err := j.judge(ctx, &all[i], held, having[all[i].number]); err != nil {
			return err
		}
	}
	return nil
}

// judge sets the state of a finding of images, by the exceptions that may be about it. An
// exception that is not about single images is looked for once in each repo.
func (j groupJudge) judge(ctx context.Context, v *Finding, held *exceptionSet, numbers []int64) error {
	byRepo := map[resource.UID][]int64{}
	for _, n := range numbers {
		byRepo[j.images[n].Repo] = append(byRepo[j.images[n].Repo], n)
	}
	var open, excepted []int64
	var first *vuln.Exception // the one that ends first
	decide := func(c Case, of ...int64) {
		e, ok := held.holding(c, j.at, nil)
		if !ok {
			open = append(open, of...)
			return
		}
		excepted = append(excepted, of...)
		if first == nil || endsBefore(e, *first) {
			first = &e
		}
	}
	for repo, of := range byRepo {
		if !held.narrow(repo) {
			decide(caseOf(*v, repo, "", nil), of...)
			continue
		}
		if err := j.readTags(ctx, held, repo); err != nil {
			return err
		}
		for _, n := range of {
			digest := j.images[n].Digest
			decide(caseOf(*v, repo, digest, j.tags[repo][digest]), n)
		}
	}
	if len(excepted) == 0 {
		return nil
	}
	v.Excepted = min(len(excepted), v.Images) // an image may have come since they were counted
	if len(open) == 0 && v.Excepted == v.Images {
		v.State, v.Exception, v.ExceptionExpires = StateExcepted, first.UID, first.ExpireTime
	}
	v.some = append(latest(open), latest(excepted)...)
	v.some = v.some[:min(len(v.some), someImages)]
	return nil
}

// latest returns the images that were inspected last, of those given.
func latest(numbers []int64) []int64 {
	slices.Sort(numbers)
	slices.Reverse(numbers)
	return numbers[:min(len(numbers), someImages)]
}

// readTags reads the tags of the images of a repo, if exceptions depend on them and they were
// not read before.
func (j groupJudge) readTags(ctx context.Context, held *exceptionSet, repo resource.UID) error {
	if !held.byTag || j.tags[repo] != nil {
		return nil
	}
	var digests []string
	for _, i := range j.images {
		if i.Repo == repo {
			digests = append(digests, i.Digest)
		}
	}
	j.tags[repo] = map[string][]string{}
	for some := range slices.Chunk(digests, tagBatch) {
		if err := j.addTags(ctx, repo, some); err != nil {
			return err
		}
	}
	return nil
}

// addTags reads the tags of images at once, or of one after the other if there are too many.
func (j groupJudge) addTags(ctx context.Context, repo resource.UID, digests []string) error {
	tags, err := j.Service.images.TagsOf(ctx, repo, digests)
	if err != nil {
		return err
	}
	if tags == nil && len(digests) > 1 {
		for _, d := range digests {
			if err := j.addTags(ctx, repo, []string{d}); err != nil {
				return err
			}
		}
	}
	for d, names := range tags {
		j.tags[repo][d] = names
	}
	return nil
}
