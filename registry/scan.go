package registry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/registry/evidence"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

const (
	maxReports = 100 // of one image
	maxCopies  = 20  // repos that are searched for the reports of a digest
	maxImages  = 50  // that a tag has pointed to and whose reports are counted
)

// An SBOM is what an image is made of, and the document that says so.
type SBOM struct {
	evidence.SBOM
	Attached
	Image string // the digest of the image, which of an index is one of its own
}

// SBOM reads the newest SBOM that is attached to an image: of an index, to its
// image for an architecture, or else amd64. The caller needs repo.list,
// sboms.list and manifest.metadata.list on the repo. It returns fault.NotFound if
// there is none, and fault.FailedPrecondition if there is one that is too large.
func (s *Service) SBOM(ctx context.Context, repo resource.UID, digest, architecture string) (SBOM, error) {
	if err := s.requireAll(ctx, repo, resource.RepoList, resource.SBOMsList, resource.ManifestMetadataList); err != nil {
		return SBOM{}, err
	}
	if err := s.images.turn(ctx); err != nil {
		return SBOM{}, err
	}
	return s.sbom(ctx, repo, digest, architecture, &budget{maxEvidence})
}

// RawSBOM is SBOM for who wants the document alone. The caller needs repo.list
// and sboms.list.
func (s *Service) RawSBOM(ctx context.Context, repo resource.UID, digest, architecture string) (Attached, error) {
	if err := s.requireAll(ctx, repo, resource.RepoList, resource.SBOMsList); err != nil {
		return Attached{}, err
	}
	if err := s.images.turn(ctx); err != nil {
		return Attached{}, err
	}
	found, err := s.sbom(ctx, repo, digest, architecture, &budget{maxEvidence})
	return found.Attached, err
}

func (s *Service) sbom(ctx context.Context, repo resource.UID, digest, architecture string, b *budget) (out SBOM, _ error) {
	if err := validDigest(digest); err != nil {
		return SBOM{}, err
	}
	subjects, err := s.images.subjects(ctx, repo, digest, architecture)
	if err != nil {
		return SBOM{}, err
	}
	take := func(d evidence.Document) bool {
		if !d.Format.Lists() {
			return false
		}
		var err error
		out.SBOM, err = d.SBOM()
		return err == nil
	}
	large := false
	for _, sub := range subjects {
		all, err := s.images.attached(ctx, repo, sub, 1, b, take)
		if err != nil {
			return SBOM{}, err
		}
		if len(all.found) == 1 {
			out.Attached, out.Image = all.found[0], sub.image.Digest
			return out, nil
		}
		large = large || all.large
	}
	return SBOM{}, nothing(large, "SBOM", digest)
}

// nothing says why no document was found.
func nothing(large bool, what, digest string) error {
	if large {
		return fault.Unmet("DOCUMENT_TOO_LARGE", "the documents attached to %s are larger than %d MiB, or %d MiB together", digest, evidence.MaxDocument>>20, maxEvidence>>20)
	}
	no := fault.Missing(what, digest)
	no.Message = "Not found: no " + what + " is attached to " + digest
	return no
}

func validDigest(digest string) error {
	if !resource.ValidDigest(digest) {
		return fault.Field("digest", "is not sha256: and 64 digits, or sha512: and 128")
	}
	return nil
}

