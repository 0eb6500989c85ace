package finding

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

const (
	maxSingle = 20 // events about single findings of an image, or images of a finding; more are bundled
	maxTold   = 20 // images, findings, packages and owners that an event lists

	maxNames    = 100 // of a finding that an event lists
	maxNameText = 256 // bytes of each

	// How many images a transaction looks up to tell of each, or of each group of repos. What
	// exceeds that is told by the group of the event.
	maxLookedUp = 5000

	newsAtOnce = 50 // images that are announced in one transaction
	maxBundles = 5  // times maxSingle are how many events a transaction writes before it tells in sum

	maxSetHits = 100_000 // matches of an alias set that events tell of
)

// A teller writes the events of a transaction of the matcher, about the advisories and
// images of one organization.
//
// Whoever receives the events of a group sees all of them, and a finding needs both the
// image and the advisory in reach. So an event is in the lowest group that has both, and
// its subject is that group: not the repo, whose group may not see the advisory.
type teller struct {
	t      *store.Tx
	single int                                // how many are not bundled
	left   int                                // images to look up
	groups map[resource.UID]findingdb.Images  // the images of groups, as far as they are known
	owners map[[2]resource.UID][]resource.UID // by the group of a repo, and that of the event
	events [][]any
}

func (m *Matcher) newTeller(t *store.Tx) *teller {
	return &teller{t: t, single: cmp.Or(m.Single, maxSingle), left: maxLookedUp, groups: map[resource.UID]findingdb.Images{},
		owners: map[[2]resource.UID][]resource.UID{}}
}

func (w *teller) db() findingdb.Tx { return findingdb.In(w.t) }

// imagesIn returns the images of a group.
func (w *teller) imagesIn(ctx context.Context, group resource.UID) (all findingdb.Images, err error) {
	all, ok := w.groups[group]
	if !ok {
		all, err = w.db().ImagesIn(ctx, group)
		w.groups[group] = all
	}
	return all, err
}

// An aliasSet is an alias set with its matches, by package: before a change and after it.
type aliasSet struct {
	id            int64
	group         resource.UID // of its advisories
	before, after map[int64][]findingdb.Hit
	source        string
}

func newAliasSet(id int64, group resource.UID, source string) *aliasSet {
	return &aliasSet{id: id, group: group, source: source, before: map[int64][]findingdb.Hit{}, after: map[int64][]findingdb.Hit{}}
}

// changed returns the packages that the set affects after, and not before; and the other way
// around.
func (a *aliasSet) changed() (added, removed []int64) {
	for p := range a.after {
		if len(a.before[p]) == 0 {
			added = append(added, p)
		}
	}
	for p := range a.before {
		if len(a.after[p]) == 0 {
			removed = append(removed, p)
		}
	}
	slices.Sort(added)
	slices.Sort(removed)
	return added, removed
}

