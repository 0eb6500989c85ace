package finding

import (
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// A View is what the advisories of a group and of the groups above it say about a vulnerability. It counts for the
// images in its group. So a finding of an image has a view for each group above the image that has advisories about the
// vulnerability. The worst of their severities is the severity of the finding, so that an author in a folder cannot
// lower what the advisories above say, and changes nothing elsewhere.
type View struct {
	Group resource.UID
	Names []string // names that the advisories give to the vulnerability
	Rank  int64    // highest rank of the ratings, or 0; see Rank
	other bool     // whether the group has only records that do not affect the package
}

// Has reports whether an advisory of a group belongs to the view. name is a name that it gives to a vulnerability.
func (w View) Has(group resource.UID, name string) bool {
	return group.Covers(w.Group) && slices.Contains(w.Names, name)
}

// ViewsOf returns the views of a vulnerability, without ranks. There is more than one for a group if its advisories do
// not connect all mentions, but advisories of another group do.
func ViewsOf(mentions []Mention, advisories map[int64]vuln.Advisory) (views []View) {
	group := func(m Mention) resource.UID { return advisories[m.Advisory].UID.Parent() }
	var groups []resource.UID
	for _, m := range mentions {
		groups = append(groups, group(m))
	}
	slices.Sort(groups)
	groups = slices.Compact(groups)
	if len(groups) == 1 { // the usual case
		return []View{{Group: groups[0], Names: NamesOf(mentions)}}
	}
	for _, g := range groups {
		above := slices.DeleteFunc(slices.Clone(mentions), func(m Mention) bool { return !group(m).Covers(g) })
		for _, joined := range join(above) {
			if slices.ContainsFunc(joined, func(m Mention) bool { return group(m) == g }) {
				views = append(views, View{Group: g, Names: NamesOf(joined)})
			}
		}
	}
	return views
}

// Places returns the groups whose views count for images in groups or repos. If no advisory at or above a place
// describes the vulnerability, the advisories of all other groups count there.
func Places(views []View, places ...resource.UID) (counted []resource.UID) {
	elsewhere := false
	for _, p := range places {
		if slices.ContainsFunc(views, func(w View) bool { return !w.other && w.Group.Covers(p) }) {
			counted = append(counted, p)
		} else {
			elsewhere = true
		}
	}
	for _, w := range views {
		if elsewhere && !w.other {
			counted = append(counted, w.Group)
		}
	}
	return counted
}

// CountsIn reports whether advisories of a group count in one of several places.
func CountsIn(places []resource.UID, group resource.UID) bool {
	return slices.ContainsFunc(places, group.Covers)
}

// setViews sets the views of a finding, with the ranks of its mentions. All views count.
func (v *Finding) setViews(mentions []Mention, advisories map[int64]vuln.Advisory) {
	v.views = ViewsOf(mentions, advisories)
	for _, w := range v.views {
		v.Claims = append(v.Claims, w.Names)
	}
	for _, m := range mentions {
		group, rank := advisories[m.Advisory].UID.Parent(), Rank(v.Package.Ecosystem, m.Rating)
		v.scores = append(v.scores, groupScore{group, m.Score})
		for i := range v.views {
			if v.views[i].Has(group, m.Names[0]) {
				v.views[i].Rank = max(v.views[i].Rank, rank)
			}
		}
	}
	v.rate()
}

// ViewsIn returns the views of a vulnerability for images in a group or repo. The first n views count. The others count
// only while no advisory of the first views describes the vulnerability.
func ViewsIn(views []View, place resource.UID) (sorted []View, n int) {
	if len(views) == 1 {
		return views, 0
	}
	var rest []View
	for _, w := range views {
		switch {
		case w.Group.Covers(place):
			sorted = append(sorted, w)
		case !w.other:
			rest = append(rest, w)
		}
	}
	return append(sorted, rest...), len(sorted)
}

// Ranks contains the rank of a rating in each of several views. It is -1 for a view to which the rating does not
// belong. Several ratings are combined with Max.
type Ranks []int64

// aboutPackage is added to the rank of a rating by an advisory about the package. Such a rating precedes the ratings of
// other records about the vulnerability. The last digit of the sum is still the severity.
const aboutPackage = 100

// RanksOf returns the ranks of a mention by an advisory of a group, for a package of an ecosystem. The ranks of the
// views, which are the ranks of other records, replace a missing rating.
func RanksOf(views []View, group resource.UID, m Mention, ecosystem string) Ranks {
	rank := Rank(ecosystem, m.Rating)
	if len(views) == 1 && rank > 0 {
		return rated[rank]
	}
	ranks := make(Ranks, len(views))
	for i, w := range views {
		switch {
		case !w.Has(group, m.Names[0]):
			ranks[i] = -1
		case rank > 0:
			ranks[i] = aboutPackage + rank
		default:
			ranks[i] = w.Rank
		}
	}
	return ranks
}

// rated contains the Ranks of ratings if there is only one view, by rank. They are shared, because most findings have
// one view, and a summary has very many findings.
var rated = func() (all [rankVendor + 10]Ranks) {
	for rank := range all {
		all[rank] = Ranks{aboutPackage + int64(rank)}
	}
	return all
}()

// Max returns the higher rank for each view. A nil Ranks is like one with no ratings.
func (r Ranks) Max(o Ranks) Ranks {
	if len(r) < 2 {
		return slices.MaxFunc([]Ranks{r, o}, slices.Compare[Ranks])
	}
	higher := make(Ranks, len(r))
	for i := range r {
		higher[i] = max(r[i], o[i])
	}
	return higher
}

// Severity returns the worst severity of the first n views or, if no rating belongs to them, of the others.
func (r Ranks) Severity(n int) Severity {
	if i := r.decisive(n); i >= 0 {
		return SeverityOfRank(r[i])
	}
	return SeverityUnknown
}

// decisive returns the index of the view that decides Severity(n), or -1 if there is none.
func (r Ranks) decisive(n int) int {
	found := -1
	for i, rank := range r {
		if i == n && found >= 0 {
			break
		}
		if rank >= 0 && (found < 0 || SeverityOfRank(rank) > SeverityOfRank(r[found])) {
			found = i
		}
	}
	return found
}

// A groupScore is a CVSS score in tenths, in an advisory of a group.
type groupScore struct {
	group resource.UID
	score int64
}

// RateIn sets the severity that a finding has in images of groups or repos: the worst in one of them. Advisories of
// other groups do not count. Before RateIn, all advisories count.
func (v *Finding) RateIn(places ...resource.UID) {
	v.places = Places(v.views, places...)
	v.rate()
	v.AddRatings(nil)
}

// RateAs sets the severity that the advisories of a group and of the groups above it give together, so that their
// highest rating counts, and not the worst of the views. All of the finding's advisories must be from these groups.
func (v *Finding) RateAs(group resource.UID) {
	view := View{Group: group, Names: v.Names()}
	for _, w := range v.views {
		view.Rank = max(view.Rank, w.Rank)
	}
	v.views, v.places = []View{view}, []resource.UID{group}
	v.rate()
}

// SeverityIn returns the severity that a finding has in images of a group or repo.
func (v Finding) SeverityIn(place resource.UID) Severity {
	return severityOf(v.views, Places(v.views, place))
}

// counts reports whether the advisories of a group count for the severity.
func (v Finding) counts(group resource.UID) bool { return v.places == nil || CountsIn(v.places, group) }

// rate sets the severity and the score by the views that count.
func (v *Finding) rate() {
	v.Severity, v.SeveritySource, v.Score = severityOf(v.views, v.places), "", 0
	for _, s := range v.scores {
		if v.counts(s.group) {
			v.Score = max(v.Score, float64(s.score)/10)
		}
	}
}

// severityOf returns the worst severity of the views that count in places. nil means that all count.
func severityOf(views []View, places []resource.UID) (worst Severity) {
	for _, w := range views {
		if places == nil || CountsIn(places, w.Group) {
			worst = max(worst, SeverityOfRank(w.Rank))
		}
	}
	return worst
}

// Unrated reports whether one of the views gives no severity. Then other records about the vulnerability count; see
// Records.Complete.
func (v Finding) Unrated() bool {
	return slices.ContainsFunc(v.views, func(w View) bool { return w.Rank == 0 })
}

// Groups calls use with each group that has a view of the finding.
func (v Finding) Groups(use func(resource.UID)) {
	for _, w := range v.views {
		use(w.Group)
	}
}

// Views returns views with the ratings of records. A view without a rating gets the highest rank of the records in its
// group and the groups above. Records of a group below have a view of their own, if the advisories in between give no
// rating.
func (r Records) Views(views []View) []View {
	known := len(views)
	for _, w := range views[:known] {
		if w.Rank > 0 {
			continue
		}
		var below []resource.UID
		for _, name := range w.Names {
			for _, a := range r[name] {
				if group := a.UID.Parent(); group != w.Group && w.Group.Covers(group) && !slices.Contains(below, group) {
					below = append(below, group)
				}
			}
		}
		for _, group := range below {
			if !replaced(views[:known], w, group) {
				views = append(views, View{Group: group, Names: w.Names, other: true})
			}
		}
	}
	for i, w := range views {
		if w.Rank == 0 {
			views[i].Rank = r.rank(w)
		}
	}
	return views
}

// replaced reports whether a view of a group between w and a group below it contains the vulnerability of w.
func replaced(views []View, w View, group resource.UID) bool {
	return slices.ContainsFunc(views, func(x View) bool {
		return x.Group != w.Group && w.Group.Covers(x.Group) && x.Group.Covers(group) &&
			slices.ContainsFunc(x.Names, func(name string) bool { return slices.Contains(w.Names, name) })
	})
}

// rank returns the highest rank of the ratings in records that count for a view, or 0. See the function Rank.
func (r Records) rank(w View) (rank int64) {
	for _, name := range w.Names {
		for _, a := range r[name] {
			if !a.UID.Parent().Covers(w.Group) {
				continue
			}
			for _, rating := range RatingsOf(a, "", a.ArtifactName) {
				rank = max(rank, rating.rank())
			}
		}
	}
	return rank
}
