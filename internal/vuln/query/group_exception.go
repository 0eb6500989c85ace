package query

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/exception"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// A groupJudge sets the states of the findings of a group.
type groupJudge struct {
	*Service
	asOf   time.Time
	images map[int64]imagedb.TaggedImage        // images by number
	tags   map[resource.UID]map[string][]string // tags by repo and by digest
}

// judgeGroup sets the states that findings of a group have at a time, and the number of images in which an exception
// holds for each finding.
func (s *Service) judgeGroup(ctx context.Context, c *groupContents, findings []GroupFinding, asOf time.Time) error {
	for i := range findings {
		findings[i].State = finding.StateOpen
	}
	x, err := exception.Read(ctx, s.packages, c.repos(), asOf, asOf)
	if err != nil {
		return err
	}
	index := x.Index()
	if index == nil {
		return nil
	}
	suspects := map[int]*exception.Set{} // exceptions that may hold for a finding, by the index of the finding
	var packages []int64
	for i, v := range findings {
		if held := index.ForFinding(v.Finding); held != nil {
			suspects[i], packages = held, append(packages, v.number)
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	j := groupJudge{s, asOf, map[int64]imagedb.TaggedImage{}, map[resource.UID]map[string][]string{}}
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
		if err := j.judge(ctx, &findings[i], held, having[findings[i].number]); err != nil {
			return err
		}
	}
	return nil
}

// judge sets the state of a finding. held are the exceptions that may hold for it. If no exception on a repo is
// restricted to tags or digests, judge decides once for all images of the repo.
func (j groupJudge) judge(ctx context.Context, v *GroupFinding, held *exception.Set, numbers []int64) error {
	byRepo := map[resource.UID][]int64{}
	for _, n := range numbers {
		byRepo[j.images[n].Repo] = append(byRepo[j.images[n].Repo], n)
	}
	var open, excepted []int64
	var first *vuln.Exception // the exception that ends first, among those that hold
	decide := func(c exception.Case, images ...int64) {
		e, ok := held.Holding(c, j.asOf, nil)
		if !ok {
			open = append(open, images...)
			return
		}
		excepted = append(excepted, images...)
		if first == nil || exception.EndsBefore(e, *first) {
			first = &e
		}
	}
	for repo, ids := range byRepo {
		if !held.SelectsImages(repo) {
			decide(exception.CaseOf(v.Finding, repo, "", nil), ids...)
			continue
		}
		if err := j.readTags(ctx, held, repo); err != nil {
			return err
		}
		for _, n := range ids {
			digest := j.images[n].Digest
			decide(exception.CaseOf(v.Finding, repo, digest, j.tags[repo][digest]), n)
		}
	}
	if len(excepted) == 0 {
		return nil
	}
	// Excepted is at most Images, because an image may have been added since the images were counted.
	v.Excepted = min(len(excepted), v.Images)
	if len(open) == 0 && v.Excepted == v.Images {
		v.State, v.Exception, v.ExceptionExpires = finding.StateExcepted, first.UID, first.ExpireTime
	}
	v.exceptedIn = excepted
	v.shown = slices.Concat(latest(open), latest(excepted))
	v.shown = v.shown[:min(len(v.shown), someImages)]
	return nil
}

// latest returns the latest of the images, at most someImages.
func latest(numbers []int64) []int64 {
	slices.Sort(numbers)
	slices.Reverse(numbers)
	return numbers[:min(len(numbers), someImages)]
}

// tagBatch is the number of images per query for tags.
const tagBatch = 200

// readTags reads the tags of the images in a repo. It reads them only once, and only if an exception has a tag pattern.
func (j groupJudge) readTags(ctx context.Context, held *exception.Set, repo resource.UID) error {
	if !held.UsesTags() || j.tags[repo] != nil {
		return nil
	}
	var digests []string
	for _, i := range j.images {
		if i.Repo == repo {
			digests = append(digests, i.Digest)
		}
	}
	j.tags[repo] = map[string][]string{}
	for batch := range slices.Chunk(digests, tagBatch) {
		if err := j.addTags(ctx, repo, batch); err != nil {
			return err
		}
	}
	return nil
}

// addTags reads the tags of several images in one query. If there are too many tags, it reads them one image at a time.
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