// tell writes the events of a change of matches, before it is stored.
func (m *Matcher) tell(ctx context.Context, t *store.Tx, c findingdb.Change) error {
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
		w := m.newTeller(t)
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
func (w *teller) change(ctx context.Context, root int64, c findingdb.Change) error {
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
	told := toldOf(news, images, have)
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
	return w.tellSets(ctx, c, sets, toldOf(news, images, have))
}

// setsOf returns the alias sets of a change that affect a package which an image has.
func setsOf(c findingdb.Change, told map[int64]findingdb.Images) map[int64]*aliasSet {
	all := map[int64]*aliasSet{}
	for _, v := range slices.Concat(c.Opened, c.Closed) {
		id := c.Sets.Of(v.Advisory)
		if all[id] == nil && told[v.Package].Len() > 0 {
			all[id] = newAliasSet(id, c.Advisories[v.Advisory].UID.Parent(), c.Source(v.Advisory))
		}
	}
	return all
}

// addHits adds to alias sets what they affect.
func (w *teller) addHits(ctx context.Context, c findingdb.Change, sets map[int64]*aliasSet) error {
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

// toldOf returns which images of an organization have each package, as events told.
func toldOf(news []findingdb.News, images findingdb.Images, have map[int64]findingdb.Images) map[int64]findingdb.Images {
	pending := findingdb.Images{}
	for _, n := range news {
		pending.Add(n.Number)
	}
	told := map[int64]findingdb.Images{}
	for p, of := range have {
		told[p] = of.And(images)
		told[p].Minus(pending)
	}
	for _, n := range news {
		for _, p := range n.Told {
			if told[p] != nil && images.Has(n.Number) {
				told[p].Add(n.Number)
			}
		}
	}
	return told
}

// A story is what happened to an alias set in images which, with its advisories, are in one
// group and not in one below it.
type story struct {
	event    resource.EventType
	at       resource.UID
	set      *aliasSet
	packages []int64 // that the set affects now, or did
	images   findingdb.Images
	score    int64
}

// tellSets writes the events about images for which alias sets were opened, or closed.
func (w *teller) tellSets(
	ctx context.Context, c findingdb.Change, sets map[int64]*aliasSet, told map[int64]findingdb.Images,
) error {
	having := func(packages ...int64) findingdb.Images {
		all := findingdb.Images{}
		for _, p := range packages {
			all.Or(told[p])
		}
		return all
	}
	var all []story
	for _, id := range slices.Sorted(maps.Keys(sets)) {
		a := sets[id]
		added, removed := a.changed()
		opened, closed := having(added...), having(removed...)
		opened.Minus(having(slices.Collect(maps.Keys(a.before))...))
		closed.Minus(having(slices.Collect(maps.Keys(a.after))...))
		for _, s := range []story{
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
func (w *teller) split(ctx context.Context, s story) (all []story, _ error) {
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
func (w *teller) finding(ctx context.Context, c findingdb.Change, s story) (f toldFinding, _ error) {
	called, err := w.db().SetNames(ctx, c.Sets.Parts(s.set.id), maxNames)
	if err != nil {
		return f, err
	}
	known, err := w.db().PackagesByID(ctx, s.packages)
	if err != nil {
		return f, err
	}
	return newToldFinding(s.set.hits(s.event), s.packages, known, c.Advisories, called), nil
}

// tellInSum writes few events about very many: one for the stories that are in one group, by
// advisories of one group, with the worst of them.
func (w *teller) tellInSum(ctx context.Context, c findingdb.Change, all []story) error {
	type key struct {
		event          resource.EventType
		at, advisoryOf resource.UID
	}
	alike := map[key][]story{}
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
		slices.SortStableFunc(some, func(a, b story) int { return cmp.Compare(b.score, a.score) })
		news := vuln.FindingNews{FindingCount: len(some), Group: k.at, AdvisoryGroup: k.advisoryOf, Source: some[0].set.source}
		images := findingdb.Images{}
		for i, s := range some {
			images.Or(s.images)
			news.Pairs += s.images.Len()
			if s.set.source != news.Source {
				news.Source = ""
			}
			if i >= maxTold {
				continue
			}
			f, err := w.finding(ctx, c, s)
			if err != nil {
				return err
			}
			news.Findings = append(news.Findings, f.all())
		}
		found, err := w.db().ImagesByNumber(ctx, images.Numbers(maxTold))
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

// A toldFinding is what events tell of an alias set, with its packages by their numbers.
type toldFinding struct {
	vuln.NewFinding
	packages []int64
	known    map[int64]vuln.NewsPackage
}

// newToldFinding returns what events tell of an alias set that affects packages. called are
// the names of the set, as far as they are stored, and advisories those with newer names.
func newToldFinding(
	hits map[int64][]findingdb.Hit, packages []int64, known map[int64]registry.Package,
	advisories map[int64]findingdb.NamedAdvisory, called []string,
) toldFinding {
	f := toldFinding{packages: packages, known: map[int64]vuln.NewsPackage{}}
	names := slices.Clone(called)
	for _, p := range packages {
		k := known[p]
		var fixed []string
		for _, h := range hits[p] {
			f.Score = max(f.Score, h.Score)
			fixed = append(fixed, h.Fixed...)
			if a, ok := advisories[h.Advisory]; ok {
				names = append(names, a.Names...)
				if f.ID == "" || a.Names[0] < f.ID {
					f.ID = a.Names[0]
				}
			}
		}
		f.known[p] = vuln.NewsPackage{Ecosystem: k.Ecosystem, Name: k.Name, Version: k.Version, PURL: k.PURL,
			Fixed: smallestFix(k, fixed)}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if f.ID == "" && len(names) > 0 { // none of the advisories has changed
		f.ID = names[0]
	}
	for _, name := range names {
		if name != f.ID && len(f.Aliases) < maxNames {
			f.Aliases = append(f.Aliases, clipName(name))
		}
	}
	f.ID = clipName(f.ID)
	return f
}

func clipName(name string) string { return clean(name[:min(len(name), maxNameText)]) }

// in returns what an event tells of the packages for which has is true.
func (f toldFinding) in(has func(int64) bool) vuln.NewFinding {
	v := f.NewFinding
	for _, p := range f.packages {
		if has(p) && len(v.Packages) < maxTold {
			v.Packages = append(v.Packages, f.known[p])
		}
	}
	return v
}

// all returns what an event tells of all packages.
func (f toldFinding) all() vuln.NewFinding { return f.in(func(int64) bool { return true }) }

// smallestFix returns the smallest version that fixes a package and is above its own, or "".
func smallestFix(p registry.Package, fixed []string) (least string) {
	own := p.Version
	if p.SourceName != "" {
		own = cmp.Or(p.SourceVersion, own)
	}
	for _, v := range fixed {
		above, err := version.Compare(p.Ecosystem, v, own)
		if err != nil || above <= 0 {
			continue
		}
		if least == "" {
			least = v
		} else if order, err := version.Compare(p.Ecosystem, v, least); err == nil && order < 0 {
			least = v
		}
	}
	return least
}

// tellImages writes the events about a finding in images: one for each image if there are
// few, otherwise one for each group of their repos, or, if they are very many, one for the
// group of the event.
func (w *teller) tellImages(ctx context.Context, c findingdb.Change, s story, told map[int64]findingdb.Images) error {
	f, err := w.finding(ctx, c, s)
	if err != nil {
		return err
	}
	n := s.images.Len()
	some := n > w.left
	lookUp := n
	if some {
		lookUp = min(n, maxTold)
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
	case some || n > w.single && len(byGroup) > maxTold:
		return w.add(ctx, s.event, s.at, news)
	case n > w.single:
		for _, group := range slices.Sorted(maps.Keys(byGroup)) {
			of := byGroup[group]
			news.Images, news.ImageCount, news.Group = of[:min(len(of), maxTold)], len(of), group
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
	for _, i := range all[:min(len(all), maxTold)] {
		out = append(out, i.NewsImage)
	}
	return out
}

// add adds an event in a group.
func (w *teller) add(ctx context.Context, event resource.EventType, at resource.UID, n vuln.FindingNews) (err error) {
	if n.Owners, err = w.ownersOf(ctx, n.Group, at); err != nil {
		return err
	}
	row, err := w.t.Event(ctx, event, at, at, nil, n)
	w.events = append(w.events, row)
	return err
}

// ownersOf returns the owners of a group, or of the nearest one above it that has some; but
// of none above the group of the event, whose owners those below need not know.
func (w *teller) ownersOf(ctx context.Context, group, at resource.UID) (all []resource.UID, err error) {
	key := [2]resource.UID{group, at}
	if all, ok := w.owners[key]; ok {
		return all, nil
	}
	for g := group; at.Covers(g) && len(all) == 0; g = g.Parent() {
		if all, err = w.db().Owners(ctx, g, resource.OwnerRole, maxTold); err != nil {
			return nil, err
		}
	}
	w.owners[key] = all
	return all, nil
}

// announce writes the events of images whose packages have changed since events told about
// them, most of them because they are new, as soon as all of these packages were compared.
// It reports whether there were any.
func (m *Matcher) announce(ctx context.Context) (did bool, _ error) {
	numbers, err := m.packages.NextNews(ctx, m.nextNews, newsAtOnce)
	if err != nil {
		return false, err
	}
	m.nextNews = 0
	if len(numbers) == newsAtOnce {
		m.nextNews = numbers[newsAtOnce-1] + 1
	}
	if len(numbers) == 0 {
		return false, nil
	}
	err = m.write(ctx, func(t *store.Tx) error {
		did = false
		// Whoever changes the packages of an image has locked its chunk.
		if err := registrydb.In(t).LockChunks(ctx, numbers); err != nil {
			return err
		}
		w := m.newTeller(t)
		news, err := w.db().News(ctx, numbers)
		if err != nil {
			return err
		}
		found, err := w.db().ImagesByNumber(ctx, numbers)
		if err != nil {
			return err
		}
		for _, n := range news {
			if len(w.events) > maxBundles*w.single {
				break // the others have their turn
			}
			ready := true
			if at := slices.IndexFunc(found, func(i findingdb.ImageNumber) bool { return i.Number == n.Number }); at >= 0 {
				if ready, err = w.announce(ctx, n, found[at]); err != nil {
					return err
				}
			}
			if ready { // or gone
				did = true
				if err := w.db().DropNews(ctx, n.Number); err != nil {
					return err
				}
			}
		}
		return t.EmitAll(ctx, w.events)
	})
	return did, err
}

// announce writes the events of one image. It reports whether all packages of the image were
// compared; if not, it writes none.
func (w *teller) announce(ctx context.Context, n findingdb.News, i findingdb.ImageNumber) (ready bool, _ error) {
	ids, ready, err := w.db().Content(ctx, i.NewsImage)
	if err != nil || !ready || n.Quiet {
		return ready, err
	}
	all := slices.Concat(n.Told, ids)
	slices.Sort(all)
	hits, err := w.db().OwnHits(ctx, n.Root, slices.Compact(all))
	if err != nil {
		return false, err
	}
	sets, advisories := map[int64]*aliasSet{}, map[int64]findingdb.NamedAdvisory{}
	for _, h := range hits {
		if sets[h.Set] == nil {
			sets[h.Set] = newAliasSet(h.Set, h.By.UID.Parent(), "image")
		}
		a := sets[h.Set]
		advisories[h.Advisory] = h.By
		if _, ok := slices.BinarySearch(n.Told, h.Package); ok {
			a.before[h.Package] = append(a.before[h.Package], h.Hit)
		}
		if _, ok := slices.BinarySearch(ids, h.Package); ok {
			a.after[h.Package] = append(a.after[h.Package], h.Hit)
		}
	}
	opened, closed := map[resource.UID][]*aliasSet{}, map[resource.UID][]*aliasSet{} // by the group of the advisories
	for _, a := range sets {
		switch {
		case len(a.before) == 0:
			opened[a.group] = append(opened[a.group], a)
		case len(a.after) == 0:
			closed[a.group] = append(closed[a.group], a)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(opened)) {
		if err := w.tellImage(ctx, resource.FindingOpened, group, i, opened[group], advisories); err != nil {
			return false, err
		}
	}
	for _, group := range slices.Sorted(maps.Keys(closed)) {
		if err := w.tellImage(ctx, resource.FindingClosed, group, i, closed[group], advisories); err != nil {
			return false, err
		}
	}
	return true, nil
}

// common returns the lowest group that has both.
func common(a, b resource.UID) resource.UID {
	for !a.Covers(b) {
		a = a.Parent()
	}
	return a
}

// hits returns the matches that an event is about.
func (a *aliasSet) hits(event resource.EventType) map[int64][]findingdb.Hit {
	if event == resource.FindingClosed {
		return a.before
	}
	return a.after
}

// score returns the highest score of matches.
func score(hits map[int64][]findingdb.Hit) (highest int64) {
	for _, all := range hits {
		for _, h := range all {
			highest = max(highest, h.Score)
		}
	}
	return highest
}

// tellImage writes the events about findings of one image by advisories of one group: one for
// each if there are few, otherwise one, with the worst of them.
func (w *teller) tellImage(
	ctx context.Context, event resource.EventType, group resource.UID, i findingdb.ImageNumber, sets []*aliasSet,
	advisories map[int64]findingdb.NamedAdvisory,
) error {
	slices.SortFunc(sets, func(a, b *aliasSet) int {
		return cmp.Or(cmp.Compare(score(b.hits(event)), score(a.hits(event))), cmp.Compare(a.id, b.id))
	})
	n := len(sets)
	if n > w.single {
		sets = sets[:min(n, maxTold)]
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
		findings = append(findings, newToldFinding(a.hits(event), packages, known, advisories, called).all())
	}
	at := common(group, i.Repo.Parent())
	news := vuln.FindingNews{Findings: findings, FindingCount: n, Images: []vuln.NewsImage{i.NewsImage}, ImageCount: 1,
		Pairs: n, Group: i.Repo.Parent(), AdvisoryGroup: group, Source: "image"}
	if n > w.single {
		return w.add(ctx, event, at, news)
	}
	for _, f := range findings {
		news.Findings, news.FindingCount, news.Pairs = []vuln.NewFinding{f}, 1, 1
		if err := w.add(ctx, event, at, news); err != nil {
			return err
		}
	}
	return nil
}
