package match

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

const (
	maxSingle = 20 // events about single findings of an image, or images of a finding; more are bundled
	maxListed = 20 // images, findings, packages and owners that an event lists

	maxNames    = 100 // of a finding that an event lists
	maxNameText = 256 // bytes of each

	// How many images a transaction looks up to tell of each, or of each group of repos. What
	// exceeds that is told by the group of the event.
	maxLookedUp = 5000

	newsAtOnce = 50 // images that are announced in one transaction
	maxBundles = 5  // times maxSingle are how many events a transaction writes before it tells in sum

	maxSetHits = 100_000 // matches of an alias set that events tell of
)

// A eventWriter writes the events of a transaction of the matcher, about the advisories and
// images of one organization.
//
// Whoever receives the events of a group sees all of them, and a finding needs both the
// image and the advisory in reach. So an event is in the lowest group that has both, and
// its subject is that group: not the repo, whose group may not see the advisory.
type eventWriter struct {
	t      *store.Tx
	single int                                // how many are not bundled
	left   int                                // images to look up
	groups map[resource.UID]findingdb.Images  // the images of groups, as far as they are known
	owners map[[2]resource.UID][]resource.UID // by the group of a repo, and that of the event
	events [][]any
}

func (m *Matcher) newEventWriter(t *store.Tx) *eventWriter {
	return &eventWriter{t: t, single: cmp.Or(m.Single, maxSingle), left: maxLookedUp, groups: map[resource.UID]findingdb.Images{},
		owners: map[[2]resource.UID][]resource.UID{}}
}

func (w *eventWriter) db() findingdb.Tx { return findingdb.In(w.t) }

// imagesIn returns the images of a group.
func (w *eventWriter) imagesIn(ctx context.Context, group resource.UID) (all findingdb.Images, err error) {
	all, ok := w.groups[group]
	if !ok {
		all, err = w.db().ImagesIn(ctx, group)
		w.groups[group] = all
	}
	return all, err
}

