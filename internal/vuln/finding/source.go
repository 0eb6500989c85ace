package finding

import (
	"cmp"
	"slices"
)

// A Source says who decided the severity of a finding. Author is the author of a record that is not about the package.
// Otherwise Advisories contains the keys of the advisories that decided it, and their first author by name is the
// source. Both are empty if the severity is unknown.
type Source struct {
	Author     string
	Advisories []int64

	rank, score int64 // highest rank that was added, and the highest score of the ratings with that rank
}

// Add adds the rating of an advisory for a package. The ratings with the worst severity decide. If there are several,
// those with the highest rank decide, and of several scores the highest.
func (s *Source) Add(rank, score, advisory int64) {
	if SeverityOfRank(rank) == SeverityUnknown {
		return
	}
	if rank < rankScore || rank >= rankVendor {
		score = 0 // the rank is about the word
	}
	switch s.compare(rank, score) {
	case 1:
		s.rank, s.score, s.Advisories = rank, score, []int64{advisory}
	case 0:
		if !slices.Contains(s.Advisories, advisory) {
			s.Advisories = append(s.Advisories, advisory)
		}
	}
}

// compare returns 1 if a rating precedes the ones that were added, 0 if it is equal, and -1 otherwise.
func (s *Source) compare(rank, score int64) int {
	return cmp.Or(cmp.Compare(SeverityOfRank(rank), SeverityOfRank(s.rank)), cmp.Compare(rank, s.rank),
		cmp.Compare(score, s.score))
}

// Name returns the source by the authors of advisories, or "" if it is not known.
func (s *Source) Name(authors map[int64]string) string {
	first := s.Author
	for _, key := range s.Advisories {
		if name := authors[key]; name != "" && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// A Rated is the rating of a finding by one advisory: its rank in each view, and its CVSS score in tenths.
type Rated struct {
	Advisory, Score int64
	Ranks           Ranks
}

// SourceOf returns the source of the severity that ratings give together. n is the number of views that count; see
// ViewsIn.
func (r Records) SourceOf(views []View, n int, ratings []Rated) (s Source) {
	var all Ranks
	for _, v := range ratings {
		all = all.Max(v.Ranks)
	}
	i := all.decisive(n)
	if i < 0 || SeverityOfRank(all[i]) == SeverityUnknown {
		return s
	}
	if all[i] < aboutPackage {
		s.Author = r.author(views[i], all[i])
		return s
	}
	for _, v := range ratings {
		if v.Ranks[i] == all[i] {
			s.Add(all[i]-aboutPackage, v.Score, v.Advisory)
		}
	}
	return s
}

// author returns the author of the record that gives a view its rank. Of several, it is the one with the highest score,
// and then the first by name.
func (r Records) author(w View, rank int64) string {
	var best Rating
	for _, name := range w.Names {
		for _, a := range r[name] {
			if !a.UID.Parent().Covers(w.Group) {
				continue
			}
			for _, v := range RatingsOf(a, "", a.ArtifactName) {
				if v.rank() == rank && (best.Severity == 0 || v.Score > best.Score ||
					v.Score == best.Score && v.Source < best.Source) {
					best = v
				}
			}
		}
	}
	return best.Source
}