// Packages returns what images are made of, each named by a digest and, for an
// index, an architecture. Those without an SBOM are left out. The caller needs
// manifest.metadata.list on the repo.
func (s *Service) Packages(ctx context.Context, repo resource.UID, images []ImageOf) ([]SBOM, error) {
	if err := s.requireAll(ctx, repo, resource.ManifestMetadataList); err != nil {
		return nil, err
	}
	if len(images) > maxImages {
		return nil, fault.Field("items", "must be at most %d", maxImages)
	}
	if err := s.images.turn(ctx); err != nil {
		return nil, err
	}
	var all []SBOM
	b := &budget{maxEvidence}
	for _, i := range images {
		found, err := s.sbom(ctx, repo, i.Digest, i.Architecture, b)
		if errors.Is(err, fault.NotFound) {
			if _, gone := s.store.StatManifest(ctx, repo, i.Digest); gone != nil {
				return nil, gone
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	return all, nil
}

// An ImageOf names an image, or the one of an index for an architecture.
type ImageOf struct{ Digest, Architecture string }

// Manifests returns up to n digests of what a repo holds after last. The caller
// needs manifest.metadata.list on it.
func (s *Service) Manifests(ctx context.Context, repo resource.UID, last string, n int) ([]string, error) {
	if err := s.requireAll(ctx, repo, resource.ManifestMetadataList); err != nil {
		return nil, err
	}
	return s.store.ManifestDigests(ctx, repo, last, n)
}

// CountManifests returns how many different manifests there are in a repo, or in
// the repos below a group. The caller needs manifest.metadata.list on it.
func (s *Service) CountManifests(ctx context.Context, place resource.UID) (int64, error) {
	if err := s.authz.Require(ctx, resource.ManifestMetadataList, place); err != nil {
		return 0, err
	}
	_, err := s.store.Repo(ctx, place)
	if errors.Is(err, fault.NotFound) {
		_, err = s.store.Group(ctx, place)
	}
	if err != nil {
		return 0, err
	}
	return s.store.CountManifests(ctx, place)
}

// A Report is what a scanner found in an image, and the document that says so.
type Report struct {
	evidence.Report
	Attached
	Image string // the digest that was asked for
}

// When is the time a report is of: when the scanner looked, or else when its
// document was attached.
func (r Report) When() time.Time {
	if r.Report.Time.IsZero() {
		return r.Attached.Time
	}
	return r.Report.Time
}

// ImageReport returns the newest report that is attached to an image. The caller
// needs repo.list and vuln_reports.list on the repo. Its faults are those of
// SBOM.
func (s *Service) ImageReport(ctx context.Context, repo resource.UID, digest string) (Report, error) {
	if err := s.requireAll(ctx, repo, resource.RepoList, resource.ImageReportsList); err != nil {
		return Report{}, err
	}
	if err := s.images.turn(ctx); err != nil {
		return Report{}, err
	}
	all, err := s.reports(ctx, repo, digest)
	if err != nil {
		return Report{}, err
	}
	return all[0], nil
}

// reports returns the reports attached to an image, the newest first and as many
// as one answer may read, or fault.NotFound if there is none.
func (s *Service) reports(ctx context.Context, repo resource.UID, digest string) ([]Report, error) {
	if err := validDigest(digest); err != nil {
		return nil, err
	}
	subjects, err := s.images.subjects(ctx, repo, digest, "")
	if err != nil {
		return nil, err
	}
	var all []Report
	large, b := false, &budget{maxEvidence}
	for _, sub := range subjects {
		var read []evidence.Report
		got, err := s.images.attached(ctx, repo, sub, maxReports, b, func(d evidence.Document) bool {
			if d.Format.Lists() {
				return false
			}
			r, err := d.Report()
			if err != nil {
				return false
			}
			read = append(read, r)
			return true
		})
		if err != nil {
			return nil, err
		}
		for i, a := range got.found {
			all = append(all, Report{read[i], a, digest})
		}
		large = large || got.large
	}
	if len(all) == 0 {
		return nil, nothing(large, "report of a scanner", digest)
	}
	slices.SortStableFunc(all, func(a, b Report) int { return b.When().Compare(a.When()) })
	return all, nil
}

// Reports returns the reports attached to an image, the newest first, and none
// if there are none: of a digest, wherever the caller holds vuln_report.list, or
// if that is "" of a tag of a repo. It returns fault.NotFound if there is no such
// image in reach.
func (s *Service) Reports(ctx context.Context, digest string, repo resource.UID, tag string) ([]Report, error) {
	under, err := s.authz.Reach(ctx, resource.ReportsList)
	if err != nil {
		return nil, err
	}
	if digest == "" {
		if digest, err = s.tagged(ctx, repo, tag); err != nil {
			return nil, err
		}
		if err := s.images.turn(ctx); err != nil {
			return nil, err
		}
		return none(s.reports(ctx, repo, digest))
	}
	if err := validDigest(digest); err != nil {
		return nil, err
	}
	if err := s.images.turn(ctx); err != nil {
		return nil, err
	}
	repos, err := s.store.ReposWith(ctx, store.Reach{Under: under}, digest, maxCopies)
	if err != nil {
		return nil, err
	}
	if len(repos) == 0 {
		return nil, fault.Missing("image", digest)
	}
	for _, repo := range repos { // a copy has what was copied with it, so the first that has any will do
		all, err := none(s.reports(ctx, repo, digest))
		if err != nil || len(all) > 0 {
			return all, err
		}
	}
	return nil, nil
}

// none is an empty list where nothing was found.
func none(all []Report, err error) ([]Report, error) {
	if errors.Is(err, fault.NotFound) {
		return nil, nil
	}
	return all, err
}

// tagged returns the digest that a tag of a repo points to.
func (s *Service) tagged(ctx context.Context, repo resource.UID, tag string) (string, error) {
	if err := s.requireAll(ctx, repo, resource.ReportsList); err != nil {
		return "", err
	}
	if !resource.ValidTag(tag) {
		return "", fault.Field("tag", "is not a name that a tag can have")
	}
	m, err := s.store.StatManifest(ctx, repo, tag)
	return m.Digest, err
}

// A Tally is how much a report found in an image that a tag has pointed to.
type Tally struct {
	Repo, Tag string
	Time      time.Time
	Size      int64
	Found     map[evidence.Severity][]string // ids, sorted, each once and under its worst
}

// Tallies counts the reports on the images that a tag has pointed to between two
// times, either of which may be zero, the oldest first. cumulative adds to each
// what the ones before it found. The repo is given by its name or by its path;
// of a name, every repo counts on which the caller holds vuln_report.list.
func (s *Service) Tallies(ctx context.Context, repo, tag string, from, to time.Time, cumulative bool) ([]Tally, error) {
	under, err := s.authz.Reach(ctx, resource.ReportsList)
	if err != nil {
		return nil, err
	}
	if !resource.ValidTag(tag) {
		return nil, fault.Field("tag", "is not a name that a tag can have")
	}
	named, err := s.named(ctx, under, repo)
	if err != nil {
		return nil, err
	}
	if err := s.images.turn(ctx); err != nil {
		return nil, err
	}
	var all []Tally
	for _, r := range named {
		findings, err := s.history(ctx, r.UID, tag, from, to)
		if err != nil {
			return nil, err
		}
		found := map[string]evidence.Severity{}
		for _, f := range findings {
			if !cumulative {
				clear(found)
			}
			for id, severity := range f.found {
				note(found, id, severity)
			}
			all = append(all, Tally{Repo: repo, Tag: tag, Time: f.when, Size: f.size, Found: bySeverity(found)})
		}
	}
	slices.SortStableFunc(all, func(a, b Tally) int { return a.Time.Compare(b.Time) })
	return all, nil
}

// note keeps the worst that is said of a vulnerability.
func note(found map[string]evidence.Severity, id string, severity evidence.Severity) {
	if was, seen := found[id]; !seen || worse(severity, was) {
		found[id] = severity
	}
}

// bytes is the size of an image, or 0 if it cannot be told.
func (r *Registry) bytes(ctx context.Context, repo resource.UID, digest string) (int64, error) {
	image, err := r.Image(ctx, repo, digest)
	if err != nil {
		return 0, err
	}
	v, err := choose(image, "")
	if errors.Is(err, fault.NotFound) {
		err = nil
	}
	return v.Size, err
}

// worse orders severities: the last number is the second least.
func worse(a, b evidence.Severity) bool {
	rank := func(s evidence.Severity) int {
		return slices.Index([]evidence.Severity{evidence.Unknown, evidence.Negligible, evidence.Low, evidence.Medium, evidence.High, evidence.Critical}, s)
	}
	return rank(a) > rank(b)
}

func bySeverity(found map[string]evidence.Severity) map[evidence.Severity][]string {
	out := map[evidence.Severity][]string{}
	for id, s := range found {
		out[s] = append(out[s], id)
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out
}

// named returns the repos that a name or a path means.
func (s *Service) named(ctx context.Context, under []resource.UID, repo string) ([]resource.Repo, error) {
	f := resource.Filter{Name: repo}
	if repo == "" || f.Validate() != nil {
		return nil, fault.Field("repo", "must be the name of a repo, or its path")
	}
	if strings.Contains(repo, "/") {
		uid, err := s.store.RepoAt(ctx, strings.Split(repo, "/"))
		no := fault.Missing("repo", printed(repo))
		if err == nil {
			err = s.authz.Require(ctx, resource.ReportsList, uid)
		}
		return []resource.Repo{{UID: uid}}, hidden(err, no)
	}
	got, err := page.Read(ctx, s.pages, repoList, store.Reach{Under: under}, f, page.Params{Size: maxCopies}, s.store.Repos)
	return got.Items, err
}

// A finding is what of a report counts.
type finding struct {
	when  time.Time
	size  int64 // of the image
	found map[string]evidence.Severity
}

// history returns what the reports between two times found in the images a tag
// has pointed to, the oldest first, each image once. It keeps no report for
// longer than it reads it.
func (s *Service) history(ctx context.Context, repo resource.UID, tag string, from, to time.Time) ([]finding, error) {
	moves, err := s.store.TagHistory(ctx, repo, tag, page.Request{Size: page.MaxSize, Order: page.Order{Field: "time", Desc: true}})
	if err != nil {
		return nil, err
	}
	var all []finding
	seen := map[string]bool{"": true} // no image: the tag was deleted
	for _, m := range moves.Items {
		if seen[m.Digest] || len(seen) > maxImages {
			continue
		}
		seen[m.Digest] = true
		reports, err := none(s.reports(ctx, repo, m.Digest))
		if err != nil {
			return nil, err
		}
		for _, r := range reports {
			if r.When().Before(from) || !to.IsZero() && r.When().After(to) {
				continue
			}
			f := finding{when: r.When(), found: map[string]evidence.Severity{}}
			if f.size, err = s.images.bytes(ctx, repo, r.Image); err != nil {
				return nil, err
			}
			for _, match := range r.Matches {
				note(f.found, match.ID, match.Severity)
			}
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b finding) int { return a.when.Compare(b.when) })
	return all, nil
}