// writeEvents writes the events of a change of matches, before it is stored.
func (m *Matcher) writeEvents(ctx context.Context, t *store.Tx, c findingdb.Change) error {
	byRoot := map[int64]*findingdb.Change{}
	part := func(root int64) *findingdb.Change {
		if byRoot[root] == nil {
			copied := c
			copied.Opened, copied.Closed = nil, nil
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

// change writes the events of a change of matches in one organization.
//
// Images whose packages have changed since events told about them count with the packages
// of then. The bitmaps are read before these images are, so that one that appears in
// between is among them.
func (w *eventWriter) change(ctx context.Context, root int64, c findingdb.Change) error {
	var org resource.UID
	var changed []int64
	for _, v := range slices.Concat(c.Opened, c.Closed) {
		org, changed = c.Advisories[v.Advisory].UID.Root(), append(changed, v.Package)
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
	news, err := w.db().NewsOf(ctx, root)
	if err != nil {
		return err
	}
	told := announcedImages(news, images, have)
	sets := setsOf(c, told)
	if len(sets) == 0 {
		return nil
	}
	if err := w.addHits(ctx, c, sets); err != nil {
		return err
	}
	var more []int64
	for _, a := range sets {
		for p := range a.before {
			if have[p] == nil {
				more = append(more, p)
			}
		}
	}
	slices.Sort(more)
	if err := w.db().ImagesWith(ctx, slices.Compact(more), images, have); err != nil {
		return err
	}
	if news, err = w.db().NewsOf(ctx, root); err != nil { // which may have come since
		return err
	}
	return w.tellSets(ctx, c, sets, announcedImages(news, images, have))
}

// addHits adds to alias sets what they affect.
func (w *eventWriter) addHits(ctx context.Context, c findingdb.Change, sets map[int64]*aliasSet) error {
	of := map[int64]int64{} // the set of which one is a part now
	for id := range sets {
		for _, part := range c.Sets.Parts(id) {
			of[part] = id
		}
	}
	hits, err := w.db().SetHits(ctx, slices.Sorted(maps.Keys(of)), maxSetHits)
	if err != nil {
		return err
	}
	for part, all := range hits {
		if len(all) > maxSetHits { // whoever writes such advisories would keep all others waiting
			delete(sets, of[part])
		}
	}
	gone := map[[2]int64]bool{}
	for _, v := range c.Closed {
		gone[[2]int64{v.Package, v.Advisory}] = true
	}
	for part, all := range hits {
		a := sets[of[part]]
		if a == nil {
			continue
		}
		for _, h := range all {
			a.before[h.Package] = append(a.before[h.Package], h)
			if !gone[[2]int64{h.Package, h.Advisory}] {
				a.after[h.Package] = append(a.after[h.Package], h)
			}
		}
	}
	for _, v := range c.Opened {
		if a := sets[c.Sets.Of(v.Advisory)]; a != nil {
			a.after[v.Package] = append(a.after[v.Package],
				findingdb.Hit{Package: v.Package, Advisory: v.Advisory, Rating: c.Ratings[v]})
		}
	}
	return nil
}

// A setChange is what happened to an alias set in images which, with its advisories, are in one
// group and not in one below it.
type setChange struct {
	event    resource.EventType
	at       resource.UID
	set      *aliasSet
	packages []int64 // that the set affects now, or did
	images   findingdb.Images
	score    int64
}

// tellSets writes the events about images for which alias sets were opened, or closed.
func (w *eventWriter) tellSets(
	ctx context.Context, c findingdb.Change, sets map[int64]*aliasSet, told map[int64]findingdb.Images,
) error {
	having := func(packages ...int64) findingdb.Images {
		all := findingdb.Images{}
		for _, p := range packages {
			all.Or(told[p])
		}
		return all
	}
	var all []setChange
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
			all = append(all, split...)
		}
	}
	events := 0
	for _, s := range all {
		if n := s.images.Len(); n <= w.single {
			events += n
		} else {
			events++ // or some
		}
	}
	if events > maxBundles*w.single {
		return w.tellInSum(ctx, c, all)
	}
	for _, s := range all {
		if err := w.tellImages(ctx, c, s, told); err != nil {
			return err
		}
	}
	return nil
}

// split splits a story by groups. An event is in the lowest group that has both the images
// and the advisories: the group of the advisories, or one above it.
func (w *eventWriter) split(ctx context.Context, s setChange) (all []setChange, _ error) {
	groups := append(s.set.group.Ancestors(), s.set.group)
	slices.Reverse(groups)
	for _, at := range groups {
		if s.images.Len() == 0 {
			return all, nil
		}
		within, err := w.imagesIn(ctx, at)
		if err != nil {
			return nil, err
		}
		part := s
		part.at, part.images = at, s.images.And(within)
		if s.images.Minus(within); part.images.Len() > 0 {
			all = append(all, part)
		}
	}
	return all, nil
}

// finding returns what events tell of the alias set of a story.
func (w *eventWriter) finding(ctx context.Context, c findingdb.Change, s setChange) (f eventFinding, _ error) {
	called, err := w.db().SetNames(ctx, c.Sets.Parts(s.set.id), maxNames)
	if err != nil {
		return f, err
	}
	known, err := w.db().PackagesByID(ctx, s.packages)
	if err != nil {
		return f, err
	}
	return newEventFinding(s.set.hits(s.event), s.packages, known, c.Advisories, called), nil
}

// tellInSum writes few events about very many: one for the stories that are in one group, by
// advisories of one group, with the worst of them.
func (w *eventWriter) tellInSum(ctx context.Context, c findingdb.Change, all []setChange) error {
	type key struct {
		event          resource.EventType
		at, advisoryOf resource.UID
	}
	alike := map[key][]setChange{}
	var keys []key
	for _, s := range all {
		k := key{s.event, s.at, s.set.group}
		if alike[k] == nil {
			keys = append(keys, k)
		}
		alike[k] = append(alike[k], s)
	}
	for _, k := range keys {
		some := alike[k]
		slices.SortStableFunc(some, func(a, b setChange) int { return cmp.Compare(b.score, a.score) })
		news := vuln.FindingNews{FindingCount: len(some), Group: k.at, AdvisoryGroup: k.advisoryOf, Source: some[0].set.source}
		images := findingdb.Images{}
		for i, s := range some {
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
			news.Findings = append(news.Findings, f.all())
		}
		found, err := w.db().ImagesByNumber(ctx, images.Numbers(maxListed))
		if err != nil {
			return err
		}
		news.Images, news.ImageCount = newsImages(found), images.Len()
		if err := w.add(ctx, k.event, k.at, news); err != nil {
			return err
		}
	}
	return nil
}

// tellImages writes the events about a finding in images: one for each image if there are
// few, otherwise one for each group of their repos, or, if they are very many, one for the
// group of the event.
func (w *eventWriter) tellImages(ctx context.Context, c findingdb.Change, s setChange, told map[int64]findingdb.Images) error {
	f, err := w.finding(ctx, c, s)
	if err != nil {
		return err
	}
	n := s.images.Len()
	some := n > w.left
	lookUp := n
	if some {
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
	news := vuln.FindingNews{Findings: []vuln.NewFinding{f.all()}, FindingCount: 1, Images: newsImages(found),
		ImageCount: n, Pairs: n, Group: s.at, AdvisoryGroup: s.set.group, Source: s.set.source}
	switch {
	case some || n > w.single && len(byGroup) > maxListed:
		return w.add(ctx, s.event, s.at, news)
	case n > w.single:
		for _, group := range slices.Sorted(maps.Keys(byGroup)) {
			of := byGroup[group]
			news.Images, news.ImageCount, news.Group = of[:min(len(of), maxListed)], len(of), group
			news.Pairs = len(of)
			if err := w.add(ctx, s.event, s.at, news); err != nil {
				return err
			}
		}
		return nil
	}
	for _, i := range found {
		one := f.in(func(p int64) bool { return told[p].Has(i.Number) })
		news.Findings, news.Images = []vuln.NewFinding{one}, []vuln.NewsImage{i.NewsImage}
		news.ImageCount, news.Pairs, news.Group = 1, 1, i.Repo.Parent()
		if err := w.add(ctx, s.event, s.at, news); err != nil {
			return err
		}
	}
	return nil
}

func newsImages(all []findingdb.ImageNumber) (out []vuln.NewsImage) {
	for _, i := range all[:min(len(all), maxListed)] {
		out = append(out, i.NewsImage)
	}
	return out
}

// add adds an event in a group.
func (w *eventWriter) add(ctx context.Context, event resource.EventType, at resource.UID, n vuln.FindingNews) (err error) {
	if n.Owners, err = w.ownersOf(ctx, n.Group, at); err != nil {
		return err
	}
	row, err := w.t.Event(ctx, event, at, at, nil, n)
	w.events = append(w.events, row)
	return err
}

// ownersOf returns the owners of a group, or of the nearest one above it that has some; but
// of none above the group of the event, whose owners those below need not know.
func (w *eventWriter) ownersOf(ctx context.Context, group, at resource.UID) (all []resource.UID, err error) {
	key := [2]resource.UID{group, at}
	if all, ok := w.owners[key]; ok {
		return all, nil
	}
	for g := group; at.Covers(g) && len(all) == 0; g = g.Parent() {
		if all, err = w.db().Owners(ctx, g, resource.OwnerRole, maxListed); err != nil {
			return nil, err
		}
	}
	w.owners[key] = all
	return all, nil
}
