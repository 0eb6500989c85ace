package match

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

const (
	maxSingle = 20 // maximum number of events about single findings or single images; more are bundled
	maxListed = 20 // maximum number of images, of findings, of packages and of owners in an event

	maxNames    = 100 // maximum number of names of a finding in an event
	maxNameText = 256 // maximum length of a name in an event, in bytes

	// maxLookedUp is the number of images that a transaction looks up to write an event for each image, or for each
	// group of repos. If there are more images, it writes one event for the group of the event.
	maxLookedUp = 5000

	imagesAtOnce = 50 // maximum number of images per transaction
	maxBundles   = 5  // if a transaction has more than maxBundles*maxSingle events, it writes summaries instead

	maxSetHits = 100_000 // maximum number of matches of a vulnerability; one with more causes no events
)

// An eventWriter writes the events of one transaction, about advisories and images of
// one organization.
//
// A subscriber to a group receives all events of the group, but may see a finding only if the subscriber can reach both
// the image and the advisory. So an event belongs to the lowest group that contains both, and that group is the event's
// subject. The repo is not the subject, because its group may not see the advisory.
type eventWriter struct {
	t       *store.Tx
	single  int                                // maximum number of events that are not bundled
	left    int                                // number of images that may still be looked up
	groups  map[resource.UID]findingdb.Images  // cache of the images in each group
	owners  map[[2]resource.UID][]resource.UID // cache of owners, by the group of a repo and the group of the event
	authors map[int64]string                   // cache of the authors of advisories; "" if an advisory no longer exists
	events  [][]any
}

func (m *Matcher) newEventWriter(t *store.Tx) *eventWriter {
	return &eventWriter{t: t, single: cmp.Or(m.Single, maxSingle), left: maxLookedUp,
		groups: map[resource.UID]findingdb.Images{},
		owners: map[[2]resource.UID][]resource.UID{}, authors: map[int64]string{}}
}

func (w *eventWriter) db() findingdb.Tx { return findingdb.In(w.t) }

// imagesIn returns the images of a group.
func (w *eventWriter) imagesIn(ctx context.Context, group resource.UID) (images findingdb.Images, err error) {
	images, ok := w.groups[group]
	if !ok {
		images, err = w.db().ImagesIn(ctx, group)
		w.groups[group] = images
	}
	return images, err
}

// writeEvents writes the events about a change of matches, before the change is stored.
func (m *Matcher) writeEvents(ctx context.Context, t *store.Tx, c findingdb.Change) error {
	if c.Incomplete {
		m.log.WarnContext(ctx, "events about findings are left out, because advisories with very many findings describe "+
			"other vulnerabilities than before", "findings", len(c.Moved))
	}
	byRoot := map[int64]*findingdb.Change{}
	part := func(root int64) *findingdb.Change {
		if byRoot[root] == nil {
			copied := c
			copied.Opened, copied.Closed, copied.Moved = nil, nil, nil
			byRoot[root] = &copied
		}
		return byRoot[root]
	}
	for _, v := range c.Opened {
		part(v.Root).Opened = append(part(v.Root).Opened, v)
	}
	for _, v := range c.Closed {
		part(v.Root).Closed = append(part(v.Root).Closed, v)
	}
	for _, h := range c.Moved {
		root := store.Segment(c.Advisories[h.Advisory].UID.Root())
		part(root).Moved = append(part(root).Moved, h)
	}
	for _, root := range slices.Sorted(maps.Keys(byRoot)) {
		w := m.newEventWriter(t)
		if err := w.change(ctx, root, *byRoot[root]); err != nil {
			return err
		}
		if err := t.EmitAll(ctx, w.events); err != nil {
			return err
		}
	}
	return nil
}

