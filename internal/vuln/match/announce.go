package match

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// announce writes events about the findings of images whose packages have changed since the last events. Most of these
// images are new. It waits until all packages of an image were compared with the advisories. It reports whether it
// finished any image.
func (m *Matcher) announce(ctx context.Context) (did bool, _ error) {
	numbers, err := m.packages.NextChangedImages(ctx, m.nextChanged, imagesAtOnce)
	if err != nil {
		return false, err
	}
	m.nextChanged = 0
	if len(numbers) == imagesAtOnce {
		m.nextChanged = numbers[imagesAtOnce-1] + 1
	}
	if len(numbers) == 0 {
		return false, nil
	}
	err = m.write(ctx, func(t *store.Tx) error {
		did = false
		// The chunks are locked, because a writer locks the chunk of an image before it changes the image's packages.
		if err := imagedb.In(t).LockChunks(ctx, numbers); err != nil {
			return err
		}
		w := m.newEventWriter(t)
		news, err := w.db().ChangedImages(ctx, numbers)
		if err != nil {
			return err
		}
		found, err := w.db().ImagesByNumber(ctx, numbers)
		if err != nil {
			return err
		}
		for _, n := range news {
			if len(w.events) > maxBundles*w.single {
				break // the remaining images wait for the next turn
			}
			ready := true
			if index := slices.IndexFunc(found, func(i findingdb.ImageNumber) bool { return i.Number == n.Number }); index >= 0 {
				if ready, err = w.announce(ctx, n, found[index]); err != nil {
					return err
				}
			}
			if ready { // ready is also true if the image was deleted
				did = true
				if err := w.db().DropChangedImage(ctx, n.Number); err != nil {
					return err
				}
			}
		}
		return t.EmitAll(ctx, w.events)
	})
	return did, err
}

// announce writes the events about one image. It reports whether all packages of the image were compared with the
// advisories. If they were not, it writes nothing.
func (w *eventWriter) announce(
	ctx context.Context, n findingdb.ChangedImage, i findingdb.ImageNumber,
) (ready bool, _ error) {
	ids, ready, err := w.db().Content(ctx, i.NewsImage)
	if err != nil || !ready || n.Quiet {
		return ready, err
	}
	numbers := slices.Concat(n.Announced, ids)
	slices.Sort(numbers)
	hits, err := w.db().HitsOfOrganization(ctx, n.Root, slices.Compact(numbers))
	if err != nil {
		return false, err
	}
	sets := map[int64]*aliasSet{}
	for _, h := range hits {
		if sets[h.Set] == nil {
			sets[h.Set] = newAliasSet(h.Set, h.By.UID.Parent(), "image")
		}
		a := sets[h.Set]
		if _, ok := slices.BinarySearch(n.Announced, h.Package); ok {
			a.before[h.Package] = append(a.before[h.Package], h.Hit)
		}
		if _, ok := slices.BinarySearch(ids, h.Package); ok {
			a.after[h.Package] = append(a.after[h.Package], h.Hit)
		}
	}
	// The keys are the groups that contain the advisories.
	opened, closed := map[resource.UID][]*aliasSet{}, map[resource.UID][]*aliasSet{}
	for _, a := range sets {
		switch {
		case len(a.before) == 0:
			opened[a.group] = append(opened[a.group], a)
		case len(a.after) == 0:
			closed[a.group] = append(closed[a.group], a)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(opened)) {
		if err := w.writeFindingEvents(ctx, resource.FindingOpened, group, i, opened[group]); err != nil {
			return false, err
		}
	}
	for _, group := range slices.Sorted(maps.Keys(closed)) {
		if err := w.writeFindingEvents(ctx, resource.FindingClosed, group, i, closed[group]); err != nil {
			return false, err
		}
	}
	return true, nil
}

// common returns the lowest group that contains both a and b.
func common(a, b resource.UID) resource.UID {
	for !a.Covers(b) {
		a = a.Parent()
	}
	return a
}

// writeFindingEvents writes events about findings in one image, which come from advisories of one group. If there are
// few findings, it writes one event for each. Otherwise it writes one event with the most severe findings.
func (w *eventWriter) writeFindingEvents(
	ctx context.Context, event resource.EventType, group resource.UID, i findingdb.ImageNumber, sets []*aliasSet,
) error {
	slices.SortFunc(sets, func(a, b *aliasSet) int {
		return cmp.Or(cmp.Compare(score(b.hits(event)), score(a.hits(event))), cmp.Compare(a.id, b.id))
	})
	n := len(sets)
	if n > w.single {
		sets = sets[:min(n, maxListed)]
	}
	var findings []vuln.NewFinding
	for _, a := range sets {
		packages := slices.Sorted(maps.Keys(a.hits(event)))
		known, err := w.db().PackagesByID(ctx, packages)
		if err != nil {
			return err
		}
		called, err := w.db().SetNames(ctx, []int64{a.id}, maxNames)
		if err != nil {
			return err
		}
		f := newEventFinding(a.hits(event), packages, known, called)
		if err := w.addSource(ctx, &f); err != nil {
			return err
		}
		findings = append(findings, f.complete())
	}
	home := common(group, i.Repo.Parent())
	news := vuln.FindingNews{Findings: findings, FindingCount: n, Images: []vuln.NewsImage{i.NewsImage}, ImageCount: 1,
		Pairs: n, Group: i.Repo.Parent(), AdvisoryGroup: group, Source: "image"}
	if n > w.single {
		return w.add(ctx, event, home, news)
	}
	for _, f := range findings {
		news.Findings, news.FindingCount, news.Pairs = []vuln.NewFinding{f}, 1, 1
		if err := w.add(ctx, event, home, news); err != nil {
			return err
		}
	}
	return nil
}