// change writes the events about a change of matches in one organization.
//
// If the packages of an image have changed since its last event, the image counts with the packages that it had then.
// The bitmaps are read before the list of changed images. So an image that changes in between is on that list.
func (w *eventWriter) change(ctx context.Context, root int64, c findingdb.Change) error {
	var org resource.UID
	var changed []int64
	for _, v := range slices.Concat(c.Opened, c.Closed) {
		org, changed = c.Advisories[v.Advisory].UID.Root(), append(changed, v.Package)
	}
	for _, h := range c.Moved {
		org, changed = c.Advisories[h.Advisory].UID.Root(), append(changed, h.Package)
	}
	images, err := w.imagesIn(ctx, org)
	if err != nil || len(images) == 0 {
		return err
	}
	slices.Sort(changed)
	have := map[int64]findingdb.Images{}
	if err := w.db().ImagesWith(ctx, slices.Compact(changed), images, have); err != nil {
		return err
	}
	news, err := w.db().ChangedImagesOf(ctx, root)
	if err != nil {
		return err
	}
	announced := announcedImages(news, images, have)
	sets := setsOf(c, announced)
	if len(sets) == 0 {
		return nil
	}
	if err := w.addHits(ctx, c, sets); err != nil {
		return err
	}
	var added []int64
	for _, a := range sets {
		for _, p := range slices.Concat(slices.Collect(maps.Keys(a.before)), slices.Collect(maps.Keys(a.after))) {
			if have[p] == nil {
				added = append(added, p)
			}
		}
	}
	slices.Sort(added)
	if err := w.db().ImagesWith(ctx, slices.Compact(added), images, have); err != nil {
		return err
	}
	// The changed images are read again, because images may have changed since the first read.
	if news, err = w.db().ChangedImagesOf(ctx, root); err != nil {
		return err
	}
	return w.writeSetEvents(ctx, c, sets, announcedImages(news, images, have))
}

// addHits adds the matches before and after the change to vulnerabilities.
func (w *eventWriter) addHits(ctx context.Context, c findingdb.Change, sets map[int64]*aliasSet) error {
	setOf := map[int64]int64{} // for a merged set, the set that it is now a part of
	for id := range sets {
		for _, part := range c.Sets.Parts(id) {
			setOf[part] = id
		}
	}
	hits, err := w.db().SetHits(ctx, slices.Sorted(maps.Keys(setOf)), maxSetHits)
	if err != nil {
		return err
	}
	for part, matches := range hits {
		if len(matches) > maxSetHits { // the events of such a set would block the events of everybody else
			delete(sets, setOf[part])
		}
	}
	gone := map[[2]int64]bool{}
	for _, v := range c.Closed {
		gone[[2]int64{v.Package, v.Advisory}] = true
	}
	for part, found := range hits {
		a := sets[setOf[part]]
		if a == nil {
			continue
		}
		for _, h := range found {
			a.before[h.Package] = append(a.before[h.Package], h)
			if !gone[[2]int64{h.Package, h.Advisory}] && c.Sets.Has(h.Advisory, a.id) {
				a.after[h.Package] = append(a.after[h.Package], h)
			}
		}
	}
	for _, v := range c.Opened {
		for _, id := range c.Sets.SetsOf(v.Advisory) {
			if a := sets[id]; a != nil {
				a.after[v.Package] = append(a.after[v.Package],
					findingdb.Hit{Package: v.Package, Advisory: v.Advisory, Rating: c.Ratings[v]})
			}
		}
	}
	for _, h := range c.Moved {
		before := c.Sets.SetsBefore(h.Advisory)
		for _, id := range c.Sets.SetsOf(h.Advisory) {
			if a := sets[id]; a != nil && !slices.Contains(before, id) && !gone[[2]int64{h.Package, h.Advisory}] {
				a.after[h.Package] = append(a.after[h.Package], h)
			}
		}
	}
	return nil
}

// A setChange is the opening or closing of a vulnerability in images of one group. The group is the lowest one that
// contains the images and the advisories.
type setChange struct {
	event    resource.EventType
	group    resource.UID
	set      *aliasSet
	packages []int64 // packages that the set affects after it opens, or affected before it closes
	images   findingdb.Images
	score    int64
}

// writeSetEvents writes the events about the images in which vulnerabilities opened or closed.
func (w *eventWriter) writeSetEvents(
	ctx context.Context, c findingdb.Change, sets map[int64]*aliasSet, announced map[int64]findingdb.Images,
) error {
	having := func(packages ...int64) findingdb.Images {
		images := findingdb.Images{}
		for _, p := range packages {
			images.Or(announced[p])
		}
		return images
	}
	var changes []setChange
	for _, id := range slices.Sorted(maps.Keys(sets)) {
		a := sets[id]
		added, removed := a.changed()
		opened, closed := having(added...), having(removed...)
		opened.Minus(having(slices.Collect(maps.Keys(a.before))...))
		closed.Minus(having(slices.Collect(maps.Keys(a.after))...))
		for _, s := range []setChange{
			{event: resource.FindingOpened, set: a, packages: added, images: opened},
			{event: resource.FindingClosed, set: a, packages: removed, images: closed},
		} {
			s.score = score(a.hits(s.event))
			split, err := w.split(ctx, s)
			if err != nil {
				return err
			}
			changes = append(changes, split...)
		}
	}
	events := 0
	for _, s := range changes {
		if n := s.images.Len(); n <= w.single {
			events += n
		} else {
			events++ // counted as one event, although there may be one for each group of repos
		}
	}
	if events > maxBundles*w.single {
		return w.writeSummaries(ctx, c, changes)
	}
	for _, s := range changes {
		if err := w.writeImageEvents(ctx, c, s, announced); err != nil {
			return err
		}
	}
	return nil
}

// split splits a change by the group of the event, which is the lowest group that contains the images and the
// advisories. This is the group of the advisories, or a group above it.
func (w *eventWriter) split(ctx context.Context, s setChange) (parts []setChange, _ error) {
	groups := append(s.set.group.Ancestors(), s.set.group)
	slices.Reverse(groups)
	for _, home := range groups {
		if s.images.Len() == 0 {
			return parts, nil
		}
		within, err := w.imagesIn(ctx, home)
		if err != nil {
			return nil, err
		}
		part := s
		part.group, part.images = home, s.images.And(within)
		if s.images.Minus(within); part.images.Len() > 0 {
			parts = append(parts, part)
		}
	}
	return parts, nil
}

// finding returns the content of events about the vulnerability of a change.
func (w *eventWriter) finding(ctx context.Context, c findingdb.Change, s setChange) (f eventFinding, _ error) {
	called, err := w.db().SetNames(ctx, c.Sets.Parts(s.set.id), maxNames)
	if err != nil {
		return f, err
	}
	known, err := w.db().PackagesByID(ctx, s.packages)
	if err != nil {
		return f, err
	}
	f = newEventFinding(s.set.hits(s.event), s.packages, known, append(called, c.Sets.NewNames(s.set.id)...))
	return f, w.addSource(ctx, &f)
}

// addSource sets the source of a finding's severity.
func (w *eventWriter) addSource(ctx context.Context, f *eventFinding) error {
	var keys []int64
	for _, key := range f.source.Advisories {
		if _, ok := w.authors[key]; !ok {
			keys = append(keys, key)
		}
	}
	if len(keys) > 0 {
		found, err := advisorydb.AuthorsIn(ctx, w.t, keys)
		if err != nil {
			return err
		}
		for _, key := range keys {
			w.authors[key] = found[key]
		}
	}
	f.Source = clipName(f.source.Name(w.authors))
	return nil
}

// writeSummaries writes few events about many changes. Each event is about all changes in one group that come from
// advisories of one group, and lists the most severe findings.
func (w *eventWriter) writeSummaries(ctx context.Context, c findingdb.Change, changes []setChange) error {
	type key struct {
		event             resource.EventType
		group, advisoryOf resource.UID
	}
	alike := map[key][]setChange{}
	var keys []key
	for _, s := range changes {
		k := key{s.event, s.group, s.set.group}
		if alike[k] == nil {
			keys = append(keys, k)
		}
		alike[k] = append(alike[k], s)
	}
	for _, k := range keys {
		changes := alike[k]
		slices.SortStableFunc(changes, func(a, b setChange) int { return cmp.Compare(b.score, a.score) })
		news := vuln.FindingNews{FindingCount: len(changes), Group: k.group, AdvisoryGroup: k.advisoryOf,
			Source: changes[0].set.source}
		images := findingdb.Images{}
		for i, s := range changes {
			images.Or(s.images)
			news.Pairs += s.images.Len()
			if s.set.source != news.Source {
				news.Source = ""
			}
			if i >= maxListed {
				continue
			}
			f, err := w.finding(ctx, c, s)
			if err != nil {
				return err
			}
			news.Findings = append(news.Findings, f.complete())
		}
		found, err := w.db().ImagesByNumber(ctx, images.Numbers(maxListed))
		if err != nil {
			return err
		}
		news.Images, news.ImageCount = newsImages(found), images.Len()
		if err := w.add(ctx, k.event, k.group, news); err != nil {
			return err
		}
	}
	return nil
}

// writeImageEvents writes events about a finding in images. If there are few images, it writes one event for each. If
// there are more, it writes one event for each group of repos. If there are very many, it writes one event for the
// group of the event.
func (w *eventWriter) writeImageEvents(
	ctx context.Context, c findingdb.Change, s setChange, announced map[int64]findingdb.Images,
) error {
	f, err := w.finding(ctx, c, s)
	if err != nil {
		return err
	}
	n := s.images.Len()
	isSample := n > w.left
	lookUp := n
	if isSample {
		lookUp = min(n, maxListed)
	}
	w.left -= lookUp
	found, err := w.db().ImagesByNumber(ctx, s.images.Numbers(lookUp))
	if err != nil {
		return err
	}
	byGroup := map[resource.UID][]vuln.NewsImage{}
	for _, i := range found {
		byGroup[i.Repo.Parent()] = append(byGroup[i.Repo.Parent()], i.NewsImage)
	}
	news := vuln.FindingNews{Findings: []vuln.NewFinding{f.complete()}, FindingCount: 1, Images: newsImages(found),
		ImageCount: n, Pairs: n, Group: s.group, AdvisoryGroup: s.set.group, Source: s.set.source}
	switch {
	case isSample || n > w.single && len(byGroup) > maxListed:
		return w.add(ctx, s.event, s.group, news)
	case n > w.single:
		for _, group := range slices.Sorted(maps.Keys(byGroup)) {
			images := byGroup[group]
			news.Images, news.ImageCount, news.Group = images[:min(len(images), maxListed)], len(images), group
			news.Pairs = len(images)
			if err := w.add(ctx, s.event, s.group, news); err != nil {
				return err
			}
		}
		return nil
	}
	for _, i := range found {
		one := f.in(func(p int64) bool { return announced[p].Has(i.Number) })
		news.Findings, news.Images = []vuln.NewFinding{one}, []vuln.NewsImage{i.NewsImage}
		news.ImageCount, news.Pairs, news.Group = 1, 1, i.Repo.Parent()
		if err := w.add(ctx, s.event, s.group, news); err != nil {
			return err
		}
	}
	return nil
}

func newsImages(images []findingdb.ImageNumber) (out []vuln.NewsImage) {
	for _, i := range images[:min(len(images), maxListed)] {
		out = append(out, i.NewsImage)
	}
	return out
}

// add adds an event that belongs to the group home.
func (w *eventWriter) add(
	ctx context.Context, event resource.EventType, home resource.UID, n vuln.FindingNews,
) (err error) {
	if n.Owners, err = w.ownersOf(ctx, n.Group, home); err != nil {
		return err
	}
	row, err := w.t.Event(ctx, event, home, home, nil, n)
	w.events = append(w.events, row)
	return err
}

// ownersOf returns the owners of a group, or of the nearest group above it that has owners. It does not look above
// home, the group of the event, because subscribers of that group need not know the owners of groups above.
func (w *eventWriter) ownersOf(ctx context.Context, group, home resource.UID) (owners []resource.UID, err error) {
	key := [2]resource.UID{group, home}
	if uids, ok := w.owners[key]; ok {
		return uids, nil
	}
	for g := group; home.Covers(g) && len(owners) == 0; g = g.Parent() {
		if owners, err = iamdb.In(w.db().Tx).Holders(ctx, g, resource.OwnerRole, maxListed); err != nil {
			return nil, err
		}
	}
	w.owners[key] = owners
	return owners, nil
}
